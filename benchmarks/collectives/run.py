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
import uuid
from collections.abc import Iterator
from typing import Any

from benchmarks.collectives.barrier import Barrier
from benchmarks.collectives.layout import SUMMED, away, must_travel
from benchmarks.collectives.operations import Operation
from benchmarks.collectives.pattern import DTYPES, Pattern
from benchmarks.collectives.repetition import Repetition
from benchmarks.collectives.rounds import Idle, Sweep, Work, repeat, warm
from benchmarks.collectives.spec import Collective
from benchmarks.collectives.spread import spread
from benchmarks.collectives.teams import Team, teams
from benchmarks.measurement import Measurement
from benchmarks.world import World
from clusters.line_rate import bus_factor

ROUND_BYTES = 4 << 20  # of buffers in one round
ROUND_CALLS = 32
LEAST_SENT = 0.95  # of what must travel: counters may lag a little behind
WARM_UP = 3  # calls, at least: verified, not timed


def run(spec: Collective, world: World) -> Iterator[Measurement]:
    """Sweep the sizes in ascending order; rank 0 yields every size as soon as it is done."""
    members = spec.members(world.place)
    with teams(spec.group, world) as found:
        mine = next(team for team in found if team.place >= 0)
        pattern = Pattern(
            members=members, dtype=DTYPES[spec.dtype], summed=spec.op in SUMMED, device=world.device,
            seed=spec.seed + 1_000 * mine.index,
        )  # fmt: skip
        for size in spec.sweep():
            num_elements = spec.elements(size, members)
            for playing in [found] if spec.together else [[team] for team in found]:
                sweep = measure(spec, world, pattern, num_elements, playing)
                for team in playing if world.is_first else ():
                    yield from report(spec, size, team, sweep, backend=world.place.backend)


def measure(spec: Collective, world: World, pattern: Pattern, num_elements: int, playing: list[Team]) -> Sweep:
    """Repeat one size in the teams `playing` until the rule says stop. Called by all ranks; all get the same Sweep."""
    rule = Repetition(
        fewest=spec.min_repetitions, most=spec.max_repetitions, budget_s=spec.budget_s, precision=spec.precision
    )
    size = num_elements * pattern.dtype.itemsize
    num_slots = max(1, min(ROUND_CALLS, ROUND_BYTES // max(size, 1)))
    mine = next((team for team in playing if team.place >= 0), None)
    token = world.gather(uuid.uuid4().hex)[0] if spec.op == "barrier" else ""
    work: Work = Idle(num_slots=num_slots)
    if mine and spec.op == "barrier":
        work = Barrier(team=mine, key=f"{token}/{mine.index}", num_slots=num_slots)
    elif mine:
        work = Operation(
            op=spec.op, team=mine, num_elements=num_elements, pattern=pattern, root=spec.root, in_place=spec.in_place,
            uneven=spec.uneven, deferred=spec.deferred, num_slots=num_slots,
        )  # fmt: skip
    sweep = Sweep(teams=[team.ranks for team in playing])
    warm(work, world, sweep, calls=WARM_UP)
    if spec.graph:
        work.capture()
        warm(work, world, sweep, calls=sweep.verified + 1)
    repeat(work, world, sweep, rule=rule)
    return sweep


def report(spec: Collective, size: int, team: Team, sweep: Sweep, *, backend: str) -> Iterator[Measurement]:
    """The Measurements of one size and team, from the metrics that the spec promised.

    Over gloo every byte passes an interface that counts it. Where fewer were sent than no algorithm can do without, the
    calls did not do their work, whatever the clock says: that is an error, not a bandwidth.
    """
    times, members = sweep.times(team.ranks), len(team.ranks)
    moved = spec.elements(size, members) * DTYPES[spec.dtype].itemsize
    wrong = [sweep.wrong.get(rank, 0) for rank in team.ranks]
    columns = {
        "rank": list(team.ranks),
        "median_s": [statistics.median(sweep.seconds[rank]) for rank in team.ranks],
        "wrong_elements": wrong,
    }
    notes: dict[str, Any] = {
        "verified": sweep.verified, "first_call_s": max(sweep.first_call_s[rank] for rank in team.ranks),
        "stopped": sweep.stopped[team.ranks], "seconds": spread(times),
    }  # fmt: skip
    samples: dict[str, list[float]] = {"latency": times, "wrong_elements": [sum(wrong)]}
    reason = ""
    if spec.op != "barrier":
        factor = away(members=members) if spec.uneven else bus_factor(spec.op, members)
        notes |= {"moved_bytes": moved, "bus_factor": factor}
        samples["busbw"] = [factor * moved / t for t in times]
        if sweep.sent_bytes is not None:
            must = must_travel(spec.op, members=members, size=moved, uneven=spec.uneven) * len(sweep.teams) * len(times)
            notes |= {"sent_bytes": sweep.sent_bytes, "must_travel_bytes": must}
            if backend == "gloo" and sweep.sent_bytes < LEAST_SENT * must:
                reason = f"{sweep.sent_bytes:,.0f} B were sent in {len(times)} calls that must send {must:,.0f} B"
    if first := next((sweep.first_wrong[r] for r in team.ranks if r in sweep.first_wrong), None):
        notes["first_wrong"] = first
    for metric in spec.metrics(size, team.rail):
        kind = metric.name.rpartition(".")[2]
        fields: dict[str, Any] = {"subject": team.subject, "columns": columns, "notes": notes}
        if reason and kind != "wrong_elements":
            fields |= {"outcome": "error", "reason": reason}
        yield metric.measured(*samples[kind], **fields)
