"""What a verdict says: every status, every outcome, and that nothing unsound ever passes."""

from __future__ import annotations

import dataclasses
import math
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.measurement import Event, Measurement, Run, Subject
from clusters.cluster import Cluster
from clusters.limits import Exemption, Waiver
from reports.findings import elsewhere
from reports.judge import EXIT_CODES, explain, outcome, unjudged
from tests.judging import FLOOR, STEADY, TEST, TODAY, by_rank, expect, limit, measured, only, pair_table, verdicts

# -- against a limit ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("samples", "bound", "status"),
    [
        ((9, 10, 11), {"floor": 8.0}, "pass"),
        ((9, 10, 11), {"floor": 9.0}, "pass"),
        ((9, 10, 11), {"floor": 9.5}, "noisy"),
        ((9, 10, 11), {"floor": 11.0}, "noisy"),
        ((9, 10, 11), {"floor": 12.0}, "fail"),
        ((9, 10, 11), {"ceiling": 12.0}, "pass"),
        ((9, 10, 11), {"ceiling": 11.0}, "pass"),
        ((9, 10, 11), {"ceiling": 10.5}, "noisy"),
        ((9, 10, 11), {"ceiling": 9.0}, "noisy"),
        ((9, 10, 11), {"ceiling": 8.0}, "fail"),
        ((0, 0, 0), {"equal": 0.0}, "pass"),
        ((0, 0, 1), {"equal": 0.0}, "fail"),
        ((2.0, 2.4), {"equal": 2.0, "tolerance": 0.5}, "pass"),
        ((2.0, 2.6), {"equal": 2.0, "tolerance": 0.5}, "fail"),
        ((1.4, 2.0), {"equal": 2.0, "tolerance": 0.5}, "fail"),
        ((9, 10, 11), {"ceiling": 8.0, "physical": True}, "impossible"),
        ((9, 10, 11), {"ceiling": 10.5, "physical": True}, "pass"),
        ((9, 10, 11), {"ceiling": 9.5, "physical": True}, "noisy"),
        ((9, 10, 11), {"floor": 9.5, "physical": True}, "pass"),
        ((9, 10, 11), {"floor": 10.5, "physical": True}, "noisy"),
        ((9, 10, 11), {"floor": 11.5, "physical": True}, "impossible"),
        ((9, 10, 11), {"ceiling": 12.0, "physical": True}, "pass"),
    ],
)
def test_the_interval_decides(samples, bound, status):
    e = expect(unit="1")
    assert only(verdicts(e, [measured(e, *samples)], [limit(unit="1", **bound)])).status == status


def test_a_verdict_carries_its_numbers():
    e = expect(bytes=1024)
    v = only(verdicts(e, [measured(e, 5.9e12, 6.0e12, 6.1e12)], [limit(floor=8e12, where={"bytes": 1024})]))
    assert (v.status, v.value, v.low, v.high, v.n) == ("fail", 6.0e12, 5.9e12, 6.1e12, 3)
    assert v.margin == pytest.approx(-0.25)
    assert v.noise == pytest.approx(0.1 / 6)
    assert (v.limit, v.limit_value, v.limit_source, v.bound) == ("speed", 8e12, "contract", "floor")
    assert (v.config, v.test, v.params) == ("c1", TEST, {"bytes": 1024})
    assert v.reason == "world of 4: median 6 TFLOP/s (n=3), floor 8 TFLOP/s from contract [speed]"
    assert "local" in v.again and "--retest" in v.again


def test_the_caller_may_write_the_command_that_measures_again():
    e = expect()
    assert only(verdicts(e, [], again=lambda e, status: f"{status} {e.config}")).again == "missing c1"


def test_the_worst_unit_gates_and_the_others_that_fail_are_named():
    e = expect(per="rank", units=4)
    samples = {0: STEADY, 1: (5.0, 5.1), 2: (7.0, 7.1), 3: STEADY}
    v = only(verdicts(e, by_rank(e, samples)))
    assert (v.status, v.subject, v.units) == ("fail", "rank 1", 4)
    assert v.evidence["units"] == [["rank 1", "node0", 5.05], ["rank 2", "node1", 7.05]]
    assert v.evidence["node"] == "node0"
    assert "2 of 4 units: rank 1, rank 2" in v.reason


