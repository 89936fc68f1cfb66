"""Limits on ratios: to another metric of the run, to a unit's peers, to an earlier run."""

from __future__ import annotations

import dataclasses
import math

import pytest

from benchmarks.measurement import Config
from reports.comparison import baseline_of
from reports.evidence import Evidence
from reports.judge import outcome
from reports.statistics import Estimate
from tests.judging import FLOOR, by_rank, expect, limit, measured, only, verdicts

# -- ratios ------------------------------------------------------------------------------------------------------

SAVE = expect("checkpoint.save.bandwidth", unit="B/s")
RAW = expect("checkpoint.raw.bandwidth", unit="B/s")
RATIO = limit(
    "against_raw", metric="checkpoint.save.bandwidth", unit="1", floor=0.5, of="metric",
    ratio_to="checkpoint.raw.bandwidth",
)  # fmt: skip


@pytest.mark.parametrize(
    ("save", "raw", "status"),
    [
        ((6.0,), (10.0,), "pass"),
        ((4.0,), (10.0,), "fail"),
        ((6.0,), (10.0, 10.0, 13.0), "noisy"),  # 6 / 13 is below a half
        ((4.0, 6.0, 7.0), (10.0,), "noisy"),
    ],
)
def test_a_ratio_to_another_metric_of_the_run(save, raw, status):
    found = verdicts([SAVE, RAW], [measured(SAVE, *save), measured(RAW, *raw)], [RATIO])
    assert only(found).status == status


def test_a_ratio_is_shown_with_its_reference():
    v = only(verdicts([SAVE, RAW], [measured(SAVE, 4.0), measured(RAW, 10.0)], [RATIO]))
    assert v.value == pytest.approx(0.4)
    assert v.evidence["reference"] == [10.0, 10.0, 10.0]
    assert "0.4 of checkpoint.raw.bandwidth" in v.reason


def test_a_ratio_scales_its_reference_and_takes_the_median_unit_of_it():
    step = expect("training.flops", unit="FLOP/s", config="c2")
    gemm = expect(per="rank", units=3)
    ratio = limit("mfu", metric="training.flops", unit="1", floor=0.5, of="metric", ratio_to="gemm.flops", scale=3)
    records = [measured(step, 18.0), *by_rank(gemm, {0: (10.0,), 1: (12.0,), 2: (1.0,)})]
    assert only(verdicts([step, gemm], records, [ratio])).value == pytest.approx(18 / 30)


def test_the_reference_of_a_ratio_is_the_one_of_the_same_config_and_params():
    saves = [expect("checkpoint.save.bandwidth", unit="B/s", bytes=b) for b in (1, 2)]
    raws = [expect("checkpoint.raw.bandwidth", unit="B/s", bytes=b) for b in (1, 2)]
    other = expect("checkpoint.raw.bandwidth", unit="B/s", config="c2", bytes=1)
    records = [measured(e, v) for e, v in zip([*saves, *raws, other], [6.0, 60.0, 10.0, 100.0, 1e6], strict=True)]
    found = verdicts([*saves, *raws, other], records, [RATIO])
    assert [v.value for v in found] == pytest.approx([0.6, 0.6])


@pytest.mark.parametrize(
    ("expected", "records", "status", "said"),
    [
        ([SAVE], [measured(SAVE, 6.0)], "missing", "not among what this run expects"),
        ([SAVE, RAW], [measured(SAVE, 6.0)], "missing", "was never measured"),
        ([SAVE, RAW], [measured(SAVE, 6.0), measured(RAW, math.nan)], "missing", "cannot count"),
    ],
)
def test_a_ratio_without_a_sound_reference_never_passes(expected, records, status, said):
    v = next(v for v in verdicts(expected, records, [RATIO]) if v.limit == "against_raw")
    assert v.status == status
    assert said in v.reason


def test_a_ratio_to_itself_is_an_error():
    itself = dataclasses.replace(RATIO, ratio_to="checkpoint.save.bandwidth")
    v = only(verdicts([SAVE], [measured(SAVE, 1e-9)], [itself]))
    assert (v.status, "to itself" in v.reason) == ("error", True)


@pytest.mark.parametrize(("save", "raw"), [(1.0, 5e-324), (1e300, 1e-300), (1.0, 1e309)])
def test_a_ratio_that_is_no_finite_number_is_an_error(save, raw):
    v = next(v for v in verdicts([SAVE, RAW], [measured(SAVE, save), measured(RAW, raw)], [RATIO]) if v.limit)
    assert v.status in ("error", "missing")
    scaled = dataclasses.replace(RATIO, scale=1e308)
    v = next(v for v in verdicts([SAVE, RAW], [measured(SAVE, 1.0), measured(RAW, 10.0)], [scaled]) if v.limit)
    assert (v.status, "not positive and finite" in v.reason) == ("error", True)


def test_peers_too_far_apart_for_a_number_are_an_error():
    e = expect(per="rank", units=3)
    v = only(verdicts(e, by_rank(e, {0: (1e-320,), 1: (1e-320,), 2: (1e300,)}), [PEERS]))
    assert (v.status, v.subject) == ("error", "rank 2")
    assert "no finite number" in v.reason


