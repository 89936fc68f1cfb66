"""One durable save, timed from barrier to barrier, and one cold load with the proof that it was cold.

A failure of one rank (disk full, read-only, an I/O error) raises the same RuntimeError on all of them, so that no
rank waits for another and the ranks live on.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from torch.distributed.checkpoint.api import CheckpointException

from benchmarks.checkpoint.manifest import ManifestError, read_manifest, sync_folder, write_manifest
from benchmarks.checkpoint.peak import Peak
from benchmarks.checkpoint.state import State
from benchmarks.checkpoint.writers import Read, Tools, Write, Written
from benchmarks.storage import cache, disk
from benchmarks.storage.cold import read_cold
from benchmarks.storage.filesystem import FileSystem, filesystem_of
from benchmarks.world import World

CURES = {
    errno.ENOSPC: "free space there, or set [checkpoint] directory to a file system that has it",
    errno.EDQUOT: "raise the quota, or set [checkpoint] directory to another file system",
    errno.EROFS: "mount it writable, or set [checkpoint] directory to another file system",
    errno.EACCES: "make it writable for this user, or set [checkpoint] directory",
    errno.EIO: "the device or the server failed: see the kernel's log",
    errno.ENOENT: "every rank must see the same folder: set [checkpoint] directory to a shared file system",
}


@dataclass(frozen=True, kw_only=True)
class Saved:
    """One finished save."""

    seconds: float  # barrier to barrier, of the slowest rank
    rank_seconds: list[float]  # until each rank's own data was durable
    rank_begins: list[float]  # from the barrier until each rank began to write
    files: dict[str, int]  # name -> bytes, of all ranks
    rank_files: list[list[str]]  # names of the files of each rank
    cpu_s: float  # of all ranks together, for the writing
    stall_s: float  # until the slowest rank could have trained on; 0 where the save is not asynchronous
    extra_bytes: int | None  # memory of the rank that took most, on top of the state; None where unknown

    @property
    def slowest_rank(self) -> int:
        """Whom everybody waited for."""
        return max(range(len(self.rank_seconds)), key=self.rank_seconds.__getitem__)


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """One finished load."""

    seconds: float
    rank_seconds: list[float]
    rank_begins: list[float]
    wrong: list[str]  # names of parts that came back other than they were saved
    cold_share: float  # share of the file bytes proven to come from the device, 0 to 1
    doubt: str = ""  # why it is no more, where it is below COLD
    evidence: dict[str, int | str | None] = field(default_factory=dict)


LIE_CURE = "something before the disk of {where.mount_point} ({where.kind}) swallows syncs; mount it with barriers"
FULL_DISK = "unexpected pos"


def save(state: State, folder: Path, world: World, *, write: Write, tools: Tools) -> Saved:
    """Save `state` into the new `folder` until data, metadata and folder are durable and its manifest is in place.

    Raises RuntimeError on all ranks where one fails, or where the disk's counters contradict what fsync said.
    """
    digests, where = world.gather(state.digest()), filesystem_of(folder.parent)
    before, peak = _given(where, world), Peak()
    world.barrier()
    begin = time.perf_counter()
    with together(world, folder):
        if world.is_first:
            folder.mkdir()
            sync_folder(folder.parent)
    with together(world, folder):
        begin_s = time.perf_counter() - begin
        written = write(state, folder, world, tools)
        written.begin_s, written.extra_bytes = begin_s, peak.grown()
        _require_synced(folder, written)
    everyone: list[Written] = world.gather(written)
    files = {name: size for w in everyone for name, size in w.files.items()}
    with together(world, folder):
        if world.is_first:
            sync_folder(folder)
            write_manifest(folder, {"files": files, "rank_sha256": digests})
    seconds = max(world.gather(time.perf_counter() - begin))
    if lie := disk.lie(before, _given(where, world), expected_bytes=sum(files.values())):
        raise RuntimeError(f"checkpoint: {folder}: fsync returned, and yet {lie}: {LIE_CURE.format(where=where)}")
    extra = [w.extra_bytes for w in everyone]
    return Saved(
        seconds=seconds, rank_seconds=[w.seconds for w in everyone], rank_begins=[w.begin_s for w in everyone],
        files=files, rank_files=[sorted(w.files) for w in everyone], cpu_s=sum(w.cpu_s for w in everyone),
        stall_s=max(w.stall_s for w in everyone),
        extra_bytes=None if None in extra else max(n for n in extra if n is not None),
    )  # fmt: skip


def _given(where: FileSystem, world: World) -> disk.Given | None:
    """What the storage has been given so far by all nodes; each is asked by one of its ranks."""
    asked = world.gather((disk.given(where),) if world.rank == world.local_ranks[0] else ())
    return disk.total([told[0] for told in asked if told])


def load(state: State, folder: Path, world: World, *, read: Read, repetition: int, sort: str = "local") -> Loaded:
    """Load the checkpoint in `folder` into the zeroed `state` after evicting it from every node's page cache.

    `sort` of storage says which counters prove where the bytes came from (storage/traffic.py). What comes back is
    compared with the data of `repetition`, byte by byte. Raises RuntimeError on all ranks where one fails, or where
    the checkpoint is not whole.
    """
    with together(world, folder):
        files = sorted(folder / name for name in read_manifest(folder)["files"])
    state.clear()

    def work() -> float:
        begin = time.perf_counter()
        with together(world, folder):
            read(state, folder, world)
            world.synchronize()
            return time.perf_counter() - begin

    found = read_cold(files, world, sort=sort, work=work)
    wrong = world.gather(state.wrong(repetition=repetition))
    return Loaded(
        seconds=found.seconds, rank_seconds=found.rank_seconds, rank_begins=[0.0] * world.size,
        wrong=sorted({name for names in wrong for name in names}), cold_share=found.share, doubt=found.doubt,
        evidence=found.evidence,
    )  # fmt: skip


def _require_synced(folder: Path, written: Written) -> None:
    """The kernel's own view after fsync: nothing of our files may still be dirty."""
    for name in written.files:
        if left := cache.unwritten_bytes(folder / name):
            raise OSError(errno.EIO, f"fsync returned and {left} bytes are not on the device", str(folder / name))


