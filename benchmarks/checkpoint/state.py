"""One rank's part of a training job's state, in memory, as torch.distributed.checkpoint wants it.

Shards become DTensors, as a training job's are, so that DCP knows the whole of each tensor and can load it
under another layout or on other ranks. What the bytes are is `pattern.py`'s matter.

    state = State.allocate(shape, layout, "mixed", world)
    state.fill(repetition=0)             # outside the clock: making data is slower than good storage
    state.clear(); ...                   # load
    state.wrong(repetition=0)            # names of parts that are not what they should be
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate
from torch.distributed.tensor import Shard as Cut

from benchmarks.checkpoint.pattern import fill, flat_bytes, matches
from benchmarks.checkpoint.shards import Layout, Shard, rank_shards
from benchmarks.world import World
from reference_model.shape import Shape

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32, "int64": torch.int64, "uint8": torch.uint8}


@dataclass(frozen=True, kw_only=True)
class State:
    """The parts that one rank holds. `tensors[i]` is the memory of `shards[i]`.

    `by_name` is what DCP saves and loads in place: DTensors over the same memory. They are made once: the first
    costs seconds of imports.
    """

    shards: Sequence[Shard]
    tensors: list[Tensor]
    by_name: dict[str, Tensor]

    @classmethod
    def allocate(cls, shape: Shape, layout: Layout, contents: str, world: World, *, shift: int = 0) -> State:
        """Zeroed memory for this rank's parts; with `shift`, for those of the rank that far after it.

        Where `layout` has more ranks than the world, only what the ranks that are there save: plain tensors, since
        nobody holds the rest of the whole ones.
        """
        shards = rank_shards(shape, layout, (world.rank + shift) % world.size, contents)
        if layout.ranks > world.size:
            shards = tuple(shard for shard in shards if shard.saved_here)
        tensors = [torch.zeros(s.shape, dtype=DTYPES[s.dtype], device=world.device) for s in shards]
        if layout.ranks > world.size:
            alone = {shard.part: tensor for shard, tensor in zip(shards, tensors, strict=True)}
            return cls(shards=shards, tensors=tensors, by_name=alone)
        mesh = stage_mesh(layout, world, shift=shift)
        by_name = {
            shard.name: _distributed(shard, tensor, mesh) if shard.sharded else tensor
            for shard, tensor in zip(shards, tensors, strict=True)
        }
        return cls(shards=shards, tensors=tensors, by_name=by_name)

    def fill(self, *, repetition: int) -> None:
        """New data in every block; the same where several ranks hold the same part."""
        for tensor, shard in zip(self.tensors, self.shards, strict=True):
            fill(tensor, shard, repetition=repetition)

    def clear(self) -> None:
        """Zero every tensor: what a load must bring back."""
        for tensor in self.tensors:
            tensor.zero_()

    def wrong(self, *, repetition: int) -> list[str]:
        """Names of the parts that do not hold the data of `repetition`, every byte of it."""
        pairs = zip(self.tensors, self.shards, strict=True)
        return [shard.part for tensor, shard in pairs if not matches(tensor, shard, repetition=repetition)]

    def digest(self) -> str:
        """SHA-256 over all that this rank saves, in its order: what the manifest keeps."""
        digest = hashlib.sha256()
        for part in self.saved_parts():
            digest.update(memoryview(part.cpu().numpy()))
        return digest.hexdigest()

    def saved_parts(self) -> list[Tensor]:
        """The bytes (flat, uint8) of what this rank saves: each byte of the checkpoint on one rank only."""
        return [flat_bytes(t) for t, s in zip(self.tensors, self.shards, strict=True) if s.saved_here]


def stage_mesh(layout: Layout, world: World, *, shift: int = 0) -> DeviceMesh:
    """The ranks of this rank's pipeline stage as copies x tp x shard: cut by tensor parallelism first.

    Only a description of who holds what; no process group is made for it. With `shift`, each rank stands where
    the rank that far after it stood.
    """
    grid = torch.arange(layout.ranks).view(layout.pp, layout.copies, layout.copies_over, layout.tp)
    stage = (world.rank + shift) % layout.ranks // (layout.tp * layout.dp)
    ranks = (grid[stage].transpose(1, 2) - shift) % layout.ranks
    return DeviceMesh(world.device.type, ranks, mesh_dim_names=("copies", "tp", "shard"), _init_backend=False)


def _distributed(shard: Shard, tensor: Tensor, mesh: DeviceMesh) -> DTensor:
    by_tensor: Placement = Replicate() if shard.cut is None else Cut(shard.cut)
    stride = (shard.whole[1], 1) if len(shard.whole) == 2 else (1,)
    placements = (Replicate(), by_tensor, Cut(0))
    return DTensor.from_local(
        tensor, mesh, placements, run_check=False, shape=torch.Size(shard.whole), stride=stride
    )  # fmt: skip
