"""A page stays small and whole whatever the run is: enormous, hostile, or with notes of the wrong kind."""

from __future__ import annotations

import csv
import dataclasses
from datetime import date

import pytest

from benchmarks.measurement import Config, Event, Expected, Measurement, Metric, Subject
from reports import anatomy, listing, page, runs, strip
from reports.before import Before, keep
from reports.recordrefs import RecordRefs
from tests import sample_run
from tests.test_page import HOSTILE

TODAY = date(2026, 12, 1)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    return runs.load(sample_run.write(tmp_path_factory.mktemp("runs") / "sample"))


@pytest.fixture(scope="module")
def verdicts(stored):
    return stored.verdicts(today=TODAY)


def crowded(stored, verdicts, *, times):
    """Everything of a run many times over, under other names."""

    def again(record, i):
        return dataclasses.replace(record, metric=f"f{i % 40}.{record.metric}{i}")

    expected = tuple(again(e, i) for i in range(times) for e in stored.run.expected)
    measured = tuple(again(m, i) for i in range(times) for m in stored.measurements if m.metric != "conditions")
    events = tuple(
        Event(
            kind="batch", at=f"2026-12-01T0{1 + i % 9}:00:{i % 60:02}.000Z", detail={"config": f"c{i}", "seconds": 1.0}
        )
        for i in range(5000)
    ) + tuple(Event(kind="retest", at="2026-12-01T02:00:00.000Z", detail={"what": "x" * 200}) for _ in range(3000))
    changed = dataclasses.replace(
        stored,
        run=dataclasses.replace(stored.run, expected=expected),
        measurements=measured,
        events=events,
        warnings=("w" * 300,) * 1000,
    )
    many = [dataclasses.replace(again(v, i), reason=f"{v.reason} {i}") for i in range(times) for v in verdicts]
    return changed, many


def test_whatever_a_run_holds_its_page_stays_small(stored, verdicts):
    changed, many = crowded(stored, verdicts, times=60)
    text = page.page(changed, many)
    assert len(text.encode()) < 2e6
    assert "REJECTED</h1>" in text
    assert "verdicts.csv" in text
    assert 'class="sheet REJECTED"' in text


def test_every_verdict_is_in_the_list_beside_the_page(stored, verdicts, tmp_path):
    bad = [dataclasses.replace(v, subject="=cmd()", reason="@x", again="+1") for v in verdicts]
    path = listing.write([*verdicts, *bad], RecordRefs(stored), tmp_path / "v.csv")
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * len(verdicts)
    for v, row in zip(verdicts, rows, strict=False):
        assert (row["status"], row["metric"], row["reason"]) == (v.status, v.metric, v.reason)
        assert row["value"] == ("" if v.value is None else str(v.value))
    assert all(row[name].startswith("'") for row in rows[len(verdicts) :] for name in ("worst", "reason", "again"))


def test_a_record_is_the_line_that_it_says(stored, verdicts):
    lines = (stored.folder / "measurements.jsonl").read_text().splitlines()
    refs = RecordRefs(stored)
    found = [(v, ref) for v in verdicts if (ref := refs.of(v))]
    assert len(found) > 100
    for v, ref in found:
        assert f'"metric":"{v.metric}"' in lines[ref.line - 1]
    worst = next(v for v in verdicts if v.metric == "links.bandwidth" and v.status == "fail")
    assert refs.of(worst).samples == tuple(
        next(
            samples
            for m in stored.measurements
            if m.metric == "links.bandwidth"
            for a, b, samples in zip(m.columns["a"], m.columns["b"], m.columns["samples"], strict=True)
            if (a, b) == (3, 11)
        )
    )
    lost = next(v for v in verdicts if v.status == "missing")
    assert refs.of(lost) is None


def test_a_retest_is_shown_by_its_own_record(stored, verdicts):
    v = next(v for v in verdicts if v.metric == "checkpoint.save.time")
    ref = RecordRefs(stored).of(v)
    assert stored.measurements[ref.line - 1].attempt == 2
    assert ref.samples == (27.1, 27.9, 26.8)


GARBAGE = [
    None,
    5,
    "x",
    [],
    {},
    [[1]],
    {"busy": "x"},
    [[0, "F", 0, 0, 2.0, 1.0]],
    [["<b>", "F", 0, 0, 0, 1]],
    True,
    -1.0,
]


TIMES = ("rank_s", "median_s", "begin_s", "end_s")


@pytest.mark.parametrize("garbage", GARBAGE, ids=str)
@pytest.mark.parametrize("name", ["split", "timeline", "predicted", "planned", "rates", "lost_share_at_file_interval"])
def test_notes_of_the_wrong_kind_draw_nothing_and_break_nothing(stored, name, garbage):
    measured = tuple(
        dataclasses.replace(m, notes={**m.notes, name: garbage}) if m.metric.startswith(("training", "check")) else m
        for m in stored.measurements
    )
    changed = dataclasses.replace(stored, measurements=measured)
    assert "</html>" in page.page(changed, changed.verdicts(today=TODAY))


@pytest.mark.parametrize("garbage", GARBAGE, ids=str)
def test_conditions_and_columns_of_the_wrong_kind_break_nothing(stored, garbage):
    strange = {"gpus": garbage, "load_1m": garbage, "xids": garbage}
    measured = tuple(
        dataclasses.replace(m, conditions=strange, columns={**m.columns, **dict.fromkeys(TIMES, garbage)})
        if m.metric in ("conditions", "checkpoint.save.time", "training.step.time")
        else m
        for m in stored.measurements
    )
    changed = dataclasses.replace(stored, measurements=measured)
    assert "</html>" in page.page(changed, changed.verdicts(today=TODAY))