def test_one_failing_unit_outweighs_a_worse_median_that_is_only_noisy():
    e = expect(per="rank", units=2)
    v = only(verdicts(e, by_rank(e, {0: (1.0, 6.0, 9.0), 1: (7.0, 7.1)})))
    assert (v.status, v.subject) == ("fail", "rank 1")


def test_every_limit_that_covers_it_gives_a_verdict_of_its_own():
    e = expect()
    limits = [FLOOR, limit("target", floor=12.0, mandatory=False), limit("physics", ceiling=20.0, physical=True)]
    found = verdicts(e, [measured(e, *STEADY)], limits)
    assert [(v.limit, v.status, v.mandatory) for v in found] == [
        ("speed", "pass", True), ("target", "fail", False), ("physics", "pass", True),
    ]  # fmt: skip


def test_a_limit_of_another_scope_does_not_apply_and_the_number_is_listed_as_not_judged():
    e = expect()
    only_h100 = limit(floor=8.0, scope={"sku": "h100-sxm"})
    assert only(verdicts(e, [measured(e, 1.0)], [only_h100], scope={"sku": "h100-sxm"})).status == "fail"
    found = verdicts(e, [measured(e, 1.0)], [only_h100], scope={"sku": "b200"})
    assert found == []
    run = Run(id="r", suite="s", cluster="c", cluster_sha256="", started_at="", expected=(e,))
    assert unjudged(run, found) == [e]


def test_limits_that_are_not_for_a_run_are_named():
    only_h100, two_nodes = limit("h100", floor=8.0, scope={"sku": "h100-sxm"}), "two_nodes"
    cluster = Cluster(name="c", path="", text="", sha256="", limits=(FLOOR, only_h100), elsewhere=(two_nodes,))
    run = Run(id="r1", suite="s", cluster="c", cluster_sha256="", started_at="", scope={"sku": "b200"})
    assert elsewhere(run, cluster) == ["two_nodes", "h100"]
    assert elsewhere(dataclasses.replace(run, scope={"sku": "h100-sxm"}), cluster) == ["two_nodes"]


def test_a_number_without_a_limit_is_still_missing_when_it_is_not_there():
    assert only(verdicts(expect(), [], limits=[])).status == "missing"


def test_a_limit_whose_params_are_never_measured_is_missing():
    e = expect(bytes=1024)
    found = verdicts(e, [measured(e, *STEADY)], [limit(floor=8.0, where={"bytes": 2048})])
    assert (only(found).status, only(found).limit, only(found).test) == ("missing", "speed", TEST)
    assert "bytes=2048" in only(found).reason


def test_a_limit_in_another_unit_than_the_metric_judges_nothing():
    e = expect()
    assert only(verdicts(e, [measured(e, *STEADY)], [limit(floor=8.0, unit="s")])).status == "error"


# -- unsound measurements ----------------------------------------------------------------------------------------

UNSOUND = {
    "never measured": ([], "missing", "never measured"),
    "no samples": ([{"samples": ()}], "error", "no samples"),
    "not a number": ([{"samples": (1.0, math.nan)}], "error", "NaN"),
    "infinite": ([{"samples": (math.inf,)}], "error", "infinite"),
    "a rate of zero": ([{"samples": (10.0, 0.0)}], "impossible", "zero or less"),
    "a negative rate": ([{"samples": (10.0, -1.0)}], "impossible", "zero or less"),
    "a record of an error": ([{"outcome": "error", "reason": "out of memory"}], "error", "out of memory"),
    "an unknown outcome": ([{"outcome": "skipped"}], "error", "skipped"),
    "another unit": ([{"samples": STEADY, "unit": "GFLOP/s"}], "error", "GFLOP/s"),
    "another direction": ([{"samples": STEADY, "better": "lower"}], "error", "lower"),
    "twice": ([{"samples": STEADY}, {"samples": STEADY}], "missing", "more than once"),
    "throttled": ([{"samples": STEADY, "conditions": {"disqualified": ["thermal"]}}], "error", "disqualified: thermal"),
    "a table": ([{"columns": {"samples": [[10.0]]}}], "error", "table"),
}


@pytest.mark.parametrize(("records", "status", "said"), UNSOUND.values(), ids=UNSOUND)
def test_an_unsound_measurement_never_passes(records, status, said):
    e = expect()
    v = only(verdicts(e, [measured(e, **{"samples": (), **fields}) for fields in records]))
    assert v.status == status
    assert said in v.reason


