"""Nights on disk: what nightly, history, promote, limits and prune make of them."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import tomllib
from datetime import date

import numpy as np
import pytest

from benchmarks.measurement import Environment, Measurement, decode, encode
from clusters import loader
from reports import archive, index, pins, proposals, prune, runs, trend
from reports.commands import main
from reports.nightly import nightly
from reports.numbers import numbers
from reports.runs import RunError
from tests.made_up_nights import CLUSTER, rewrite_head, write

TODAY = date(2026, 12, 1)


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """Twelve quiet nights; night 3 pinned as the baseline."""
    root = tmp_path_factory.mktemp("nights") / "runs"
    for night in range(12):
        write(root, night)
    pins.promote(runs.load(root / "night-003"), by="Ada", why="accepted")
    return root


@pytest.fixture
def history(quiet, tmp_path):
    """A copy that a test may add nights to."""
    return shutil.copytree(quiet, tmp_path / "runs")


def report(folder, *again):
    stored = runs.load(folder)
    return nightly(stored, stored.verdicts(today=TODAY), folder.parent, again=again)


def test_a_quiet_night_is_nothing_new(history):
    found = report(write(history, 12))
    assert (found.status, found.history, found.baseline) == (0, 12, "night-003")
    assert not found.climbed.groups
    assert not found.climbed.suspects


def test_a_slower_night_is_suspect_until_two_re_runs_agree(history, capsys):
    slow = {"collectives.all_reduce.busbw": 0.94}
    tonight = write(history, 12, factor=slow)
    first = report(tonight)
    assert first.status == 3
    assert [(a.title, a.rung) for a in first.climbed.suspects] == [("collectives.all_reduce.busbw 1 GiB", "night")]
    assert first.climbed.suspects[0].effect == pytest.approx(-0.06, abs=0.01)
    again = [write(history, 12, name=f"again{'x' * i}", factor=slow) for i in range(2)]
    assert main(["nightly", str(tonight), "--history", str(history), "--confirm", *map(str, again)]) == 1
    said = capsys.readouterr().out
    assert said.startswith("REGRESSION")
    assert "collectives" in said
    fine = [write(history, 12, name=f"fine{'y' * i}") for i in range(2)]
    refuted = report(tonight, *fine)
    assert (refuted.status, len(refuted.climbed.refuted)) == (0, 1)


def test_one_gpu_that_fell_behind_is_named_with_its_node(history):
    tonight = write(history, 12, gpu={11: 0.9})
    assert {(a.unit, a.node) for a in report(tonight).climbed.suspects} == {("node1 gpu3", "node1")}
    found = report(tonight, *(write(history, 12, name="again" + "x" * i, gpu={11: 0.9}) for i in range(2)))
    assert [(group.node, group.family) for group in found.climbed.groups] == [("node1", "gemm")]
    assert found.climbed.groups[0].effect == pytest.approx(-0.1, abs=0.02)


def test_a_gray_gpu_is_found_in_its_samples(history):
    found = report(write(history, 12, gray=6))
    assert {(a.rung, a.unit) for a in found.climbed.suspects} == {("gray", "node0 gpu6")}


def test_improvements_are_shown_and_are_no_alarm(history):
    found = report(write(history, 12, factor={"checkpoint.save.time": 0.8}))
    assert found.status == 0
    assert [a.title for a in found.climbed.improved] == ["checkpoint.save.time full"]


def test_creep_is_seen_against_the_pinned_baseline(history):
    for night in range(12, 27):
        tonight = write(history, night, factor={"gemm.flops": 1 - 0.003 * (night - 11)})
    found = report(tonight)
    assert found.status == 1
    assert ("drift", "") in {(a.rung, a.unit) for group in found.climbed.groups for a in group.alarms}


def test_what_is_missing_is_never_nothing_new(history):
    found = report(write(history, 12, without=("checkpoint.save.time",)))
    assert found.status == 3
    assert any("missing" in reason for reason in found.unsure)


def test_a_run_that_never_ended_cannot_say_and_time_zones_do_not_matter(history):
    tonight = write(history, 12)
    lines = (tonight / "events.jsonl").read_text().splitlines()
    (tonight / "events.jsonl").write_text(lines[0] + "\n")
    rewrite_head(tonight, started_at="2026-11-13T11:00:00+09:00")
    found = report(tonight)
    assert (found.status, found.history, found.partial) == (3, 12, ("the run never ended",))
    rewrite_head(tonight, started_at="2026-11-13T02:00:00")
    assert report(tonight).history == 12


def test_what_is_not_even_expected_any_more_is_told(history):
    tonight = write(history, 12)
    rewrite_head(tonight, expected=runs.head(tonight).expected[:-1])
    found = report(tonight)
    assert found.status == 3
    assert found.climbed.gone == (("checkpoint.save.time", '{"contents": "full"}'),)
    rewrite_head(tonight, nodes=1)  # of another size: nobody expects the same of it
    assert report(tonight).climbed.gone == ()


def test_a_metric_whose_unit_changed_is_not_compared_and_both_are_told(history, capsys):
    tonight = write(history, 12)
    rates = [dataclasses.replace(e, unit="GFLOP/s") if e.unit == "FLOP/s" else e for e in runs.head(tonight).expected]
    rewrite_head(tonight, expected=tuple(rates))
    records = tonight / "measurements.jsonl"
    records.write_text(records.read_text().replace('"FLOP/s"', '"GFLOP/s"'))
    assert main(["nightly", str(tonight), "--history", str(history)]) == 3
    assert "changed its unit: FLOP/s (higher is better) until night-011, now GFLOP/s" in capsys.readouterr().out


def test_clocks_that_jumped_are_told(history, capsys):
    tonight = write(history, 12)
    rewrite_head(tonight, started_at="2026-11-04T02:00:00.500Z")  # back into the past
    assert main(["nightly", str(tonight), "--history", str(history)]) == 3
    assert "left out: 8 that began later" in capsys.readouterr().out
    rewrite_head(tonight, started_at="2099-01-01T00:00:00Z")
    found = report(tonight)
    assert (found.status, found.history) == (3, 12) and "in the future" in found.partial[0]


def test_one_re_run_contradicts_and_confirms_nothing(history):
    slow = {"collectives.all_reduce.busbw": 0.94}
    tonight = write(history, 12, factor=slow)
    found = report(tonight, write(history, 12, name="again", factor=slow))
    assert (found.status, len(found.climbed.suspects), found.climbed.groups) == (3, 1, ())
    assert report(tonight, write(history, 12, name="fine!")).status == 0
    without = [write(history, 12, name="lacks" + "x" * i, without=tuple(slow)) for i in range(3)]
    found = report(tonight, *without)  # never measured again: neither an alarm nor chance
    assert (found.status, len(found.climbed.suspects), found.climbed.refuted) == (3, 1, ())


def test_ranks_are_known_by_their_node_whatever_their_number(history):
    """Rank 11 of tonight's sixteen is rank 3 of a re-run on one node: the same GPU."""
    for folder in sorted(history.glob("night-*")):
        place(folder, 2)
    tonight = place(write(history, 12, gpu={11: 0.9}), 2)
    again = [only(place(write(history, 12, name="again" + "x" * i, gpu={11: 0.9}), 2), "node1") for i in range(2)]
    found = report(tonight, *again)
    assert [(group.node, group.family) for group in found.climbed.groups] == [("node1", "gemm")]


