"""What the bytes of a checkpoint are: random, and yet known to every rank from their place alone.

Word i of a tensor is a hash (splitmix64's finaliser, Steele et al. 2014) of i, the tensor's name and the
repetition. So no two blocks of a checkpoint or of two checkpoints are equal, nothing compresses, and whoever
loads any part under any layout can tell right bytes from wrong ones without having seen the save.

>>> shard = Shard(name="norm.weight", dtype="float32", whole=(8,), shape=(4,), offset=(4,))
>>> tensor = torch.zeros(4)
>>> fill(tensor, shard, repetition=3)
>>> matches(tensor, shard, repetition=3), matches(tensor, shard, repetition=4)
(True, False)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks.checkpoint.shards import ITEM_BYTES, Shard

CHUNK = 2**18  # bytes made at a time: they stay in a core's cache
GOLDEN = 0x9E3779B97F4A7C15 - 2**64
FACTORS = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)


def fill(tensor: Tensor, shard: Shard, *, repetition: int) -> None:
    """Write the pattern into this rank's part."""
    flat = flat_bytes(tensor)
    for start, expected in expected_bytes(shard, repetition, tensor.device):
        flat[start : start + expected.numel()].copy_(expected)


def matches(tensor: Tensor, shard: Shard, *, repetition: int) -> bool:
    """Whether this rank's part holds the pattern, every byte of it."""
    flat = flat_bytes(tensor)
    return all(
        torch.equal(flat[start : start + expected.numel()], expected)
        for start, expected in expected_bytes(shard, repetition, tensor.device)
    )


def expected_bytes(shard: Shard, repetition: int, device: torch.device) -> Iterator[tuple[int, Tensor]]:
    """(where in the part, uint8 tensor) in order, until the part is covered."""
    seed = int.from_bytes(hashlib.sha256(f"{shard.name} {repetition}".encode()).digest()[:8], "little", signed=True)
    first, run, stride, rows = region(shard)
    if rows == 1:
        for start in range(0, run, CHUNK):
            length = min(CHUNK, run - start)
            word, lead = divmod(first + start, 8)
            index = torch.arange(word, word - (-(lead + length) // 8), device=device)
            yield start, mix(index, seed).view(torch.uint8)[lead : lead + length]
        return
    per_chunk = max(1, CHUNK // run)
    columns = torch.arange(run // 8, device=device)
    for row in range(0, rows, per_chunk):
        starts = (first + stride * torch.arange(row, min(row + per_chunk, rows), device=device)) // 8
        yield row * run, mix((starts[:, None] + columns).reshape(-1), seed).view(torch.uint8)


def region(shard: Shard) -> tuple[int, int, int, int]:
    """Where a part's bytes lie in the whole tensor: (first, run, stride, rows): `rows` runs, `stride` apart.

    Raises ValueError where columns are cut at other than whole 8-byte words.
    """
    item = ITEM_BYTES[shard.dtype]
    if len(shard.whole) == 1:
        return shard.offset[0] * item, shard.bytes, 0, 1
    width = shard.whole[1] * item
    if shard.shape[1] == shard.whole[1]:
        return shard.offset[0] * width, shard.bytes, 0, 1
    first, run = (shard.offset[0] * shard.whole[1] + shard.offset[1]) * item, shard.shape[1] * item
    if first % 8 or run % 8 or width % 8:
        raise ValueError(f"checkpoint: {shard.name} is cut into columns of {run} bytes: use a smaller tp")
    return first, run, width, shard.shape[0]


def flat_bytes(tensor: Tensor) -> Tensor:
    """The tensor's memory as one row of bytes."""
    return tensor.view(-1).view(torch.uint8)


def mix(index: Tensor, seed: int) -> Tensor:
    """splitmix64 of each index, in int64. Shifts there keep the sign, so the high bits are masked off."""
    x = index * GOLDEN + seed
    x ^= (x >> 30) & 0x3FFFFFFFF
    x *= FACTORS[0]
    x ^= (x >> 27) & 0x1FFFFFFFFF
    x *= FACTORS[1]
    x ^= (x >> 31) & 0x1FFFFFFFF
    return x
