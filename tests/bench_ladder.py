"""How often the ladder cries wolf, and how soon it sees a fault: simulated nights of 512 GPUs x 50 metrics.

    python -m pytest tests/bench_ladder.py --benchmark-only -s

Goals: at most one false page in 30 nights; a 5 % step on the first night in 60 % and within three nights in 95 % of
cases; a 3 % step within ten nights in 95 %; a creep of 0.1 % a night within 40 nights; a gray node (15 % of samples
30 % slow) in 95 %. Every trial is a cluster of its own and climbs the whole ladder as `nightly` does. The model of the
nights is in tests/nights.py; the numbers are kept in docs/nightly.md. Each share is printed with its number of trials
and its 95 % interval (Clopper and Pearson). RACKPROOF_BENCH_TRIALS sets how many trials a step has (200; a fifth of
them for what takes many nights), RACKPROOF_BENCH_CLUSTERS how many clusters have 30 quiet nights (40).
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from scipy import stats

from tests.climbing import Climber, nights_until_found
from tests.nights import GPUS, METRICS

TRIALS = int(os.environ.get("RACKPROOF_BENCH_TRIALS", "200"))
CLUSTERS = int(os.environ.get("RACKPROOF_BENCH_CLUSTERS", "40"))
NIGHTS = 30


def share(hits: int, trials: int) -> str:
    """So many of so many, with the interval that holds the true share in 95 % of cases."""
    low, high = stats.binomtest(hits, trials).proportion_ci(method="exact")
    return f"{hits} of {trials} = {hits / trials:.1%} ({low:.1%} to {high:.1%})"


def before(nights: list[int | None], limit: int) -> int:
    """Of the trials, how many were found before that night."""
    return sum(night is not None and night < limit for night in nights)


def test_false_pages(benchmark):
    """A page is a trouble (node and family) that the night before did not have: `alerts` tells each once."""

    def quiet() -> tuple[list[int], list[int], list[int]]:
        pages, rungs, refuted = [], [], []
        for seed in range(CLUSTERS):
            climber, known, new = Climber(seed), set(), 0
            for _ in range(NIGHTS):
                night = climber.tonight()
                troubles = {(group.node, group.family) for group in night.groups}
                new += len(troubles - known)
                rungs += [a.rung for group in night.groups if (group.node, group.family) not in known
                          for a in group.alarms]  # fmt: skip
                known = troubles
                refuted.append(len(night.refuted))
            pages.append(new)
            print(f"cluster {seed}: {new} false pages in {NIGHTS} nights", flush=True)
        return pages, rungs, refuted

    pages, rungs, refuted = benchmark.pedantic(quiet, rounds=1)
    most = stats.chi2.ppf(0.975, 2 * sum(pages) + 2) / 2 / CLUSTERS  # of a Poisson count
    least = stats.chi2.ppf(0.025, 2 * sum(pages)) / 2 / CLUSTERS if sum(pages) else 0.0
    by_rung = {rung: rungs.count(rung) for rung in sorted(set(rungs))}
    print(f"\n{CLUSTERS} clusters of {GPUS} x {METRICS}, {NIGHTS} quiet nights each: {sum(pages)} false pages")
    print(f"in 30 nights {np.mean(pages):.2f} ({least:.2f} to {most:.2f}); alarms by rung: {by_rung}")
    print(f"clusters with at most one: {share(sum(n <= 1 for n in pages), CLUSTERS)}")
    print(f"suspects that the re-runs refuted, a night: {np.mean(refuted):.0f} of {GPUS * METRICS:,}")
    assert np.mean(pages) <= 1


@pytest.mark.parametrize("whole", [True, False], ids=["whole cluster", "one GPU"])
def test_steps(benchmark, whole):
    def trials() -> tuple[list[int | None], list[int | None]]:
        five = [nights_until_found(seed, size=0.05, whole=whole, nights=3) for seed in range(TRIALS)]
        return five, [nights_until_found(seed, size=0.03, whole=whole, nights=10) for seed in range(TRIALS)]

    five, three = benchmark.pedantic(trials, rounds=1)
    print(f"\n5 % step, first night: {share(before(five, 1), TRIALS)}")
    print(f"5 % step, within three: {share(before(five, 3), TRIALS)}")
    print(f"3 % step, within ten: {share(before(three, 10), TRIALS)}")
    assert before(five, 1) >= 0.6 * TRIALS
    assert before(five, 3) >= 0.95 * TRIALS
    assert before(three, 10) >= 0.95 * TRIALS


def test_creep(benchmark):
    count = max(TRIALS // 5, 5)

    def trials() -> list[int | None]:
        return [nights_until_found(seed, size=0.0, per_night=0.001, whole=True, nights=40) for seed in range(count)]

    found = benchmark.pedantic(trials, rounds=1)
    typical = sorted(40 if night is None else night + 1 for night in found)[len(found) // 2]
    print(f"\n0.1 % a night, within 40: {share(before(found, 40), count)}, typically after {typical}")
    assert before(found, 40) >= 0.95 * count


def test_gray_node(benchmark):
    """One node of eight GPUs is gray in every metric; found where a confirmed gray alarm names that node."""
    node, count = slice(40, 48), max(TRIALS // 2, 5)

    def trials() -> tuple[int, int]:
        found = false = 0
        for seed in range(count):
            climbed = Climber(seed).tonight(gray=node)
            named = {alarm.node for group in climbed.groups for alarm in group.alarms if alarm.rung == "gray"}
            found += "node5" in named
            false += len(named - {"node5"})
        return found, false

    found, false = benchmark.pedantic(trials, rounds=1)
    print(f"\ngray node, on its first night: {share(found, count)}; healthy nodes blamed: {false} in {count} nights")
    assert found >= 0.95 * count
