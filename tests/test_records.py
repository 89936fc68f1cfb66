"""The records: exact round trip, schema versions, and a clear word on lines that are none."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import measurement
from benchmarks.measurement import (
    SCHEMA,
    Config,
    Environment,
    Event,
    Expected,
    Measurement,
    Metric,
    RecordError,
    Run,
    Subject,
    Verdict,
    decode,
    encode,
)

floats = st.floats(allow_nan=True, allow_infinity=True)
texts = st.text(max_size=20)
scalars = st.one_of(texts, st.integers(-(2**53), 2**53), st.booleans(), st.floats(allow_nan=False))
plain = st.recursive(
    st.one_of(st.none(), scalars, floats),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=8,
)  # fmt: skip
objects = st.dictionaries(texts, plain, max_size=4)
params = st.dictionaries(texts, scalars, max_size=4)
subjects = st.builds(
    Subject, group=texts, node=texts, rank=st.none() | st.integers(0, 99),
    link=st.tuples() | st.tuples(st.integers(0, 9), st.integers(0, 9)),
)  # fmt: skip
measurements = st.builds(
    Measurement, metric=texts, unit=texts, better=texts, samples=st.lists(floats, max_size=5).map(tuple),
    columns=st.dictionaries(texts, st.lists(plain, max_size=4), max_size=3), subject=subjects, params=params,
    attempt=st.integers(1, 9), conditions=objects, notes=objects,
)  # fmt: skip
expected = st.builds(Expected, metric=texts, unit=texts, better=texts, config=texts, test=texts, params=params)
configs = st.builds(Config, id=texts, benchmark=texts, spec=objects, place=objects, limit_s=st.floats(0, 1e6))
records = st.one_of(
    measurements, expected, configs, st.builds(Event, kind=texts, at=texts, detail=objects),
    st.builds(Environment, node=texts, ranks=st.lists(st.integers(0, 9)).map(tuple), facts=objects),
    st.builds(
        Run, id=texts, suite=texts, cluster=texts, cluster_sha256=texts, started_at=texts, scope=params,
        configs=st.lists(configs, max_size=2).map(tuple), expected=st.lists(expected, max_size=2).map(tuple),
    ),
    st.builds(Verdict, status=texts, metric=texts, unit=texts, better=texts, value=st.none() | floats, params=params),
)  # fmt: skip


def same(a: Any, b: Any) -> bool:
    """Equality that calls NaN equal to NaN and tells 1 from 1.0 and True."""
    if dataclasses.is_dataclass(a):
        return type(a) is type(b) and all(same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and math.isnan(a):
        return isinstance(b, float) and math.isnan(b)
    return type(a) is type(b) and a == b


@given(records)
def test_a_record_comes_back_exactly(record):
    line = encode(record)
    assert "\n" not in line
    json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} is not standard JSON"))
    assert same(decode(type(record), line), record)


@given(records, st.data())
def test_a_cut_line_is_refused(record, data):
    line = encode(record)
    cut = line[: data.draw(st.integers(0, len(line) - 1))]
    with pytest.raises(RecordError):
        decode(type(record), cut)


def test_one_line_by_hand():
    line = encode(
        Measurement(metric="m", unit="s", better="lower", samples=(1.0, math.nan), subject=Subject(link=(0, 1)))
    )
    assert line == (
        '{"v":1,"metric":"m","unit":"s","better":"lower","samples":[1.0,{"$":"nan"}],"subject":{"link":[0,1]}}'
    )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"v": SCHEMA + 1}, "newer"),
        ({"v": "1"}, "schema version"),
        ({"v": True}, "schema version"),
        ({"busbw": 1}, "unknown field busbw"),
        ({"samples": 1.0}, "samples: expected a list"),
        ({"samples": ["fast"]}, "samples: expected float"),
        ({"samples": [True]}, "samples: expected float"),
        ({"samples": [10**400]}, "too large to compute with"),
        ({"columns": {"rank": [0], "samples": [[-(10**400)]]}}, "too large to compute with"),
        ({"attempt": 1.5}, "attempt: expected int"),
        ({"params": {"bytes": None}}, "params.bytes"),
        ({"subject": {"speed": 1}}, "subject: unknown field speed"),
        ({"subject": []}, "subject: expected an object"),
    ],
)
def test_what_is_wrong_is_said(change, told):
    fields = {"v": SCHEMA, "metric": "m", "unit": "s", "better": "lower", **change}
    with pytest.raises(RecordError, match=told):
        decode(Measurement, json.dumps(fields))


@pytest.mark.parametrize("line", ["", "null", "[]", "1", '{"metric":"m"}', "{}", '"v"', b"\xff\xfe"])
def test_what_is_no_record(line):
    with pytest.raises(RecordError):
        decode(Measurement, line)


def test_a_missing_field_is_named():
    with pytest.raises(RecordError, match="unit"):
        decode(Measurement, '{"v":1,"metric":"m","better":"lower"}')


def test_an_older_version_is_read_through_its_upgrades(monkeypatch):
    monkeypatch.setattr(measurement, "SCHEMA", SCHEMA + 1)
    old = json.dumps({"v": SCHEMA, "metric": "m", "unit": "us", "better": "lower", "samples": [2.0]})

    def microseconds_are_seconds(record: str, fields: dict[str, Any]) -> dict[str, Any]:
        assert record == "Measurement"
        return {**fields, "unit": "s", "samples": [s / 1e6 for s in fields["samples"]]}

    with pytest.raises(RecordError, match="no longer readable"):
        decode(Measurement, old)
    monkeypatch.setitem(measurement.UPGRADES, SCHEMA, microseconds_are_seconds)
    assert decode(Measurement, old).samples == (2e-6,)


@pytest.mark.parametrize(
    ("subject", "label"),
    [
        (Subject(link=(3, 5)), "3->5"),
        (Subject(group="rank", rank=2, node="n1"), "rank 2"),
        (Subject(group="gpu", gpu=3, node="n1", rank=11), "n1 gpu3"),
        (Subject(group="node", node="n1"), "n1"),
        (Subject(group="nic", node="n1", nic="mlx5_0"), "n1 mlx5_0"),
        (Subject(group="world", ranks=16), "world of 16"),
        (Subject(), "world"),
    ],
)
def test_a_subject_has_one_name(subject, label):
    assert subject.label == label


def test_a_metric_makes_its_own_measurement():
    metric = Metric(name="m", unit="s", better="lower", params={"bytes": 8})
    made = metric.measured(1, 2, subject=Subject(rank=1))
    assert (made.metric, made.unit, made.better, made.params, made.samples) == (
        "m",
        "s",
        "lower",
        {"bytes": 8},
        (1.0, 2.0),
    )