def place(folder, nodes):
    """Say which ranks were on which node."""
    environments = [Environment(node=f"node{i}", ranks=tuple(range(8 * i, 8 * i + 8))) for i in range(nodes)]
    (folder / "environments.jsonl").write_text("".join(encode(e) + "\n" for e in environments))
    return folder


def only(folder, node):
    """The GEMMs of one node, its ranks numbered from zero."""
    records = [decode(Measurement, line) for line in (folder / "measurements.jsonl").read_text().splitlines()]
    kept = [m for m in records if m.subject.node == node]
    kept = [dataclasses.replace(m, subject=dataclasses.replace(m.subject, rank=i)) for i, m in enumerate(kept)]
    (folder / "measurements.jsonl").write_text("".join(encode(m) + "\n" for m in kept))
    (folder / "environments.jsonl").write_text(encode(Environment(node=node, ranks=tuple(range(8)))) + "\n")
    gemm = dataclasses.replace(runs.head(folder).expected[0], units=8)
    rewrite_head(folder, expected=(gemm,), nodes=1)
    return folder


def test_below_a_hard_limit_is_a_regression_on_any_night(history):
    assert report(write(history, 12, factor={"gemm.flops": 0.4})).status == 1


def test_too_few_nights_cannot_say(tmp_path):
    for night in range(8):
        tonight = write(tmp_path, night)
    found = report(tonight)
    assert (found.status, found.history) == (3, 7)
    assert "fewer than 8 comparable nights" in found.unsure[0]


def test_nights_that_failed_do_not_become_the_measure(history):
    for night in range(12, 24):
        write(history, night, factor={"gemm.flops": 0.4})
    found = report(write(history, 24))
    assert found.status == 0
    assert not found.climbed.improved


