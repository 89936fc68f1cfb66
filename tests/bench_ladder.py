"""How often the ladder cries wolf, and how soon it sees a fault: simulated nights of 512 GPUs x 50 metrics.

    python -m pytest tests/bench_ladder.py --benchmark-only -s

Goals: at most one false page in 30 nights; a 5 % step on the first night in 60 % and within three nights in 95 % of
cases; a 3 % step within ten nights in 95 %; a creep of 0.1 % a night within 40 nights; a gray node (15 % of samples
30 % slow) in 95 %. The model of the nights is in tests/nights.py; the numbers are kept in docs/ladder.md.
"""

from __future__ import annotations

import numpy as np
import pytest

from reports import ladder
from tests.nights import Nights, alarms, creeping, nights_until_found

TRIALS = 100


def share(nights: list[int | None], before: int) -> float:
    """Of the trials, how many were found before that night."""
    return sum(night is not None and night < before for night in nights) / len(nights)


def test_false_pages(benchmark):
    def quiet() -> list[int]:
        counts = []
        for seed in range(5):
            cluster = Nights(seed)
            history = pinned = cluster.many(ladder.HISTORY)
            pages = 0
            for _ in range(30):
                found = [*alarms(cluster, history, 0.0), *creeping(history, pinned)]
                pages += any(each.any() for each in found)
                history = np.concatenate([history[1:], cluster.night()[None]])
            counts.append(pages)
        return counts

    counts = benchmark.pedantic(quiet, rounds=1)
    print(f"\nfalse pages in 30 nights, five clusters: {counts}")
    assert np.mean(counts) <= 1


@pytest.mark.parametrize("whole", [True, False], ids=["whole cluster", "one GPU"])
def test_steps(benchmark, whole):
    def trials() -> tuple[list[int | None], list[int | None]]:
        five = [nights_until_found(seed, size=0.05, whole=whole, nights=3) for seed in range(TRIALS)]
        return five, [nights_until_found(seed, size=0.03, whole=whole, nights=10) for seed in range(TRIALS)]

    five, three = benchmark.pedantic(trials, rounds=1)
    print(f"\n5 % step: first night {share(five, 1):.0%}, within three {share(five, 3):.0%}")
    print(f"3 % step: within ten nights {share(three, 10):.0%}")
    assert share(five, 1) >= 0.6
    assert share(five, 3) >= 0.95
    assert share(three, 10) >= 0.95


def test_creep(benchmark):
    def trials() -> list[int | None]:
        return [nights_until_found(seed, size=0.0, per_night=0.001, whole=True, nights=40) for seed in range(40)]

    found = benchmark.pedantic(trials, rounds=1)
    typical = sorted(40 if night is None else night for night in found)[len(found) // 2]
    print(f"\n0.1 % a night: within 40 nights {share(found, 40):.0%}, typically after {typical}")
    assert share(found, 40) >= 0.95


def test_gray_node(benchmark):
    def trials() -> tuple[float, float]:
        random = np.random.default_rng(1)
        found = false = 0
        for _ in range(TRIALS):
            samples = random.standard_t(4, (512, 30)) * 0.0035 + random.standard_t(4, (512, 1)) * 0.0035
            samples[40:48] += np.where(random.random((8, 30)) < 0.15, np.log(0.7), 0.0)
            suspect = ladder.gray(samples, floor=0.01).suspect
            found += bool(suspect[40:48].sum() >= 2)
            false += int(suspect.sum() - suspect[40:48].sum())
        return found / TRIALS, false / TRIALS

    found, false = benchmark.pedantic(trials, rounds=1)
    print(
        f"\ngray node of 8 GPUs, one metric, 30 samples: found {found:.0%}, healthy GPUs blamed per night {false:.2f}"
    )
    assert found >= 0.95
