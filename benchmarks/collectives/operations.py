"""The collectives as calls on buffers of this rank: filled before, verified after, timed elsewhere.

    op = Operation(op="all_reduce", team=team, num_elements=1024, pattern=pattern, num_slots=4)
    op.prepare(first_iteration=0)
    for slot in op.slots: slot.call()
    assert op.verify(first_iteration=0).count == 0

What belongs where after a call is said in layout.py, for all operations in one table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.collectives.layout import result, shares
from benchmarks.collectives.pattern import Pattern, Wrong
from benchmarks.collectives.teams import Team

ONE_BUFFER = ("all_reduce", "broadcast", "reduce")  # torch gives these one buffer for input and output
SHORT_INPUT, SHORT_OUTPUT = ("all_gather", "gather"), ("reduce_scatter", "scatter")  # one share long


@dataclass(kw_only=True)
class Slot:
    """The buffers of one iteration and the call that works on them."""

    source: torch.Tensor
    output: torch.Tensor
    call: Callable[[], Any]


@dataclass(kw_only=True)
class Operation:
    """One operation at one size on this rank, with buffers for several iterations."""

    op: str
    team: Team
    num_elements: int
    pattern: Pattern
    root: int = 0
    in_place: bool = False
    uneven: bool = False
    deferred: bool = False
    num_slots: int = 1

    def __post_init__(self) -> None:
        self.rank, self.members = self.team.place, len(self.team.ranks)
        self.slots = [self._slot() for _ in range(self.num_slots)]
        self.segments = result(
            self.op, rank=self.rank, members=self.members, num_elements=self.num_elements, root=self.root,
            uneven=self.uneven,
        )  # fmt: skip

    def prepare(self, first_iteration: int) -> None:
        """Fill every slot's input with its iteration's data. Old output stays: it is wrong for a new iteration."""
        for i, slot in enumerate(self.slots):
            if self.op == "broadcast" and self.rank != self.root:
                slot.source.zero_()
            else:
                self.pattern.fill(slot.source, row=self.rank, start=0, iteration=first_iteration + i)

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

    def capture(self) -> None:
        """From now on every call replays a CUDA graph of itself. The group must have been used before."""
        for slot in self.slots:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                slot.call()
            slot.call = graph.replay

    def _slot(self) -> Slot:
        n, share = self.num_elements, self.num_elements // self.members
        mine = slice(self.rank * share, (self.rank + 1) * share)
        if self.op in ONE_BUFFER:
            source = output = self._buffer(n)
        elif self.in_place:
            whole = self._buffer(n)
            source, output = (whole[mine], whole) if self.op in SHORT_INPUT else (whole, whole[mine])
        else:
            source = self._buffer(share if self.op in SHORT_INPUT else n)
            output = self._buffer(share if self.op in SHORT_OUTPUT else n)
        return Slot(source=source, output=output, call=self._call(source, output))

    def _buffer(self, num_elements: int) -> torch.Tensor:
        return torch.zeros(num_elements, dtype=self.pattern.dtype, device=self.pattern.device)

    def _call(self, source: torch.Tensor, output: torch.Tensor) -> Callable[[], Any]:
        if self.op == "send_recv":
            return self._ring(source, output)
        call = self._collective(source, output)
        if not self.deferred:
            return call
        start = partial(call, async_op=True)
        return lambda: start().wait()

    def _collective(self, source: torch.Tensor, output: torch.Tensor) -> partial[Any]:
        group, at_root = self.team.group, self.rank == self.root
        if self.op == "all_reduce":
            return partial(dist.all_reduce, output, group=group)
        if self.op == "reduce":
            return partial(dist.reduce, output, group=group, group_dst=self.root)
        if self.op == "broadcast":
            return partial(dist.broadcast, output, group=group, group_src=self.root)
        if self.op == "reduce_scatter":
            return partial(dist.reduce_scatter_tensor, output, source, group=group)
        if self.op == "all_gather":
            return partial(dist.all_gather_into_tensor, output, source, group=group)
        if self.op == "gather":
            into = list(output.chunk(self.members)) if at_root else None
            return partial(dist.gather, source, into, group=group, group_dst=self.root)
        if self.op == "scatter":
            parts = list(source.chunk(self.members)) if at_root else None
            return partial(dist.scatter, output, parts, group=group, group_src=self.root)
        split = {}
        if self.uneven:
            every = [shares(rank=r, members=self.members, num_elements=self.num_elements) for r in range(self.members)]
            split = {"output_split_sizes": [sent[self.rank] for sent in every], "input_split_sizes": every[self.rank]}
        return partial(dist.all_to_all_single, output, source, group=group, **split)

    def _ring(self, source: torch.Tensor, output: torch.Tensor) -> Callable[[], None]:
        """Send to the next member and receive from the one before, at the same time."""
        after, before = self.team.neighbour(1), self.team.neighbour(-1)
        transfers = [
            dist.P2POp(dist.isend, source, after, self.team.group),
            dist.P2POp(dist.irecv, output, before, self.team.group),
        ]

        def exchange() -> None:
            for work in dist.batch_isend_irecv(transfers):
                work.wait()

        return exchange
