"""Who is left out of the later stages, and when nobody is."""

from __future__ import annotations

from benchmarks.measurement import Event, Verdict
from suites import withoutfailed

HOSTS = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")
CALLED = {host: f"n{k}" for k, host in enumerate(HOSTS, 1)}


def verdict(status, *, config="gemm-1", node="n2", mandatory=True, **evidence):
    return Verdict(
        status=status, metric="gemm.flops", unit="FLOP/s", better="higher", config=config, subject="rank 1",
        mandatory=mandatory, reason="because", evidence={"node": node, **evidence},
    )  # fmt: skip


def died(node="n3", config="gemm-1"):
    return Event(kind="error", at="", detail={"node": node, "config": config, "reason": f"rank 2 on {node} died"})


def test_every_failing_unit_counts_not_only_the_worst():
    found = withoutfailed.failed(
        [verdict("fail", units=[["rank 1", "n2", 1.0], ["rank 3", "n4", 2.0]])], [], {"gemm-1"}
    )
    assert list(found) == ["n2", "n4"]
    assert withoutfailed.without(found, HOSTS, CALLED) == ("10.0.0.1", "10.0.0.3")
    assert withoutfailed.reason(found).startswith("not measured: n[2,4] failed by itself (n2: gemm.flops")


def test_a_rank_that_died_counts_only_where_its_number_is_still_missing():
    assert withoutfailed.failed([verdict("error")], [died()], {"gemm-1"}) == {"n3": "rank 2 on n3 died"}
    assert withoutfailed.failed([verdict("pass")], [died()], {"gemm-1"}) == {}


def test_what_is_advisory_passed_or_of_another_stage_leaves_nobody_out():
    listed = [verdict("fail", mandatory=False), verdict("noisy"), verdict("fail", config="links-1")]
    assert withoutfailed.failed(listed, [died(config="links-1")], {"gemm-1"}) == {}


def test_nobody_is_left_out_where_most_failed_or_a_culprit_has_no_name():
    assert withoutfailed.without({}, HOSTS, CALLED) == ()
    assert withoutfailed.without({"n1": "", "n2": ""}, HOSTS, CALLED) == ("10.0.0.3", "10.0.0.4")
    assert withoutfailed.without({"n1": "", "n2": "", "n3": ""}, HOSTS, CALLED) == ()
    assert withoutfailed.without({"world": "", "n2": ""}, HOSTS, CALLED) == ()
