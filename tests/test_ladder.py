"""The ladder: worked by hand where that is possible, and on simulated nights where chance decides."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from reports import ladder
from reports.changepoints import change_points
from tests.climbing import Climber, nights_until_found


def test_goodness_is_turned_so_that_more_is_better():
    assert ladder.goodness([1.0, 2.0], "higher").tolist() == pytest.approx([0.0, np.log(2)])
    assert ladder.goodness([1.0, 2.0], "lower").tolist() == pytest.approx([0.0, -np.log(2)])


def test_a_slow_night_is_shared_and_a_weak_unit_is_its_own():
    nights = np.zeros((3, 9, 2))
    nights[1] -= 0.1
    nights[:, 4, 1] -= 0.05
    shared, own = ladder.split(nights)
    assert shared.tolist() == [[0, 0], [-0.1, -0.1], [0, 0]]
    assert np.argwhere(own != 0).tolist() == [[0, 4, 1], [1, 4, 1], [2, 4, 1]]


def test_tonight_is_held_against_four_mads_or_the_floor_by_hand():
    history = np.array([0.0, 0.01, -0.01, 0.02, -0.02, 0.01, -0.01, 0.0, 0.0])[:, None]  # median 0, MAD 0.01
    for tonight, suspect in ((-0.039, False), (-0.041, True), (0.041, False)):
        d = ladder.against_history(history, np.array([tonight]), floor=0.02)
        assert (d.threshold[0], d.suspect[0]) == (pytest.approx(0.04), suspect)
    wide = ladder.against_history(history, np.array([-0.041]), floor=0.05)
    assert not wide.suspect[0]
    assert ladder.against_history(history, np.array([0.041]), floor=0.02).improved[0]


def test_fewer_than_eight_nights_are_no_baseline():
    history = np.zeros((20, 2))
    history[:13, 1] = np.nan
    d = ladder.against_history(history, np.array([-1.0, -1.0]), floor=0.02)
    assert d.known.tolist() == [True, False]
    assert d.suspect.tolist() == [True, False]
    assert not ladder.against_history(np.zeros((20, 1)), np.array([np.nan]), floor=0.02).known[0]
    assert not ladder.against_history(np.zeros((0, 1)), np.array([0.0]), floor=0.02).known[0]


def test_only_the_last_twenty_nights_count():
    old_level = np.concatenate([np.full((30, 1), 0.5), np.zeros((20, 1))])
    assert not ladder.against_history(old_level, np.array([0.0]), floor=0.02).suspect[0]


def test_fewer_than_eight_peers_are_no_fleet():
    units = np.zeros(9)
    units[3] = -0.5
    assert ladder.against_peers(units, floor=0.02).suspect.tolist() == [i == 3 for i in range(9)]
    assert not ladder.against_peers(units[:7], floor=0.02).known.any()


def test_a_gray_unit_is_found_though_its_median_is_fine():
    random = np.random.default_rng(1)
    samples = random.normal(0, 0.005, (64, 30)) + random.normal(0, 0.02, (64, 1))
    samples[7, :5] += np.log(0.7)
    assert abs(np.median(samples[7])) < 0.06
    assert np.flatnonzero(ladder.gray(samples, floor=0.01).suspect).tolist() == [7]
    better = samples.copy()
    better[7] = np.median(samples)
    assert not ladder.gray(better, floor=0.01).suspect.any()


@settings(deadline=None)
@given(st.floats(-60, 60))
def test_the_chance_is_the_tail_of_student_t_with_four_degrees(t):
    d = ladder._chance(np.array([-t]), np.array([ladder.MAD_OF_T4]))
    assert d[0] == pytest.approx(max(stats.t.sf(t, 4), 1e-15), rel=1e-6, abs=1e-12)


def test_the_mad_of_that_distribution_is_its_upper_quartile():
    assert pytest.approx(stats.t.ppf(0.75, 4), rel=1e-6) == ladder.MAD_OF_T4


@settings(deadline=None)
@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=4))
def test_chances_combine_as_fisher_says(chances):
    expected = stats.combine_pvalues(chances, method="fisher").pvalue
    assert ladder._fisher(np.array(chances)[:, None])[0] == pytest.approx(expected, rel=1e-6)


def deviation(amount, *, chance=1e-6, known=True):
    return ladder.Deviation(np.array([amount]), np.array([0.02]), np.array([chance]), np.array([known]))


def test_a_suspect_must_be_seen_again():
    bad, fine = deviation(-0.05), deviation(0.0, chance=0.5)
    assert ladder.confirmed(bad, [bad, bad])[0]
    assert ladder.confirmed(bad, [bad, deviation(-0.015)])[0]
    assert not ladder.confirmed(bad, [bad, fine])[0]
    assert not ladder.confirmed(bad, [deviation(-0.015), deviation(-0.015)])[0]
    assert not ladder.confirmed(bad, [fine, fine])[0]
    assert not ladder.confirmed(fine, [bad, bad])[0]
    assert not ladder.confirmed(bad, [])[0]
    assert not ladder.confirmed(bad, [bad, deviation(0.0, known=False)])[0]


def test_the_more_series_a_night_has_the_less_one_of_them_is_believed():
    one = deviation(-0.05, chance=0.02)
    many = ladder.Deviation(
        *(np.concatenate([x, np.broadcast_to(y, 5000)]) for x, y in zip(one, deviation(0.0), strict=True))
    )
    assert ladder.confirmed(one, [one, one])[0]
    assert not ladder.confirmed(many, [many, many])[0]


def test_a_re_run_that_contradicts_is_enough_and_one_that_saw_nothing_is_not():
    bad, fine, absent = deviation(-0.05), deviation(0.0, chance=0.5), deviation(0.0, known=False)
    real = np.array([False])
    assert ladder.refuted(bad, [fine], real)[0]
    assert not ladder.refuted(bad, [bad], real)[0]
    assert not ladder.refuted(bad, [absent, absent, absent], real)[0]
    assert ladder.refuted(bad, [bad, deviation(-0.015)], real)[0]  # seen by two, and not real
    assert not ladder.refuted(bad, [bad, bad], np.array([True]))[0]
    assert not ladder.confirmed(bad, [bad])[0]


def numbers(amounts, *, chance=1e-6):
    amounts = np.array(amounts)
    return ladder.Deviation(amounts, np.full(len(amounts), 0.02), np.full(len(amounts), chance), amounts < 1)


def test_an_occasion_on_which_most_is_off_proves_nothing_unless_all_occasions_are_so():
    off, fine, one = numbers([-0.07] * 10), numbers([0.0] * 10), numbers([-0.07] + [0.0] * 9)
    assert ladder.sound_occasions(one, [off, one]) == (one, [one])  # that re-run does not count
    first, again = ladder.sound_occasions(off, [fine, one])
    assert first.chance.tolist() == [1.0] * 10 and again == [fine, one]
    assert ladder.sound_occasions(off, [off, off]) == (off, [off, off])  # the cluster is slow
    assert ladder.confirmed(*ladder.sound_occasions(off, [off, off])).all()
    few = numbers([-0.07] * 3)
    assert ladder.sound_occasions(few, [numbers([0.0] * 3)])[0] is few


def test_the_spread_of_a_difference_is_that_of_two_nights():
    x = np.linspace(-60, 60, 24001)
    density = stats.t.pdf(x, 4)
    of_two = np.cumsum(np.convolve(density, density, mode="same")) * (x[1] - x[0]) ** 2
    assert x[np.searchsorted(of_two, 0.75)] / ladder.MAD_OF_T4 == pytest.approx(ladder.OF_TWO, rel=0.01)


def test_drift_is_so_low_by_chance_as_four_of_seven_nights_are():
    pinned = np.zeros((20, 1))
    d = ladder.against_pinned(np.full((7, 1), -0.03), pinned, spread=np.array([0.005]), floor=0.013)
    one = ladder._chance(np.array([-0.03]) / np.sqrt(1 + 7 / 20), np.array([0.005]))[0]
    assert d.suspect[0] and d.chance[0] == pytest.approx(stats.binom.sf(3, 7, one), rel=1e-6)
    assert not ladder.against_pinned(np.full((6, 1), -0.03), pinned, spread=np.array([0.005]), floor=0.013).known[0]


def test_neither_a_step_nor_a_creep_widens_the_spread_of_a_night():
    random = np.random.default_rng(5)
    pinned, recent = random.normal(0, 0.01, (20, 400)), random.normal(0, 0.01, (10, 400))
    quiet = np.median(ladder.steady_spread(pinned, recent))
    for fault in (-0.03, -0.001 * np.arange(10)[:, None]):
        assert np.median(ladder.steady_spread(pinned, recent + fault)) == pytest.approx(quiet, rel=0.1)
    assert ladder.steady_spread(np.zeros((1, 1)), np.zeros((0, 1))) == [0.0]


def test_two_disturbed_nights_of_seven_are_no_drift_and_four_slow_ones_are():
    def rungs_after(off):
        climber = Climber(11, sampled=False, **SMALL)
        quiet = climber.cluster.night
        for night in range(8):
            climber.cluster.night = lambda night=night: quiet() - (0.06 if night in off else 0.0)
            climbed = climber.tonight()
        return [a for group in climbed.groups for a in group.alarms if a.rung == "drift" and not a.unit]

    assert rungs_after({2, 4}) == []
    assert len(rungs_after({4, 5, 6, 7})) > 5


SMALL = {"gpus": 64, "metrics": 10}


def test_quiet_nights_make_no_page():
    pages = 0
    for seed in range(3):
        climber = Climber(seed, **SMALL)
        pages += sum(bool(climber.tonight().groups) for _ in range(6))
    assert pages <= 2


@pytest.mark.parametrize("whole", [True, False])
def test_a_step_of_five_percent_is_found_soon_and_one_of_three_in_time(whole):
    five = [nights_until_found(seed, size=0.05, whole=whole, nights=3, **SMALL) for seed in range(10)]
    three = [nights_until_found(seed, size=0.03, whole=whole, nights=10, **SMALL) for seed in range(5)]
    assert sum(night == 0 for night in five) >= 6
    assert sum(night is not None for night in five) >= 9
    assert sum(night is not None for night in three) >= 4


def test_a_creep_of_a_thousandth_a_night_is_found_within_forty():
    found = [nights_until_found(seed, size=0.0, per_night=0.001, whole=True, nights=40, **SMALL) for seed in range(2)]
    assert None not in found


def test_a_gray_node_is_found_and_no_healthy_one_blamed():
    climbed = Climber(1, **SMALL).tonight(gray=slice(40, 48))
    named = {alarm.node for group in climbed.groups for alarm in group.alarms if alarm.rung == "gray"}
    assert named == {"node5"}


# -- change points -----------------------------------------------------------------------------------------------


def test_a_step_is_placed_where_it_is():
    random = np.random.default_rng(1)
    for at in (10, 37, 52):
        values = random.normal(0, 1, 60) + np.where(np.arange(60) >= at, 5.0, 0.0)
        assert len(change_points(values)) == 1
        assert abs(change_points(values)[0] - at) <= 1


def test_several_steps_and_noise_and_single_wild_nights():
    random = np.random.default_rng(2)
    level = np.concatenate([np.zeros(40), np.full(30, 4.0), np.full(50, -2.0)])
    found = change_points(random.normal(0, 1, 120) + level)
    assert [round(x, -1) for x in found] == [40, 70]
    wild = random.normal(0, 1, 100)
    wild[[20, 55]] = 40.0
    assert change_points(wild) == []


def test_quiet_series_rarely_change():
    random = np.random.default_rng(3)
    assert sum(bool(change_points(random.normal(size=60))) for _ in range(100)) <= 5


@pytest.mark.parametrize("values", [[], [1.0], [1.0] * 50, [1.0, 2.0, 1.0, 2.0, 1.0]])
def test_series_without_a_change_have_none(values):
    assert change_points(values) == []


def test_a_clean_step_is_found_in_constant_data():
    assert change_points([5.0] * 4 + [6.0] * 4) == [4]
