"""The page, the table and JUnit: one story, nothing hidden, nothing from outside, readable anywhere."""

from __future__ import annotations

import dataclasses
import re
from datetime import date
from xml.etree import ElementTree

import pytest

from benchmarks.measurement import Subject
from reports import charts, junit, page, quantities, runs, table
from reports.campaign import course, shared_facts
from reports.commands import main
from reports.drawing import Line, Point
from reports.findings import Findings, criteria
from reports.statistics import Estimate
from tests import sample_run

TODAY = date(2026, 12, 1)
HOSTILE = '<script>alert("x")</script>&\'"'


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    return runs.load(sample_run.write(tmp_path_factory.mktemp("runs") / "sample"))


@pytest.fixture(scope="module")
def verdicts(stored):
    return stored.verdicts(today=TODAY)


@pytest.fixture(scope="module")
def html(stored, verdicts):
    return page.page(stored, verdicts)


def test_the_sample_reaches_every_status_but_no_baseline(verdicts):
    assert {v.status for v in verdicts} == {
        "pass", "fail", "noisy", "missing", "error", "impossible", "waived", "not_applicable",
    }  # fmt: skip


def test_every_verdict_is_in_exactly_one_list(verdicts):
    found = Findings.of(verdicts)
    lists = [found.failures, found.noisy, found.waived, found.advisory, found.unbased, found.exempt, found.passed]
    listed = [v for each in lists for v in each] + [v for trouble in found.troubles for v in trouble.verdicts]
    assert len(listed) == len(verdicts)
    assert {id(v) for v in listed} == {id(v) for v in verdicts}
    assert sum(found.counts.values()) == len(verdicts)


def test_limits_that_are_not_for_the_run_are_named_in_the_table_and_on_the_page(stored, verdicts):
    one, two = stored.cluster.limits[0], "of_two_nodes"
    foreign = dataclasses.replace(one, name="of_a_b200", scope={"sku": "b200"})
    cluster = dataclasses.replace(stored.cluster, limits=(*stored.cluster.limits, foreign), elsewhere=(two,))
    other = dataclasses.replace(stored, cluster=cluster)
    assert "limits not for this cluster: of_two_nodes, of_a_b200" in table.table(other, verdicts, width=140)
    assert "not for this cluster: of_two_nodes, of_a_b200" in page.page(other, verdicts)


def test_failures_come_worst_first(verdicts):
    margins = [v.margin for v in Findings.of(verdicts).failures]
    assert margins == sorted(margins)
    broken = dataclasses.replace(verdicts[0], status="fail", bound="equal", margin=None)
    assert Findings.of([*verdicts, broken]).failures[0] is broken


# -- the page ----------------------------------------------------------------------------------------------------


def test_the_page_needs_nothing_from_outside(html):
    assert html.count("<script") == 1  # its own: buttons that copy; without it a command is selected by one click
    assert not re.findall(r"<(?:link|img|iframe|object|embed)\b|\bsrc=\"", html)
    links = set(re.findall(r'href="(?!#)([^"#]*)', html))
    assert links == {"measurements.jsonl", "events.jsonl", "verdicts.csv"}  # beside the page, opened by who clicks
    assert "url(" not in html
    assert "@import" not in html


def test_the_outcome_comes_first_then_what_failed_then_what_is_not_proven(html):
    order = ["<h1>", "What failed", "What is not proven", 'id="family-collectives"', 'id="course"', "What passed"]
    places = [html.index(text) for text in order]
    assert places == sorted(places)
    assert "REJECTED</h1>" in html


def test_a_failure_is_told_with_everything_needed_to_argue_about_it(html):
    card = html[html.index("links.bandwidth") :]
    card = card[: card.index("</article>")]
    for text in (
        "29",
        "GB/s",
        "≥ 40 GB/s",
        "3-&gt;11",
        "NDR400, 80 % of 50 GB/s",
        "-27",
        "%",
        "240",
        "--retest failed",
    ):
        assert text in card


def test_each_family_has_its_charts(html):
    for family, least in (("gemm", 2), ("collectives", 8), ("links", 2)):
        section = html[html.index(f'id="family-{family}"') :]
        section = section[: section.index("</section>")]
        assert section.count("<svg") >= least


def test_a_sweep_that_is_not_whole_says_so(stored):
    kept = tuple(m for m in stored.measurements if m.params.get("bytes") != 1 << 20)
    partial = dataclasses.replace(stored, measurements=kept)
    assert "only 10 of 11 sizes were measured" in page.page(partial, partial.verdicts(today=TODAY))


def test_errors_are_shown_with_where_they_were_but_never_a_log(html):
    assert "rank 11 on gpu-a07-2 died: SIGBUS" in html
    assert "dist.broadcast(buffer, src=0)" in html
    assert "bus error" not in html
    assert "its output is in logs/launch-2" in html


