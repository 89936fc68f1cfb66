"""Two ways to make the same state durable: torch.distributed.checkpoint, and plain writes of the same bytes.

Both leave files that are synced, and say which. Neither makes the checkpoint whole: `save.py` does, the same way
for both, inside the clock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
from torch.futures import Future

from benchmarks.checkpoint.manifest import sync_file
from benchmarks.checkpoint.state import State
from benchmarks.world import World

CHUNK = 8 * 2**20


@dataclass(kw_only=True)
class Written:
    """What one rank wrote: file name -> bytes, and the seconds until its own data was durable."""

    files: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


Writer = Callable[[State, Path, World], Written]


def write_plain(state: State, folder: Path, world: World) -> Written:
    """One file per rank: the bytes of its parts one after another in 8 MiB writes, then fsync."""
    begin = time.perf_counter()
    path = folder / f"rank{world.rank}.raw"
    buffer = torch.empty(CHUNK, dtype=torch.uint8, pin_memory=world.device.type == "cuda")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        size = _stream(state, descriptor, buffer)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return Written(files={path.name: size}, seconds=time.perf_counter() - begin)


def write_sharded(state: State, folder: Path, world: World) -> Written:
    """torch.distributed.checkpoint's own writer as a user calls it, one file per rank, files synced.

    torch 2.13 syncs `.metadata` while it is still empty, so the first rank syncs it again here.
    """
    writer = _TimedWriter(folder, overwrite=False)
    dcp.save(state.by_name, storage_writer=writer, process_group=world.control)
    if world.is_first:
        sync_file(folder / ".metadata")
        writer.written.files[".metadata"] = (folder / ".metadata").stat().st_size
    return writer.written


def read_sharded(state: State, folder: Path, world: World) -> None:
    """torch.distributed.checkpoint's own reader, into the state's memory."""
    dcp.load(state.by_name, storage_reader=FileSystemReader(folder), process_group=world.control)


class _TimedWriter(FileSystemWriter):  # type: ignore[misc]
    """The stock writer; notes which files this rank wrote and how long that took."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self.written = Written()

    def write_data(self, plan: Any, planner: Any) -> Future[Any]:
        begin = time.perf_counter()
        done = super().write_data(plan, planner)
        names = {result.storage_data.relative_path for result in done.wait()}
        self.written.files = {name: (self.path / name).stat().st_size for name in sorted(names)}
        self.written.seconds = time.perf_counter() - begin
        return done


def _stream(state: State, descriptor: int, buffer: torch.Tensor) -> int:
    """Write all parts through one buffer; the number of bytes."""
    size = filled = 0
    view = memoryview(buffer.numpy())
    for part in state.parts():
        taken = 0
        while taken < part.numel():
            step = min(CHUNK - filled, part.numel() - taken)
            buffer[filled : filled + step].copy_(part[taken : taken + step])
            filled, taken = filled + step, taken + step
            if filled == CHUNK:
                size, filled = size + _write_all(descriptor, view, size), 0
    return size + _write_all(descriptor, view[:filled], size)


def _write_all(descriptor: int, view: memoryview, offset: int) -> int:
    done = 0
    while done < len(view):
        done += os.pwrite(descriptor, view[done:], offset + done)
    return done
