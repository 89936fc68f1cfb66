"""Watches the collectives of one step: how many on which axis, how many bytes, and how long a rank waits for them.

A dispatch mode sees every collective that autograd, DTensor, FSDP2 and the pipeline issue. On a CPU it also
times how long this rank stands still: in the calls themselves, and where it waits for what they promised.
On a GPU nothing stands still on the host: there `trace.py` reads the device's own timeline. A watched
step is slower than others and is not one of the timed ones.

>>> with Watch(grid) as watch: trainer.forward_backward(0)
>>> watch.seen["tp", "all_gather"].count
72
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import _resolve_process_group
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from reference_model.parallel import AXES, Grid

NAMES = {
    # torch's operations: ours, and named as the collectives benchmark names them
    "all_gather_into_tensor": "all_gather", "all_gather_into_tensor_out": "all_gather",
    "_allgather_base_": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter", "reduce_scatter_tensor_out": "reduce_scatter",
    "_reduce_scatter_base_": "reduce_scatter",
    "all_reduce": "all_reduce", "all_reduce_": "all_reduce", "allreduce_": "all_reduce",
    "send": "send", "recv_": "recv",
    "broadcast_": "broadcast", "broadcast": "broadcast",
    "alltoall_base_": "all_to_all", "all_to_all_single": "all_to_all",
}  # fmt: skip
INNER = ("allgather_into_tensor_coalesced_", "reduce_scatter_tensor_coalesced_")  # within a functional collective
BLOCKING = (  # as FSDP2 and DDP call them; torch 2.13 renamed two
    "all_gather_single", "all_gather_into_tensor", "reduce_scatter_single", "reduce_scatter_tensor", "all_reduce",
)  # fmt: skip


@dataclass(kw_only=True)
class Seen:
    """Collectives of one kind on one axis."""

    count: int = 0
    bytes: int = 0  # of all of them, as nccl-tests counts each: gathered output, scattered input
    waited: float = 0.0  # seconds in which this rank did nothing else
    flown: float = 0.0  # seconds from the call to the result, over all of them


def axes_of(grid: Grid) -> dict[object, str]:
    """A process group's ranks, and its name -> the axis of the layout that it runs along: tp, cp, dp, copies or pp.

    Ranks come first: DTensor may answer a mesh with the groups of an earlier mesh of the same shape. The name is for
    the profiler, which cuts long lists of ranks short.
    """
    groups = {axis: grid.group(axis) for axis in AXES if grid.mesh[axis].size() > 1}
    if grid.context is not None:
        groups["cp"] = grid.context.group  # where dp is 1, the ranks that share the state are the same
    found: dict[object, str] = {}
    for axis, group in groups.items():
        found |= dict.fromkeys((_ranks(group), group.group_name), "dp" if axis == "shard" else axis)
    return found


class Watch(TorchDispatchMode):
    """Counts the collectives within the block, by axis and kind."""

    def __init__(self, grid: Grid) -> None:
        super().__init__()
        self.axes = axes_of(grid)
        self.seen: dict[tuple[str, str], Seen] = defaultdict(Seen)
        self._promised: dict[int, tuple[Seen, float]] = {}  # by the place of a collective's result
        self._latest = Seen()
        self._hooked: list[_Work] = []  # DDP's: it waits for them where Python cannot see it
        self._patches = contextlib.ExitStack()

    def __enter__(self) -> Self:
        for name in BLOCKING:
            if hasattr(dist, name):
                self._patches.enter_context(mock.patch.object(dist, name, self._timed(getattr(dist, name))))
        super().__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        self._patches.close()
        if self._hooked:  # after the last of them was called there was nothing left to compute
            last = self._hooked[-1]
            last.seen.waited += max(0.0, max(work.done for work in self._hooked) - last.begin)

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation; count it if it communicates. DTensors are first taken apart by torch."""
        if DTensor in types:
            return NotImplemented
        kwargs, name = kwargs or {}, op._schema.name.partition("::")[2]
        if op.namespace not in ("c10d", "_c10d_functional", "_c10d_functional_autograd") or name in INNER:
            return op(*args, **kwargs)
        begin = time.perf_counter()
        result = op(*args, **kwargs)
        end = time.perf_counter()
        if name == "wait_tensor":
            seen, issued = self._promised.pop(args[0].data_ptr(), (Seen(), begin))
            seen.waited += end - begin
            seen.flown += end - issued
        elif name in NAMES:
            seen = self.seen[self._axis(op, args), NAMES[name]]
            seen.count += 1
            seen.bytes += max(map(_bytes, _tensors((args, result))))
            if op.namespace == "c10d":
                self._latest = seen  # its time is that of the call from Python around it
            else:
                seen.waited += end - begin
                self._promised |= {t.data_ptr(): (seen, begin) for t in _tensors(result)}
        return result

    def _axis(self, op: Any, args: Any) -> str:
        for argument in args:
            ranks: tuple[int, ...] = ()
            if isinstance(argument, str) and op.namespace != "c10d":
                with contextlib.suppress(LookupError, RuntimeError, ValueError):  # "sum" is no group
                    ranks = _ranks(_resolve_process_group(argument))
            elif isinstance(argument, torch.ScriptObject) and "ProcessGroup" in str(argument._type()):
                ranks = _ranks(dist.ProcessGroup.unbox(argument))
            if ranks in self.axes:
                state = self.axes[ranks] == "cp" and op.namespace == "c10d"  # FSDP2's, over the ranks that share cp
                return "dp" if state else self.axes[ranks]
        return "other"

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call` of torch.distributed, timed: itself, and the wait for the work that it returns."""

        @functools.wraps(call)
        def timed(*args: Any, **options: Any) -> Any:
            begin, self._latest = time.perf_counter(), Seen()
            work, spent = call(*args, **options), 0.0
            spent = time.perf_counter() - begin
            self._latest.waited += spent
            if work is None:
                self._latest.flown += spent
                return None
            return _Work(work, self._latest, begin, self._hooked)

        return timed


class _Work(dist.Work):  # type: ignore[misc]
    """A collective under way whose wait is timed."""

    def __init__(self, work: Any, seen: Seen, begin: float, hooked: list[_Work]) -> None:
        super().__init__()
        self.work, self.seen, self.begin, self.hooked = work, seen, begin, hooked
        self.done = begin

    def wait(self, *args: Any) -> Any:
        """Wait, and note how long."""
        before = time.perf_counter()
        try:
            return self.work.wait(*args)
        finally:
            end = time.perf_counter()
            self.seen.waited += end - before
            self.seen.flown += end - self.begin

    def get_future(self) -> Any:
        """DDP asks for it: note when it is done."""
        future = self.work.get_future()
        self.hooked.append(self)
        future.add_done_callback(lambda _: self._finish())
        return future

    def _finish(self) -> None:
        self.done = time.perf_counter()
        self.seen.flown += self.done - self.begin


def _ranks(group: Any) -> tuple[int, ...]:
    return tuple(dist.get_process_group_ranks(group))


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)


def _bytes(tensor: Tensor) -> int:
    return int(tensor.numel() * tensor.element_size())
