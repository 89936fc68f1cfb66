"""One link under test, seen from one of its two ends: messages, their clock and their verification.

The end that leads owns the clock and the decision to go on; it tells the other end how many repetitions
come next (0: no more). Only one clock is read, so clocks of two hosts are never subtracted:

- latency: the leader sends, the other answers; half of the round trip, first message to answer.
- bandwidth: the leader sends a window of messages, the other answers once after the last; window bytes over
  the time until the answer is here. It includes the answer's way back, so it errs on the low side.

On NCCL, messages go through batch_isend_irecv: that is one communicator for the world, not one per pair.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.collectives.pattern import Pattern, Wrong
from benchmarks.collectives.repetition import Repetition
from benchmarks.collectives.stopwatch import time_ungated
from benchmarks.world import World

BLOCK = 16  # repetitions between two looks at the clock, at most: each has a buffer of its own to verify
BLOCK_BYTES = 8 << 20


@dataclass(kw_only=True)
class Seen:
    """What one end saw of one direction."""

    seconds: list[float] = field(default_factory=list)  # the leader's: one per repetition
    wrong: Wrong = field(default_factory=Wrong)  # of the messages that this end received
    first_s: float = 0.0
    stopped: str = ""


def transfers(world: World, op: str, buffers: Sequence[torch.Tensor], peer: int) -> Callable[[], None]:
    """A call that sends ("isend") or receives ("irecv") the buffers to or from `peer` and waits for all of them."""
    if world.place.backend == "nccl":
        each = [dist.P2POp(getattr(dist, op), buffer, peer) for buffer in buffers]

        def batched() -> None:
            for work in dist.batch_isend_irecv(each):
                work.wait()

        return batched
    start = getattr(dist, op)

    def single() -> None:
        for work in [start(buffer, peer) for buffer in buffers]:
            work.wait()

    return single


@dataclass(kw_only=True)
class Link:
    """This rank's end of a link to `peer`: `messages` from the leader, then one answer, again and again."""

    world: World
    peer: int
    leads: bool
    pattern: Pattern
    num_bytes: int  # of one message
    answer_bytes: int
    messages: int = 1  # from the leader, before the answer

    def __post_init__(self) -> None:
        self.block = max(1, min(BLOCK, BLOCK_BYTES // (self.num_bytes * self.messages)))
        self.out = [self._buffers(self.leads) for _ in range(self.block)]
        self.into = [self._buffers(not self.leads) for _ in range(self.block)]
        self.header = torch.zeros(1, dtype=torch.int64, device=self.world.device)
        self.calls = [self._call(out, into) for out, into in zip(self.out, self.into, strict=True)]

    def measure(self, rule: Repetition) -> Seen:
        """Repeat until the leader's rule says stop. Both ends call it; the leader's Seen has the seconds."""
        seen, done = Seen(), 0
        count, begin = self._announce(1), time.perf_counter()
        while count:
            self._fill(done, count)
            self.world.synchronize()
            seconds = time_ungated(self.calls[:count], world=self.world)
            seen.wrong.add(self._verify(done, count))
            if done == 0:
                seen.first_s, begin = seconds[0], time.perf_counter()
            elif self.leads:
                seen.seconds.extend(seconds)
                seen.stopped = rule.stopped(seen.seconds, time.perf_counter() - begin)
            done += count
            count = self._announce(0 if seen.stopped else min(self.block, rule.most - len(seen.seconds)))
        return seen

    def _announce(self, count: int) -> int:
        """The leader says how many repetitions come next; the other end learns it."""
        self.header.fill_(count)
        transfers(self.world, "isend" if self.leads else "irecv", [self.header], self.peer)()
        return int(self.header.item())

    def _call(self, out: list[torch.Tensor], into: list[torch.Tensor]) -> Callable[[], Any]:
        send = transfers(self.world, "isend", out, self.peer)
        receive = transfers(self.world, "irecv", into, self.peer)
        first, second = (send, receive) if self.leads else (receive, send)

        def call() -> None:
            first()
            second()

        return call

    def _buffers(self, messages: bool) -> list[torch.Tensor]:
        """Buffers of one repetition: the leader's messages, or the answer."""
        sizes = [self.num_bytes] * self.messages if messages else [self.answer_bytes]
        return [torch.zeros(size, dtype=self.pattern.dtype, device=self.world.device) for size in sizes]

    def _fill(self, done: int, count: int) -> None:
        for i in range(count):
            for j, buffer in enumerate(self.out[i]):
                self.pattern.fill(buffer, row=self.world.rank, start=j, iteration=done + i)

    def _verify(self, done: int, count: int) -> Wrong:
        found = Wrong()
        for i in range(count):
            for j, buffer in enumerate(self.into[i]):
                found.add(self.pattern.wrong(buffer[None], rows=(self.peer,), start=j, iteration=done + i))
        return found
