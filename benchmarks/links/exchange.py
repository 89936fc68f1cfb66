"""One link under test, seen from one of its two ends: messages, their clock and their verification.

The end that leads owns the clock and the decision to go on; it tells the other end how many repetitions
come next (0: no more). Only one clock is read, so clocks of two hosts are never subtracted:

- latency: the leader sends, the other answers; half of the time until the answer is here.
- bandwidth: the leader sends a window of messages, the other answers once after the last; window bytes over
  the time until the answer is here. It includes the answer's way back, so it errs on the low side.
- both_ways: both send a window, and each answers the other's; both windows' bytes over the same time.

On NCCL, messages go through batch_isend_irecv: that is one communicator for the world, not one per pair.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
import torch.distributed as dist

from benchmarks.collectives.pattern import Pattern, Wrong
from benchmarks.collectives.stopwatch import time_in_row
from benchmarks.world import World

BLOCK = 16  # repetitions between two looks at the clock, at most: each has buffers of its own to verify
BLOCK_BYTES = 8 << 20
ANSWER_BYTES = 8
Buffers = list[torch.Tensor]
Stop = Callable[[Sequence[float], float], str]
"""Samples so far and seconds since the first: why to stop now, or "" to go on."""


@dataclass(kw_only=True)
class Seen:
    """What one end saw."""

    seconds: list[float] = field(default_factory=list)  # the leader's: one per repetition
    wrong: Wrong = field(default_factory=Wrong)  # of the messages that this end received
    first_s: float = 0.0  # the leader's first repetition: no sample
    stopped: str = ""


@dataclass(kw_only=True)
class Link:
    """This rank's end of a link to `peer`. Both ends make the same one, except for `leads`."""

    world: World
    peer: int
    leads: bool
    pattern: Pattern
    kind: str  # latency | bandwidth | both_ways
    num_bytes: int  # of one message
    window: int = 1  # messages before an answer
    num_slots: int = 0  # repetitions with buffers of their own; 0: as many as fit

    def __post_init__(self) -> None:
        if self.kind == "latency":
            self.window = 1
        self.num_slots = self.num_slots or max(1, min(BLOCK, BLOCK_BYTES // (self.num_bytes * self.window)))
        self.out = [self._buffers(sends=self.leads) for _ in range(self.num_slots)]
        self.into = [self._buffers(sends=not self.leads) for _ in range(self.num_slots)]
        self.calls = [self._call(out, into) for out, into in zip(self.out, self.into, strict=True)]
        self.header = torch.zeros(1, dtype=torch.int64, device=self.world.device)

    def measure(self, stop: Stop, *, most: int) -> Seen:
        """Repeat until the leader's `stop` says so. Both ends call it; the leader's Seen has the seconds."""
        seen, done = Seen(), 0
        count, begin = self._announce(1), time.perf_counter()
        while count:
            seconds, wrong = self.repeat(done, count)
            seen.wrong.add(wrong)
            if done == 0:
                seen.first_s, begin = seconds[0], time.perf_counter()
            elif self.leads:
                seen.seconds.extend(seconds)
                seen.stopped = stop(seen.seconds, time.perf_counter() - begin)
            done += count
            more = min(2 * count, self.num_slots, most - len(seen.seconds))  # small at first: a slow link stops soon
            count = self._announce(0 if seen.stopped else more)
        return seen

    def repeat(self, first: int, count: int) -> tuple[list[float], Wrong]:
        """Repetitions `first` and on, with fresh data: seconds at this end, and what was wrong in what it received.

        No clock runs while the other end still fills: the leader waits for its word.
        """
        self.fill(first, count)
        self.world.synchronize()
        seconds = time_in_row(self.calls[:count], world=self.world, ready=lambda: self._tell(to_leader=True))
        return seconds, self.verify(first, count)

    def fill(self, first: int, count: int) -> None:
        """Fresh data into what this end sends in repetitions `first` and on."""
        for i in range(count):
            for j, buffer in enumerate(self.out[i]):
                self.pattern.fill(buffer, row=self.world.rank, start=j, iteration=first + i)

    def verify(self, first: int, count: int) -> Wrong:
        """What this end received in repetitions `first` and on."""
        found = Wrong()
        for i in range(count):
            for j, buffer in enumerate(self.into[i]):
                wrong = self.pattern.wrong(buffer[None], rows=(self.peer,), start=j, iteration=first + i)
                if wrong.first:
                    wrong.first["message"] = j
                found.add(wrong)
        return found

    def _announce(self, count: int) -> int:
        """The leader says how many repetitions come next; the other end learns it."""
        self.header.fill_(count)
        self._tell(to_leader=False)
        return int(self.header.item())

    def _tell(self, *, to_leader: bool) -> None:
        """Send the header from one end to the other."""
        out, into = ([self.header], []) if self.leads != to_leader else ([], [self.header])
        self._transfer(out, into)()

    def _buffers(self, *, sends: bool) -> Buffers:
        """The buffers of one direction: messages from an end that sends, and the answer where one is due."""
        answers = self.kind == "both_ways" or not sends
        sizes = [self.num_bytes] * self.window if sends or self.kind == "both_ways" else []
        if answers:
            sizes.append(self.num_bytes if self.kind == "latency" else ANSWER_BYTES)
        return [torch.zeros(size, dtype=self.pattern.dtype, device=self.world.device) for size in sizes]

    def _call(self, out: Buffers, into: Buffers) -> Callable[[], None]:
        """One repetition at this end: two steps, each started as a whole and then waited for."""
        w = self.window
        if self.kind == "both_ways":
            first, second = self._transfer(out[:w], into[:w]), self._transfer(out[w:], into[w:])
        elif self.leads:
            first, second = self._transfer(out, []), self._transfer([], into)
        else:
            first, second = self._transfer([], into), self._transfer(out, [])

        def call() -> None:
            first()
            second()

        return call

    def _transfer(self, out: Buffers, into: Buffers) -> Callable[[], object]:
        """A call that sends and receives these buffers and waits for all of them."""
        peer = self.peer
        if self.world.place.backend == "nccl":
            sends = [dist.P2POp(dist.isend, buffer, peer) for buffer in out]
            receives = [dist.P2POp(dist.irecv, buffer, peer) for buffer in into]

            def batched() -> None:
                for work in dist.batch_isend_irecv(sends + receives):
                    work.wait()

            return batched
        if len(out) + len(into) == 1:  # the shortest way for a single message: nothing of ours in a round trip
            return partial(dist.send, out[0], peer) if out else partial(dist.recv, into[0], peer)

        def several() -> None:
            works = [dist.irecv(buffer, peer) for buffer in into] + [dist.isend(buffer, peer) for buffer in out]
            for work in works:
                assert work is not None
                work.wait()

        return several
