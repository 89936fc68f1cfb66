"""Who should be taken out of service, as a file for whoever does it: a node and the reason a line.

    node17 rackproof RUN: node17 rail 3 transmit: rail 3 of node17 sends 10.4 % slower than its peers ...

Only suspects that are one node's, confirmed by a re-test or by exact data; an uplink, a rack or a cable is for people
to decide. Scheduler and site decide what a line does: `while read -r node why; do scontrol update nodename=$node
state=drain reason="$why"; done < FILE`, or `python -m suites.drain RUN`, which keeps bounds.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from reports import runs
from reports.culprits import told
from reports.runs import StoredRun

LONGEST = 200  # characters of a reason: schedulers cut longer ones


def lines(stored: StoredRun) -> list[str]:
    """A line for every accused node, in the order of the suspects; [] where no single node is accused."""
    found: dict[str, str] = {}
    for s in told(stored).get("suspects", ()):
        if len(s["nodes"]) == 1:
            reason = f"rackproof {stored.run.id}: {s['title']}: {s['evidence']}"
            found.setdefault(s["nodes"][0], " ".join(reason.split())[:LONGEST])
    return [f"{node} {reason}" for node, reason in found.items()]


def write(stored: StoredRun, path: Path) -> Path:
    """Write the file, empty where nobody is accused. OSError where it cannot be."""
    path.write_text("".join(f"{line}\n" for line in lines(stored)), encoding="utf-8")
    return path


def add_parser(commands: Any) -> None:
    """`python -m reports drain-file RUN`."""
    words = "who is to blame, for a scheduler: a node and the reason a line"
    one = commands.add_parser("drain-file", help=words, description=words)
    one.add_argument("run", help="a run folder")
    one.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to write it (RUN/drain.txt)")
    one.set_defaults(command=_command)


def _command(options: argparse.Namespace) -> int:
    """Write the file and say where it is; 0 whether or not anybody is accused."""
    stored = runs.load(options.run)
    print(write(stored, stored.view(options.output or stored.folder / "drain.txt")))
    return 0
