"""A table of units says exactly what as many single records say, and a line reads the same by either parser."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import measurement
from benchmarks.measurement import Expected, Measurement, RecordError, Subject, decode, encode
from clusters.limits import Limit
from reports.bounds import against
from reports.evidence import Evidence
from reports.units import Units, units_of, without_samples

EXPECTED = Expected(metric="m", unit="B/s", better="higher", config="c", test="t", per="rank", units=3)
SAMPLE = st.one_of(
    st.floats(1e-3, 1e12), st.sampled_from([0.0, -1.0, float("nan"), float("inf"), True, "fast", None, 10**400, 7])
)
ROWS = st.one_of(
    st.lists(st.lists(st.floats(1e-3, 1e12), min_size=4, max_size=4), min_size=3, max_size=3),
    st.lists(st.lists(SAMPLE, max_size=4), min_size=2, max_size=4),
)


def record(**fields):
    return Measurement(metric="m", unit="B/s", better="higher", config="c", **fields)


@settings(deadline=None)
@given(ROWS)
def test_a_table_is_judged_as_single_records_are(rows):
    table = record(columns={"rank": list(range(len(rows))), "samples": rows})
    single = [record(samples=tuple(row), subject=Subject(group="rank", rank=i)) for i, row in enumerate(rows)]
    (whole,), (apart,) = (Evidence(ms).attempts(EXPECTED) for ms in ([table], single))
    assert whole.problem == apart.problem
    assert list(whole.units) == list(apart.units) or whole.problem
    if whole.problem:
        return
    assert whole.lowest == apart.lowest
    for bound in ({"floor": 1e3}, {"ceiling": 1e3}, {"equal": 5.0}):
        limit = Limit(name="l", metric="m", unit="B/s", source="contract", **bound)
        assert against(limit, whole) == against(limit, apart)


def test_a_table_that_names_fewer_nodes_than_rows_is_missing_units():
    table = record(columns={"rank": [0, 1, 2], "node": ["a", "b"], "samples": [[1.0]] * 3})
    (attempt,) = Evidence([table]).attempts(EXPECTED)
    assert attempt.problem.status == "missing" and "rank 2" in attempt.problem.reason


def test_rows_that_are_named_alike_are_named_once_and_garbage_is_named_too():
    first, second = (units_of("rank", record(columns={"rank": [0, 1], "samples": [[x], [x]]})) for x in (1.0, 2.0))
    assert first.identities is second.identities and first.labels == ("rank 0", "rank 1")
    assert units_of("rank", record(columns={"rank": [[0], 1], "samples": [[1.0], [2.0]]}))[0].label == "rank [0]"
    short = units_of("rank", record(columns={"rank": [0, 1], "samples": [[1.0]]}))
    assert [unit.label for unit in short] == ["rank 0"]


def test_units_without_their_samples_keep_their_names():
    units = Units("pair", [(0, 1), (1, 0)], ["a", "b"], [[1.0], [2.0]])
    light = without_samples(units)
    assert [(u.label, u.node, u.samples) for u in light] == [("0->1", "a", ()), ("1->0", "b", ())]
    assert without_samples(list(units)) == list(light) and units[-1:] == [units[1]]


@settings(deadline=None)
@given(st.lists(st.one_of(st.floats(), st.integers(-(2**70), 2**70)), max_size=5))
def test_both_parsers_read_a_record_alike(samples):
    line = encode(Measurement(metric="m", unit="s", better="lower", samples=tuple(samples)))
    fast, plain = decode(Measurement, line), _plainly(line)
    assert repr(fast) == repr(plain)


@pytest.mark.parametrize(
    "line",
    ['{"v":1', "NaN", '{"v":1,"metric":"m","unit":"s","better":"lower","samples":[1' + "0" * 400 + "]}", "[]", ""],
)
def test_what_one_parser_refuses_the_other_does_not_accept(line):
    with pytest.raises(RecordError):
        decode(Measurement, line)
    with pytest.raises(RecordError):
        _plainly(line)


def _plainly(line):
    """The record as it reads without the fast parser."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measurement, "orjson", None)
        assert measurement._parsed('{"a":1}') == json.loads('{"a":1}')
        return decode(Measurement, line)
