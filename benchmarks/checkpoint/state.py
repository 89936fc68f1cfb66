"""The state that is saved: random bytes that nobody can compress, different on every rank and every repetition.

Shards become DTensors, as a training job's are, so that torch.distributed.checkpoint knows the whole of each
tensor. All of this happens outside the timed part: generating data is slower than good storage.

    state = State.random(shards, layout, world)
    state.stamp(1)                       # new data in every 4 KiB, without generating all of it again
    hashes = state.hashes()
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate
from torch.distributed.tensor import Shard as Cut

from benchmarks.checkpoint.shards import Layout, Shard
from benchmarks.world import World

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32, "int64": torch.int64, "uint8": torch.uint8}
STAMP = 0x1E3779B97F4A7C15  # added to one word of every 4 KiB: another block for storage that looks for equal ones
STAMP_WORDS = 512


@dataclass(frozen=True, kw_only=True)
class State:
    """This rank's part of a checkpoint. `tensors[i]` holds the data of `shards[i]`.

    `by_name` is what torch.distributed.checkpoint saves and loads in place: DTensors over the same memory. They are
    made once: the first costs seconds of imports.
    """

    shards: Sequence[Shard]
    tensors: list[Tensor]
    by_name: dict[str, Tensor]

    @classmethod
    def random(cls, shards: Sequence[Shard], layout: Layout, world: World) -> State:
        """Random bytes, the same on ranks that hold the same part and different everywhere else."""
        tensors = [_random(shard).to(world.device) for shard in shards]
        mesh = stage_mesh(layout, world.device.type)
        by_name = {
            shard.name: _distributed(shard, tensor, mesh) if shard.sharded else tensor
            for shard, tensor in zip(shards, tensors, strict=True)
        }
        return cls(shards=shards, tensors=tensors, by_name=by_name)

    def stamp(self, repetition: int) -> None:
        """Change one word of every 4 KiB of every tensor, the same way on ranks that hold the same part."""
        for words in filter(lambda w: w.numel(), map(_words, self.tensors)):
            words[::STAMP_WORDS].add_(STAMP + repetition)

    def clear(self) -> None:
        """Zero every tensor: what a load must bring back."""
        for tensor in self.tensors:
            tensor.zero_()

    def hashes(self) -> dict[str, str]:
        """SHA-256 of every part, by its name and offset."""
        return {
            part_name(shard): hashlib.sha256(memoryview(_bytes(tensor).cpu().numpy())).hexdigest()
            for shard, tensor in zip(self.shards, self.tensors, strict=True)
        }

    def parts(self) -> Iterator[Tensor]:
        """The bytes (flat, uint8) of every part that this rank saves: each byte of the checkpoint on one rank only."""
        for shard, tensor in zip(self.shards, self.tensors, strict=True):
            if shard.saved_here:
                yield _bytes(tensor)

    def saved_bytes(self) -> int:
        """Bytes that `parts` yields."""
        return sum(shard.bytes for shard in self.shards if shard.saved_here)


def part_name(shard: Shard) -> str:
    """A part's name, unique in the checkpoint: tensor and offset."""
    return f"{shard.name}@{','.join(map(str, shard.offset))}"


@functools.cache
def stage_mesh(layout: Layout, device_type: str) -> DeviceMesh:
    """The ranks of this rank's pipeline stage as copies x tp x shard: cut by tensor parallelism first.

    Only a description of who holds what; no process group is made for it.
    """
    grid = torch.arange(layout.ranks).view(layout.pp, layout.copies, layout.copies_over, layout.tp)
    rank = torch.distributed.get_rank()
    stage = rank // (layout.tp * layout.dp)
    names = ("copies", "tp", "shard")
    return DeviceMesh(device_type, grid[stage].transpose(1, 2), mesh_dim_names=names, _init_backend=False)


def _distributed(shard: Shard, tensor: Tensor, mesh: DeviceMesh) -> DTensor:
    by_tensor: Placement = Replicate() if shard.cut is None else Cut(shard.cut)
    whole = torch.empty(shard.whole, dtype=tensor.dtype, device="meta")
    return DTensor.from_local(
        tensor, mesh, (Replicate(), by_tensor, Cut(0)), run_check=False, shape=whole.shape, stride=whole.stride()
    )


def _random(shard: Shard) -> Tensor:
    seed = int.from_bytes(hashlib.sha256(part_name(shard).encode()).digest()[:8], "big")
    generator = numpy.random.Generator(numpy.random.SFC64(seed))
    words = generator.integers(0, 2**64, size=-(-shard.bytes // 8), dtype=numpy.uint64)
    return torch.from_numpy(words.view(numpy.uint8)[: shard.bytes]).clone().view(DTYPES[shard.dtype]).view(shard.shape)


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1).view(torch.uint8)


def _words(tensor: Tensor) -> Tensor:
    flat = _bytes(tensor)
    return flat[: flat.numel() // 8 * 8].view(torch.int64)