def test_what_passed_is_measured_again_by_its_metric_and_what_failed_as_such(verdicts):
    for v in verdicts:
        settled = v.status in ("pass", "waived", "not_applicable", "no_baseline")
        assert v.again.endswith(f"--retest {v.metric if settled else 'failed'}")


def test_who_started_it_is_on_the_first_screen_and_on_the_sheet(stored, verdicts, html):
    assert "<br>by k.larsen</dd>" in html.partition("<main>")[0]
    assert "UTC by k.larsen, " in html.partition('class="sheet')[2]
    older = dataclasses.replace(stored, run=dataclasses.replace(stored.run, by=""))
    assert "<br>by" not in page.page(older, verdicts)


def test_every_limit_is_listed_with_its_source_and_worst_verdict(html, verdicts):
    rows = criteria(verdicts)
    assert {c.limit for c in rows} == {v.limit for v in verdicts if v.limit}
    assert [c.mandatory for c in rows] == sorted((c.mandatory for c in rows), reverse=True)
    wire = next(c for c in rows if c.limit == "wire")
    assert (wire.worst.status, wire.worst.metric) == ("fail", "collectives.all_reduce.busbw")
    assert (wire.passed, wire.judged, wire.metric) == (2, 4, "collectives.*.busbw")
    section = html[html.index('id="criteria"') :]
    assert all(c.source in section for c in rows if "'" not in c.source)


def test_what_passed_only_when_tested_again_stays_in_sight(html, stored, verdicts):
    assert "Passed only when tested again" in html
    assert "attempt 1 was fail: world of 16: median 41 s" in html
    assert "passed only when tested again: 2 (checkpoint 2)" in table.table(stored, verdicts, width=140)


def test_what_differs_between_nodes_is_named(html, stored):
    shared, differing = shared_facts(stored.latest_environments)
    assert dict(differing)["driver"] == [("580.95.05", "gpu-a07-1"), ("580.65.06", "gpu-a07-2")]
    assert ("gpus", "8 x NVIDIA H100 80GB HBM3") in shared
    assert "Differs between nodes" in html


def test_one_command_measures_all_that_share_a_cause(stored, verdicts):
    lost = [
        dataclasses.replace(v, status="missing", limit="", reason="gone", again=f"again {i}")
        for i, v in enumerate(verdicts)
    ]
    html = page.page(stored, lost)
    card = html[html.index('id="unproven"') : html.index("</section>", html.index('id="unproven"'))]
    assert "again 0" not in card
    assert stored.again() in card
    assert "again 0" in page.page(stored, lost[:1])


def test_the_same_run_makes_the_same_page(stored, html):
    again = dataclasses.replace(stored)
    assert page.page(again, again.verdicts(today=TODAY)) == html


def test_hostile_names_are_text(stored, verdicts):
    bad = [
        dataclasses.replace(v, subject=HOSTILE, reason=HOSTILE, again=HOSTILE, params={HOSTILE: HOSTILE})
        for v in verdicts
    ]
    subject = Subject(group="node", node=HOSTILE)
    changed = dataclasses.replace(
        stored,
        run=dataclasses.replace(stored.run, cluster=HOSTILE, command=HOSTILE, id=HOSTILE, by=HOSTILE),
        measurements=tuple(dataclasses.replace(m, subject=subject, reason=HOSTILE) for m in stored.measurements),
        environments=tuple(dataclasses.replace(e, node=HOSTILE, facts={HOSTILE: HOSTILE}) for e in stored.environments),
        events=tuple(
            dataclasses.replace(e, detail={**e.detail, "reason": HOSTILE, "stack": HOSTILE}) for e in stored.events
        ),
        warnings=(HOSTILE,),
    )
    text = page.page(changed, bad)
    assert text.count("<script") == 1
    assert HOSTILE not in text
    assert "&lt;script&gt;" in text
    ElementTree.fromstring(ElementTree.tostring(junit.document(changed, bad)))


def test_an_empty_run_still_makes_a_page(stored):
    empty = dataclasses.replace(stored, measurements=(), environments=(), events=())
    text = page.page(empty, empty.verdicts(today=TODAY))
    assert "INCOMPLETE</h1>" in text
    assert "the run never ended" in text


def test_a_large_run_makes_a_small_page(stored, verdicts):
    many = [
        dataclasses.replace(v, metric=f"{v.metric}.m{i}", reason=f"{v.reason} {i}")
        for i in range(100)
        for v in verdicts
    ]
    text = page.page(stored, many)
    assert len(text.encode()) < 2e6
    assert "more:" in text
    assert f"{len(Findings.of(many).failures):,}" in text


# -- charts ------------------------------------------------------------------------------------------------------


def exact(value):
    return Estimate(value, value, value, 5)


def test_a_failed_point_has_another_shape_and_says_so():
    good, bad = Point(1024.0, exact(1e9)), Point(2048.0, exact(1e8), "fail")
    svg = charts.sweep([good, bad], [Line(5e8, "≥ 500 MB/s")], unit="B/s", what="a sweep")
    assert svg.count('class="dot"') == 1
    assert svg.count('class="cross"') == 1
    assert "2 KiB: 100 MB/s (n=5), fail" in svg
    assert 'aria-label="a sweep"' in svg


