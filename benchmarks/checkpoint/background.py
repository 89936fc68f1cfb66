"""A save that trains on: torch.distributed.checkpoint in a process of its own beside each rank.

Training stalls only while the state is copied to shared memory; the process writes from there. Two numbers
therefore: the stall, and the time until the checkpoint is durable. The first save starts the process, which takes
seconds and happens once per job, so `Background` does it before any clock runs, and ends the process again.

    with Background(folder, world) as background:
        stall_s = background.save(state, world, storage_writer)
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemWriter, StorageWriter
from torch.distributed.checkpoint import _async_process_executor as executor
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

from benchmarks.checkpoint.state import State
from benchmarks.world import World

END_S = 10.0  # for the process to end


class Background:
    """The saving process of this rank, and the shared memory it writes from."""

    def __init__(self, folder: Path, world: World) -> None:
        """`folder`: of the run, for a first tiny save."""
        on_gpu = world.device.type == "cuda"
        self._stager = DefaultStager(
            StagingOptions(
                use_pinned_memory=on_gpu, use_shared_memory=True, use_async_staging=on_gpu, use_non_blocking_copy=on_gpu
            )
        )
        first = folder / "first"
        self._save({f"rank{world.rank}": torch.zeros(1)}, FileSystemWriter(first), world)
        world.barrier()
        if world.is_first:
            shutil.rmtree(first)

    def save(self, state: State, world: World, writer: StorageWriter) -> float:
        """Save by `writer`, which travels to the process; seconds until training could have gone on."""
        return self._save(state.by_name, writer, world)

    def cpu_s(self) -> float:
        """CPU seconds of the process so far (proc(5), stat: fields 14 and 15); 0 where the system does not tell."""
        process = _process()
        try:
            text = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii", errors="replace") if process else ""
        except OSError:
            return 0.0
        ticks = text.rpartition(")")[2].split()[11:13]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End the process, for certain, and free the shared memory."""
        self._stager.close()
        process = _process()
        executor._CHECKPOINT_PROCESS = None  # its destructor tells the process to end, waits 5 s, and terminates it
        if process:
            process.join(timeout=END_S)
            process.kill()  # nothing happens where it has ended
            process.join()

    def _save(self, tensors: dict[str, Any], writer: StorageWriter, world: World) -> float:
        begin = time.perf_counter()
        response = dcp.async_save(
            tensors, storage_writer=writer, process_group=world.control, async_stager=self._stager,
            async_checkpointer_type=AsyncCheckpointerType.PROCESS,
        )  # fmt: skip
        if staged := getattr(response, "staging_completion", None):  # staging in a thread, on a GPU's own stream
            staged.result()
        stall = time.perf_counter() - begin
        (response if staged is None else response.upload_completion).result()
        return stall

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _process() -> Any:
    """torch's saving process, if there is one."""
    return executor._CHECKPOINT_PROCESS._save_process if executor._CHECKPOINT_PROCESS else None
