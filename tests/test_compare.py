"""Comparing runs: what is comparable, which word a difference gets, and that a weak unit does not hide in a median."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.measurement import Subject
from reports import comparepage, runs
from reports.bootstrap import ratio_of_medians
from reports.commands import main
from reports.compare import compare
from reports.runs import RunError
from reports.sides import Side, load_side
from tests import sample_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("compare")
    for i in range(1, 4):
        sample_run.write(root / f"a{i}", seed=i)
        sample_run.write(root / f"b{i}", seed=10 + i, slower=1.06)
    return root


def side(path, **changes):
    stored = runs.load(path)
    return Side.of(stored.run.id, dataclasses.replace(stored, **changes))


def by_title(comparison):
    return {change.title: change for change in comparison.changes}


def test_slower_is_worse_and_faster_is_better(folder):
    a, b = side(folder / "a1"), side(folder / "b1")
    forth, back = compare(a, b), compare(b, a)
    name = "collectives.all_reduce.busbw 1 GiB bf16"
    assert by_title(forth)[name].word == "worse"
    assert by_title(forth)[name].gain == pytest.approx(-0.057, abs=0.02)
    assert by_title(back)[name].word == "better"
    assert (forth.word, back.word) == ("worse", "undecided")  # undecided: some numbers are missing on both sides


def test_the_same_machine_twice_is_never_worse(folder):
    for i, j in ((1, 2), (2, 3), (3, 1)):
        words = [c.word for c in compare(side(folder / f"a{i}"), side(folder / f"a{j}")).changes]
        assert words.count("worse") <= 0.02 * len(words)
        assert words.count("same") > words.count("undecided")


def test_repetitions_are_the_level_that_counts(folder):
    before = load_side(f"{folder / 'a1'}+{folder / 'a2'}+{folder / 'a3'}")
    after = load_side(f"{folder / 'b1'}+{folder / 'b2'}+{folder / 'b3'}")
    comparison = compare(before, after)
    assert by_title(comparison)["gemm.flops bf16 k 8192 m 8192 n 8192"].word == "worse"
    assert comparepage.ONE_RUN not in comparepage.table([comparison])
    assert comparepage.ONE_RUN in comparepage.table([compare(side(folder / "a1"), side(folder / "b1"))])


def test_one_weak_unit_does_not_hide_behind_the_median(folder):
    a = side(folder / "a1")
    weak = tuple(
        dataclasses.replace(m, samples=tuple(s * 0.7 for s in m.samples))
        if m.metric == "gemm.flops" and m.subject.rank == 2
        else m
        for m in runs.load(folder / "a1").measurements
    )
    change = by_title(compare(a, side(folder / "a1", measurements=weak)))["gemm.flops bf16 k 8192 m 8192 n 8192"]
    assert change.word == "worse"
    assert "gpu-a07-1 gpu2 reaches 70" in change.reason


def test_one_slow_cable_does_not_hide_among_all_pairs(folder):
    a = side(folder / "a1")

    def slower(m):
        if m.metric != "links.bandwidth":
            return m
        rows = [
            [s * 0.8 for s in row] if (x, y) == (2, 9) else row
            for x, y, row in zip(m.columns["a"], m.columns["b"], m.columns["samples"], strict=True)
        ]
        return dataclasses.replace(m, columns={**m.columns, "samples": rows})

    changed = side(folder / "a1", measurements=tuple(map(slower, runs.load(folder / "a1").measurements)))
    change = by_title(compare(a, changed))["links.bandwidth 256 MiB"]
    assert (change.word, change.reason) == ("worse", "pair 2->9 changed by -20 %")
    assert by_title(compare(changed, a))["links.bandwidth 256 MiB"].word == "better"


def test_what_is_missing_on_one_side_is_said(folder):
    b = side(folder / "a2", measurements=())
    comparison = compare(side(folder / "a1"), b)
    assert set(comparison.counts) == {"missing"}
    assert comparison.word == "undecided"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"nodes": 4}, "nodes 2 against 4"),
        ({"scope": {"sku": "b200", "nodes": 2, "backend": "nccl"}}, "sku h100-sxm against b200"),
        ({"suite": "smoke"}, "suite acceptance against smoke"),
    ],
)
def test_what_is_not_comparable_is_refused_unless_asked_for(folder, changes, said):
    a = side(folder / "a1")
    b = side(folder / "b1", run=dataclasses.replace(runs.load(folder / "b1").run, **changes))
    with pytest.raises(RunError, match=said):
        compare(a, b)
    assert said in compare(a, b, across=True).across
    assert said in comparepage.page([compare(a, b, across=True)])


def test_other_sizes_or_precisions_are_not_comparable(folder):
    run = runs.load(folder / "b1").run
    other = tuple(
        dataclasses.replace(e, params={**e.params, "dtype": "fp8"}) if e.metric == "gemm.flops" else e
        for e in run.expected
    )
    with pytest.raises(RunError, match=r"gemm\.flops: .*fp8"):
        compare(side(folder / "a1"), side(folder / "b1", run=dataclasses.replace(run, expected=other)))


def test_a_metric_whose_unit_changed_is_refused_with_both(folder):
    run = runs.load(folder / "b1").run
    other = tuple(dataclasses.replace(e, unit="us") if e.unit == "s" else e for e in run.expected)
    b = side(folder / "b1", run=dataclasses.replace(run, expected=other))
    with pytest.raises(RunError, match=r"changed its unit: s .* us "):
        compare(side(folder / "a1"), b, across=True)


def test_two_runs_with_one_id_are_refused(folder, tmp_path):
    copy = sample_run.write(tmp_path / "a1", seed=99)
    with pytest.raises(RunError, match="two runs with one id"):
        compare(load_side(str(folder / "a1")), load_side(str(copy)))
    with pytest.raises(RunError, match="the same run twice"):
        load_side(f"{folder / 'a1'}+{folder / 'a1'}")


def test_what_changed_around_them_comes_first(folder):
    b = runs.load(folder / "b1")
    newer = tuple(dataclasses.replace(e, facts={**e.facts, "nccl": "2.31.0"}) for e in b.environments)
    comparison = compare(side(folder / "a1"), side(folder / "b1", environments=newer))
    assert comparison.environment == (("nccl", "2.30.4", "2.31.0"),)
    html = comparepage.page([comparison])
    assert html.index("2.31.0") < html.index("collectives.")
    assert "<script" not in html


def test_a_run_that_never_ended_is_named(folder):
    comparison = compare(side(folder / "a1"), side(folder / "b1", events=()))
    assert comparison.partial == ("b1 never ended",)
    assert "b1 never ended" in comparepage.page([comparison])
    assert "b1 never ended" in comparepage.table([comparison])


def test_hostile_names_stay_text(folder):
    a = side(folder / "a1")
    bad = dataclasses.replace(a, name="<script>x</script>")
    assert "<script" not in comparepage.page([compare(bad, side(folder / "b1"))])


def test_wrong_results_that_appear_are_worse(folder):
    a = side(folder / "a1")
    wrong = tuple(
        dataclasses.replace(m, samples=(3.0,)) if m.metric == "collectives.all_reduce.wrong_elements" else m
        for m in runs.load(folder / "a1").measurements
    )
    change = by_title(compare(a, side(folder / "a1", measurements=wrong)))[
        "collectives.all_reduce.wrong_elements 1 KiB bf16"
    ]
    assert (change.word, change.reason) == ("worse", "worst unit 0, now 3")


def test_one_sample_a_side_decides_nothing(folder):
    a = side(folder / "a1")
    one = tuple(
        dataclasses.replace(m, samples=m.samples[:1]) if m.metric == "training.step.time" else m
        for m in runs.load(folder / "a1").measurements
    )
    change = next(
        c
        for c in compare(a, side(folder / "a1", measurements=one)).changes
        if c.expected.metric == "training.step.time"
    )
    assert change.word == "undecided"


def test_the_command_exits_by_what_it_found(folder, tmp_path, capsys):
    page = tmp_path / "c.html"
    assert main(["compare", str(folder / "a1"), str(folder / "b1"), str(folder / "a2"), "-o", str(page)]) == 1
    assert "WORSE</h1>" in page.read_text()
    assert "b1 against a1: WORSE" in capsys.readouterr().out
    assert main(["compare", str(folder / "a1"), str(folder / "a1")]) == 3
    assert main(["compare", str(folder / "a1")]) == 4


# -- the bootstrap -----------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 6), st.integers(0, 1000))
def test_the_ratio_lies_in_its_interval_and_turns_over_with_the_sides(num_runs, num_units, num_samples, seed):
    pick = random.Random(seed)
    shape = range(num_runs), range(num_units), range(num_samples)
    a, b = ([[[pick.uniform(1, 2) for _ in shape[2]] for _ in shape[1]] for _ in shape[0]] for _ in "ab")
    forth, back = ratio_of_medians(a, b), ratio_of_medians(b, a)
    assert forth.low <= forth.median <= forth.high
    assert forth.median == pytest.approx(1 / back.median)


def test_the_interval_covers_the_true_ratio_where_runs_differ_more_than_samples():
    random = np.random.default_rng(5)
    night = lambda middle: (middle * random.normal(1, 0.03) * random.normal(1, 0.002, size=(1, 20))).tolist()  # noqa: E731
    hits = 0
    for trial in range(100):
        a, b = [night(10.0) for _ in range(8)], [night(11.0) for _ in range(8)]
        found = ratio_of_medians(a, b, seed=trial)
        hits += found.low <= 1.1 <= found.high
    assert hits >= 85  # a bootstrap of eight runs is a little narrow; pooling the samples would cover about 10
    pooled = ratio_of_medians(*([[[sample for run in side for sample in run[0]]]] for side in (a, b)))
    assert pooled.high - pooled.low < found.high - found.low


def test_many_units_by_order_statistics_are_as_wide_as_drawn_ones():
    random = np.random.default_rng(6)
    few = random.normal(10, 0.5, size=(200, 3)).tolist()
    drawn = ratio_of_medians([few], [few])
    many = ratio_of_medians([few + few[:1]], [few])
    assert many.high - many.low == pytest.approx(drawn.high - drawn.low, rel=0.35)
    medians = np.median(few, axis=1)
    assert ratio_of_medians([medians], [medians]) == drawn._replace(n=200)


def test_a_subject_moved_to_another_node_is_still_the_same_rank(folder):
    moved = tuple(
        dataclasses.replace(m, subject=Subject(group="gpu", rank=m.subject.rank, node="elsewhere", gpu=m.subject.gpu))
        if m.subject.rank is not None
        else m
        for m in runs.load(folder / "a1").measurements
    )
    comparison = compare(side(folder / "a1"), side(folder / "a1", measurements=moved))
    assert by_title(comparison)["gemm.flops bf16 k 8192 m 8192 n 8192"].word == "same"