@contextmanager
def together(world: World, folder: Path) -> Iterator[None]:
    """What fails on one rank fails on all, with one message that names the ranks, the error and the cure."""
    problem = ""
    try:
        yield
    except (OSError, CheckpointException, ManifestError) as error:
        problem = explain(error, folder)
    failed = {rank: said for rank, said in enumerate(world.gather(problem)) if said}
    if failed:
        ranks = ", ".join(map(str, failed))
        raise RuntimeError(f"checkpoint: rank {ranks}: {'; '.join(sorted(set(failed.values())))}")


def explain(error: Exception, folder: Path) -> str:
    """What went wrong with `folder` and how to cure it, in one line."""
    if isinstance(error, CheckpointException):
        reasons = [reason for reason, _ in error.failures.values()]
        found = next((reason for reason in reasons if isinstance(reason, OSError)), reasons[0])
        if not isinstance(found, OSError):
            return f"{type(found).__name__}: {found}" if FULL_DISK not in str(found) else _hidden_full_disk(folder)
        error = found
    if isinstance(error, OSError):
        name = errno.errorcode.get(error.errno or 0, "error")
        cure = f"; {CURES[error.errno]}" if error.errno in CURES else ""
        return f"{error.filename or folder}: {error.strerror or os.strerror(error.errno or 0)} ({name}){cure}"
    return str(error)


def _hidden_full_disk(folder: Path) -> str:
    """torch.save reports a failed write of any kind as a wrong position in the file."""
    stat = os.statvfs(folder)
    free = stat.f_bavail * stat.f_frsize
    return (
        f"{folder}: torch.save could not write ('{FULL_DISK}'), its way to show No space left on device (ENOSPC); "
        f"{free / 1e6:.3g} MB are free there now (one full OST of Lustre is enough); {CURES[errno.ENOSPC]}"
    )
