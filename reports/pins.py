"""Pinned baselines: which run later ones are held against, who said so, when and why.

Kept in `baselines.jsonl` beside the run folders, one line each, never rewritten; the last line for a cluster and
suite counts. Only a run that was accepted (or conditionally) may become a baseline.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from benchmarks.measurement import Event, RecordError, decode, encode, now
from reports import runs
from reports.runs import RunError, StoredRun

FILE = "baselines.jsonl"
GOOD = ("ACCEPTED", "CONDITIONAL")


@dataclass(frozen=True, kw_only=True)
class Pin:
    """One promotion."""

    run: str  # the name of its folder
    cluster: str
    suite: str
    at: str
    by: str
    why: str
    outcome: str

    def folder(self, root: Path) -> Path:
        """Where the run is. RunError where it is gone."""
        path = root / self.run
        if not runs.is_run(path):
            raise RunError(
                f"the baseline {self.run} of {self.cluster}, pinned by {self.by} on {self.at[:10]}, "
                f"is gone from {root}: put it back, or promote another run"
            )
        return path


def promote(stored: StoredRun, *, by: str, why: str) -> Pin:
    """Pin a run as the baseline of its cluster and suite. RunError where it was not accepted, or without a reason."""
    if not by.strip() or not why.strip():
        raise RunError("say who promotes it and why: --by NAME --why TEXT")
    outcome = stored.outcome(stored.verdicts(today=date.today()))
    if outcome not in GOOD:
        raise RunError(f"{stored.folder} is {outcome}: only an accepted run can become what others are held against")
    pin = Pin(
        run=stored.folder.name, cluster=stored.run.cluster, suite=stored.run.suite, at=now(), by=by, why=why,
        outcome=outcome,
    )  # fmt: skip
    line = encode(Event(kind="promoted", at=pin.at, detail={k: v for k, v in vars(pin).items() if k != "at"})) + "\n"
    file = os.open(stored.folder.resolve().parent / FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line.encode())  # one write, so that two promotions at once keep both lines
        os.fsync(file)
    finally:
        os.close(file)
    return pin


def pins(root: Path) -> list[Pin]:
    """Every promotion in a folder of runs, oldest first. RunError for a line that does not read."""
    path = root / FILE
    found = []
    for number, line in enumerate(path.read_text().splitlines() if path.is_file() else (), 1):
        try:
            event = decode(Event, line)
            found.append(Pin(at=event.at, **event.detail))
        except (RecordError, TypeError) as error:
            raise RunError(f"{path}:{number}: {error}; move that line out of the file and look at it") from None
    return found


def pinned(root: Path, *, cluster: str, suite: str) -> Pin | None:
    """The baseline of a cluster and suite: the last promotion; None where there is none."""
    mine = [pin for pin in pins(root) if (pin.cluster, pin.suite) == (cluster, suite)]
    return mine[-1] if mine else None


def exists(root: Path, name: str) -> bool:
    """Whether a run was ever promoted and still is the baseline of something."""
    latest = {(pin.cluster, pin.suite): pin.run for pin in pins(root)}
    return name in latest.values()
