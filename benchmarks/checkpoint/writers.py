"""Five ways to make the same state durable, and two to load it.

`plain` is the ceiling: the bytes of each rank's parts in one file, as fast as the storage takes them. `stock` is
torch.distributed.checkpoint as a user calls it, `aligned` is the same with our storage; `async-stock` and
`async-aligned` do it in a process of their own. All leave synced files and say which. None makes the checkpoint
whole: `save.py` does, the same way for all, inside the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
from torch.futures import Future

from benchmarks.checkpoint.background import Background
from benchmarks.checkpoint.manifest import sync_file
from benchmarks.checkpoint.state import State
from benchmarks.checkpoint.storage import METADATA, AlignedReader, AlignedWriter
from benchmarks.storage.aligned import Staging
from benchmarks.world import World


@dataclass(kw_only=True)
class Written:
    """What one rank wrote: file name -> bytes, the seconds until its own data was durable, and its CPU seconds."""

    files: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    begin_s: float = 0.0  # from the barrier until it began to write
    cpu_s: float = 0.0  # of this process, and of the one beside it
    stall_s: float = 0.0  # until training could go on; 0 where the save is not asynchronous
    extra_bytes: int | None = None  # memory on top of what was there; None where the system does not tell


@dataclass(frozen=True, kw_only=True)
class Tools:
    """What is made once, before any clock runs."""

    staging: Staging
    background: Background | None = None


Write = Callable[[State, Path, World, Tools], Written]
Read = Callable[[State, Path, World], None]


def write_plain(state: State, folder: Path, world: World, tools: Tools) -> Written:
    """One file per rank: the bytes of its parts one after another, synced."""
    begin, cpu = time.perf_counter(), time.process_time()
    name = f"rank{world.rank}.raw"
    size = tools.staging.write(folder / name, state.saved_parts())
    return Written(files={name: size}, seconds=time.perf_counter() - begin, cpu_s=time.process_time() - cpu)


def write_stock(state: State, folder: Path, world: World, tools: Tools) -> Written:  # noqa: ARG001 - a Write
    """DCP's own writer, one file per rank, files synced.

    torch 2.13 syncs `.metadata` before it has flushed it, so the first rank syncs it again here.
    """
    writer = _Stock(folder, overwrite=False)
    written = _save(state, writer, world)
    if world.is_first:
        sync_file(folder / METADATA)
        writer.files[METADATA] = (folder / METADATA).stat().st_size
    return written


def write_aligned(state: State, folder: Path, world: World, tools: Tools) -> Written:
    """DCP with our storage: one file per rank, past the page cache."""
    return _save(state, _Aligned(folder, tools.staging), world)


def write_async_stock(state: State, folder: Path, world: World, tools: Tools) -> Written:
    """DCP's own writer in a process beside each rank."""
    written = _save_beside(state, FileSystemWriter(folder, overwrite=False), folder, world, tools)
    if world.is_first:
        sync_file(folder / METADATA)
    return written


def write_async_aligned(state: State, folder: Path, world: World, tools: Tools) -> Written:
    """DCP with our storage in a process beside each rank."""
    return _save_beside(state, AlignedWriter(folder, tools.staging), folder, world, tools)


def read_stock(state: State, folder: Path, world: World) -> None:
    """DCP's own reader, into the state's memory."""
    dcp.load(state.by_name, storage_reader=FileSystemReader(folder), process_group=world.control)


def read_aligned(state: State, folder: Path, world: World) -> None:
    """DCP with our storage, into the state's memory."""
    dcp.load(state.by_name, storage_reader=AlignedReader(folder), process_group=world.control)


WRITERS: dict[str, tuple[Write, Read]] = {
    "stock": (write_stock, read_stock),
    "aligned": (write_aligned, read_aligned),
    "async-stock": (write_async_stock, read_stock),
    "async-aligned": (write_async_aligned, read_aligned),
}


def _save(state: State, writer: Any, world: World) -> Written:
    begin, cpu = time.perf_counter(), time.process_time()
    dcp.save(state.by_name, storage_writer=writer, process_group=world.control)
    done = writer.data_durable_at or time.perf_counter()
    return Written(files=writer.files, seconds=done - begin, cpu_s=time.process_time() - cpu)


def _save_beside(state: State, writer: Any, folder: Path, world: World, tools: Tools) -> Written:
    assert tools.background, "an asynchronous writer needs its process"
    begin, cpu = time.perf_counter(), time.process_time() + tools.background.cpu_s()
    stall = tools.background.save(state, world, writer)
    mine = [*folder.glob(f"__{world.rank}_*.distcp"), *folder.glob(f"rank{world.rank}.bin")]
    mine += [folder / METADATA] if world.is_first else []
    return Written(
        files={path.name: path.stat().st_size for path in mine}, seconds=time.perf_counter() - begin,
        cpu_s=time.process_time() + tools.background.cpu_s() - cpu, stall_s=stall,
    )  # fmt: skip


class _Stock(FileSystemWriter):  # type: ignore[misc]
    """The stock writer; notes which files this rank wrote and when they were synced."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self.files: dict[str, int] = {}
        self.data_durable_at = 0.0

    def write_data(self, plan: Any, planner: Any) -> Future[Any]:
        done = super().write_data(plan, planner)
        self.data_durable_at = time.perf_counter()
        names = {result.storage_data.relative_path for result in done.wait()}
        self.files = {name: (self.path / name).stat().st_size for name in sorted(names)}
        return done


class _Aligned(AlignedWriter):
    """Our writer; notes when this rank's file was synced."""

    data_durable_at = 0.0

    def write_data(self, plan: Any, planner: Any) -> Future[Any]:
        done = super().write_data(plan, planner)
        self.data_durable_at = time.perf_counter()
        return done
