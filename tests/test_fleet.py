"""The simulated fleet is what it claims: its noise has the promised size, and each defect shows where it sits."""

from __future__ import annotations

import doctest
from dataclasses import replace

import numpy as np
import pytest

from tests import fleet as simulator
from tests.fleet import Defect, Fleet, Table, random_ports, slow_rack

QUIET = Fleet(hosts=64, rails=2, hosts_per_leaf=8, spines=4, noise=0.0, outliers=0.0)


def slow_rows(table: Table) -> Table:
    """Rows below the line rate."""
    return table.where(table.value < 0.999)


def test_the_example_runs() -> None:
    assert doctest.testmod(simulator).failed == 0


def test_without_noise_or_defect_every_row_is_the_line_rate() -> None:
    assert np.all(replace(QUIET, line_rate=5e10).screen(3).value == 5e10)


def test_a_round_has_every_host_once_each_way_on_every_rail() -> None:
    table = QUIET.measure(*QUIET.disjoint_pairs(0), round=0)
    keys = {(a, r) for a, r in zip(table.a.tolist(), table.rail.tolist(), strict=True)}
    assert len(table) == len(keys) == 64 * 2
    assert sorted(table.a.tolist()) == sorted(table.b.tolist())
    assert not np.any(table.a == table.b)


def test_with_an_odd_number_nobody_is_left_out() -> None:
    a, b = replace(QUIET, hosts=63).disjoint_pairs(4)
    assert set(a.tolist()) | set(b.tolist()) == set(range(63))
    assert not np.any(a == b)


@pytest.mark.parametrize(("way", "column"), [("transmit", "a"), ("receive", "b")])
def test_one_way_of_one_port_slows_its_rows_and_no_others(way: str, column: str) -> None:
    found = slow_rows(QUIET.with_defects(Defect(host=9, rail=1, way=way, factor=0.9)).screen(10))
    assert set(getattr(found, column).tolist()) == {9}
    assert set(found.rail.tolist()) == {1}
    assert len(found) == 10
    assert np.allclose(found.value, 0.9)


def test_the_slowest_part_decides_not_the_product() -> None:
    both = QUIET.with_defects(Defect(host=0, way="transmit", factor=0.8), Defect(host=1, way="receive", factor=0.7))
    assert both.measure([0], [1], round=0).value.tolist() == [0.7, 0.7, 1.0, 1.0]


def test_an_uplink_slows_flows_out_of_its_leaf_over_its_spine_only() -> None:
    found = slow_rows(QUIET.with_defects(Defect(leaf=2, spine=1, rail=0, way="transmit", factor=0.5)).screen(40))
    leaf = QUIET.leaf_of()
    assert len(found) > 0
    assert set(leaf[found.a].tolist()) == {2}
    assert 2 not in leaf[found.b]
    assert set(found.path.tolist()) == {1}
    assert set(found.rail.tolist()) == {0}


def test_flows_inside_a_leaf_take_no_spine() -> None:
    table = QUIET.with_defects(Defect(leaf=0, factor=0.5)).measure([0], [1], round=0)
    assert table.path.tolist() == [-1] * 4
    assert table.value.tolist() == [1.0] * 4


def test_a_slow_rack_is_slow_inside_too() -> None:
    slow = QUIET.with_defects(*slow_rack(QUIET, 3, 0.8))
    assert np.all(slow.measure([24], [31], round=0).value == 0.8)
    assert len(slow.defects) == 8


def test_noise_has_the_size_and_the_tails_it_claims() -> None:
    noisy = Fleet(hosts=2000, rails=4, outliers=0.0)
    logs = np.log(noisy.screen(6).value)
    assert np.std(logs) == pytest.approx(0.03, rel=0.05)
    assert np.median(logs) == pytest.approx(0.0, abs=1e-3)
    z = (logs - np.median(logs)) / (1.4826 * np.median(np.abs(logs - np.median(logs))))
    assert np.mean(np.abs(z) > 4) > 10 * 6.3e-5  # of a normal distribution, 6.3e-5 lie beyond


def test_part_of_the_noise_is_common_to_a_leaf() -> None:
    noisy = Fleet(hosts=2048, rails=1, outliers=0.0)
    table = noisy.measure(*noisy.disjoint_pairs(0), round=0)
    leaf = noisy.leaf_of()[table.a]
    means = np.array([np.log(table.value[leaf == number]).mean() for number in range(noisy.leaves)])
    alone = 0.03 / np.sqrt(noisy.hosts_per_leaf)  # what the means would scatter if rows were independent
    assert means.std() > 2 * alone


def test_outliers_are_as_many_as_asked_and_only_slow() -> None:
    table = Fleet(hosts=2000, rails=4, noise=0.0, outliers=0.05).screen(5)
    assert np.mean(table.value < 1) == pytest.approx(0.05, rel=0.1)
    assert table.value.max() == 1.0
    assert table.value.min() > 0.29


def test_the_seed_decides_and_each_round_differs() -> None:
    one = Fleet(hosts=64, rails=2)
    assert np.array_equal(one.screen(2).value, one.screen(2).value)
    assert not np.array_equal(one.screen(1).value, replace(one, seed=1).screen(1).value)
    assert not np.array_equal(one.disjoint_pairs(0)[0], one.disjoint_pairs(1)[0])


def test_defects_change_no_draw_of_the_noise() -> None:
    """So a fleet with and without a defect differ by the defect alone."""
    healthy = Fleet(hosts=64, rails=2)
    ratio = healthy.with_defects(Defect(host=5, factor=0.9)).screen(3).value / healthy.screen(3).value
    assert set(np.round(ratio, 9).tolist()) == {0.9, 1.0}


def test_random_ports_are_different_hosts() -> None:
    fleet = Fleet(hosts=10_000)
    defects = random_ports(fleet, 50, 0.9)
    assert len({defect.host for defect in defects}) == 50
    assert {defect.way for defect in defects} == {"transmit", "receive"}
    assert {defect.rail for defect in defects} == set(range(8))


def test_ten_thousand_hosts_fit_a_test() -> None:
    table = Fleet(hosts=10_000).screen(15)
    assert len(table) == 15 * 10_000 * 8
