"""What is suspect is measured again beside a control, only on undisturbed occasions, until it is settled."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from datetime import datetime, timedelta

import pytest

from benchmarks.measurement import Event, decode, encode
from reports import confirm, runs
from reports.commands import main
from reports.confirm import Retry
from reports.runs import RunError
from tests.campaigns import Checkout
from tests.made_up_nights import rewrite_head, write

GEMM, WIRE, SAVE = (
    f"suites/test_{x}" for x in ("gemm.py::test_rate", "collectives.py::test_wire", "checkpoint.py::test_save")
)
SLOW = {"collectives.all_reduce.busbw": 0.9}
OFF = {"gemm.flops": 0.9, "checkpoint.save.time": 1.3}


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    root = tmp_path_factory.mktemp("confirm") / "runs"
    for night in range(10):
        write(root, night)
    return root


@pytest.fixture
def history(quiet, tmp_path):
    return shutil.copytree(quiet, tmp_path / "runs")


def occasions(*factors):
    """Measures what is asked for, each time with the next factor."""
    left, asked = list(factors), []

    def measure(retry: Retry, folder):
        asked.append(retry)
        return write(folder, 12, name="again" + "x" * len(asked), factor=left[len(asked) - 1])

    return measure, asked


def settle(folder, *factors, waits=None):
    said, measured = [], occasions(*factors)
    waited = waits if waits is not None else []
    report = confirm.confirm(runs.load(folder), folder.parent, measured[0], say=said.append, wait=waited.append)
    return report, measured[1], said


def test_two_undisturbed_occasions_make_it_a_regression(history):
    report, asked, said = settle(write(history, 12, factor=SLOW), SLOW, SLOW)
    assert report.status == 1
    assert [group.family for group in report.climbed.groups] == ["collectives"]
    assert [retry.tests for retry in asked] == [(WIRE,)] * 2
    assert asked[0].control in (GEMM, SAVE) and asked[0].nodes == ()
    assert "undisturbed" in said[-1]


def test_what_is_not_seen_again_was_chance_and_stays_so(history, capsys):
    tonight = write(history, 12, factor=SLOW)
    report, asked, _ = settle(tonight, {})
    assert (report.status, len(asked), len(report.climbed.refuted)) == (0, 1, 1)
    assert main(["nightly", str(tonight), "--history", str(history)]) == 0  # the re-runs are remembered
    assert "not seen again" in capsys.readouterr().out
    again, asked, _ = settle(tonight)
    assert (again.status, asked) == (0, [])
    write(history, 13)
    assert len([path for path in history.iterdir() if runs.is_run(path)]) == 12  # re-runs are no nights


def test_a_disturbed_occasion_does_not_count(history):
    waits = []
    report, asked, said = settle(write(history, 12, factor=SLOW), SLOW | OFF, SLOW, SLOW, waits=waits)
    assert (report.status, len(asked)) == (1, 3)
    assert sum("disturbed, does not count: its control" in line for line in said) == 1
    assert waits == [confirm.APART_S] * 3


def test_four_disturbed_occasions_cannot_say(history):
    report, asked, _ = settle(write(history, 12, factor=SLOW), *[SLOW | OFF] * 4)
    assert (report.status, len(asked), report.climbed.groups) == (3, 4, ())


def test_where_everything_is_suspect_occasions_are_apart(history):
    waits = []
    report, asked, _ = settle(write(history, 12, factor=SLOW | OFF), {}, waits=waits)
    assert (report.status, asked[0].control, waits) == (0, "", [confirm.APART_S])


def test_a_control_that_gives_no_number_proves_nothing(history):
    tonight = write(history, 12, factor=SLOW)

    def measure(_, folder):
        return write(folder, 12, name=f"again{len(list(folder.iterdir()))}", factor=SLOW, without=tuple(OFF))

    assert confirm.confirm(runs.load(tonight), history, measure, say=str, wait=float).status == 3


def hosted(folder, count, launcher="srun", **changes):
    """The run as if it had been measured on so many nodes."""
    with (folder / "events.jsonl").open("a") as file:
        detail = {"hosts": [f"node{i}" for i in range(count)], "launcher": launcher}
        file.write(encode(Event(kind="nodes", at="2026-11-13T02:00:00Z", detail=detail)) + "\n")
        file.write(encode(Event(kind="ended", at="2026-11-13T03:00:00Z")) + "\n")
    rewrite_head(folder, **changes)
    return runs.load(folder)


def test_a_suspect_node_is_measured_with_twice_as_many_others(history):
    tonight = write(history, 12, gpu={11: 0.85})
    hosted(tonight, 8)
    waits = []
    asked = settle(tonight, {}, waits=waits)[1]
    assert waits == [0.0]  # the other nodes are the control
    assert asked[0].nodes == ("node1", "node0", "node2")
    assert asked[0].tests == (GEMM,)


def test_an_occasion_is_started_as_the_run_was(history, tmp_path):
    known_bad = tmp_path / "bad.toml"
    said = "pytest suites --cluster site.toml --suite nightly --nodes 8 --launcher srun --partition=gpu -k x"
    stored = hosted(write(history, 12), 8, command=f"{said} --known-bad {known_bad}")
    words = confirm.command(stored, Retry(tests=(WIRE,), control=GEMM, nodes=("node1", "node0")), history, ["-v"])
    assert words[1:5] == ["-m", "pytest", GEMM, WIRE]
    assert words[words.index("--cluster") + 1] == str(stored.folder.resolve() / "cluster.toml")  # site.toml is gone
    text = " ".join(words)
    for part in ("--launcher srun", "--partition gpu", f"--known-bad {known_bad}", "--nodes 2 --nodelist node1,node0"):
        assert part in text
    assert "-k" not in words and words[-1] == "-v"
    whole = confirm.command(stored, Retry(tests=(WIRE,), control="", nodes=()), history)
    assert whole[whole.index("--nodes") + 1] == "8"
    alone = hosted(write(history, 13), 1, launcher="torchrun", command="pytest suites --cluster local")
    assert "--nodelist" not in confirm.command(alone, Retry(tests=(WIRE,), control="", nodes=()), history)


def test_a_re_run_that_leaves_no_run_says_its_last_words(history):
    stored = hosted(write(history, 12), 1, launcher="torchrun", command="pytest suites --cluster none/such.toml")
    folder = stored.folder / "confirm"
    folder.mkdir()
    with pytest.raises(RunError, match=r"left no run .status 4"):
        confirm.campaign(stored, ["--until", "soon"])(
            Retry(tests=("suites/test_gemm.py",), control="", nodes=()), folder
        )


@pytest.mark.slow
def test_a_real_regression_is_confirmed_by_real_re_runs(tmp_path):
    checkout = Checkout(tmp_path / "checkout")
    checkout.plant("good", "calm")
    real = checkout.run("--suite", "nightly")
    assert real.code == 0, real.output
    started = datetime.fromisoformat(real.stored.run.started_at)
    for night in range(1, 10):  # nights on which the good one was a quarter faster
        folder = shutil.copytree(real.folder, real.folder.with_name(f"night-{night}"))
        lines = [json.loads(line) for line in (folder / "measurements.jsonl").read_text().splitlines()]
        for m in lines:
            if m["metric"] == "planted.rate" and m.get("params", {}).get("cause") == "good":
                m["samples"] = [s * 1.25 for s in m["samples"]]
        (folder / "measurements.jsonl").write_text("".join(json.dumps(m) + "\n" for m in lines))
        rewrite_head(folder, id=folder.name, started_at=(started - timedelta(days=night)).isoformat())
    command = [
        sys.executable,
        "-m",
        "reports",
        "confirm",
        "--apart",
        "0",
        str(real.folder.relative_to(checkout.folder)),
    ]
    done = subprocess.run(command, cwd=checkout.folder, capture_output=True, text=True, timeout=240)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "REGRESSION" in done.stdout and "control: suites/test_planted.py::test_calm" in done.stdout
    again = [decode(Event, line) for line in (sorted((real.folder / "confirm").glob("*/events.jsonl"))[0]).open()]
    assert next(e.detail["tests"] for e in again if e.kind == "selected") == [
        "suites/test_planted.py::test_calm", "suites/test_planted.py::test_good",
    ]  # fmt: skip
