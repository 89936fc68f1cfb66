"""Measure one collective over a sweep of sizes; every result of every timed call is verified.

A round is a handful of iterations, each with its own buffers and its own data: fill all, then time each
after a barrier, then verify all. So neither filling nor verifying is timed, nor does it stand between two
timed calls. After a round the ranks exchange their durations; an iteration's time is the slowest rank's.
All ranks see the same numbers, so all decide alike whether to go on.

`bus bandwidth = size / time x f` (f: `clusters.line_rate.bus_factor`). What these numbers do not say: which
algorithm the library chose, and which rank is at fault; the per-rank medians beside them help with the latter.

    torchrun --nproc-per-node=4 -m benchmarks collectives --op all_reduce
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.collectives.operations import SUMMED, Operation
from benchmarks.collectives.pattern import DTYPES, Pattern, Wrong
from benchmarks.collectives.repetition import Repetition
from benchmarks.collectives.spec import Collective
from benchmarks.collectives.stopwatch import time_calls
from benchmarks.measurement import Measurement
from benchmarks.world import World
from clusters.line_rate import bus_factor

ROUND_BYTES = 4 << 20  # buffers of one round, so that a round's data is verified together
ROUND_CALLS = 32
WARM_UP = 3  # calls, at least: verified, not timed


@dataclass(kw_only=True)
class Sweep:
    """What was seen at one size, on all ranks."""

    per_rank: list[list[float]] = field(default_factory=list)  # seconds, [rank][iteration]
    wrong: dict[int, int] = field(default_factory=dict)  # rank -> wrong elements, all iterations
    first_wrong: dict[str, Any] = field(default_factory=dict)
    first_call_s: float = 0.0
    verified: int = 0  # iterations
    stopped: str = ""

    def take(self, rank: int, wrong: Wrong) -> None:
        """Add the errors that a rank found in a round."""
        if wrong.count:
            self.wrong[rank] = self.wrong.get(rank, 0) + wrong.count
            self.first_wrong = self.first_wrong or {"rank": rank, **wrong.first}

    def times(self) -> list[float]:
        """Seconds of every timed iteration: the slowest rank's."""
        return [max(ranks) for ranks in zip(*self.per_rank, strict=True)]


def run(spec: Collective, world: World) -> Iterator[Measurement]:
    """Sweep the sizes in ascending order; rank 0 yields every size as soon as it is done."""
    members = spec.members(world.place)
    pattern = Pattern(
        members=members, dtype=DTYPES[spec.dtype], summed=spec.op in SUMMED, device=world.device, seed=spec.seed
    )
    for num_elements in spec.sweep(members):
        sweep = measure(spec, world, pattern, num_elements)
        if world.is_first:
            yield from report(spec, world, num_elements, sweep)


def measure(spec: Collective, world: World, pattern: Pattern, num_elements: int) -> Sweep:
    """Repeat one size until the rule says stop. Called by all ranks; all get the same Sweep."""
    size = num_elements * pattern.dtype.itemsize
    rule = Repetition(fewest=spec.min_repetitions, most=spec.max_repetitions, budget_s=spec.budget_s)
    sweep = Sweep(per_rank=[[] for _ in range(world.size)])

    op = Operation(
        op=spec.op, rank=world.rank, members=world.size, num_elements=num_elements, root=spec.root, pattern=pattern,
        num_slots=max(1, min(ROUND_CALLS, ROUND_BYTES // size)),
    )  # fmt: skip
    durations, begin = _round(op, world, sweep)
    sweep.first_call_s = max(seconds[0] for seconds in durations)
    while sweep.verified < WARM_UP:
        _, begin = _round(op, world, sweep)
    while not sweep.stopped:
        durations, now = _round(op, world, sweep)
        for rank, seconds in enumerate(durations):
            sweep.per_rank[rank].extend(seconds)
        sweep.stopped = rule.stopped(sweep.times(), now - begin)
    return sweep


def _round(op: Operation, world: World, sweep: Sweep) -> tuple[list[list[float]], float]:
    """One round on all ranks: fill, time, verify, exchange. Every rank's durations, and the time on rank 0's clock."""
    first = sweep.verified
    op.prepare(first)
    world.synchronize()
    durations = time_calls([slot.call for slot in op.slots], world=world)
    wrong = op.verify(first)
    sweep.verified += len(op.slots)
    gathered = world.gather((durations, wrong, time.perf_counter()))
    for rank, (_, seen, _) in enumerate(gathered):
        sweep.take(rank, seen)
    return [seconds for seconds, _, _ in gathered], gathered[0][2]


def report(spec: Collective, world: World, num_elements: int, sweep: Sweep) -> Iterator[Measurement]:
    """The Measurements of one size, from the metrics that the spec promised."""
    times = sweep.times()
    size, factor = num_elements * DTYPES[spec.dtype].itemsize, bus_factor(spec.op, world.size)
    samples = {
        "busbw": [factor * size / t for t in times],
        "latency": times,
        "wrong_elements": [sum(sweep.wrong.values())],
    }
    columns = {
        "rank": list(range(world.size)),
        "median_s": [statistics.median(seconds) for seconds in sweep.per_rank],
        "wrong_elements": [sweep.wrong.get(rank, 0) for rank in range(world.size)],
    }
    notes = {
        "verified": sweep.verified, "first_call_s": sweep.first_call_s, "stopped": sweep.stopped, "bus_factor": factor,
    }  # fmt: skip
    if sweep.first_wrong:
        notes["first_wrong"] = sweep.first_wrong
    for metric in spec.metrics(num_elements):
        kind = metric.name.rpartition(".")[2]
        yield metric.measured(*samples[kind], subject=world.all(), columns=columns, notes=notes)