def test_the_index_can_be_thrown_away_and_follows_the_run(history):
    first = archive.nights(history)
    files = sorted((history / index.FOLDER).glob("*.npz"))
    assert len(files) == len(first) == 12
    files[0].write_bytes(b"broken")
    shutil.rmtree(history / "night-011")
    write(history, 11, factor={"gemm.flops": 0.5})
    again = archive.nights(history)
    assert [n.run for n in again] == [n.run for n in first]
    old, new = (n[-1].medians(n[-1].series[0]).mean() for n in (first, again))
    assert new == pytest.approx(old / 2, rel=0.02) or old == new  # the first may be read only now
    assert new == pytest.approx(3.5e14, rel=0.02)


def test_two_runs_with_one_id_are_refused(history):
    shutil.copytree(history / "night-001", history / "copy")
    with pytest.raises(RunError, match="two runs with one id"):
        archive.nights(history)


# -- history -----------------------------------------------------------------------------------------------------


def test_a_change_is_marked_with_what_changed_around_it(tmp_path, capsys):
    root = tmp_path / "runs"
    for night in range(20):
        late = night >= 12
        write(root, night, factor={"gemm.flops": 0.9 if late else 1.0}, driver="580.95" if late else "580.65")
    found = trend.trends(archive.nights(root), "gemm.*")[0]
    assert [c.night for c in found.changes] == ["night-012"]
    assert found.changes[0].effect == pytest.approx(-0.1, abs=0.01)
    assert found.changes[0].around == (("driver", "580.65", "580.95"),)
    page = tmp_path / "t.html"
    assert main(["history", "gemm.*", "--history", str(root), "-o", str(page)]) == 0
    assert "driver: 580.65 -> 580.95" in capsys.readouterr().out
    assert "580.95" in page.read_text()
    assert "<script" not in page.read_text()
    assert trend.trends(archive.nights(root), "collectives.*")[0].changes == ()


def test_one_node_has_a_history_of_its_own(tmp_path):
    root = tmp_path / "runs"
    for night in range(16):
        write(root, night, gpu=dict.fromkeys(range(8, 16), 0.9) if night >= 8 else {})
    every = archive.nights(root)
    assert [c.night for c in trend.trends(every, "gemm.flops", node="node1")[0].changes] == ["night-008"]
    assert trend.trends(every, "gemm.flops", node="node0")[0].changes == ()
    assert trend.trends(every, "gemm.flops", node="node9") == []


def test_an_unknown_metric_says_which_there_are(quiet, capsys):
    assert main(["history", "gem.flops", "--history", str(quiet)]) == 4
    assert "gemm.flops" in capsys.readouterr().err


# -- promote, baseline -------------------------------------------------------------------------------------------


def test_promotions_are_kept_with_who_when_and_why(history, capsys):
    assert main(["promote", str(history / "night-005"), "--by", "Grace", "--why", "new firmware"]) == 0
    found = pins.pins(history)
    assert [(pin.run, pin.by, pin.why) for pin in found] == [
        ("night-003", "Ada", "accepted"), ("night-005", "Grace", "new firmware"),
    ]  # fmt: skip
    assert pins.pinned(history, cluster="rack7", suite="nightly").run == "night-005"
    assert pins.pinned(history, cluster="rack8", suite="nightly") is None
    capsys.readouterr()
    assert main(["baseline", "--history", str(history)]) == 0
    said = capsys.readouterr().out
    assert said.index("new firmware") < said.index("accepted")


def test_only_an_accepted_run_may_be_promoted(history):
    with pytest.raises(RunError, match="REJECTED"):
        pins.promote(runs.load(write(history, 12, factor={"gemm.flops": 0.4})), by="Ada", why="because")
    with pytest.raises(RunError, match="--why"):
        pins.promote(runs.load(history / "night-001"), by="Ada", why=" ")


def test_a_baseline_that_is_gone_says_so(history):
    shutil.rmtree(history / "night-003")
    with pytest.raises(RunError, match=r"night-003 .* pinned by Ada .* is gone"):
        report(write(history, 12))


# -- limits ------------------------------------------------------------------------------------------------------


def test_proposed_limits_load_and_the_runs_they_came_from_pass_them(history, tmp_path):
    stored = [runs.load(history / f"night-{i:03}") for i in range(3)]
    text = proposals.propose(stored, today=TODAY)
    assert set(tomllib.loads(text)["limits"]) == {
        "measured_collectives_all_reduce_busbw_1073741824", "measured_checkpoint_save_time_full",
    }  # fmt: skip
    file = tmp_path / "rack7.toml"
    file.write_text(CLUSTER + "\n" + text)
    cluster = loader.load(str(file))
    floor = next(x for x in cluster.limits if x.bound == "floor" and x.metric.startswith("collectives"))
    assert 3.4e11 < floor.value < 3.6e11
    assert "3 runs, 3 values" in floor.source
    assert floor.scope == {"sku": "h100-sxm", "backend": "nccl"}
    diff = proposals.diff(stored, today=TODAY)
    assert diff.startswith("--- a/rack7.toml")
    assert all(line[0] in "+- @" for line in diff.splitlines())