def test_other_params_or_another_config_are_not_what_was_asked_for():
    e = expect(bytes=1024)
    strangers = [measured(expect(bytes=2048), *STEADY), measured(expect(bytes=1024, config="c2"), *STEADY)]
    assert only(verdicts(e, strangers)).status == "missing"


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ((0, 1, 3), "1 of 4 missing: rank 2"),
        ((0, 1, 2, 2), "more than once"),
        ((0, 1, 2, 4), "not one of the 4: rank 4"),
        ((0, 1, 2, None), "1 of 4 missing: rank 3"),
    ],
)
def test_ranks_that_are_absent_doubled_or_unheard_of_are_missing(ranks, said):
    e = expect(per="rank", units=4)
    records = [measured(e, *STEADY, subject=Subject(group="rank", rank=rank)) for rank in ranks]
    v = only(verdicts(e, records))
    assert v.status == "missing"
    assert said in v.reason


def test_nodes_are_counted_by_name():
    e = expect(per="node", units=2)
    records = [measured(e, *STEADY, subject=Subject(group="node", node=node)) for node in ("n1", "n2")]
    assert only(verdicts(e, records)).status == "pass"
    assert only(verdicts(e, records[:1])).status == "missing"
    assert only(verdicts(e, [records[0], records[0]])).status == "missing"


def test_a_pair_table_is_judged_row_by_row():
    e = expect("links.bandwidth", unit="B/s", per="pair", units=6)
    pairs = {(a, b): STEADY for a in range(3) for b in range(3) if a != b}
    floor = limit("wire", metric="links.*", unit="B/s", floor=8.0)
    assert only(verdicts(e, [pair_table(e, pairs)], [floor])).status == "pass"
    slow = only(verdicts(e, [pair_table(e, {**pairs, (2, 1): (1.0, 1.1)})], [floor]))
    assert (slow.status, slow.subject, slow.units) == ("fail", "2->1", 6)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (lambda c: c["samples"].__setitem__(0, []), "error"),
        (lambda c: c["samples"].__setitem__(0, [None]), "error"),
        (lambda c: c["samples"].__setitem__(0, ["10"]), "error"),
        (lambda c: c["samples"].__setitem__(0, [True]), "error"),
        (lambda c: c["samples"].__setitem__(0, 10.0), "error"),
        (lambda c: c["samples"].pop(), "error"),
        (lambda c: c["a"].__setitem__(0, [1]), "error"),
        (lambda c: c.pop("b"), "error"),
        (lambda c: [column.pop() for column in c.values()], "missing"),
        (lambda c: c["a"].__setitem__(0, 1), "missing"),
    ],
)
def test_a_damaged_table_never_passes(change, status):
    e = expect("links.bandwidth", unit="B/s", per="pair", units=2)
    record = pair_table(e, {(0, 1): STEADY, (1, 0): STEADY})
    change(record.columns)
    assert only(verdicts(e, [record], [limit(metric="links.*", unit="B/s", floor=1.0)])).status == status


def test_a_number_that_no_float_holds_is_an_error():
    e = expect(per="rank", units=2)
    table = measured(e, columns={"rank": [0, 1], "samples": [[10.0], [10**400]]})
    v = only(verdicts(e, [table]))
    assert (v.status, v.reason) == ("error", "a sample too large to be a number: rank 1")


def test_a_rank_that_broke_is_named_with_its_reason():
    e = expect(per="rank", units=2)
    records = by_rank(e, {0: STEADY})
    broken = measured(e, subject=Subject(group="rank", rank=1), outcome="error", reason="wrong result")
    v = only(verdicts(e, [*records, broken]))
    assert (v.status, v.reason) == ("error", "rank 1: wrong result")


def test_throttling_seen_by_any_record_of_the_config_disqualifies_all_of_it():
    e = expect()
    seen = Measurement(
        metric="conditions", unit="1", better="equal", config="c1", subject=Subject(group="node", node="node7"),
        conditions={"disqualified": ["thermal"]},
    )  # fmt: skip
    v = only(verdicts(e, [measured(e, *STEADY), seen]))
    assert (v.status, v.reason) == ("error", "disqualified: thermal on node7")
    another = dataclasses.replace(seen, config="c2")
    assert only(verdicts(e, [measured(e, *STEADY), another])).status == "pass"


