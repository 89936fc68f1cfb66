"""How well culprits are named in simulated fleets, and what it costs. Prints the numbers that the docs quote.

    make bench ARGS="-k fleet"

10,000 hosts, 8 rails, 15 rounds, noise of 3 % with heavy tails and a share common to each leaf, 5 % outliers.
"""

from __future__ import annotations

import resource
import time
from typing import Any

import pytest

from reports.localise import screen
from suites import rounds
from tests.fleet import Fleet, random_ports
from tests.fleet_search import fabric, measured, search, title

HOSTS = 10_000


@pytest.mark.parametrize("count", [50, 400])
def test_fleet_recall(benchmark: Any, count: int) -> None:
    """`count` ports of 80,000, each on a host of its own, are 10 % slow in one direction."""
    planted, right, wrong = 0, 0, 0

    def trial(seed: int) -> None:
        nonlocal planted, right, wrong
        healthy = Fleet(hosts=HOSTS, seed=seed)
        defects = random_ports(healthy, count, 0.9)
        named = {suspect.title for suspect in search(healthy.with_defects(*defects)).accused}
        truth = set(map(title, defects))
        planted, right, wrong = planted + len(truth), right + len(named & truth), wrong + len(named - truth)

    seeds = iter(range(100))
    benchmark.pedantic(lambda: trial(next(seeds)), rounds=3)
    print(f"\n{HOSTS} hosts, {count} bad ports, 3 fleets: recall {right / planted:.4f}, wrongly accused {wrong}")


def test_fleet_screening_cost(benchmark: Any) -> None:
    fleet = Fleet(hosts=HOSTS)
    plan = rounds.screening(HOSTS, 15, leaf=fleet.leaf_of().tolist())
    table, topology = measured(fleet, plan), fabric(fleet)
    begin = time.process_time()
    benchmark.pedantic(lambda: screen(table, topology=topology), rounds=1)
    cpu_s = time.process_time() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # kB to GB
    print(f"\nscreen of {len(table):,} rows: {cpu_s:.1f} s of CPU, the process peaked at {peak:.2f} GB")
