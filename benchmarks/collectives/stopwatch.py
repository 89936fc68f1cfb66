"""How long each of a few calls takes on this rank.

For a collective, every call comes after a barrier of all ranks, and the caller makes an iteration's time from all
ranks' durations: the slowest one's. Clocks of two hosts are never subtracted.

On a CPU the clock runs around the blocking call. On a GPU the barrier is a small all_reduce on the world's stream
and the clock is a pair of device events; the host queues the whole round while the stream is held, so that what
is timed is the fabric and not Python.

No rank goes on before the last call has ended on every rank: what it did next, such as to verify, would take a core
from ranks that are still inside (measured: 6 to 9 % of an all_gather of 64 MiB by four ranks on two cores).

    durations = time_calls([slot.call for slot in op.slots], world=world)    # seconds, one per call
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.world import World

Call = Callable[[], Any]
QUEUE_CYCLES = 300_000  # GPU clock cycles to hold the stream per queued call: about 150 us, longer than a launch


def time_calls(calls: Sequence[Call], *, world: World) -> list[float]:
    """Seconds of each call on this rank, each after a barrier. All ranks pass as many calls, and leave together."""
    barrier, control, clock, durations = dist.barrier, world.control, time.perf_counter, []
    if world.device.type == "cuda":
        one = torch.zeros(1, device=world.device)
        durations = _on_device(calls, world=world, gate=lambda: dist.all_reduce(one))
    else:
        for call in calls:
            barrier(group=control)
            begin = clock()
            call()
            durations.append(clock() - begin)
    barrier(group=control)
    return durations


def time_in_row(calls: Sequence[Call], *, world: World, ready: Call) -> list[float]:
    """Seconds of each call on this rank, one right after the other: for calls that wait for each other anyway.

    `ready` comes before the first one and is not timed: both ends of a link meet in it.
    """
    if world.device.type == "cuda":
        return _on_device(calls, world=world, ready=ready)
    clock, durations = time.perf_counter, []
    ready()
    for call in calls:
        begin = clock()
        call()
        durations.append(clock() - begin)
    return durations


def _on_device(
    calls: Sequence[Call], *, world: World, ready: Call | None = None, gate: Call | None = None
) -> list[float]:
    starts = [torch.cuda.Event(enable_timing=True) for _ in calls]
    ends = [torch.cuda.Event(enable_timing=True) for _ in calls]
    torch.cuda._sleep(QUEUE_CYCLES * len(calls))
    if ready is not None:
        ready()
    for call, start, end in zip(calls, starts, ends, strict=True):
        if gate is not None:
            gate()
        start.record()
        call()
        end.record()
    torch.cuda.synchronize(world.device)
    return [start.elapsed_time(end) / 1e3 for start, end in zip(starts, ends, strict=True)]
