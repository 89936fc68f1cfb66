"""What a further attempt may change: a pass stays only while nothing says otherwise, and a fail stays."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from types import SimpleNamespace
from typing import Any

from benchmarks.gemm.spec import Gemm
from benchmarks.measurement import Expected, Measurement, Metric, Run, Subject, Verdict, encode, params_key
from benchmarks.spec import Place, to_config
from clusters.limits import Limit
from reports.evidence import Evidence
from reports.judge import judge
from suites.controller import Controller, Stopwatch, beyond_repair, settled

WRONG = Metric(name="x.wrong_elements", unit="1", better="equal", per="rank")
RATE = Metric(name="x.rate", unit="B/s", better="higher", per="rank")
SILENT = to_config(Gemm(shapes=("64",)), Place(ranks_per_node=2))
LIMITS = (
    Limit(name="exact", metric="*.wrong_elements", unit="1", source="definition", equal=0.0),
    Limit(name="rate", metric="x.rate", unit="B/s", source="datasheet", floor=10.0),
)


class Folder:
    """A run folder that only remembers measurements."""

    def __init__(self) -> None:
        self.measured: list[Measurement] = []

    def measurement(self, record: Measurement) -> None:
        """Remember one."""
        self.measured.append(record)

    def event(self, kind: str, **detail: Any) -> None:
        """Nothing is asked about events."""


def expected(metric: Metric, config: str = "c") -> Expected:
    return Expected(
        metric=metric.name, unit=metric.unit, better=metric.better, config=config, test="t", params=metric.params,
        per=metric.per, units=2,
    )  # fmt: skip


RUN = Run(id="r", suite="s", cluster="c", cluster_sha256="", started_at="", expected=(expected(WRONG), expected(RATE)))


def controller(folder: Folder) -> Controller:
    return Controller(
        plan=SimpleNamespace(expected=RUN.expected), folder=folder, judge=lambda: verdicts(folder), progress=None,
        held=None,
    )  # type: ignore[arg-type]  # fmt: skip


def verdicts(folder: Folder) -> list[Verdict]:
    return judge(RUN, Evidence(folder.measured), LIMITS, today=date(2026, 12, 1))


def attempt(one: Controller, number: int, *, wrong: float, rates: tuple[float, ...], pool: bool) -> None:
    """Both ranks report both numbers."""
    write = one._writer(replace(SILENT, id="c"), number, Stopwatch(), pool=pool)
    for rank in range(2):
        subject = Subject(group="rank", rank=rank, node="n")
        write(rank, encode(WRONG.measured(wrong, subject=subject)))
        write(rank, encode(RATE.measured(*rates, subject=subject)))


def statuses(folder: Folder) -> dict[str, str]:
    return {v.metric: v.status for v in verdicts(folder)}


def keep(one: Controller, folder: Folder) -> None:
    one.kept |= settled(RUN.expected, verdicts(folder))
    one._failed |= beyond_repair(verdicts(folder))


def test_wrong_data_seen_while_something_noisy_is_repeated_is_a_fail() -> None:
    folder = Folder()
    one = controller(folder)
    attempt(one, 1, wrong=0.0, rates=(8.0, 12.0, 9.0, 11.0), pool=False)
    assert statuses(folder) == {"x.wrong_elements": "pass", "x.rate": "noisy"}
    keep(one, folder)
    attempt(one, 2, wrong=7.0, rates=(11.0,) * 40, pool=True)
    assert statuses(folder)["x.wrong_elements"] == "fail"


def test_wrong_data_seen_by_a_resume_is_a_fail_and_right_data_mends_none() -> None:
    folder = Folder()
    one = controller(folder)
    attempt(one, 1, wrong=0.0, rates=(8.0, 12.0, 9.0, 11.0), pool=False)
    keep(one, folder)
    attempt(one, 2, wrong=7.0, rates=(11.0,) * 40, pool=False)
    assert statuses(folder) == {"x.wrong_elements": "fail", "x.rate": "pass"}
    keep(one, folder)
    attempt(one, 3, wrong=0.0, rates=(11.0,) * 40, pool=False)
    assert statuses(folder)["x.wrong_elements"] == "fail"


def test_a_new_attempt_that_leaves_a_number_out_does_not_leave_the_old_pass_standing() -> None:
    folder = Folder()
    one = controller(folder)
    one._write_silence(SILENT, 2)
    spec_says = {(m.metric, params_key(m.params), m.outcome, m.attempt) for m in folder.measured}
    assert {(name, outcome, number) for name, _, outcome, number in spec_says} == {
        ("gemm.flops", "missing", 2), ("gemm.error", "missing", 2),
    }  # fmt: skip
    run = replace(RUN, expected=(expected(RATE),))
    old = [RATE.measured(11.0, config="c", subject=Subject(group="rank", rank=rank, node="n")) for rank in range(2)]
    new = RATE.measured(config="c", attempt=2, outcome="missing", reason="did not report it")
    assert [v.status for v in judge(run, Evidence([*old, new]), LIMITS[1:], today=date(2026, 12, 1))] == ["missing"]
