"""Medians, their intervals and robust distances: by hand, against the binomial, and for any samples."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from reports.statistics import Estimate, chance, discoveries, estimate, estimates, interval_rank, mad, median, robust_z

SAMPLES = st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=200)


def test_the_interval_is_worked_by_hand_for_twenty():
    # P(Binomial(20, 1/2) <= 5) = 0.0207 and P(<= 6) = 0.0577: the sixth from both ends
    assert estimate([float(i) for i in range(1, 21)]) == Estimate(10.5, 6.0, 15.0, 20)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_fewer_than_six_samples_give_their_whole_range(n):
    samples = [float(i) for i in range(n)]
    assert (estimate(samples).low, estimate(samples).high) == (0.0, n - 1.0)


@pytest.mark.parametrize("n", [6, 7, 8, 9, 20, 31, 100, 1001, 5000])
def test_the_interval_is_the_narrowest_that_covers_95_percent(n):
    k = interval_rank(n)
    binomial = stats.binom(n, 0.5)
    assert 1 - 2 * binomial.cdf(k - 1) >= 0.95
    assert 1 - 2 * binomial.cdf(k) < 0.95


def test_the_interval_covers_the_true_median_of_a_skewed_distribution():
    random = np.random.default_rng(1)
    true = stats.lognorm(1).median()
    hits = [e.low <= true <= e.high for e in (estimate(random.lognormal(size=30)) for _ in range(2000))]
    assert 0.94 <= np.mean(hits) <= 0.99


@settings(deadline=None)  # other work may share the machine
@given(SAMPLES)
def test_the_median_lies_in_its_interval_and_the_interval_in_the_samples(samples):
    e = estimate(samples)
    assert min(samples) <= e.low <= e.median <= e.high <= max(samples)
    assert e.median == pytest.approx(float(np.median(samples)), rel=1e-12)
    assert e.n == len(samples)


@settings(deadline=None)  # other work may share the machine
@given(SAMPLES, st.randoms())
def test_order_does_not_matter(samples, random):
    shuffled = samples[:]
    random.shuffle(shuffled)
    assert estimate(shuffled) == estimate(samples)


def test_noise_is_half_the_interval_over_the_median():
    assert Estimate(10.0, 9.0, 11.0, 5).noise == pytest.approx(0.1)
    assert Estimate(0.0, 0.0, 0.0, 5).noise == 0
    assert Estimate(0.0, -1.0, 1.0, 5).noise == math.inf


def test_a_ratio_takes_both_intervals_at_their_worst():
    ratio = Estimate(10.0, 8.0, 12.0, 5).over(Estimate(2.0, 1.0, 4.0, 7))
    assert ratio == Estimate(5.0, 2.0, 12.0, 5)


def test_no_samples_have_no_median():
    with pytest.raises(ValueError, match="no samples"):
        estimate([])
    with pytest.raises(ValueError, match="no values"):
        median([])


def test_mad_by_hand_and_against_scipy():
    assert mad([1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9.0]) == 1.0
    data = np.random.default_rng(2).normal(size=99)
    assert mad(data) == pytest.approx(stats.median_abs_deviation(data))


def test_robust_z_is_blind_to_what_a_mean_would_follow():
    values = [10.0, 10.1, 9.9, 10.05, 9.95, 10.0, 5.0]
    z = robust_z(values)
    assert z[-1] < -30
    assert np.abs(z[:-1]).max() < 3


def test_robust_z_of_identical_peers_needs_a_floor():
    assert list(robust_z([1.0, 1.0, 1.0, 1.1])) == [0, 0, 0, math.inf]
    assert robust_z([1.0, 1.0, 1.0, 1.1], floor=0.1)[-1] == pytest.approx(1.0)


def test_robust_z_of_normal_samples_counts_their_sigmas():
    data = np.random.default_rng(3).normal(5, 2, size=20_000)
    assert np.std(robust_z(data)) == pytest.approx(1.0, abs=0.03)


@settings(deadline=None)  # other work may share the machine
@given(st.lists(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=12), min_size=1, max_size=12))
def test_many_units_at_once_are_what_each_is_alone(rows):
    together = estimates(rows)
    assert [together.at(i) for i in range(len(rows))] == [estimate(row) for row in rows]


def test_a_unit_without_samples_is_refused_among_others():
    with pytest.raises(ValueError, match="no samples"):
        estimates([[1.0], []])


def test_discoveries_are_those_of_the_textbook():
    # Benjamini and Hochberg (1995), table of 15 tests: four are believed at 5 %
    p = [
        0.0001,
        0.0004,
        0.0019,
        0.0095,
        0.0201,
        0.0278,
        0.0298,
        0.0344,
        0.0459,
        0.324,
        0.4262,
        0.5719,
        0.6528,
        0.759,
        1.0,
    ]
    assert discoveries(p).tolist() == [True] * 4 + [False] * 11
    assert discoveries(p[::-1]).tolist() == [False] * 11 + [True] * 4
    assert discoveries([]).tolist() == []


def test_chance_of_a_ratio_at_the_edge_of_its_interval_is_five_percent():
    assert chance(Estimate(1.1, 1.0, 1.21, 9)) == pytest.approx(0.05, abs=1e-3)
    assert chance(Estimate(1.0, 0.9, 1.1, 9)) == 1.0
    assert chance(Estimate(1.5, 1.5, 1.5, 9)) == 0.0
