"""Bad input to the reports, one kind after the other: one line with the cure or a plain word, never an acceptance."""

from __future__ import annotations

import hashlib
import shutil
from datetime import date

import pytest

from benchmarks.measurement import SCHEMA, Config, Environment, Event, Expected, Measurement, Run, Subject, encode
from reports import page, prune, runs, trend
from reports.archive import nights
from reports.commands import main
from tests.made_up_nights import CLUSTER, rewrite_head, write

COMMANDS = {
    "render": ["render", "RUN"],
    "table": ["table", "RUN"],
    "junit": ["junit", "RUN"],
    "export": ["export", "RUN"],
    "compare": ["compare", "RUN", "GOOD"],
    "the other side": ["compare", "GOOD", "RUN"],
    "nightly": ["nightly", "RUN", "--history", "ROOT"],
    "confirm": ["confirm", "RUN", "--history", "ROOT"],
    "alerts": ["alerts", "RUN", "--history", "ROOT"],
    "promote": ["promote", "RUN", "--by", "Ada", "--why", "because"],
    "limits": ["limits", "RUN"],
}


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    root = tmp_path_factory.mktemp("bad") / "runs"
    for night in range(9):
        write(root, night)
    return root


@pytest.fixture
def root(quiet, tmp_path):
    return shutil.copytree(quiet, tmp_path / "runs")


def call(command, run, root):
    names = {"RUN": str(run), "ROOT": str(root), "GOOD": str(root / "night-000")}
    return main([names.get(word, word) for word in COMMANDS[command]])


def break_file(run, name, text):
    (run / name).write_text(text)


