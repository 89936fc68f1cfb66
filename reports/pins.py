"""Pinned baselines: which run later ones are held against, who said so, when and why.

Kept in `baselines/` beside the run folders (reports/journal.py); the last one for a cluster and suite counts. Only a
run that was accepted (or conditionally) may become a baseline.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from benchmarks.measurement import Event, RecordError, decode, now
from reports import journal, runs
from reports.runs import RunError, StoredRun

FOLDER, OLDER = "baselines", "baselines.jsonl"
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
    detail = {k: v for k, v in vars(pin).items() if k != "at"}
    journal.add(stored.folder.resolve().parent / FOLDER, Event(kind="promoted", at=pin.at, detail=detail))
    return pin


def pins(root: Path) -> list[Pin]:
    """Every promotion in a folder of runs, oldest first. RunError for one that does not read."""
    found = []
    for place, event in [*_older(root / OLDER), *journal.entries(root / FOLDER)]:
        try:
            found.append(Pin(at=event.at, **event.detail))
        except TypeError as error:
            raise journal.unreadable(place, error) from None
    return found


def _older(path: Path) -> Iterator[tuple[Path, Event]]:
    """Promotions as they were kept at first: lines of one file."""
    for number, line in enumerate(path.read_text().splitlines() if path.is_file() else (), 1):
        try:
            yield path, decode(Event, line)
        except RecordError as error:
            raise RunError(f"{path}:{number}: {error}; move that line out of the file and look at it") from None


def pinned(root: Path, *, cluster: str, suite: str) -> Pin | None:
    """The baseline of a cluster and suite: the last promotion; None where there is none."""
    mine = [pin for pin in pins(root) if (pin.cluster, pin.suite) == (cluster, suite)]
    return mine[-1] if mine else None


def exists(root: Path, name: str) -> bool:
    """Whether a run was ever promoted and still is the baseline of something."""
    latest = {(pin.cluster, pin.suite): pin.run for pin in pins(root)}
    return name in latest.values()
