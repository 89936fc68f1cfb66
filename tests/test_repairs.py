"""A part is followed by its serial through repairs and moves, and a repair is held against the nights around it."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import pytest

from benchmarks.measurement import Environment, Event, encode
from reports import archive, pins, repairs, runs, trend
from reports.commands import main
from reports.repairs import Repair
from reports.runs import RunError
from tests.made_up_nights import START, write

SLOW, SPARE = "SN-0-3", "SN-spare"


def equip(folder, swapped, moved):
    """Sixteen GPUs with serials and an adapter a node; one GPU swapped for a spare, two exchanged between nodes."""
    serials = [[f"SN-{node}-{gpu}" for gpu in range(8)] for node in range(2)]
    if swapped:
        serials[0][3] = SPARE
    if moved:
        serials[0][0], serials[1][7] = serials[1][7], serials[0][0]
    environments = [
        Environment(
            node=f"node{i}", ranks=tuple(range(8 * i, 8 * i + 8)),
            facts={
                "driver": "580.65", "gpu_serials": serials[i], "gpu_uuids": [f"GPU-{s}" for s in serials[i]],
                "rank_gpu_uuids": [f"GPU-{s}" for s in serials[i]], "nics": {"mlx5_0": f"MT-{i}"},
            },
        )
        for i in range(2)
    ]  # fmt: skip
    (folder / "environments.jsonl").write_text("".join(encode(e) + "\n" for e in environments))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Twenty nights: GPU 3 of node0 is slow and is replaced on night 10; on night 15 two GPUs change places."""
    path = tmp_path_factory.mktemp("repairs") / "runs"
    for night in range(20):
        swapped, moved = night >= 10, night >= 15
        slow = {} if swapped else {3: 0.9}
        folder = write(path, night, gpu=slow | {15 if moved else 0: 0.97})
        equip(folder, swapped, moved)
    return path


@pytest.fixture(scope="module")
def every(root):
    return archive.nights(root)


def test_a_part_that_moves_takes_its_history_along(every):
    (found,) = trend.trends(every, "gemm.flops", serial="SN-0-0")
    assert len(found.values) == 20 and found.changes == ()
    assert max(found.values) / min(found.values) < 1.03  # the slower GPU, in both places
    (place,) = trend.trends(every, "gemm.flops", node="node1 gpu7")
    assert place.values[-1] / place.values[0] == pytest.approx(0.97, abs=0.02)
    moved = next(e for e in found.repairs if e.repair.serial == "SN-0-0")
    assert [e.repair.node for e in found.repairs] == ["node0", "node1"]  # whoever took its place is told as well
    assert (moved.repair.node, moved.word) == ("node1", "same")
    assert "gpu7 is SN-0-0 instead of SN-1-7, until then node0 gpu0" in moved.repair.what


def test_a_swap_is_seen_in_the_serials_and_held_against_the_nights_around_it(every):
    (found,) = trend.trends(every, "gemm.flops", node="node0 gpu3", repairs=[])
    assert found.repairs == ()  # a unit's label is no node: its repairs are asked by node or serial
    (old,), (new,) = (trend.trends(every, "gemm.flops", serial=s) for s in (SLOW, SPARE))
    assert (len(old.values), len(new.values)) == (10, 10)
    (on_node,) = trend.trends(every, "gemm.flops", node="node0")
    assert [e.repair.serial for e in on_node.repairs] == [SPARE, "SN-1-7"]
    assert on_node.repairs[0].place == 10
    assert f"gpu3 is {SPARE} instead of {SLOW}" in on_node.repairs[0].repair.what


def test_an_adapter_is_followed_through_the_units_of_its_node(every):
    (found,) = trend.trends(every, "gemm.flops", serial="MT-1")
    assert len(found.values) == 20
    assert trend.trends(every, "gemm.flops", serial="MT-9") == []


def test_the_new_part_is_not_held_against_the_old_ones_nights(every):
    tonight = every[12]
    series = next(s for s in tonight.series if s.metric == "gemm.flops")
    assert series.lasting[3] == SPARE and series.labels[3] == "node0 gpu3"


def test_what_people_did_is_kept_and_shown_with_whether_it_helped(root, capsys):
    at = (START + timedelta(days=9, hours=12)).isoformat()
    command = ["repair", "node0", "--what", "GPU 3 replaced", "--by", "Ada", "--at", at, "--history", str(root)]
    assert main([*command, "--serial", SLOW]) == 0
    capsys.readouterr()
    page = root.parent / "trend.html"
    assert main(["history", "gemm.flops", "--node", "node0 gpu3", "--history", str(root), "-o", str(page)]) == 0
    capsys.readouterr()
    assert main(["history", "gemm.flops", "--node", "node0", "--history", str(root), "-o", str(page)]) == 0
    said = capsys.readouterr().out
    assert "node0: GPU 3 replaced (Ada)" in said and "GPU 3 replaced (Ada)" in page.read_text()


def test_before_and_after_by_hand():
    start = datetime(2026, 1, 1, tzinfo=UTC)
    when = [start + timedelta(days=i) for i in range(12)]
    done = Repair(at=start + timedelta(days=5, hours=1), node="n", what="fan", by="Ada")
    (found,) = repairs.effects([done], when, [9.0] * 6 + [10.0] * 6, "higher")
    assert (found.place, found.word, found.gain) == (6, "better", pytest.approx(1 / 9))
    (found,) = repairs.effects([done], when, [9.0] * 6 + [10.0] * 6, "lower")
    assert (found.word, found.gain) == ("worse", pytest.approx(-0.1))
    (found,) = repairs.effects([done], when, [9.0] * 12, "higher")
    assert found.word == "same"
    late = Repair(at=start + timedelta(days=10, hours=1), node="n", what="fan", by="Ada")
    (found,) = repairs.effects([late], when, [9.0] * 12, "higher")
    assert (found.word, found.gain) == ("too few nights", None)


def test_two_people_at_once_lose_nothing(tmp_path):
    children = []
    for who in range(4):
        if (child := os.fork()) == 0:
            try:
                for k in range(5):
                    repairs.record(tmp_path, Repair(at=START, node="n1", what=f"{who}.{k}", by="Ada"))
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert len(repairs.recorded(tmp_path)) == 20


def test_what_cannot_be_kept_or_read_says_so(tmp_path, capsys):
    for words in (["--what", " ", "--by", "Ada"], ["--what", "x", "--by", "Ada", "--at", "yesterday"]):
        assert main(["repair", "n1", *words, "--history", str(tmp_path)]) == 4
    assert "--at yesterday" in capsys.readouterr().err
    (tmp_path / "repairs").mkdir()
    (tmp_path / "repairs" / "x.json").write_text("{")
    with pytest.raises(RunError, match=r"x.json.*move it out"):
        repairs.recorded(tmp_path)


def test_promotions_of_before_are_still_read(root):
    pin = {"run": "night-001", "cluster": "rack7", "suite": "nightly", "by": "Ada", "why": "x", "outcome": "ACCEPTED"}
    (root / pins.OLDER).write_text(encode(Event(kind="promoted", at="2026-11-02T00:00:00Z", detail=pin)) + "\n")
    pins.promote(runs.load(root / "night-002"), by="Grace", why="newer")
    assert [p.run for p in pins.pins(root)] == ["night-001", "night-002"]
    (root / pins.OLDER).write_text("garbage\n")
    with pytest.raises(RunError, match=r"baselines.jsonl:1"):
        pins.pins(root)
    (root / pins.OLDER).unlink()
