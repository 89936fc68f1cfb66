"""Take suspect nodes out of Slurm's hands, and give back those that we took: on request, and within bounds.

    python -m suites.drain RUN                  # drain the confirmed suspects of a run
    python -m suites.drain RUN --undrain        # give back what that run drained, and nothing else

Only nodes that failed a mandatory limit twice (in two attempts) or by a check of their own are suspects here. The
reason begins with the run's id, which is how a node is known as ours later. Never more than `--max-drain` of the
partition: where half a cluster looks bad, the measurement is.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from benchmarks.measurement import Verdict
from reports import runs
from suites import nodes, slurm
from suites.slurm import NodeState, SlurmError

MAX_DRAIN = 0.10
MARK = "rackproof "


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A node that a run accuses, and of what."""

    node: str
    reason: str


def suspects(verdicts: Sequence[Verdict], names: Sequence[str]) -> list[Suspect]:
    """The confirmed suspects among `names`: a mandatory fail of exactly that node, seen in more than one attempt.

    A fail of the world, of a pair or of a rank whose node is not known accuses nobody here: that is for the search.
    """
    found: dict[str, str] = {}
    for v in verdicts:
        node = str(v.evidence.get("node", "")) or v.subject
        if v.status == "fail" and v.mandatory and v.attempts > 1 and node in names:
            found.setdefault(node, f"{v.check}: {v.reason}")
    return [Suspect(node=node, reason=reason) for node, reason in sorted(found.items())]


def drain(run_id: str, accused: Sequence[Suspect], *, max_share: float = MAX_DRAIN, partition: str = "") -> list[str]:
    """Drain the accused; one line for each node, said after it was done.

    Raises ValueError, and drains nobody, where they are more than `max_share` of the partition.
    """
    known = slurm.nodes(partition=partition)
    most = max(1, math.floor(len(known) * max_share))
    if len(accused) > most:
        raise ValueError(
            f"{len(accused)} of {len(known)} nodes accused ({nodes.fold(s.node for s in accused)}), at most {most} may "
            "be drained: look at the measurement first, or raise --max-drain"
        )
    states = {state.name: state for state in known}
    lines = []
    for suspect in accused:
        state = states.get(suspect.node)
        if state is None:
            lines.append(f"{suspect.node}: not a node of this Slurm")
        elif state.trouble:
            lines.append(f"{suspect.node}: left as it is, {state.trouble}")
        else:
            reason = f"{MARK}{run_id}: {suspect.reason}"[:200]
            slurm.ask("scontrol", "update", f"nodename={suspect.node}", "state=drain", f"reason={reason}")
            lines.append(f"{suspect.node}: drained ({reason})")
    return lines


def undrain(run_id: str, *, partition: str = "") -> list[str]:
    """Give back the nodes that this run drained; one line for each. Others' drains are not touched."""
    lines = []
    for state in slurm.nodes(partition=partition):
        if is_ours(state, run_id):
            slurm.ask("scontrol", "update", f"nodename={state.name}", "state=resume")
            lines.append(f"{state.name}: back in service")
    return lines


def is_ours(state: NodeState, run_id: str) -> bool:
    """Whether a node is drained, and by that run."""
    return "DRAIN" in state.states and state.reason.startswith(f"{MARK}{run_id}:")


def main(words: Sequence[str] | None = None) -> int:
    """Drain, or give back. Returns 0; 4 where it was refused."""
    parser = argparse.ArgumentParser(prog="python -m suites.drain", description="drain the suspects of a run")
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("--undrain", action="store_true", help="give back what this run drained")
    parser.add_argument("--max-drain", type=float, default=MAX_DRAIN, metavar="SHARE", help="of the partition (0.1)")
    parser.add_argument("--partition", default="")
    asked = parser.parse_args(words)
    try:
        stored = runs.load(asked.run)
        if asked.undrain:
            lines = undrain(stored.run.id, partition=asked.partition)
        else:
            names = [n for e in stored.events if e.kind == "nodes" for n in e.detail["hosts"]]
            accused = suspects(stored.verdicts(today=date.today()), names)
            lines = drain(stored.run.id, accused, max_share=asked.max_drain, partition=asked.partition)
    except (ValueError, SlurmError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 4
    print("\n".join(lines) or "no node to drain or give back")
    return 0


if __name__ == "__main__":
    sys.exit(main())