def test_the_diff_of_proposed_limits_applies(history, tmp_path, capsys):
    assert main(["limits", *(str(history / f"night-{i:03}") for i in range(3))]) == 0
    (tmp_path / "rack7.toml").write_text(CLUSTER)
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=capsys.readouterr().out, text=True, check=True)
    names = {limit.name for limit in loader.load(str(tmp_path / "rack7.toml")).limits}
    assert {"rate", "measured_checkpoint_save_time_full"} <= names


def test_limits_come_from_accepted_runs_only(history):
    with pytest.raises(RunError, match="REJECTED"):
        proposals.propose([runs.load(write(history, 12, factor={"gemm.flops": 0.4}))], today=TODAY)


# -- prune -------------------------------------------------------------------------------------------------------


def test_prune_shows_first_and_keeps_baselines_and_the_newest(history, capsys):
    archive.nights(history)
    assert main(["prune", "--history", str(history), "--keep", "5"]) == 0
    assert "6 would be removed" in capsys.readouterr().out
    assert len(list(history.glob("night-*"))) == 12
    assert main(["prune", "--history", str(history), "--keep", "5", "--yes"]) == 0
    left = sorted(path.name for path in history.glob("night-*"))
    assert left == ["night-003", *(f"night-{i:03}" for i in range(7, 12))]
    assert len(list((history / index.FOLDER).glob("*.npz"))) == 6


def test_prune_leaves_what_it_cannot_read_and_what_is_no_run(history):
    (history / "night-000" / "run.json").write_text("{")
    (history / "notes").mkdir()
    assert history / "night-000" not in prune.prunable(history, keep=1)
    assert history / "notes" not in prune.prunable(history, keep=1)
    with pytest.raises(RunError, match="at least 1"):
        prune.prunable(history, keep=0)


def test_two_nights_that_end_at_once_lose_nothing(history):
    children = []
    for _ in range(2):
        if (child := os.fork()) == 0:
            try:
                archive.nights(history)
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    assert len(archive.nights(history)) == 12
    assert not list((history / index.FOLDER).glob("*.partial*"))


def test_an_index_is_believed_only_while_the_run_is_as_it_was(history):
    folder = write(history, 12)
    first = index.of(folder)
    assert index.read(folder, index.stamp_of(folder)).head == first.head
    records = folder / "measurements.jsonl"
    stat = records.stat()
    records.write_text(records.read_text().replace('"samples":[7', '"samples":[3', 1))
    os.utime(records, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # same size, same time: still not the same file
    assert records.stat().st_size == stat.st_size
    assert index.read(folder, index.stamp_of(folder)) is None
    assert archive.read_night(folder).columns[0].min() < 0.6 * first.medians[0][:16].min()


@pytest.mark.parametrize("part", ["head", "names", "medians"])
def test_an_index_of_another_shape_is_made_again(history, part):
    folder = write(history, 12)
    made, path = index.of(folder), index.path_of(folder)
    with np.load(path) as content:
        columns = dict(content)
    columns[part] = np.zeros((2, 1)) if part == "medians" else np.frombuffer(b"[1]", dtype=np.uint8)
    np.savez(path, **columns)
    assert index.read(folder, index.stamp_of(folder)) is None
    assert index.of(folder).medians.tobytes() == made.medians.tobytes()


def test_numbers_from_the_index_are_those_of_the_run(history):
    folder = write(history, 12)
    plain = numbers(runs.load(folder))
    for found in (index.numbers_of(folder), index.numbers_of(folder)):  # made, then read
        assert [n.expected for n in found] == [n.expected for n in plain]
        for a, b in zip(found, plain, strict=True):
            assert (a.key, a.name, list(a.units)) == (b.key, b.name, list(b.units))
            assert all((x == y).all() for x, y in zip(a.estimates, b.estimates, strict=True))


def test_without_a_place_for_the_index_everything_still_works(history, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    shutil.rmtree(history / index.FOLDER, ignore_errors=True)
    monkeypatch.setattr(index.np, "savez", full)
    assert len(archive.nights(history)) == 12
    assert not list((history / index.FOLDER).glob("*"))
