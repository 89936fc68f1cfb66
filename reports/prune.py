"""`prune`: which old runs may go. Shows what it would remove; removes only with --yes.

A pinned baseline and the newest runs of every cluster and suite are kept, and so is every run that cannot be read:
what is broken is looked at, not swept away.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from reports import index, pins, runs
from reports.runs import RunError

KEEP = 60


def prunable(root: Path, *, keep: int) -> list[Path]:
    """Run folders that may go: all but the `keep` newest of each cluster and suite and the pinned ones."""
    if keep < 1:
        raise RunError("--keep must be at least 1: a folder without runs has no history")
    if not root.is_dir():
        raise RunError(f"{root}: no such folder of runs")
    kinds: dict[tuple[str, str], list[tuple[datetime, Path]]] = defaultdict(list)
    for folder in sorted(path for path in root.iterdir() if runs.is_run(path) and not path.is_symlink()):
        with contextlib.suppress(RunError):
            run = runs.head(folder)
            kinds[run.cluster, run.suite].append((runs.moment(run.started_at), folder))
    old = [folder for found in kinds.values() for _, folder in sorted(found)[:-keep]]
    return [folder for folder in old if not pins.exists(root, folder.name)]


def remove(folders: Sequence[Path]) -> None:
    """Remove run folders and their index."""
    for folder in folders:
        shutil.rmtree(folder)
        index.path_of(folder).unlink(missing_ok=True)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register `prune`."""
    words = "remove old runs; baselines and the newest of each cluster and suite stay"
    parser = commands.add_parser("prune", help=words, description=words)
    parser.add_argument("--history", type=Path, default=Path("runs"), metavar="DIR", help="a folder of runs (runs)")
    parser.add_argument(
        "--keep", type=int, default=KEEP, metavar="N", help=f"newest runs to keep of each kind ({KEEP})"
    )
    parser.add_argument("--yes", action="store_true", help="remove them; without it they are only listed")
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    folders = prunable(options.history, keep=options.keep)
    if options.yes:
        remove(folders)
    print("\n".join(map(str, folders)) or "nothing to remove")
    if folders:
        print(f"{len(folders)} {'removed' if options.yes else 'would be removed; remove them with --yes'}")
    return 0
