"""What a collective's sweep is asked to do, and what it promises to emit. No torch here.

A size is counted as nccl-tests prints it: each rank's buffer for all_reduce, broadcast and reduce; the total
output for all_gather; the total input for reduce_scatter; the total per rank for all_to_all. A size that does
not divide into whole elements (and, where the operation splits it, into equal shares) is rounded up, and the
params name the bytes that really move.

>>> from benchmarks.spec import Place
>>> Collective(op="all_gather", sizes=(8,)).emits(Place(ranks_per_node=4))[0].params["bytes"]
16
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from benchmarks.measurement import Metric, Scalar
from benchmarks.spec import Place

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce")
SPLIT = ("all_gather", "reduce_scatter", "all_to_all")  # the size is shared out among the ranks
ITEM_BYTES = {
    "fp32": 4, "bf16": 2, "fp16": 2, "fp64": 8, "int8": 1, "uint8": 1, "int32": 4, "int64": 8,
}  # fmt: skip
LATENCY_BYTES = 64 << 10  # up to this size the time is a latency metric too


@dataclass(frozen=True, kw_only=True)
class Collective:
    """One collective over one group, swept over sizes. Every result is verified."""

    benchmark: ClassVar[str] = "collectives"
    scope: ClassVar[str] = "world"

    op: str = "all_reduce"
    """all_reduce, all_gather, reduce_scatter, all_to_all, broadcast or reduce"""
    sizes: tuple[int, ...] = (8, 64 << 10, 4 << 20)
    """bytes, as nccl-tests counts them"""
    dtype: str = "fp32"
    """fp32, bf16, fp16, fp64, int8, uint8, int32 or int64"""
    group: str = "world"
    """who takes part: world"""
    root: int = 0
    """the rank that sends a broadcast and receives a reduce"""
    budget_s: float = 0.3
    """seconds of repetitions per size, after the warm-up"""
    min_repetitions: int = 5
    """repetitions per size even where the budget is spent"""
    max_repetitions: int = 1000
    """repetitions per size after which nothing more is learnt"""
    seed: int = 1
    """picks the data"""
    limit_s: float = 120.0
    """time-out of the whole sweep, seconds"""

    def __post_init__(self) -> None:
        for value, known, what in (
            (self.op, OPS, "op"), (self.dtype, ITEM_BYTES, "dtype"), (self.group, ("world",), "group"),
        ):  # fmt: skip
            if value not in known:
                raise ValueError(f"collectives: no {what} {value!r}; there are {', '.join(known)}")
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError(f"collectives: sizes are positive bytes, not {self.sizes}")
        if not 1 <= self.min_repetitions <= self.max_repetitions:
            raise ValueError(
                f"collectives: min_repetitions {self.min_repetitions} must lie between 1 and "
                f"max_repetitions {self.max_repetitions}"
            )

    def members(self, place: Place) -> int:
        """Ranks of the group. ValueError where there are too few to move anything, or no such root."""
        if place.ranks < 2:
            raise ValueError("collectives: a collective needs at least 2 ranks; give the cluster more, or leave it out")
        if not 0 <= self.root < place.ranks:
            raise ValueError(f"collectives: root {self.root} is no rank of {place.ranks}")
        return place.ranks

    def elements(self, size: int, members: int) -> int:
        """Elements that a size becomes: whole ones, and equal shares where the operation splits it."""
        step = members if self.op in SPLIT else 1
        return -(-size // (ITEM_BYTES[self.dtype] * step)) * step

    def params(self, num_elements: int) -> dict[str, Scalar]:
        """The params of every metric at that many elements."""
        return {"bytes": num_elements * ITEM_BYTES[self.dtype], "dtype": self.dtype, "group": self.group}

    def sweep(self, members: int) -> list[int]:
        """Elements per buffer of every size, ascending, each once."""
        return sorted({self.elements(size, members) for size in self.sizes})

    def metrics(self, num_elements: int) -> Iterator[Metric]:
        """What one size emits: busbw, wrong_elements, and the latency of a small size."""
        params, prefix = self.params(num_elements), f"collectives.{self.op}"
        yield Metric(name=f"{prefix}.busbw", unit="B/s", better="higher", params=params)
        yield Metric(name=f"{prefix}.wrong_elements", unit="1", better="equal", params=params)
        if num_elements * ITEM_BYTES[self.dtype] <= LATENCY_BYTES:
            yield Metric(name=f"{prefix}.latency", unit="s", better="lower", params=params)

    def emits(self, place: Place) -> list[Metric]:
        """Every metric of the sweep at that place."""
        return [metric for count in self.sweep(self.members(place)) for metric in self.metrics(count)]

    def bytes_written(self, place: Place) -> int:  # noqa: ARG002
        """Nothing is written to storage."""
        return 0
