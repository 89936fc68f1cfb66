"""Whole searches in simulated fleets: the defect is named, nobody else is accused, and fifteen rounds are enough."""

from __future__ import annotations

import pytest

from tests.fleet import Defect, Fleet, random_ports, slow_rack
from tests.fleet_search import search, title

HOSTS = 1024  # under 32 leaves


def accused(fleet: Fleet, *defects: Defect, with_paths: bool = False) -> list[str]:
    """Titles of whoever is accused where these defects are planted."""
    return sorted(suspect.title for suspect in search(fleet.with_defects(*defects), with_paths=with_paths).accused)


@pytest.mark.parametrize("seed", range(3))
def test_of_a_healthy_fleet_nobody_is_accused(seed: int) -> None:
    assert accused(Fleet(hosts=HOSTS, seed=seed)) == []


def test_a_fleet_that_is_slow_as_a_whole_accuses_nobody() -> None:
    """The limit rejects it: wrong firmware is no culprit among peers."""
    assert accused(Fleet(hosts=HOSTS, line_rate=0.8)) == []


@pytest.mark.parametrize("way", ["transmit", "receive", "both"])
def test_a_port_that_is_ten_percent_slow_is_named_with_its_rail_and_direction(way: str) -> None:
    defect = Defect(host=77, rail=5, way=way, factor=0.9)
    assert accused(Fleet(hosts=HOSTS, seed=1), defect) == [title(defect)]


def test_a_host_that_is_slow_on_all_rails_is_named_once() -> None:
    assert accused(Fleet(hosts=HOSTS, seed=2), Defect(host=500, factor=0.9)) == ["node500 both"]


def test_two_defects_are_both_named() -> None:
    defects = Defect(host=3, rail=1, way="transmit", factor=0.9), Defect(host=900, rail=6, way="receive", factor=0.9)
    assert accused(Fleet(hosts=HOSTS, seed=3), *defects) == sorted(map(title, defects))


@pytest.mark.parametrize(("way", "direction"), [("transmit", "out"), ("receive", "in")])
def test_a_leaf_that_is_slow_towards_all_spines_is_named_not_its_hosts(way: str, direction: str) -> None:
    defect = Defect(leaf=7, rail=2, way=way, factor=0.9)
    assert accused(Fleet(hosts=HOSTS, seed=4), defect) == [f"uplink leaf7r2 {direction}"]


@pytest.mark.parametrize(("way", "direction"), [("transmit", "out"), ("receive", "in")])
def test_one_uplink_of_sixteen_at_half_is_named_with_paths_given(way: str, direction: str) -> None:
    defect = Defect(leaf=7, spine=3, rail=2, way=way, factor=0.5)
    named = accused(Fleet(hosts=HOSTS, seed=5), defect, with_paths=True)
    assert named == [f"path leaf7r2 via spine3 {direction}"]


@pytest.mark.parametrize(("way", "direction"), [("transmit", "out"), ("receive", "in")])
def test_without_paths_its_leaf_and_direction_are_named(way: str, direction: str) -> None:
    defect = Defect(leaf=7, spine=3, rail=2, way=way, factor=0.5)
    assert accused(Fleet(hosts=HOSTS, seed=5), defect) == [f"path leaf7r2 {direction}"]


def test_a_slow_rack_is_named_not_its_hosts_one_by_one() -> None:
    fleet = Fleet(hosts=HOSTS, seed=6)
    assert accused(fleet, *slow_rack(fleet, 5, 0.8)) == ["rack rack5 both"]


def test_a_rail_that_is_slow_everywhere_is_named_not_its_ports() -> None:
    fleet = Fleet(hosts=HOSTS, seed=7)
    slow = [Defect(host=host, rail=3, factor=0.9) for host in range(fleet.hosts)]
    assert accused(fleet, *slow) == ["rail 3"]


def test_one_leaf_switch_of_a_rack_is_named_not_the_rack() -> None:
    """Its hosts are slow on one rail only, even to each other."""
    fleet = Fleet(hosts=HOSTS, seed=9)
    slow = [Defect(host=host, rail=4, factor=0.8) for host in range(64, 96)]
    assert accused(fleet, *slow) == ["leaf leaf2r4 both"]


@pytest.mark.slow
def test_ten_thousand_hosts_of_which_half_a_percent_is_bad() -> None:
    healthy = Fleet(hosts=10_000, seed=8)
    defects = random_ports(healthy, 50, 0.9)
    named = set(accused(healthy, *defects))
    planted = set(map(title, defects))
    assert len(named & planted) >= 0.99 * len(planted)
    assert named - planted == set()