def test_a_ratio_that_could_mean_two_numbers_is_an_error():
    raws = [expect("checkpoint.raw.bandwidth", unit="B/s", bytes=b) for b in (1, 2)]
    v = only(verdicts([SAVE, *raws], [measured(e, 6.0) for e in (SAVE, *raws)], [RATIO]))
    assert v.status == "error"
    assert "ratio_where" in v.reason
    chosen = dataclasses.replace(RATIO, ratio_where={"bytes": 2})
    assert only(verdicts([SAVE, *raws], [measured(e, 6.0) for e in (SAVE, *raws)], [chosen])).status == "pass"


PEERS = limit("symmetry", unit="1", floor=0.8, of="peers")


def test_a_unit_is_held_against_the_median_of_its_peers():
    e = expect(per="rank", units=4)
    v = only(verdicts(e, by_rank(e, {0: (10.0,), 1: (10.0,), 2: (7.0,), 3: (10.0,)}), [PEERS]))
    assert (v.status, v.subject, v.value) == ("fail", "rank 2", pytest.approx(0.7))


def test_of_two_units_each_is_held_against_the_other():
    # against their median, 8.5, the slow one would reach 0.82 and pass
    e = expect(per="rank", units=2)
    v = only(verdicts(e, by_rank(e, {0: (10.0,), 1: (7.0,)}), [PEERS]))
    assert (v.status, v.subject, v.value) == ("fail", "rank 1", pytest.approx(0.7))


def test_a_single_unit_has_no_peers_and_that_is_no_pass():
    e = expect(per="rank", units=1)
    found = verdicts(e, by_rank(e, {0: (10.0,)}), [PEERS])
    assert only(found).status == "not_applicable"
    assert outcome(found, selected_all=True, ended=True) == "INCOMPLETE"


BASELINE = limit("nightly", unit="1", floor=0.95, of="baseline")


def configs(**place):
    return (Config(id="c1", benchmark="gemm", spec={}, place={"nodes": 1, "backend": "gloo", **place}, limit_s=1),)


def baseline(e, *samples, scope=None, **place):
    chosen = {c.id: c for c in configs(**place)}
    return baseline_of([e], Evidence([measured(e, *samples)]), configs=chosen, scope=scope or {})


def test_a_number_is_held_against_the_same_number_of_an_earlier_run():
    e = expect()
    for now, status in ((10.0, "pass"), (9.0, "fail")):
        v = only(verdicts(e, [measured(e, now)], [BASELINE], configs=configs(), baseline=baseline(e, 10.0)))
        assert (v.status, v.value) == (status, pytest.approx(now / 10))


@pytest.mark.parametrize("earlier", [0.0, -1.0, math.nan, math.inf])
def test_a_baseline_that_is_not_positive_and_finite_never_passes(earlier):
    e = expect(unit="1")
    old = dict.fromkeys(baseline(e, 1.0), Estimate(earlier, earlier, earlier, 5))
    for now in (0.0, -50.0, 10.0):
        v = only(verdicts(e, [measured(e, now)], [BASELINE], configs=configs(), baseline=old))
        assert (v.status, "the baseline is not positive and finite" in v.reason) == ("error", True)


@pytest.mark.parametrize(("earlier", "status"), [(0.0, "error"), (1.0, "fail"), (3.5, "fail")])
def test_mixed_samples_are_not_equal_to_a_baseline(earlier, status):
    e = expect("links.wrong_elements", unit="1", better="equal")
    same = limit(metric=e.metric, unit="1", equal=1.0, of="baseline")
    old = dict.fromkeys(baseline(e, 1.0), Estimate(earlier, earlier, earlier, 5))
    assert only(verdicts(e, [measured(e, 0.0, 7.0)], [same], configs=configs(), baseline=old)).status == status


@pytest.mark.parametrize("place", [{"nodes": 2}, {"backend": "nccl"}, {"ranks_per_node": 8}])
def test_what_is_not_comparable_has_no_baseline(place):
    e = expect()
    v = only(verdicts(e, [measured(e, 9.0)], [BASELINE], configs=configs(), baseline=baseline(e, 10.0, **place)))
    assert v.status == "no_baseline"


def test_another_gpu_has_no_baseline():
    e = expect()
    old = baseline(e, 10.0, scope={"sku": "a100"})
    found = verdicts(e, [measured(e, 9.0)], [BASELINE], scope={"sku": "h100"}, configs=configs(), baseline=old)
    assert only(found).status == "no_baseline"


def test_a_node_local_number_may_be_compared_across_node_counts():
    e = expect(per="rank", units=1)
    old = dataclasses.replace(e, units=2)
    chosen = {c.id: c for c in configs(nodes=2)}
    earlier = baseline_of([old], Evidence(by_rank(old, {0: (10.0,), 1: (10.0,)})), configs=chosen, scope={})
    v = only(verdicts(e, by_rank(e, {0: (9.0,)}), [BASELINE], configs=configs(), baseline=earlier))
    assert v.status == "fail"


def test_without_a_baseline_the_absolute_limits_still_judge():
    e = expect()
    found = verdicts(e, [measured(e, 1.0)], [BASELINE, FLOOR])
    assert [v.status for v in found] == ["no_baseline", "fail"]
