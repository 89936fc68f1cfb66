"""One buffer copied to another on this rank's device: how many B/s, and is the copy right.

Bytes read and bytes written both count. On a CPU the lines that a plain store reads first do not: that is how
STREAM counts, too. A buffer that fits the cache would measure the cache, so that is an error, not a number.

    torchrun --nproc-per-node=4 -m benchmarks memory --bytes 1073741824
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.measurement import Measurement
from benchmarks.memory.spec import MIB, Memory
from benchmarks.world import World

CHUNK = 2**21  # words compared at a time, so that the check needs little memory
SUFFIX = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def run(spec: Memory, world: World) -> Iterator[Measurement]:
    """memory.copy.bandwidth and memory.copy.wrong_elements of this rank.

    Raises ValueError where the buffers fit the last-level cache.
    """
    cache = cache_bytes(world.device)
    if spec.bytes < cache:
        raise ValueError(
            f"memory: a buffer of {spec.bytes / MIB:.0f} MiB fits this device's cache of {cache / MIB:.0f} MiB: "
            f"set [memory] bytes to {cache} or more"
        )
    words = spec.bytes // 8
    generator = torch.Generator(device=world.device).manual_seed(world.rank)
    source = torch.empty(words, dtype=torch.int64, device=world.device).random_(generator=generator)
    target = torch.zeros_like(source).fill_(1)  # written once: its pages exist before the clock starts

    def once() -> None:
        target.copy_(source)

    once()
    world.synchronize()
    num_copies = max(1, math.ceil(spec.sample_s / max(world.timed(once), 1e-9)))

    def copies() -> None:
        for _ in range(num_copies):
            target.copy_(source)

    moved = 2.0 * spec.bytes * num_copies
    samples = [moved / world.timed(copies) for _ in range(spec.repetitions - 1)]
    target.zero_()
    world.synchronize()
    samples.append(moved / world.timed(copies))
    wrong, first = count_wrong(source, target)
    notes = {"cache_bytes": cache, "copies_per_sample": num_copies}
    yield spec.bandwidth().measured(*samples, subject=world.me(), notes=notes)
    yield spec.wrong().measured(wrong, subject=world.me(), notes={} if first is None else {"first_wrong_word": first})


def count_wrong(source: Tensor, target: Tensor) -> tuple[int, int | None]:
    """How many words differ, and the index of the first that does."""
    wrong, first = 0, None
    for start in range(0, source.numel(), CHUNK):
        want, got = source[start : start + CHUNK], target[start : start + CHUNK]
        if torch.equal(want, got):
            continue
        differs = want != got
        wrong += int(differs.sum())
        first = start + int(differs.nonzero()[0]) if first is None else first
    return wrong, first


def cache_bytes(device: torch.device, root: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    """Bytes of the largest cache in front of the device's memory; 0 where the system does not tell."""
    if device.type == "cuda":
        return int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0))
    read = [
        re.fullmatch(r"(\d+)([KMG]?)", path.read_text(encoding="ascii").strip()) for path in root.glob("index*/size")
    ]
    return max((int(match[1]) * SUFFIX[match[2]] for match in read if match), default=0)
