"""Expectations, measurements and limits in a line each, for tests of the judge."""

from __future__ import annotations

from datetime import date

from benchmarks.measurement import Expected, Measurement, Run, Subject
from clusters.limits import Limit
from reports.judge import judge

TODAY = date(2026, 12, 1)
TEST = "suites/test_gemm.py::test_speed"
STEADY = (9.9, 10.0, 10.1)


def expect(metric="gemm.flops", *, unit="FLOP/s", better="higher", per="world", units=1, config="c1", **params):
    return Expected(
        metric=metric, unit=unit, better=better, config=config, test=TEST, params=params, per=per, units=units
    )


def measured(e, *samples, **fields):
    subject = fields.pop("subject", Subject(group="world", ranks=4))
    fields = {"unit": e.unit, "better": e.better, "samples": samples, "config": e.config, **fields}
    return Measurement(metric=e.metric, params=e.params, subject=subject, **fields)


def by_rank(e, samples_of, **fields):
    return [
        measured(e, *samples, subject=Subject(group="rank", rank=rank, node=f"node{rank // 2}"), **fields)
        for rank, samples in samples_of.items()
    ]


def pair_table(e, samples_of, **fields):
    columns = {
        "a": [a for a, _ in samples_of],
        "b": [b for _, b in samples_of],
        "samples": [list(s) for s in samples_of.values()],
    }
    return measured(e, columns=columns, **fields)


def limit(name="speed", *, metric="gemm.flops", unit="FLOP/s", source="contract", **fields):
    return Limit(name=name, metric=metric, unit=unit, source=source, **fields)


FLOOR = limit(floor=8.0)


def verdicts(expected, measurements, limits=(FLOOR,), *, scope=None, configs=(), today=TODAY, **fields):
    expected = expected if isinstance(expected, list) else [expected]
    run = Run(
        id="r1", suite="acceptance", cluster="local", cluster_sha256="", started_at="", scope=scope or {},
        configs=configs, expected=tuple(expected),
    )  # fmt: skip
    return judge(run, measurements, limits, today=today, **fields)


def only(found):
    assert len(found) == 1, found
    return found[0]
