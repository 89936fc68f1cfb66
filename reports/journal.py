"""What people decide and do, kept beside the runs: one file an entry, made in one step, never rewritten.

Two people on two hosts who write at once lose nothing, on any shared file system: appending to one file is only safe on
some. Promotions (`baselines/`) and repairs (`repairs/`) are kept so.

    add(Path("runs/repairs"), Event(kind="repair", at=now(), detail={"node": "n1"}))
"""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.measurement import Event, RecordError, decode, encode, now
from reports.runs import RunError


def add(folder: Path, event: Event) -> Path:
    """Keep an entry, durably, and say where. `folder` is made where its parent is there."""
    folder.mkdir(exist_ok=True)
    stamp = now().replace(":", "").replace("-", "")
    path = folder / f"{stamp}-{os.getpid()}-{os.urandom(4).hex()}.json"
    partial = path.with_suffix(".partial")
    with partial.open("w", encoding="utf-8") as file:
        file.write(encode(event) + "\n")
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    return path


def entries(folder: Path) -> list[tuple[Path, Event]]:
    """Every entry, in the order in which they were made. RunError for a file that does not read."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            found.append((path, decode(Event, path.read_bytes())))
        except RecordError as error:
            raise unreadable(path, error) from None
    return found


def unreadable(path: Path, error: Exception) -> RunError:
    """What to do about an entry that cannot be used."""
    return RunError(f"{path}: {error}; move it out of the folder and look at it")
