"""Rounds of timed and verified calls, until the rule says stop; the same decision on every rank.

Within a round nothing but barriers and calls happens. Between rounds the ranks exchange what they saw over the
control group: durations, errors, and rank 0's clock, which alone counts the time budget.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from benchmarks.collectives.operations import Slot
from benchmarks.collectives.pattern import Wrong
from benchmarks.collectives.repetition import Repetition
from benchmarks.collectives.stopwatch import time_calls
from benchmarks.collectives.wire import sent_bytes
from benchmarks.world import World

Ranks = tuple[int, ...]


class Work(Protocol):
    """What is played: slots to call, filled before and verified after."""

    @property
    def slots(self) -> Sequence[Slot]: ...

    def prepare(self, first_iteration: int) -> None: ...
    def verify(self, first_iteration: int) -> Wrong: ...
    def capture(self) -> None: ...


class Idle:
    """The work of a rank that waits while others play: it only keeps step at the barriers."""

    def __init__(self, *, num_slots: int) -> None:
        empty = torch.empty(0)
        self.slots: Sequence[Slot] = [Slot(source=empty, output=empty, call=lambda: None) for _ in range(num_slots)]

    def prepare(self, first_iteration: int) -> None:
        """Nothing to fill."""

    def verify(self, first_iteration: int) -> Wrong:  # noqa: ARG002
        """Nothing to verify."""
        return Wrong()

    def capture(self) -> None:
        """Nothing to capture."""


@dataclass(kw_only=True)
class Sweep:
    """What all ranks saw at one size. The same on every rank."""

    teams: list[Ranks]  # who plays together
    seconds: dict[int, list[float]] = field(default_factory=dict)  # of every timed iteration, per playing rank
    first_call_s: dict[int, float] = field(default_factory=dict)
    wrong: dict[int, int] = field(default_factory=dict)  # rank -> wrong elements, all iterations
    first_wrong: dict[int, dict[str, Any]] = field(default_factory=dict)
    verified: int = 0  # iterations
    stopped: dict[Ranks, str] = field(default_factory=dict)
    sent_bytes: int | None = None  # by all nodes together while timing; None: a node does not count

    def times(self, team: Ranks) -> list[float]:
        """Seconds of a team's timed iterations: its slowest rank's."""
        return [max(ranks) for ranks in zip(*(self.seconds[rank] for rank in team), strict=True)]


def warm(work: Work, world: World, sweep: Sweep, *, calls: int) -> None:
    """Rounds until `calls` calls are done, verified like all others; of their times only the first call's is kept."""
    while sweep.verified < calls:
        durations, _ = _round(work, world, sweep)
        for rank, seconds in durations.items():
            sweep.first_call_s.setdefault(rank, seconds[0])


def repeat(work: Work, world: World, sweep: Sweep, *, rule: Repetition) -> None:
    """Rounds until the rule says stop for every team that plays."""
    begin, before = _at(world)
    sweep.seconds = {rank: [] for team in sweep.teams for rank in team}
    while True:
        durations, now = _round(work, world, sweep)
        for rank, seconds in durations.items():
            sweep.seconds[rank].extend(seconds)
        sweep.stopped = {team: rule.stopped(sweep.times(team), now - begin) for team in sweep.teams}
        if all(sweep.stopped.values()):
            break
    _, after = _at(world)
    sweep.sent_bytes = None if before is None or after is None else after - before


def _at(world: World) -> tuple[float, int | None]:
    """Rank 0's clock, and the bytes that all nodes together have sent so far."""
    counted = sent_bytes() if world.rank == world.local_ranks[0] else 0
    everyone = world.gather((time.perf_counter(), counted))
    counts = [sent for _, sent in everyone if sent is not None]
    return everyone[0][0], sum(counts) if len(counts) == world.size else None


def _round(work: Work, world: World, sweep: Sweep) -> tuple[dict[int, list[float]], float]:
    """Fill, time, verify, exchange. The playing ranks' durations, and the time on rank 0's clock."""
    work.prepare(sweep.verified)
    world.synchronize()
    durations = time_calls([slot.call for slot in work.slots], world=world)
    wrong = work.verify(sweep.verified)
    sweep.verified += len(work.slots)
    gathered = world.gather((durations, wrong, time.perf_counter()))
    playing = [rank for team in sweep.teams for rank in team]
    for rank in playing:
        seen = gathered[rank][1]
        if seen.count:
            sweep.wrong[rank] = sweep.wrong.get(rank, 0) + seen.count
            sweep.first_wrong.setdefault(rank, {"rank": rank, **seen.first})
    return {rank: gathered[rank][0] for rank in playing}, gathered[0][2]