BROKEN = {
    "an empty folder": (lambda run: [p.unlink() for p in run.iterdir()], "an empty folder"),
    "no folder at all": (lambda run: shutil.rmtree(run), "no such run folder"),
    "a newer schema": (
        lambda run: break_file(run, "run.json", (run / "run.json").read_text().replace('"v":1', f'"v":{SCHEMA + 1}')),
        "newer version",
    ),
    "mixed schemas": (
        lambda run: break_file(
            run, "events.jsonl", (run / "events.jsonl").read_text().replace('"v":1', f'"v":{SCHEMA + 1}', 1)
        ),
        "events.jsonl:1: written by a newer version",
    ),
    "a schema nobody reads any more": (
        lambda run: break_file(run, "events.jsonl", (run / "events.jsonl").read_text().replace('"v":1', '"v":0', 1)),
        "no longer readable",
    ),
    "another cluster file": (lambda run: break_file(run, "cluster.toml", CLUSTER + "# changed"), "put back the copy"),
    "a head that is no JSON": (lambda run: break_file(run, "run.json", "{"), "run.json"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("case", BROKEN)
def test_a_run_that_does_not_read(root, command, case, capsys):
    spoil, told = BROKEN[case]
    run = write(root, 12)
    spoil(run)
    assert call(command, run, root) == 4
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and told in said.err, said.err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_run_that_never_ended_is_never_fine(root, command, capsys):
    run = write(root, 12)
    break_file(run, "events.jsonl", "")
    expected = {"alerts": 1, "promote": 4, "limits": 4, "export": 0}
    assert call(command, run, root) == expected.get(command, 3), capsys.readouterr().out


def test_two_runs_with_one_id_stop_everything_that_looks_at_nights(root, capsys):
    shutil.copytree(root / "night-001", root / "copy")
    for command in (["history", "gemm.*"], ["nightly", str(root / "night-008")], ["alerts", str(root / "night-008")]):
        assert main([*command, "--history", str(root)]) == 4
        assert "two runs with one id" in capsys.readouterr().err


def test_a_baseline_that_was_pruned_by_hand(root, capsys):
    assert main(["promote", str(root / "night-001"), "--by", "Ada", "--why", "accepted"]) == 0
    shutil.rmtree(root / "night-001")
    assert main(["nightly", str(root / "night-008"), "--history", str(root)]) == 4
    assert "promote another run" in capsys.readouterr().err
    assert main(["baseline", "--history", str(root)]) == 0
    assert "night-001 (gone)" in capsys.readouterr().out


def test_time_zones_and_clocks_do_not_change_the_order(root):
    rewrite_head(root / "night-000", started_at="2026-11-30T23:30:00-05:00")  # December in UTC: the newest
    rewrite_head(root / "night-001", started_at="2026-12-01T03:00:00+09:00")  # still November
    assert [night.run for night in nights(root)][-2:] == ["night-001", "night-000"]
    assert runs.newest(root).name == "night-000"
    assert {path.name for path in prune.prunable(root, keep=1)} == {f"night-00{i}" for i in range(1, 9)}
    rewrite_head(root / "night-002", started_at="yesterday")
    assert root / "night-002" not in prune.prunable(root, keep=1)  # it cannot be read: it stays


def test_a_time_that_is_none_is_told(root, capsys):
    rewrite_head(root / "night-008", started_at="yesterday")
    assert main(["nightly", str(root / "night-008"), "--history", str(root)]) == 4
    assert "'yesterday' is no time" in capsys.readouterr().err


def test_a_unit_that_changed_is_told_by_history_too(root, capsys):
    records = root / "night-008" / "measurements.jsonl"
    records.write_text(records.read_text().replace('"FLOP/s"', '"GFLOP/s"'))
    head = root / "night-008" / "run.json"
    head.write_text(head.read_text().replace('"FLOP/s"', '"GFLOP/s"'))
    assert main(["history", "gemm.*", "--history", str(root)]) == 0
    said = capsys.readouterr().out
    assert "changed its unit: FLOP/s (higher is better) and GFLOP/s (higher is better); not compared" in said
    assert main(["compare", str(root / "night-007"), str(root / "night-008"), "--across"]) == 4
    said = capsys.readouterr().err
    assert "FLOP/s (higher is better) in night-007" in said and "GFLOP/s (higher is better) in night-008" in said


def hosts(folder, count):
    """A run in which every host has another name, kernel and number."""
    folder.mkdir(parents=True)
    e = Expected(
        metric="gemm.flops", unit="FLOP/s", better="higher", config="c", test="t", per="node", units=count,
        params={"dtype": "bf16"},
    )  # fmt: skip
    run = Run(
        id=folder.name, suite="nightly", cluster="rack7", started_at="2026-11-01T02:00:00Z", nodes=2, expected=(e,),
        cluster_sha256=hashlib.sha256(CLUSTER.encode()).hexdigest(), scope={"sku": "h100-sxm", "backend": "nccl"},
        configs=(Config(id="c", benchmark="gemm", spec={}, place={}, limit_s=1.0),),
    )  # fmt: skip
    table = {"node": [f"host{i}" for i in range(count)], "samples": [[7e14 + i] for i in range(count)]}
    m = Measurement(
        metric=e.metric, unit=e.unit, better=e.better, params=e.params, config="c", columns=table, subject=Subject()
    )
    ended = [Event(kind="selected", at=run.started_at, detail={"all": True}), Event(kind="ended", at=run.started_at)]
    (folder / "run.json").write_text(encode(run) + "\n")
    (folder / "cluster.toml").write_text(CLUSTER)
    (folder / "measurements.jsonl").write_text(encode(m) + "\n")
    with (folder / "environments.jsonl").open("w") as file:
        for i in range(count):
            file.write(encode(Environment(node=f"host{i}", ranks=(i,), facts={"kernel": f"6.1-{i}"})) + "\n")
    (folder / "events.jsonl").write_text("".join(encode(event) + "\n" for event in ended))
    return folder


def test_very_many_host_names_stay_a_page(tmp_path, capsys):
    """What grows with the names grows in the index, not on a page nor on the terminal."""
    a, b = (hosts(tmp_path / name, 5_000) for name in ("a", "b"))
    stored = runs.load(a)
    assert len(page.page(stored, stored.verdicts(today=date(2026, 12, 1))).encode()) < 2e6
    html = tmp_path / "compare.html"
    assert main(["compare", str(a), str(b), "-o", str(html)]) in (0, 3)
    assert html.stat().st_size < 2e6 and len(capsys.readouterr().out) < 20_000
    every = nights(tmp_path)
    assert len(every[0].facts["kernel"]) < 300
    assert len(trend.trends(every, "gemm.*", node="host77")[0].values) == 2
