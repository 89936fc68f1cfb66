"""A projected number may fail a cluster, and never passes one."""

from __future__ import annotations

from datetime import date

import pytest

from clusters.limits import Limit, Waiver
from reports.judge import outcome
from tests.judging import expect, limit, measured, only, verdicts

WITHIN = limit("within", metric="checkpoint.save.time", unit="s", ceiling=30.0)
SAVE = expect("checkpoint.save.time", unit="s", better="lower", projected=True, bytes=988 * 10**9)
WAIVER = Waiver(id="w", limit="within", approver="a", reason="r", expires=date(2099, 1, 1))


@pytest.mark.parametrize(
    ("samples", "status", "result"),
    [((60.0, 61.0, 62.0), "fail", "REJECTED"), ((5.0, 5.1, 5.2), "missing", "INCOMPLETE"),
     ((20.0, 29.0, 40.0), "noisy", "INCOMPLETE")],
)  # fmt: skip
def test_it_fails_or_stays_open(samples: tuple[float, ...], status: str, result: str):
    found = verdicts(SAVE, [measured(SAVE, *samples)], [WITHIN])
    assert only(found).status == status
    assert only(found).reason.startswith("PROJECTED: ")
    good = expect()
    both = verdicts([SAVE, good], [measured(SAVE, *samples), measured(good, 9.0, 9.1, 9.2)], [WITHIN, limit(floor=8.0)])
    assert outcome(both, selected_all=True, ended=True) == result


def test_without_a_limit_or_with_a_waiver_it_is_missing_too():
    unjudged = verdicts(SAVE, [measured(SAVE, 5.0, 5.1)], [])
    waived = verdicts(SAVE, [measured(SAVE, 60.0, 61.0, 62.0)], [WITHIN], waivers=[WAIVER])
    for found in (unjudged, waived):
        assert only(found).status == "missing"
        assert "never passes one" in only(found).reason


@pytest.mark.parametrize(
    "only_limit",
    [
        limit("wish", metric="checkpoint.save.time", unit="s", ceiling=30.0, mandatory=False),
        limit("before", metric="checkpoint.save.time", unit="1", ceiling=1.1, of="baseline"),
        limit("alike", metric="checkpoint.save.time", unit="1", ceiling=2.0, of="peers"),
    ],
)
def test_a_limit_that_decides_nothing_does_not_settle_it(only_limit: Limit):
    good = expect()
    found = verdicts(
        [SAVE, good], [measured(SAVE, 60.0, 61.0, 62.0), measured(good, 9.0, 9.1, 9.2)], [only_limit, limit(floor=8.0)]
    )
    assert outcome(found, selected_all=True, ended=True) == "INCOMPLETE"


def test_what_was_measured_is_judged_as_ever():
    real = expect("checkpoint.save.time", unit="s", better="lower", bytes=988 * 10**9)
    assert only(verdicts(real, [measured(real, 5.0, 5.1, 5.2)], [WITHIN])).status == "pass"
