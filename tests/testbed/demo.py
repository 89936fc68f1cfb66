"""A demonstration: a link that is 10 % slow, somewhere among eight hosts, and the campaign that names it.

    make demo-fault                      # a random host and direction
    make demo-fault ARGS="--seed 7 --kind slow_receive --amount 0.2"
    make demo-fault ARGS="--clean"       # no fault: nobody may be accused

Needs root: the hosts are network namespaces of this machine, real ranks talk over real, shaped links. Ends with
the suspect, the planted truth and the path of the page. Exit status 0: named rightly, 1: not, 4: cannot run here.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reports import runs
from reports.culprits import told
from tests.testbed import campaign
from tests.testbed.bed import Bed
from tests.testbed.faults import Fault, planted
from tests.testbed.namespaces import BedError

ROOT = Path(__file__).parent.parent.parent
HOSTS, RATE_MBIT = 8, 100
SETTINGS = """
[links]
bandwidth_sizes = [131072]
both_ways = false
flows = []
congestion = false
passes = 2

[limits.exact_elements]
metric = "links.wrong_elements"
unit = "1"
equal = 0
source = "definition: what arrives is what was sent"

[limits.no_suspects]
metric = "links.suspects"
unit = "1"
equal = 0
source = "definition: of a healthy fabric no element stays behind its peers"
"""


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a campaign on the bed said."""

    titles: tuple[str, ...]
    code: int
    output: str
    page: Path


def search(bed: Bed, *faults: Fault, run_dir: Path, show: bool = False) -> Told:
    """A whole campaign of the fabric suite on a bed with these faults planted."""
    cluster = campaign.cluster_file(bed, settings=SETTINGS)
    words = [
        sys.executable, "-m", "pytest", "-p", "tests.testbed.campaign", "suites", "--suite", "fabric",
        "--cluster", str(cluster), "--launcher", "testbed", "--run-dir", str(run_dir),
    ]  # fmt: skip
    env = {**os.environ, **campaign.variables(bed), "CUDA_VISIBLE_DEVICES": ""}
    before = runs.newest(run_dir)
    with planted(bed, *faults):
        done = subprocess.run(
            words, cwd=ROOT, env=env, text=True, stdout=None if show else subprocess.PIPE, stderr=subprocess.STDOUT
        )
    newest = runs.newest(run_dir)
    folder = newest if newest != before else None  # a campaign that was refused made none
    found = told(runs.load(folder)).get("suspects", ()) if folder else ()
    titles = tuple(str(s["title"]) for s in found)
    return Told(titles=titles, code=done.returncode, output=done.stdout or "", page=(folder or run_dir) / "index.html")


def truth(fault: Fault) -> str:
    """The title that a suspect must have to name a slow link of the bed rightly."""
    direction = {"slow_transmit": "transmit", "slow_receive": "receive"}.get(fault.kind, "")
    return f"node{fault.host} rail {fault.rail} {direction}".strip()


def main(argv: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit status."""
    assert __doc__
    parser = argparse.ArgumentParser(
        prog="make demo-fault", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=None, help="chooses host and direction (random)")
    parser.add_argument("--kind", choices=("slow_transmit", "slow_receive"), default=None, help="the fault (random)")
    parser.add_argument("--amount", type=float, default=0.1, help="how much slower, as a share (0.1)")
    parser.add_argument("--clean", action="store_true", help="plant nothing")
    parser.add_argument("--run-dir", type=Path, default=ROOT / "runs", help="where the run folder is made (runs)")
    asked = parser.parse_args(argv)
    dice = random.Random(asked.seed)
    kind = asked.kind or dice.choice(("slow_transmit", "slow_receive"))
    fault = Fault(kind=kind, host=dice.randrange(HOSTS), amount=asked.amount)
    try:
        with contextlib.ExitStack() as stack:
            bed = stack.enter_context(Bed(hosts=HOSTS, rate_mbit=RATE_MBIT))
            found = search(bed, *([] if asked.clean else [fault]), run_dir=asked.run_dir, show=True)
    except BedError as error:
        print(f"demo-fault: {error}", file=sys.stderr)
        return 4
    expected = () if asked.clean else (truth(fault),)
    print(f"\nplanted:  {'nothing' if asked.clean else fault}")
    print(f"accused:  {', '.join(found.titles) or 'nobody'}")
    print(f"named {'rightly' if found.titles == expected else 'WRONGLY'}; page: {found.page}")
    return 0 if found.titles == expected else 1


if __name__ == "__main__":
    sys.exit(main())
