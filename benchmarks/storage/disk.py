"""What a disk was given: bytes, and flushes of its own cache. The second opinion on an fsync that returned.

An fsync that lies (a library in between, a mount without barriers, a file system that ignores it) leaves nothing in
the page cache once the data went past it. But whoever really syncs gives the disk the bytes and then asks it to
flush. So a save is believed only as far as the counters of the disk under it grew. Counters also hold what others
write: they can hide a lie, never invent one. A disk that says "flushed" and lies itself is seen by no software.

>>> before, after = Given(written_bytes=0, flushes=7), Given(written_bytes=90, flushes=7)
>>> lie(before, after, expected_bytes=100)
'the disk was given 90 of 100 bytes'
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from benchmarks.storage.filesystem import FileSystem

SECTOR = 512  # the kernel's unit in all block statistics, whatever the disk's own
WRITTEN, FLUSHES = 6, 15  # words of /sys/block/DISK/stat (Documentation/block/stat.rst)
ENOUGH = 0.95  # of the bytes must be seen


@dataclass(frozen=True, kw_only=True)
class Given:
    """What the storage under a file system has been given so far."""

    written_bytes: int
    flushes: int | None = None  # None where the disk has no cache to flush, or does not count


def given(found: FileSystem, root: Path = Path("/")) -> Given | None:
    """The counters of the disk under `found`, or of Lustre's clients on this node; None where nothing counts."""
    if found.kind == "lustre":
        return _lustre(root)
    disk = _disk(found, root)
    words = _text(disk / "stat").split() if disk else []
    if disk is None or len(words) <= WRITTEN or _text(disk / "queue" / "iostats").strip() == "0":
        return None
    flushes = int(words[FLUSHES]) if len(words) > FLUSHES else 0
    counts = flushes > 0 and _text(disk / "queue" / "write_cache").strip() == "write back"
    return Given(written_bytes=int(words[WRITTEN]) * SECTOR, flushes=flushes if counts else None)


def total(nodes: list[Given | None]) -> Given | None:
    """The sum over nodes; None where one of them does not know."""
    known = [node for node in nodes if node is not None]
    if not known or len(known) < len(nodes):
        return None
    flushes = [node.flushes for node in known if node.flushes is not None]
    return Given(
        written_bytes=sum(node.written_bytes for node in known),
        flushes=sum(flushes) if len(flushes) == len(known) else None,
    )


def lie(before: Given | None, after: Given | None, *, expected_bytes: int) -> str:
    """How the counters contradict a save of so many bytes that claims to be durable; "" where they do not."""
    if before is None or after is None:
        return ""
    written = after.written_bytes - before.written_bytes
    if written < ENOUGH * expected_bytes:
        return f"the disk was given {written:,} of {expected_bytes:,} bytes"
    if before.flushes is not None and after.flushes == before.flushes:
        return "the disk was never asked to flush its cache"
    return ""


def _disk(found: FileSystem, root: Path) -> Path | None:
    """The whole disk that holds the file system: partitions count no flushes."""
    link = root / "sys/dev/block" / found.device
    if not found.device or not link.exists():
        return None
    folder = Path(os.path.realpath(link))
    return folder.parent if (folder / "partition").exists() else folder


def _lustre(root: Path) -> Given | None:
    """Bytes that this node's Lustre clients have sent to OSTs: the sums in the osc statistics."""
    paths = [p for where in ("proc/fs/lustre", "sys/kernel/debug/lustre") for p in root.glob(f"{where}/osc/*/stats")]
    pattern = r"^write_bytes\s+\d+ samples \[bytes\] \d+ \d+ (\d+)"
    sums = [int(match[1]) for path in paths if (match := re.search(pattern, _text(path), re.MULTILINE))]
    return Given(written_bytes=sum(sums)) if paths and any(map(_text, paths)) else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
