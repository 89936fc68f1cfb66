"""How often the ladder cries wolf, and how soon it sees a fault: simulated nights of 512 GPUs x 50 metrics.

    python -m pytest tests/bench_ladder.py --benchmark-only -s

Goals: at most one false page in 30 nights; a 5 % step on the first night in 60 % and within three nights in 95 % of
cases; a 3 % step within ten nights in 95 %; a creep of 0.1 % a night within 40 nights; a gray node (15 % of samples
30 % slow) in 95 %. Every trial is a cluster of its own and climbs the whole ladder as `nightly` does. The model of the
nights is in tests/nights.py; the numbers are kept in docs/nightly.md. RACKPROOF_BENCH_TRIALS sets how many (40).
"""

from __future__ import annotations

import os

import numpy as np
import pytest

from tests.climbing import Climber, nights_until_found
from tests.nights import GPUS, METRICS

TRIALS = int(os.environ.get("RACKPROOF_BENCH_TRIALS", "40"))
CLUSTERS = 5


def share(nights: list[int | None], before: int) -> float:
    """Of the trials, how many were found before that night."""
    return sum(night is not None and night < before for night in nights) / len(nights)


def test_false_pages(benchmark):
    def quiet() -> tuple[list[int], list[int], list[int]]:
        pages, suspects, rungs = [], [], []
        for seed in range(CLUSTERS):
            climber = Climber(seed)
            nights = [climber.tonight() for _ in range(30)]
            pages.append(sum(bool(night.groups) for night in nights))
            suspects += [len(night.refuted) for night in nights]
            rungs += [a.rung for night in nights for group in night.groups for a in group.alarms]
        return pages, suspects, rungs

    pages, suspects, rungs = benchmark.pedantic(quiet, rounds=1)
    print(f"\nfalse pages in 30 nights, {CLUSTERS} clusters of {GPUS} x {METRICS}: {pages} (rungs: {sorted(rungs)})")
    print(f"suspects that the re-runs refuted, a night: {np.mean(suspects):.0f} of {GPUS * METRICS:,}")
    assert np.mean(pages) <= 1


@pytest.mark.parametrize("whole", [True, False], ids=["whole cluster", "one GPU"])
def test_steps(benchmark, whole):
    def trials() -> tuple[list[int | None], list[int | None]]:
        five = [nights_until_found(seed, size=0.05, whole=whole, nights=3) for seed in range(TRIALS)]
        return five, [nights_until_found(seed, size=0.03, whole=whole, nights=10) for seed in range(TRIALS)]

    five, three = benchmark.pedantic(trials, rounds=1)
    print(f"\n5 % step, {TRIALS} trials: first night {share(five, 1):.0%}, within three {share(five, 3):.0%}")
    print(f"3 % step: within ten nights {share(three, 10):.0%}")
    assert share(five, 1) >= 0.6
    assert share(five, 3) >= 0.95
    assert share(three, 10) >= 0.95


def test_creep(benchmark):
    count = max(TRIALS // 4, 5)

    def trials() -> list[int | None]:
        return [nights_until_found(seed, size=0.0, per_night=0.001, whole=True, nights=40) for seed in range(count)]

    found = benchmark.pedantic(trials, rounds=1)
    typical = sorted(40 if night is None else night + 1 for night in found)[len(found) // 2]
    print(f"\n0.1 % a night, {count} trials: within 40 nights {share(found, 40):.0%}, typically after {typical}")
    assert share(found, 40) >= 0.95


def test_gray_node(benchmark):
    """One node of eight GPUs is gray in every metric; found where a confirmed gray alarm names that node."""
    node = slice(40, 48)

    def trials() -> tuple[float, float]:
        found = false = 0
        for seed in range(TRIALS):
            climbed = Climber(seed).tonight(gray=node)
            named = {alarm.node for group in climbed.groups for alarm in group.alarms if alarm.rung == "gray"}
            found += "node5" in named
            false += len(named - {"node5"})
        return found / TRIALS, false / TRIALS

    found, false = benchmark.pedantic(trials, rounds=1)
    print(
        f"\ngray node, {TRIALS} trials: found {found:.0%} on its first night, healthy nodes blamed {false:.2f} a night"
    )
    assert found >= 0.95
