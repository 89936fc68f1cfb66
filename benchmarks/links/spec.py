"""What the pair tournament is asked to do, and what it promises to emit. No torch here.

>>> from benchmarks.spec import Place
>>> [metric.name for metric in Links().emits(Place(ranks_per_node=4))]
['links.latency', 'links.bandwidth', 'links.wrong_elements']
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from benchmarks.measurement import Metric, Scalar
from benchmarks.spec import Place

LEAST_ROUNDS = 3  # of a screening
DIRECTIONS = ("up", "down")  # of flows: from the lower half of the ranks to the upper, and back


@dataclass(frozen=True, kw_only=True)
class Links:
    """Every ordered pair of ranks, in rounds of disjoint pairs. Every message is verified."""

    benchmark: ClassVar[str] = "links"
    scope: ClassVar[str] = "world"

    latency_sizes: tuple[int, ...] = (8,)
    """bytes of the messages whose half round trip is the latency"""
    bandwidth_sizes: tuple[int, ...] = (1 << 20,)
    """bytes of the messages that make the bandwidth"""
    both_ways: bool = False
    """also the bandwidth of both directions at once, at every bandwidth size"""
    flows: tuple[int, ...] = ()
    """also so many flows at the same time from one half of the ranks to the other, at the largest bandwidth size, and
    one alone to hold them against; half of the ranks: the bisection"""
    congestion: bool = False
    """also the latency of a pair while all others send, against its latency alone"""
    congestion_trips: int = 500
    """round trips of the watched pair, alone and under load each, at least: five lie beyond the 99th percentile"""
    window: int = 4
    """messages on their way at once; the receiver answers after the last one"""
    passes: int = 3
    """times that every pair is met, so that one bad moment of the machine does not decide about a link"""
    latency_budget_s: float = 0.1
    """seconds of round trips per ordered pair and size, all passes together"""
    bandwidth_budget_s: float = 0.2
    """seconds of windows per ordered pair and size, all passes together"""
    min_repetitions: int = 3
    """repetitions per ordered pair and pass even where the budget is spent"""
    max_repetitions: int = 64
    """repetitions per ordered pair and pass after which nothing more is learnt"""
    rounds: tuple[str, ...] = ()
    """rounds of disjoint pairs instead of the full tournament, e.g. ("0-3 1-2", "0-1"): a re-test of some ranks"""
    meet: str = "ranks"
    """who meets: "ranks", each with each; "nodes", rank i of each with rank i of each (its rail), all rails at once,
    and inside every node each rank with each"""
    screening: int = 0
    """so many rounds of random disjoint pairs of nodes, at least three, instead of every pair; 0: every pair"""
    leaves: tuple[str, ...] = ()
    """of a screening: the nodes of each leaf switch, e.g. ("n1 n2", "n3 n4"): partners are on other leaves, and in
    every fifth round on the same one"""
    pods: tuple[str, ...] = ()
    """of a screening: the nodes of each pod; in half of the rounds partners are of other pods"""
    flow_sets: tuple[str, ...] = ()
    """pairs of ranks that send at the same time, e.g. ("0-4", "0-4 1-5"), instead of one half to the other: a probe
    of the boundary between two leaves"""
    seed: int = 1
    """picks the data and the order of the rounds"""
    limit_s: float = 120.0
    """time-out of the whole tournament, seconds"""

    def __post_init__(self) -> None:
        sizes = self.latency_sizes + self.bandwidth_sizes
        if not self.latency_sizes or not self.bandwidth_sizes or min(sizes) < 1 or len(set(sizes)) < len(sizes):
            raise ValueError("links: latency_sizes and bandwidth_sizes are different positive numbers of bytes")
        for pairs in self.rounds + self.flow_sets:
            ends = [rank for pair in read_round(pairs) for rank in pair]
            if len(set(ends)) < len(ends):
                raise ValueError(f"links: the pairs of a round are disjoint, not {pairs!r}")
        if self.meet not in ("ranks", "nodes"):
            raise ValueError(f'links: meet is "ranks" or "nodes", not {self.meet!r}')
        if self.screening and (self.meet != "nodes" or self.screening < LEAST_ROUNDS):
            raise ValueError(f'links: a screening is of nodes (meet = "nodes"), in at least {LEAST_ROUNDS} rounds')
        if self.flows and self.flow_sets:
            raise ValueError("links: flows from half to half, or flow_sets: one of the two")
        if min(self.window, self.passes, self.congestion_trips) < 1:
            raise ValueError("links: window, passes and congestion_trips are at least 1")
        if not 1 <= self.min_repetitions <= self.max_repetitions:
            raise ValueError(
                f"links: min_repetitions {self.min_repetitions} must lie between 1 and "
                f"max_repetitions {self.max_repetitions}"
            )

    def kinds(self) -> Iterator[tuple[str, int]]:
        """What is measured of every pair: (kind, message bytes)."""
        for kind, sizes in (
            ("latency", self.latency_sizes),
            ("bandwidth", self.bandwidth_sizes),
            ("both_ways", self.bandwidth_sizes if self.both_ways else ()),
        ):
            for size in sizes:
                yield kind, size

    @property
    def per(self) -> str:
        """What a table is of: every ordered pair of ranks, or every rank in some pairs."""
        return "pair" if self.meet == "ranks" else "meeting"

    def pair_metric(self, kind: str, size: int) -> Metric:
        """The table of one kind and size: a row per ordered pair that met."""
        if kind == "latency":
            return Metric(name="links.latency", unit="s", better="lower", per=self.per, params={"bytes": size})
        name = "links.both_ways.bandwidth" if kind == "both_ways" else "links.bandwidth"
        return Metric(name=name, unit="B/s", better="higher", per=self.per, params={"bytes": size})

    def flow_metric(self, flows: int, direction: str, *, of: int | None = None) -> Metric:
        """The bandwidth of several flows together; `of` is the place in `flow_sets`."""
        params: dict[str, Scalar] = {"bytes": max(self.bandwidth_sizes), "flows": flows, "direction": direction}
        if of is not None:
            params["set"] = of
        return Metric(name="links.flows.bandwidth", unit="B/s", better="higher", params=params)

    def sweep(self) -> list[int]:
        """The numbers of flows that are measured, one alone first; none where none is asked for."""
        return sorted({1, *self.flows}) if self.flows else []

    def scaling_metric(self, flows: int, direction: str) -> Metric:
        """What several flows carry together, over as many times what one carries alone: 1 where they share nothing."""
        metric = self.flow_metric(flows, direction)
        return Metric(name="links.flows.scaling", unit="1", better="higher", params=metric.params)

    def congestion_metrics(self) -> tuple[Metric, Metric]:
        """How many times longer a message takes under load: the mean, and the 99th percentile."""
        params: dict[str, Scalar] = {"bytes": min(self.latency_sizes), "load_bytes": max(self.bandwidth_sizes)}
        mean, p99 = (
            Metric(name=f"links.congestion.{name}_factor", unit="1", better="lower", params=params)
            for name in ("mean", "p99")
        )
        return mean, p99

    def wrong_metric(self) -> Metric:
        """Wrong elements of everything that the tournament sent from a to b."""
        return Metric(name="links.wrong_elements", unit="1", better="equal", per=self.per)

    def emits(self, place: Place) -> list[Metric]:
        """Every metric there. ValueError, with the cure, where there are too few ranks."""
        n = place.ranks
        if n < 2:
            raise ValueError("links: a link needs at least 2 ranks; give the cluster more, or leave it out")
        if any(rank >= n for pairs in self.rounds + self.flow_sets for pair in read_round(pairs) for rank in pair):
            raise ValueError(f"links: rounds name ranks that are not there: there are {n}, from 0")
        if any(not 1 <= k <= n // 2 for k in self.flows) or len(set(self.flows)) < len(self.flows):
            raise ValueError(f"links: flows are different numbers from 1 to {n // 2}, half of the {n} ranks")
        if self.congestion and n < 4:
            raise ValueError("links: congestion needs at least 4 ranks: one pair to watch, one to load")
        metrics = [self.pair_metric(kind, size) for kind, size in self.kinds()]
        metrics += [self.flow_metric(k, direction) for k in self.sweep() for direction in DIRECTIONS]
        metrics += [self.scaling_metric(k, direction) for k in self.sweep()[1:] for direction in DIRECTIONS]
        metrics += [
            self.flow_metric(len(read_round(pairs)), direction, of=i)
            for i, pairs in enumerate(self.flow_sets) for direction in DIRECTIONS
        ]  # fmt: skip
        metrics += self.congestion_metrics() if self.congestion else ()
        return [*metrics, self.wrong_metric()]

    def bytes_written(self, place: Place) -> int:  # noqa: ARG002
        """Nothing is written to storage."""
        return 0


def read_round(pairs: str) -> list[tuple[int, int]]:
    """The pairs of "0-3 1-2", lower rank first. ValueError where it is none.

    >>> read_round("3-0 1-2")
    [(0, 3), (1, 2)]
    """
    found = [re.fullmatch(r"(\d+)-(\d+)", word) for word in pairs.split()]
    if not found or not all(found):
        raise ValueError(f'links: a round is pairs of ranks like "0-3 1-2", not {pairs!r}')
    ends = [sorted((int(m[1]), int(m[2]))) for m in found if m]
    return [(a, b) for a, b in ends]