def test_a_chart_is_well_formed_whatever_its_numbers():
    for values in ([0.0, 0.0], [1e-300, 1e300], [5.0, 5.0], [3.0]):
        points = [Point(float(2**i), exact(v), label=f"rank {i}") for i, v in enumerate(values)]
        for svg in (
            charts.sweep(points, [], unit="B/s", what="<&"),
            charts.units(points, [], unit="s", what="<&"),
            charts.ecdf(values, points[:1], [Line(1.0, "≤ 1 s")], unit="s", what="<&"),
            charts.ecdf(values, points[-1:], [], unit="s", what="<&", before=exact(2.0), higher=False),
            charts.sweep(points, [], unit="B/s", what="<&", before=points),
            charts.units(points, [], unit="s", what="<&", before=exact(1.0)),
            charts.heat([[None, v] for v in values], ["0", "1"], {(0, 1)}, unit="1", higher=True, what="<&"),
        ):
            ElementTree.fromstring(svg)
            assert ">nan" not in svg.lower()


def test_the_course_of_the_run_adds_up(stored):
    how = course(stored)
    assert how.launches == 2
    assert how.batches == len([e for e in stored.events if e.kind == "batch"])
    assert how.launch_s == pytest.approx(15.2 + 16.2)
    ends = [0.0, *(span[1] for span in how.spans)]
    assert all(begin >= end - 1e-3 for (begin, *_), end in zip(how.spans, ends, strict=False))


# -- the table and JUnit -----------------------------------------------------------------------------------------


def test_the_table_tells_the_same_story(stored, verdicts):
    text = table.table(stored, verdicts, width=140)
    assert text.startswith("REJECTED: 6 checks failed")
    assert "rank 11 on gpu-a07-2 died: SIGBUS" in text
    assert "collectives.broadcast.busbw x11" in text
    passes = sum(v.status == "pass" for v in verdicts)
    assert f"passed: {passes}" in text
    assert text.index("links.bandwidth") < text.index("gemm.flops")


def test_junit_has_one_case_per_verdict_and_nothing_unproven_is_green(stored, verdicts):
    root = junit.document(stored, verdicts)
    cases = root.findall(".//testcase")
    assert len(cases) == len(verdicts) + 1
    for v, case in zip(verdicts, cases, strict=False):
        tags = {child.tag for child in case}
        green = not tags & {"failure", "error", "skipped"}
        advisory = not v.mandatory and v.status in ("fail", "noisy")
        assert green == (v.status in ("pass", "waived") or advisory), v
        assert ("skipped" in tags) == (v.status == "not_applicable")
    assert cases[-1].find("failure") is not None
    assert int(root.get("tests")) == len(cases)
    assert int(root.get("errors")) == len(root.findall(".//error"))


# -- quantities --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3.01e11, "B/s", "301 GB/s"),
        (9.999e11, "B/s", "1 TB/s"),
        (1.23e-5, "s", "12.3 us"),
        (0.25, "s", "250 ms"),
        (75.0, "s", "75 s"),
        (9.89e14, "FLOP/s", "989 TFLOP/s"),
        (0.8712, "1", "0.871"),
        (16480.0, "1/s", "16,480/s"),
        (0.0, "s", "0 s"),
        (-2e9, "B/s", "-2 GB/s"),
        (None, "s", "–"),
    ],
)
def test_quantities_read_as_people_say_them(value, unit, text):
    assert quantities.quantity(value, unit) == text


@pytest.mark.parametrize(
    ("size", "text"), [(1 << 30, "1 GiB"), (10**9, "1 GB"), (1000, "1 kB"), (0, "0 B"), (8, "8 B")]
)
def test_gigabytes_and_gibibytes_are_never_mixed(size, text):
    assert quantities.size(size) == text


# -- the commands ------------------------------------------------------------------------------------------------


def test_the_commands_write_where_they_are_told_and_exit_by_the_outcome(stored, tmp_path, capsys):
    assert main(["render", str(stored.folder), "-o", str(tmp_path / "p.html")]) == 1
    assert "REJECTED" in (tmp_path / "p.html").read_text()
    assert main(["junit", str(stored.folder), "-o", str(tmp_path / "j.xml")]) == 1
    ElementTree.parse(tmp_path / "j.xml")
    assert main(["table", str(stored.folder)]) == 1
    assert "REJECTED" in capsys.readouterr().out


def test_a_wrong_command_says_what_to_do_and_exits_4(tmp_path, capsys, stored):
    assert main(["table", str(tmp_path / "nowhere")]) == 4
    assert "no such run folder" in capsys.readouterr().err
    assert main(["render", str(stored.folder), "-o", str(tmp_path / "no" / "p.html")]) == 4
    assert "choose another place" in capsys.readouterr().err
    assert main(["nonsense"]) == 4
