"""Sweeps of layouts: what is asked, what is refused, and what a rank keeps of an earlier sweep's rate."""

import pytest

from benchmarks.measurement import Subject, encode
from benchmarks.spec import Place
from benchmarks.training.spec import Training
from benchmarks.training.sweep import earlier, main, parser, row, specs_of

FOUR = Place(ranks_per_node=4)


def specs(*words):
    return list(specs_of(parser().parse_args(["--sweep", *words]), FOUR))


def records(*, layout="tp2,pp1,dp2", rates=(80.0, 100.0, 120.0), ranks=4):
    """What the benchmark yields, as far as the table reads it."""
    spec = Training(layout=layout)
    metrics = spec.metrics(Place(ranks_per_node=ranks))
    subject = Subject(group="world", ranks=ranks)
    notes = {"split": {"compute": 0.7, "tp": 0.2, "dp": 0.05}, "predicted": {"step_s": 0.5}}
    step = metrics["step.time"].measured(1.0, subject=subject, notes=notes)
    tokens = metrics["tokens_rate"].measured(*rates, subject=subject)
    return {m.metric: m for m in (step, tokens)}


def test_a_layout_may_bring_its_schedule():
    first, second = specs("dp4", "pp2,dp2:zbv:2", "--micro-batches", "8")
    assert (first.layout, first.schedule, first.micro_batches) == ("dp4", "1f1b", 8)
    assert (second.layout, second.schedule, second.stages_per_rank) == ("pp2,dp2", "zbv", 2)


@pytest.mark.parametrize(
    ("layouts", "reason"),
    [(["dp8"], "needs 8 ranks"), (["pp4:zbv"], "needs several stages"), (["dp4", "pp4:fast"], "no schedule 'fast'")],
)
def test_what_cannot_run_is_refused_before_anything_is_measured(layouts, reason):
    with pytest.raises(ValueError, match=reason):
        specs(*layouts)


def test_wrong_use_ends_with_four(capsys):
    assert main(["--sweep", "tp3"]) == 4
    assert "training --sweep: " in capsys.readouterr().err


def test_a_rank_is_compared_with_the_same_layout_of_fewer_replicas(tmp_path):
    file = tmp_path / "records.jsonl"
    small = records(layout="tp2,dp1", rates=(60.0,), ranks=2)
    file.write_text("".join(encode(m) + "\n" for m in small.values()))
    before = earlier(file)
    line = row(records(), before)
    assert line[0] == "tp2,pp1,dp2"
    assert line[4] == "83.3%"  # 25 of 30 tokens/s of one rank
    assert line[-1] == "tp 20.0%"
    assert row(records(layout="tp4"), before)[4] == "-"


def test_records_of_another_kind_are_refused(tmp_path):
    (tmp_path / "records").write_text("hello\n")
    with pytest.raises(ValueError, match="holds no records"):
        earlier(tmp_path / "records")


def test_a_wrong_layout_shows_its_reason_and_no_speed():
    wrong = Training(layout="tp2,dp2").metrics(FOUR)["step.time"].measured(outcome="error", reason="the step is wrong")
    assert row({"training.step.time": wrong, "training.tokens_rate": wrong}, {}) == ["tp2,pp1,dp2", "the step is wrong"]
