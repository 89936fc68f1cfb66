"""Training on several numbers of nodes: which points there are, what a rank keeps, what a failed point costs."""

import pytest

from benchmarks.measurement import Measurement, Subject, decode
from suites import scaling
from suites.allocation import Allocation, Wish
from suites.scaling import filled, main, measure, options_of, points_of, world_of

SLOW = "[training]\nsteps = 1\nwarmup = 1\nobserved = 1\nsequence = 32\nmicro_batches = 1\nmodel = 'tiny'\n"


@pytest.fixture
def cluster(tmp_path):
    """A cluster file of four nodes with two ranks each."""
    path = tmp_path / "rack.toml"
    path.write_text(f'description = "a rack"\nnodes = 4\nranks_per_node = 2\n{SLOW}')
    return path


def points(cluster, *words):
    options, found = options_of(["--cluster", str(cluster), *words])
    return list(points_of(options, world_of(options, found, Wish(nodelist=("a", "b")))))


@pytest.mark.parametrize(
    ("layout", "whole"),
    [("tp8", "tp8,dp4"), ("tp2,pp4", "tp2,pp4,dp4"), ("tp1,shard1", "tp1,shard1,dp32"), ("shard2", "shard2,dp32")],
)
def test_replicas_fill_the_nodes(layout, whole):
    assert filled(layout, 32) == whole


def test_a_point_for_every_layout_and_number_of_nodes_where_it_fits(cluster):
    found = points(cluster, "--nodes", "4", "1", "2", "--layouts", "tp2", "tp2,pp2:zbv:2", "--micro-batches", "8")
    assert [(p.nodes, p.layout, p.spec.layout if p.spec else "") for p in found] == [
        (1, "tp2", "tp2,dp1"), (1, "tp2,pp2:zbv:2", ""),
        (2, "tp2", "tp2,dp2"), (2, "tp2,pp2:zbv:2", "tp2,pp2,dp1"),
        (4, "tp2", "tp2,dp4"), (4, "tp2,pp2:zbv:2", "tp2,pp2,dp2"),
    ]  # fmt: skip
    assert "needs 4 ranks for a replica" in found[1].reason


def test_the_job_is_the_cluster_files_and_an_option_changes_it(cluster):
    (point,) = points(cluster, "--nodes", "1", "--layouts", "tp2", "--sequence", "64")
    assert (point.spec.sequence, point.spec.steps) == (64, 1)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--layouts", "tp4"], "its traffic would cross the network"),
        (["--layouts", "dp2"], "leave dp out"),
        (["--layouts", "tp2", "pp2:fast"], "no schedule 'fast'"),
    ],
)
def test_a_layout_that_runs_nowhere_is_refused_before_anything_starts(cluster, words, reason):
    with pytest.raises(ValueError, match=reason):
        points(cluster, "--nodes", "2", *words)


def test_tensor_parallelism_across_nodes_is_measured_when_asked_for(cluster):
    found = points(cluster, "--nodes", "1", "2", "--layouts", "tp4", "--allow-tp-across-nodes")
    assert [bool(point.spec) for point in found] == [False, True]


def test_fewer_ranks_a_node_than_it_has_and_never_more(cluster):
    few = ["--nodes", "2", "--ranks-per-node", "1", "--layouts", "tp2", "--allow-tp-across-nodes"]
    (point,) = points(cluster, *few)
    assert (point.place.ranks, point.spec.layout) == (2, "tp2,dp1")
    assert point.spec.warning(point.place)
    with pytest.raises(ValueError, match="a node of rack has 2"):
        points(cluster, "--nodes", "2", "--ranks-per-node", "3", "--layouts", "tp1")


@pytest.mark.parametrize("words", [["--nodes", "0"], ["--nodes", "1"], ["--nodes", "1", "--layouts", "tp2", "--x"]])
def test_wrong_use_ends_with_four(cluster, words, capsys):
    with pytest.raises(SystemExit) as end:
        main(["--cluster", str(cluster), *words])
    assert end.value.code == 4
    assert "suites.scaling: error" in capsys.readouterr().err


def test_a_cluster_file_that_is_not_there_ends_with_four(capsys):
    assert main(["--cluster", "nowhere", "--nodes", "1", "--layouts", "tp2"]) == 4
    assert "nowhere" in capsys.readouterr().err


def answers(rates):
    """What a launch would bring: by nodes a rate, or why there is none."""

    def launched(point, _held, _logs, _number, *, start_limit_s):  # noqa: ARG001
        if isinstance(rate := rates[point.nodes], str):
            return {}, rate
        metrics, subject = point.spec.metrics(point.place), Subject(group="world", ranks=point.place.ranks)
        notes = {"split": {"dp": 0.2}, "predicted": {"step_s": 0.5}}
        step = metrics["step.time"].measured(1.0, subject=subject, notes=notes)
        return {m.metric: m for m in (step, metrics["tokens_rate"].measured(rate, subject=subject))}, ""

    return launched


def test_a_rank_is_compared_with_the_fewest_nodes_and_a_failed_point_costs_itself(
    cluster, tmp_path, monkeypatch, capsys
):
    found = points(cluster, "--nodes", "1", "2", "4", "--layouts", "tp2")
    monkeypatch.setattr(scaling, "launched", answers({1: 100.0, 2: "rank 3 on n2 died", 4: 300.0}))
    held = Allocation(launcher="torchrun", why="a test")
    assert measure(found, held, tmp_path / "out", start_limit_s=1.0)
    table = capsys.readouterr().out
    assert "100.0%" in table
    assert "75.0%" in table  # 300 of 8 ranks beside 100 of 2
    assert "tp2,dp2 on 2 node(s): rank 3 on n2 died" in table
    lines = (tmp_path / "out" / "records.jsonl").read_text().splitlines()
    assert [decode(Measurement, line).subject.ranks for line in lines] == [2, 2, 8, 8]


@pytest.mark.slow
def test_ranks_are_started_and_measured(tmp_path, capsys):
    path = tmp_path / "one.toml"
    path.write_text(f'description = "one node"\nnodes = 1\nranks_per_node = 2\n{SLOW}')
    assert main(["--cluster", str(path), "--nodes", "1", "--layouts", "tp2", "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    assert "tp2,pp1,dp1" in said.out
    assert said.err == ""
    found = {decode(Measurement, line).metric for line in (tmp_path / "out" / "records.jsonl").read_text().splitlines()}
    assert {"training.gradient_error", "training.step.time", "training.predicted_share"} <= found
