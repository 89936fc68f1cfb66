"""`promote`, `baseline`: a run becomes what later ones are held against; who, when and why are kept.

python -m reports promote runs/2026-12-01 --by "A. Lovelace" --why "accepted, new firmware"
python -m reports baseline --history runs
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tabulate import tabulate

from reports import pins, runs


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register `promote` and `baseline`."""
    words = "make an accepted run the baseline of its cluster and suite"
    parser = commands.add_parser("promote", help=words, description=words)
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("--by", required=True, metavar="NAME", help="who decides it")
    parser.add_argument("--why", required=True, metavar="TEXT", help="the reason, for whoever asks later")
    parser.set_defaults(command=_promote)
    words = "list the baselines, the latest of each cluster and suite marked"
    parser = commands.add_parser("baseline", help=words, description=words)
    parser.add_argument("--history", type=Path, default=Path("runs"), metavar="DIR", help="a folder of runs (runs)")
    parser.set_defaults(command=_list)


def _promote(options: argparse.Namespace) -> int:
    pin = pins.promote(runs.load(options.run), by=options.by, why=options.why)
    print(f"{pin.run} is the baseline of {pin.cluster} {pin.suite}, by {pin.by}: {pin.why}")
    return 0


def _list(options: argparse.Namespace) -> int:
    found = pins.pins(options.history)
    latest = {(pin.cluster, pin.suite): pin for pin in found}
    rows = [
        (
            "now" if latest[pin.cluster, pin.suite] is pin else "",
            pin.cluster,
            pin.suite,
            pin.run if runs.is_run(options.history / pin.run) else f"{pin.run} (gone)",
            pin.at[:16].replace("T", " "),
            pin.by,
            pin.why,
        )
        for pin in reversed(found)
    ]
    head = ("", "cluster", "suite", "run", "when", "who", "why")
    print(tabulate(rows, headers=head, tablefmt="simple", disable_numparse=True) if rows else "no baseline is pinned")
    return 0