def test_a_config_that_died_before_any_record_says_of_what():
    died = Event(kind="error", at="", detail={"config": "c1", "attempt": 1, "reason": "rank 3 died: SIGKILL"})
    v = only(verdicts(expect(), [], errors=[died]))
    assert (v.status, v.reason) == ("error", "rank 3 died: SIGKILL")


def test_a_config_that_died_later_does_not_undo_what_was_measured():
    died = Event(kind="error", at="", detail={"config": "c1", "attempt": 2, "reason": "rank 3 died: SIGKILL"})
    e = expect()
    assert only(verdicts(e, [measured(e, *STEADY)], errors=[died])).status == "pass"


@settings(deadline=None)  # other work may share the machine
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=8))
def test_only_positive_finite_samples_ever_pass(samples):
    e = expect()
    status = only(verdicts(e, [measured(e, *samples)], [limit(floor=1e-300)])).status
    sound = bool(samples) and all(math.isfinite(s) and s > 0 for s in samples)
    assert (status in ("pass", "fail", "noisy")) == sound


@settings(deadline=None)  # other work may share the machine
@given(st.sets(st.tuples(st.integers(-1, 3), st.integers(-1, 3))))
def test_only_the_whole_set_of_pairs_passes(pairs):
    e = expect("links.bandwidth", unit="B/s", per="pair", units=6)
    floor = limit("wire", metric="links.*", unit="B/s", floor=8.0)
    whole = pairs == {(a, b) for a in range(3) for b in range(3) if a != b}
    record = pair_table(e, dict.fromkeys(pairs, STEADY))
    assert (only(verdicts(e, [record], [floor])).status == "pass") == whole


# -- attempts ----------------------------------------------------------------------------------------------------


def test_the_latest_attempt_decides_and_an_earlier_fail_stays_in_sight():
    e = expect()
    records = [measured(e, 5.0, 5.1, attempt=1), measured(e, *STEADY, attempt=2)]
    v = only(verdicts(e, records))
    assert (v.status, v.attempts) == ("pass", 2)
    assert "attempt 1 was fail: world of 4: median 5.05 FLOP/s" in v.reason
    assert v.evidence["earlier"][0]["status"] == "fail"
    assert only(verdicts(e, [records[1], records[0]])).status == "pass"  # whatever the order in the file


def test_an_error_after_a_fail_names_the_fail():
    e = expect()
    broken = measured(e, attempt=2, outcome="error", reason="rank 1 died")
    v = only(verdicts(e, [measured(e, 5.0, attempt=1), broken]))
    assert (v.status, v.attempts) == ("error", 2)
    assert "attempt 1 was fail" in v.reason


def test_more_repetitions_of_a_noisy_check_join_its_samples():
    e = expect()
    first = measured(e, 7.0, 9.0, 9.1, attempt=1)
    more = measured(e, 9.2, 9.3, 9.4, 9.5, 9.6, 9.7, attempt=2, notes={"pool": True})
    assert only(verdicts(e, [first])).status == "noisy"
    v = only(verdicts(e, [first, more]))
    assert (v.status, v.n, v.attempts) == ("pass", 9, 1)


def test_pooling_cannot_wash_out_an_attempt_that_is_unsound():
    e = expect()
    first = measured(e, 7.0, 9.0, attempt=1, conditions={"disqualified": "thermal"})
    more = measured(e, 9.2, 9.3, attempt=2, notes={"pool": True})
    assert only(verdicts(e, [first, more])).status == "error"


# -- waivers and exemptions --------------------------------------------------------------------------------------


def waiver(subject="*", expires=TODAY, **fields):
    return Waiver(
        id="W-1", limit="speed", approver="Ada", reason="part on order", expires=expires, subject=subject, **fields
    )


def test_a_failure_may_be_waived_until_the_last_day():
    e = expect()
    v = only(verdicts(e, [measured(e, 5.0)], waivers=[waiver()]))
    assert v.status == "waived"
    assert "waived by Ada until 2026-12-01 (W-1: part on order)" in v.reason
    assert v.evidence["waiver"]["id"] == "W-1"
    late = only(verdicts(e, [measured(e, 5.0)], waivers=[waiver()], today=date(2026, 12, 2)))
    assert late.status == "fail"
    assert "waiver W-1 of Ada expired on 2026-12-01" in late.reason


