"""How fast the file system makes, finds and removes files when all ranks do so at once, in one folder.

At 512 ranks this decides whether a save of small shards is slow although the disks are fast. Every rank makes its
own files, looks at those of the next rank (so that no client answers from what it just wrote), and removes its own.

    storm(folder, world, num_files=64)["create"]  # [5120.3, 5033.9, 5201.0] files per second
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.checkpoint.save import together
from benchmarks.checkpoint.spec import OPERATIONS
from benchmarks.world import World


def storm(folder: Path, world: World, *, num_files: int, rounds: int = 3) -> dict[str, list[float]]:
    """Files per second of all ranks together, for each of OPERATIONS and round, barrier to barrier.

    Raises RuntimeError on all ranks where one fails, or where a rank's files are not seen by the next.
    """
    rates: dict[str, list[float]] = {operation: [] for operation in OPERATIONS}
    own, other = world.rank, (world.rank + 1) % world.size
    work: dict[str, Callable[[Path], object]] = {"create": _create, "stat": Path.stat, "unlink": Path.unlink}
    for turn in range(rounds):
        for operation in OPERATIONS:
            owner = other if operation == "stat" else own
            paths = [folder / f"storm-{turn}-{owner}-{index}" for index in range(num_files)]
            world.barrier()
            begin = time.perf_counter()
            with together(world, folder):
                for path in paths:
                    work[operation](path)
                seconds = time.perf_counter() - begin
            rates[operation].append(num_files * world.size / max(world.gather(seconds)))
    return rates


def _create(path: Path) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