def test_hostile_words_in_notes_and_names_are_text(stored):
    measured = tuple(
        dataclasses.replace(
            m,
            notes={**m.notes, "split": {HOSTILE: 0.5, "compute": 0.5}} if "split" in m.notes else m.notes,
            subject=dataclasses.replace(m.subject, node=HOSTILE) if m.metric == "conditions" else m.subject,
            config=HOSTILE if m.metric == "conditions" else m.config,
        )
        for m in stored.measurements
    )
    event = Event(kind="baseline", at="", detail={"run": f"runs/{HOSTILE}", "values": [], "facts": {HOSTILE: HOSTILE}})
    changed = dataclasses.replace(stored, measurements=measured, events=(*stored.events, event))
    text = page.page(changed, changed.verdicts(today=TODAY))
    assert HOSTILE not in text
    assert text.count("<script") == 1


# -- what a run is held against ----------------------------------------------------------------------------------


def test_a_baseline_is_drawn_and_what_changed_since_is_on_the_first_screen(stored, tmp_path):
    other = runs.load(sample_run.write(tmp_path / "earlier", seed=9))
    older = dataclasses.replace(other, environments=tuple(
        dataclasses.replace(e, facts={**e.facts, "nccl": "2.27.1"}) for e in other.environments
    ))  # fmt: skip
    before = Before.of(stored, baseline=older)
    assert ("nccl", "2.27.1", "2.30.4") in before.changed(stored)
    text = page.page(stored, stored.verdicts(today=TODAY), before=before)
    head = text[: text.index("<main>")]
    assert "Changed since earlier" in head
    assert "<del>2.27.1</del>" in head
    assert text.count('class="before"') > 5
    assert 'class="before"' not in page.page(stored, stored.verdicts(today=TODAY))


def test_a_campaign_keeps_what_a_page_needs_of_its_baseline(stored, tmp_path):
    other = runs.load(sample_run.write(tmp_path / "earlier", seed=9))
    kept = Event(kind="baseline", at="", detail=keep("runs/earlier", other))
    found = Before.of(dataclasses.replace(stored, events=(*stored.events, kept)))
    given = Before.of(stored, baseline=other)
    assert found.name == given.name == "earlier"
    assert found.facts == given.facts
    assert dict(found.values) == dict(given.values)


def test_what_was_not_recorded_is_named(stored):
    bare = tuple(dataclasses.replace(m, notes={}, columns={}) if not m.columns.get("samples") else m
                 for m in stored.measurements if m.metric != "conditions")  # fmt: skip
    changed = dataclasses.replace(stored, measurements=bare)
    found = anatomy.anatomies(changed)
    assert not found["training"].panels
    assert any("where a step's time went" in said for said in found["training"].absent)
    assert any("own times were not recorded" in said for said in found["checkpoint"].absent)
    assert strip.panel(changed) is None
    assert "no conditions were recorded" in page.page(changed, changed.verdicts(today=TODAY))


def test_the_strip_marks_what_was_disqualified(stored):
    panel = strip.panel(stored)
    assert "disqualified in memory-copy" in panel.chart
    assert "slowest SM clock from 1,410 to 1,930" in panel.chart
    assert "always 0: CPU steal" in panel.detail


def test_of_many_units_the_worst_are_named(stored):
    metric = Metric(name="gemm.flops", unit="FLOP/s", better="higher", per="rank")
    expected = Expected(
        metric="gemm.flops", unit="FLOP/s", better="higher", config="c", test="t", per="rank", units=500
    )
    rows = [[7e14 + rank, 7e14 + rank, 7e14 + rank] for rank in range(500)]
    rows[123] = [3e14] * 3
    measured = metric.measured(columns={"rank": list(range(500)), "samples": rows}, config="c", subject=Subject())
    run = dataclasses.replace(
        stored.run, expected=(expected,), configs=(Config(id="c", benchmark="gemm", spec={}, place={}, limit_s=1.0),)
    )
    changed = dataclasses.replace(stored, run=run, measurements=(measured,))
    text = page.page(changed, changed.verdicts(today=TODAY))
    assert "worst: rank 123, rank 0, rank 1" in text


def test_a_save_is_drawn_from_when_each_rank_began_and_an_older_one_from_a_common_begin(stored):
    def chart(changed):
        panels = anatomy.anatomies(changed)["checkpoint"].panels
        return next(p for p in panels if p.title == "save timeline by rank")

    panel = chart(stored)
    assert "last to begin is rank 5, after 1.75 s" in panel.detail
    assert "rank 9: from 350 ms to 27.8 s" in panel.chart
    older = tuple(
        dataclasses.replace(m, columns={k: v for k, v in m.columns.items() if k not in ("begin_s", "end_s")})
        for m in stored.measurements
    )
    panel = chart(dataclasses.replace(stored, measurements=older))
    assert "all begin together" in panel.detail and "from" not in panel.chart


def test_only_what_was_measured_soundly_is_taken_apart(stored):
    wrong = Measurement(metric="training.step.time", unit="s", better="lower", outcome="error", reason="x")
    changed = dataclasses.replace(stored, measurements=(*stored.measurements, wrong))
    assert [p.title for p in anatomy.anatomies(changed)["training"].panels][:2] == [
        "step-time breakdown", "pipeline timeline",
    ]  # fmt: skip