def test_a_waiver_for_one_unit_does_not_hide_another():
    e = expect(per="rank", units=3)
    records = by_rank(e, {0: STEADY, 1: (5.0,), 2: (7.0,)})
    v = only(verdicts(e, records, waivers=[waiver("rank 1")]))
    assert (v.status, v.subject) == ("fail", "rank 2")
    assert only(verdicts(e, records, waivers=[waiver("rank [12]")])).status == "waived"


def test_a_waiver_waives_failures_only():
    e = expect(per="rank", units=2)
    v = only(verdicts(e, by_rank(e, {0: (5.0,), 1: (7.0, 9.0)}), waivers=[waiver("rank 0")]))
    assert (v.status, v.subject) == ("noisy", "rank 1")
    assert only(verdicts(expect(), [], waivers=[waiver()])).status == "missing"


def test_what_the_cluster_file_exempts_is_not_applicable_even_when_absent():
    exempt = [Exemption(metric="gemm.*", reason="no tensor cores")]
    v = only(verdicts(expect(), [], exemptions=exempt))
    assert (v.status, v.reason) == ("not_applicable", "no tensor cores (the cluster file says so)")


# -- outcomes ----------------------------------------------------------------------------------------------------


def outcome_of(*statuses, selected_all=True, ended=True, mandatory=True):
    e = expect()
    good = only(verdicts(e, [measured(e, *STEADY)]))
    found = [dataclasses.replace(good, status=status, mandatory=mandatory) for status in statuses]
    return outcome([good, *found], selected_all=selected_all, ended=ended)


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ([], "ACCEPTED"),
        (["not_applicable", "no_baseline"], "ACCEPTED"),
        (["waived"], "CONDITIONAL"),
        (["missing"], "INCOMPLETE"),
        (["error"], "INCOMPLETE"),
        (["noisy"], "INCOMPLETE"),
        (["impossible"], "INCOMPLETE"),
        (["waived", "noisy"], "INCOMPLETE"),
        (["fail"], "REJECTED"),
        (["fail", "missing", "waived"], "REJECTED"),
    ],
)
def test_the_outcome_follows_the_gravest_verdict(statuses, expected):
    assert outcome_of(*statuses) == expected


def test_advisory_failures_are_shown_and_do_not_reject():
    assert outcome_of("fail", "noisy", mandatory=False) == "ACCEPTED"
    assert outcome_of("impossible", mandatory=False) == "INCOMPLETE"
    assert outcome_of("missing", mandatory=False) == "INCOMPLETE"


def test_a_part_of_the_suite_or_a_run_that_stopped_is_incomplete():
    assert outcome_of(selected_all=False) == "INCOMPLETE"
    assert outcome_of(ended=False) == "INCOMPLETE"
    assert outcome_of("fail", selected_all=False, ended=False) == "REJECTED"


def test_nothing_passed_is_incomplete():
    assert outcome([], selected_all=True, ended=True) == "INCOMPLETE"


def test_physical_bounds_alone_accept_nothing():
    e = expect()
    possible = limit("possible", ceiling=1e18, physical=True)
    alone = verdicts(e, [measured(e, 1e-9)], [possible])
    assert only(alone).status == "pass"
    told = ["nothing but physical bounds passed"]
    assert explain(alone, selected_all=True, ended=True) == ("INCOMPLETE", told)
    advisory = verdicts(e, [measured(e, *STEADY)], [possible, dataclasses.replace(FLOOR, mandatory=False)])
    assert outcome(advisory, selected_all=True, ended=True) == "INCOMPLETE"
    both = verdicts(e, [measured(e, *STEADY)], [possible, FLOOR])
    assert explain(both, selected_all=True, ended=True) == ("ACCEPTED", ["2 checks passed"])


def test_the_reasons_are_counted():
    e = expect()
    good = only(verdicts(e, [measured(e, *STEADY)]))
    bad = [dataclasses.replace(good, status=status) for status in ("fail", "fail", "noisy", "missing")]
    found = explain([good, *bad], selected_all=True, ended=False)
    assert found == ("REJECTED", ["2 checks failed", "1 check missing", "1 check noisy", "the run never ended"])


def test_exit_codes_tell_the_outcomes_apart_and_only_accepted_is_zero():
    assert EXIT_CODES == {"ACCEPTED": 0, "REJECTED": 1, "INCOMPLETE": 3, "CONDITIONAL": 6}
