"""A projection is what the measured doublings allow, and nothing beyond one more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.projection import ProjectionError, doublings, efficiency, project

LINEAR = {1: 5.0, 2: 10.0, 4: 20.0, 8: 40.0}


def test_by_hand():
    assert efficiency(LINEAR) == 1.0
    assert project(LINEAR, nodes=16) == 80.0
    assert project({**LINEAR, 8: 30.0}, nodes=16) == 45.0  # 30 of 40: 75 % once more
    assert project(LINEAR, nodes=16, ceiling=60.0) == 60.0
    assert project({**LINEAR, 8: 44.0}, nodes=16) == 88.0  # better than perfect is taken as perfect
    assert project(LINEAR, nodes=8) == 40.0


@pytest.mark.parametrize("rates", [{}, {1: 1.0}, {1: 1.0, 2: 2.0, 4: 4.0}, {1: 1.0, 4: 4.0, 8: 8.0}])
def test_fewer_than_three_doublings_say_nothing(rates: dict[int, float]):
    with pytest.raises(ProjectionError, match="3 doublings must be measured"):
        project(rates, nodes=8)


def test_more_than_one_further_doubling_is_not_projected():
    with pytest.raises(ProjectionError, match="more than one doubling beyond the 8 measured: measure on 32 nodes"):
        project(LINEAR, nodes=64)


@given(st.floats(0.01, 1e3), st.lists(st.floats(0.1, 1.2), min_size=3, max_size=6))
def test_it_is_never_more_than_twice_what_was_measured(first: float, gains: list[float]):
    rates = {1: first}
    for i, gain in enumerate(gains):
        rates[2 ** (i + 1)] = rates[2**i] * 2 * gain
    assert project(rates, nodes=2 * max(rates)) <= 2 * rates[max(rates)] * (1 + 1e-9)


def test_doublings_stay_within_the_nodes():
    assert [doublings(n)[-1] for n in (1, 2, 3, 8, 9)] == [1, 2, 2, 8, 8]
