"""Several flows at the same time, from one half of the ranks to the other: what the fabric between them carries.

One flow shows a link; k flows at once show whether links that are good alone share something narrow: an
oversubscribed switch, an uplink, a NIC that two GPUs use. With k = half of the ranks it is the bisection. The scaling
is what k flows carry over k times what one carries alone: 1 where they share nothing, 1/2 behind half an uplink.

An iteration moves one window per flow and takes as long as the slowest flow; the bandwidth is that of all
flows together. Iterations are played like a collective's: after a barrier, on fresh data, verified.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

import torch

from benchmarks.collectives.operations import Slot
from benchmarks.collectives.pattern import Pattern, Wrong
from benchmarks.collectives.repetition import Repetition
from benchmarks.collectives.rounds import Idle, Sweep, Work, repeat, warm
from benchmarks.collectives.spread import spread
from benchmarks.links.exchange import Link
from benchmarks.links.spec import DIRECTIONS, Links, read_round
from benchmarks.measurement import Measurement
from benchmarks.world import World

WARM_UP = 2  # windows
SLOTS = 4


def halves(nodes: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs (lower half, upper half), rank i with rank i + n/2, where `nodes` is the node of every rank.

    In an order that spreads the first few over as many nodes as there are. With an odd number of ranks the last
    one has no partner.

    >>> halves(["a", "a", "b", "b", "c", "c", "d", "d"])
    [(0, 4), (2, 6), (1, 5), (3, 7)]
    """
    half = len(nodes) // 2
    place = {rank: nodes[:rank].count(nodes[rank]) for rank in range(half)}
    return [(rank, rank + half) for rank in sorted(range(half), key=lambda rank: (place[rank], rank))]


class Flow:
    """One rank's end of a flow, played like a collective."""

    def __init__(self, link: Link) -> None:
        self.link = link
        empty = torch.empty(0)
        self.slots: Sequence[Slot] = [Slot(source=empty, output=empty, call=call) for call in link.calls]

    def prepare(self, first_iteration: int) -> None:
        """Fresh data to send."""
        self.link.fill(first_iteration, len(self.slots))

    def verify(self, first_iteration: int) -> Wrong:
        """What came in."""
        return self.link.verify(first_iteration, len(self.slots))

    def capture(self) -> None:
        """Refuses: the host takes part in every exchange."""
        raise RuntimeError("links: flows are not captured in CUDA graphs")


def measure_flows(spec: Links, world: World, pattern: Pattern) -> Iterator[tuple[Measurement, Sweep]]:
    """Every number of flows in both directions: a Measurement with the Sweep behind it. Called by all ranks."""
    for of, together in _sets(spec, world):
        for direction in DIRECTIONS:
            pairs = [(b, a) for a, b in together] if direction == "down" else together
            sweep = _measure(spec, world, pattern, pairs)
            yield _report(spec, pairs, direction, sweep, of=of), sweep


def scaling(spec: Links, measured: Sequence[Measurement]) -> Iterator[Measurement]:
    """Of every number of flows but one: its samples over as many times the median of one flow in that direction."""
    found = {(m.params["flows"], m.params["direction"]): m for m in measured if "set" not in m.params}
    for k in spec.sweep()[1:]:
        for direction in DIRECTIONS:
            alone = statistics.median(found[1, direction].samples)
            yield spec.scaling_metric(k, direction).measured(
                *(s / (k * alone) for s in found[k, direction].samples), notes={"one_flow": alone}
            )


def _sets(spec: Links, world: World) -> Iterator[tuple[int | None, list[tuple[int, int]]]]:
    """The pairs of every number of flows; with its place where the spec names the sets itself."""
    for k in spec.sweep():
        yield None, halves(world.nodes)[:k]
    for of, pairs in enumerate(spec.flow_sets):
        yield of, read_round(pairs)


def _measure(spec: Links, world: World, pattern: Pattern, pairs: list[tuple[int, int]]) -> Sweep:
    work: Work = Idle(num_slots=SLOTS)
    for a, b in pairs:
        if world.rank in (a, b):
            link = Link(
                world=world, peer=b if world.rank == a else a, leads=world.rank == a, pattern=pattern, kind="bandwidth",
                num_bytes=max(spec.bandwidth_sizes), window=spec.window, num_slots=SLOTS,
            )  # fmt: skip
            work = Flow(link)
    sweep = Sweep(teams=[tuple(rank for pair in pairs for rank in pair)])
    warm(work, world, sweep, calls=WARM_UP)
    most = max(spec.min_repetitions, spec.max_repetitions * spec.passes)
    repeat(
        work, world, sweep,
        rule=Repetition(fewest=spec.min_repetitions, most=most, budget_s=spec.bandwidth_budget_s),
    )  # fmt: skip
    return sweep


def _report(spec: Links, pairs: list[tuple[int, int]], direction: str, sweep: Sweep, *, of: int | None) -> Measurement:
    (team,) = sweep.teams
    times, size = sweep.times(team), spec.window * max(spec.bandwidth_sizes)
    return spec.flow_metric(len(pairs), direction, of=of).measured(
        *(len(pairs) * size / t for t in times),
        columns={
            "a": [a for a, _ in pairs],
            "b": [b for _, b in pairs],
            "median_bandwidth": [size / statistics.median(sweep.seconds[a]) for a, _ in pairs],
            "best_together": [size / sweep.seconds[a][times.index(min(times))] for a, _ in pairs],
        },
        notes={"seconds": spread(times), "stopped": sweep.stopped[team]},
    )
