"""Simulated nights (tests/nights.py) put up the ladder as if they had been read from run folders.

A cluster is climbed whole: fleet, gray, night and drift rungs, re-runs, grouping. Nothing is scaled down.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from reports import confirm, ladder
from reports.archive import Night, Series
from reports.climb import Climbed, climb
from tests.nights import Nights, family

START = datetime(2026, 1, 1, tzinfo=UTC)
PINNED = "night-19"  # the last of the first twenty


class Climber:
    """One simulated cluster and the nights that it has had."""

    def __init__(self, seed: int, *, sampled: bool = True, **size: int) -> None:
        self.cluster, self.sampled = Nights(seed, **size), sampled
        labels = [f"node{i // 8} gpu{i % 8}" for i in range(self.cluster.gpus)]
        nodes = [label.partition(" ")[0] for label in labels]
        self.series = tuple(_series(m, labels, nodes, gray=sampled) for m in range(self.cluster.metrics))
        self.count = 0
        self.history: list[Night] = []
        for values in self.cluster.many(ladder.HISTORY):
            self.history.append(self._night(values))

    def tonight(self, fault: np.ndarray | float = 0.0, *, gray: slice | None = None) -> Climbed:
        """One more night, climbed with two to four re-runs where something is suspect; it joins the history."""
        first = self._measured(fault, gray)
        climbed = climb(first, self.history, pin=PINNED)
        again: list[Night] = []
        while climbed.suspects and len(again) < confirm.TRIES:  # as `confirm` does, without its control
            again.append(self._measured(fault, gray))
            if len(again) >= ladder.RERUNS:
                climbed = climb(first, self.history, reruns=again, pin=PINNED)
        self.history.append(first)
        return climbed

    def _measured(self, fault: np.ndarray | float, gray: slice | None) -> Night:
        """Medians and gray distances from samples, as an index holds them; not `sampled`, medians alone."""
        if not self.sampled:
            return self._night(self.cluster.night() + fault)
        samples = self.cluster.samples(self.cluster.night() + fault, gray=gray)
        lacking = np.stack([ladder.missing(samples[:, m]) for m in range(self.cluster.metrics)], axis=1)
        return self._night(np.median(samples, axis=2), lacking)

    def _night(self, values: np.ndarray, lacking: np.ndarray | None = None) -> Night:
        self.count += 1
        columns = np.stack(
            [np.exp(values).T.ravel(), (np.zeros_like(values) if lacking is None else lacking).T.ravel()]
        )
        return Night(
            run=f"night-{self.count - 1}", folder=Path(f"night-{self.count - 1}"), cluster="simulated", suite="nightly",
            started=START + timedelta(days=self.count), nodes=self.cluster.gpus // 8, facts={}, series=self.series,
            expected=(), places={}, columns=columns,
        )  # fmt: skip


def _series(metric: int, labels: list[str], nodes: list[str], *, gray: bool) -> Series:
    name = f"{family(metric)}.m{metric}"
    return Series(
        key=(name, "{}"), metric=name, title=name, unit="FLOP/s", better="higher", per="rank", test=f"test_{name}",
        passed=True, labels=labels, nodes=nodes, serials=labels, lasting=labels, place=metric * len(labels), gray=gray,
    )  # fmt: skip


def found(climbed: Climbed, *, metric: int, unit: str = "") -> bool:
    """Whether a confirmed alarm names this metric, of all units or of this one."""
    name = f"{family(metric)}.m{metric}"
    return any(a.title == name and a.unit == unit for group in climbed.groups for a in group.alarms)


def nights_until_found(
    seed: int, *, size: float, whole: bool, nights: int, per_night: float = 0.0, **of: int
) -> int | None:
    """On which night (0 is the first) a fault of one metric is found, on the whole cluster or on one GPU."""
    climber = Climber(seed, sampled=False, **of)
    metric, gpu = seed % climber.cluster.metrics, 5
    where = (slice(None) if whole else gpu, metric)
    for night in range(nights):
        fault = np.zeros((climber.cluster.gpus, climber.cluster.metrics))
        fault[where] = -size - per_night * (night + 1)
        if found(climber.tonight(fault), metric=metric, unit="" if whole else f"node0 gpu{gpu}"):
            return night
    return None
