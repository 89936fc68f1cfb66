"""What the pair tournament is asked to do, and what it promises to emit. No torch here.

>>> from benchmarks.spec import Place
>>> [metric.name for metric in Links().emits(Place(ranks_per_node=4))]
['links.latency', 'links.bandwidth', 'links.wrong_elements']
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from benchmarks.measurement import Metric
from benchmarks.spec import Place


@dataclass(frozen=True, kw_only=True)
class Links:
    """Every ordered pair of ranks, in rounds of disjoint pairs. Every message is verified."""

    benchmark: ClassVar[str] = "links"
    scope: ClassVar[str] = "world"

    latency_bytes: int = 8
    """size of the message whose half round trip is the latency"""
    bandwidth_bytes: int = 1 << 20
    """size of the messages that make the bandwidth"""
    window: int = 4
    """messages on their way at once; the receiver answers after the last one"""
    passes: int = 3
    """times that every pair is met, so that one bad moment of the machine does not decide about a link"""
    latency_budget_s: float = 0.1
    """seconds of round trips per ordered pair, all passes together"""
    bandwidth_budget_s: float = 0.2
    """seconds of windows per ordered pair, all passes together"""
    min_repetitions: int = 3
    """repetitions per ordered pair and pass even where the budget is spent"""
    max_repetitions: int = 64
    """repetitions per ordered pair and pass after which nothing more is learnt"""
    seed: int = 1
    """picks the data and the order of the rounds"""
    limit_s: float = 120.0
    """time-out of the whole tournament, seconds"""

    def __post_init__(self) -> None:
        if min(self.latency_bytes, self.bandwidth_bytes, self.window, self.passes) < 1:
            raise ValueError("links: latency_bytes, bandwidth_bytes, window and passes are at least 1")
        if not 1 <= self.min_repetitions <= self.max_repetitions:
            raise ValueError(
                f"links: min_repetitions {self.min_repetitions} must lie between 1 and "
                f"max_repetitions {self.max_repetitions}"
            )

    def metrics(self) -> Iterator[Metric]:
        """What is emitted, in this order: latency, bandwidth, wrong_elements; a table of all pairs each."""
        yield Metric(name="links.latency", unit="s", better="lower", per="pair", params={"bytes": self.latency_bytes})
        yield Metric(
            name="links.bandwidth", unit="B/s", better="higher", per="pair", params={"bytes": self.bandwidth_bytes}
        )
        yield Metric(name="links.wrong_elements", unit="1", better="equal", per="pair")

    def emits(self, place: Place) -> list[Metric]:
        """Every metric of the tournament at that place. ValueError with fewer than two ranks."""
        if place.ranks < 2:
            raise ValueError("links: a link needs at least 2 ranks; give the cluster more, or leave it out")
        return list(self.metrics())

    def bytes_written(self, place: Place) -> int:  # noqa: ARG002
        """Nothing is written to storage."""
        return 0
