"""Simulated nights of a cluster, to try the ladder on. It shares no code with what judges: numpy and its own rules.

Every value is a logarithm, more is better. Per night, unit (GPU) and metric:

    value = shared(night, metric)      sd 1 %, Student t with 4 degrees of freedom: heavy tails
          + leaf(night, leaf, metric)  sd 0.3 %: 64 GPUs behind one switch have it in common
          + own(night, unit, metric)   sd 0.5 %, Student t with 4 degrees of freedom
          + offset(unit, metric)       sd 1.5 % in compute and 0.6 % in bandwidth, the same every night

    sample = value + sd 0.5 %, Student t with 4 degrees of freedom; 30 a night

On 3 % of the nights something disturbs the whole cluster: 3 to 10 % off every metric. A re-run is an occasion of its
own: everything but the offsets is drawn anew, disturbances too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

GPUS, METRICS, LEAF, SAMPLES = 512, 50, 64, 30
FAMILIES = ("gemm", "gemm", "memory", "collectives", "training")  # over and over
COMPUTE_SPREAD, BANDWIDTH_SPREAD = 0.015, 0.006


def family(metric: int) -> str:
    """The family of a metric, by its number."""
    return FAMILIES[metric % len(FAMILIES)]


@dataclass
class Nights:
    """One simulated cluster."""

    seed: int
    gpus: int = GPUS
    metrics: int = METRICS
    random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        compute = np.array([family(m) == "gemm" for m in range(self.metrics)])
        self.offset = self.random.normal(0, 1, (self.gpus, self.metrics)) * np.where(
            compute, COMPUTE_SPREAD, BANDWIDTH_SPREAD
        )

    def heavy(self, sd: float, shape: tuple[int, ...]) -> np.ndarray:
        """Student t with 4 degrees of freedom, scaled to a standard deviation."""
        return self.random.standard_t(4, shape) * sd / np.sqrt(2)

    def night(self) -> np.ndarray:
        """The medians of one night, units x metrics."""
        shared = self.heavy(0.01, (1, self.metrics))
        leaf = np.repeat(self.random.normal(0, 0.003, (-(-self.gpus // LEAF), self.metrics)), LEAF, axis=0)[: self.gpus]
        own = self.heavy(0.005, (self.gpus, self.metrics))
        disturbed = -self.random.uniform(0.03, 0.10) if self.random.random() < 0.03 else 0.0
        return self.offset + shared + leaf + own + disturbed

    def many(self, count: int) -> np.ndarray:
        """The medians of so many nights."""
        return np.stack([self.night() for _ in range(count)])

    def samples(self, night: np.ndarray, *, gray: slice | None = None, share: float = 0.15) -> np.ndarray:
        """The samples behind a night's medians, units x metrics x 30. Of the `gray` units a share is 30 % slow."""
        found = night[..., None] + self.heavy(0.005, (*night.shape, SAMPLES))
        if gray is not None:
            slow = self.random.random(found[gray].shape) < share
            found[gray] += np.where(slow, np.log(0.7), 0.0)
        return found
