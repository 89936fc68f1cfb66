"""The six collectives as data: who holds which buffer, and which elements belong where afterwards.

An operation's result is a list of Segments: "from here on, so many elements of each of these members". One
table serves the verification and the tests. Nothing here is timed.

>>> [s.rows for s in result("all_gather", rank=0, members=2, num_elements=6, root=0)]
[range(0, 2)]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.collectives.pattern import SUM, Pattern, Wrong

SUMMED = ("all_reduce", "reduce_scatter", "reduce")
IN_PLACE = ("all_reduce", "broadcast", "reduce")  # torch gives these one buffer for input and output


@dataclass(frozen=True, kw_only=True)
class Segment:
    """The output from element `start` on: `count` elements of each of the members `rows`, from their `offset` on."""

    start: int
    rows: Sequence[int]  # members, or (SUM,)
    count: int
    offset: int


def result(op: str, *, rank: int, members: int, num_elements: int, root: int) -> list[Segment]:
    """What the output of member `rank` must hold. Empty: nothing is promised (a reduce, except at the root)."""
    n, share = num_elements, num_elements // members
    if op == "all_reduce":
        return [Segment(start=0, rows=(SUM,), count=n, offset=0)]
    if op == "reduce":
        return [Segment(start=0, rows=(SUM,), count=n, offset=0)] if rank == root else []
    if op == "broadcast":
        return [Segment(start=0, rows=(root,), count=n, offset=0)]
    if op == "reduce_scatter":
        return [Segment(start=0, rows=(SUM,), count=share, offset=rank * share)]
    if op == "all_gather":
        return [Segment(start=0, rows=range(members), count=share, offset=0)]
    if op == "all_to_all":
        return [Segment(start=0, rows=range(members), count=share, offset=rank * share)]
    raise ValueError(f"no operation {op!r}")


@dataclass(frozen=True, kw_only=True)
class Slot:
    """The buffers of one iteration and the call that works on them."""

    source: torch.Tensor
    output: torch.Tensor
    call: Callable[[], Any]


@dataclass(kw_only=True)
class Operation:
    """One operation at one size on this rank, with buffers for several iterations."""

    op: str
    rank: int  # within the group
    members: int
    num_elements: int
    root: int
    pattern: Pattern
    group: Any = None  # process group; None: the world
    num_slots: int = 1

    def __post_init__(self) -> None:
        self.slots = [self._slot() for _ in range(self.num_slots)]
        self.segments = result(
            self.op, rank=self.rank, members=self.members, num_elements=self.num_elements, root=self.root
        )

    def prepare(self, first_iteration: int) -> None:
        """Fill every slot's input with its iteration's data. Old output stays: it is wrong for a new iteration."""
        for i, slot in enumerate(self.slots):
            self.pattern.fill(slot.source, row=self.rank, start=0, iteration=first_iteration + i)
            if self.op == "broadcast" and self.rank != self.root:
                slot.source.zero_()

    def verify(self, first_iteration: int) -> Wrong:
        """Every slot's output against what it must hold."""
        found = Wrong()
        for i, slot in enumerate(self.slots):
            for s in self.segments:
                got = slot.output[s.start : s.start + len(s.rows) * s.count].view(len(s.rows), s.count)
                wrong = self.pattern.wrong(got, rows=s.rows, start=s.offset, iteration=first_iteration + i)
                if wrong.first:
                    wrong.first["element"] += s.start
                found.add(wrong)
        return found

    def _slot(self) -> Slot:
        n, share = self.num_elements, self.num_elements // self.members
        source = self._buffer(share if self.op == "all_gather" else n)
        output = source
        if self.op not in IN_PLACE:
            output = self._buffer(share if self.op == "reduce_scatter" else n)
        return Slot(source=source, output=output, call=self._call(source, output))

    def _buffer(self, num_elements: int) -> torch.Tensor:
        return torch.zeros(num_elements, dtype=self.pattern.dtype, device=self.pattern.device)

    def _call(self, source: torch.Tensor, output: torch.Tensor) -> Callable[[], Any]:
        group, root = self.group, self.root
        calls: dict[str, Callable[[], Any]] = {
            "all_reduce": lambda: dist.all_reduce(output, group=group),
            "reduce": lambda: dist.reduce(output, group=group, group_dst=root),
            "broadcast": lambda: dist.broadcast(output, group=group, group_src=root),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(output, source, group=group),
            "all_gather": lambda: dist.all_gather_into_tensor(output, source, group=group),
            "all_to_all": lambda: dist.all_to_all_single(output, source, group=group),
        }
        return calls[self.op]
