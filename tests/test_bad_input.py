"""Bad input: one clear line with the cure, exit status 4, nothing started, written over or lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from benchmarks.measurement import SCHEMA
from suites import plugin
from tests.campaigns import CLUSTER, ROOT, Checkout

LIMIT = '\n[limits.x]\nmetric = "planted.rate"\n'
CASES = {
    "malformed TOML": (CLUSTER.replace("nodes = 1", "nodes = = 1"), "planted.toml"),
    "a limit without unit": (CLUSTER + LIMIT + 'floor = 1\nsource = "definition: x"\n', "unit"),
    "a limit without source": (CLUSTER + LIMIT + 'floor = 1\nunit = "B/s"\n', "source"),
    "a placeholder source": (CLUSTER + LIMIT + 'floor = 1\nunit = "B/s"\nsource = "TBD"\n', "source"),
    "a limit without bound": (CLUSTER + LIMIT + 'unit = "B/s"\nsource = "definition: x"\n', "floor"),
    "a metric nobody emits": (CLUSTER.replace('"planted.rate"', '"planted.rats"', 1), "planted.rate"),
    "another unit": (CLUSTER.replace('unit = "B/s"', 'unit = "GB/s"', 1), "B/s"),
    "the wrong direction": (CLUSTER.replace("floor = 0.5e9", "ceiling = 0.5e9"), "higher"),
    "an unknown GPU": (CLUSTER.replace("ranks_per_node = 2", 'gpu = "h1000"\ngpus_per_node = 8'), "hardware.toml"),
    "more ranks than GPUs": (
        CLUSTER.replace("ranks_per_node = 2", 'gpu = "h100-sxm"\ngpus_per_node = 8\nranks_per_node = 16'),
        "more ranks than GPUs",
    ),
    "GPUs that are not there": (
        CLUSTER.replace("ranks_per_node = 2", 'gpu = "h100-sxm"\ngpus_per_node = 8'),
        "this machine shows 0",
    ),
    "zero ranks": (CLUSTER.replace("ranks_per_node = 2", "ranks_per_node = 0"), "ranks_per_node"),
    "more nodes than one machine": (CLUSTER.replace("nodes = 1", "nodes = 4"), "no scheduler answers here"),
}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    made = Checkout(tmp_path_factory.mktemp("bad") / "checkout")
    made.plant("good")
    return made


def campaign(checkout: Checkout, *options: str) -> tuple[int, str]:
    done = subprocess.run(checkout.command(*options), cwd=checkout.folder, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def error_lines(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("ERROR: ")]


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_cluster_file(checkout, case):
    text, told = CASES[case]
    checkout.cluster(text=text)
    code, output = campaign(checkout)
    assert code == 4, output
    assert len(error_lines(output)) == 1 and told in error_lines(output)[0]
    assert not (checkout.folder / "runs").exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--cluster", "loacl"], "local"),
        (["--cluster", "none/such.toml"], "none/such.toml"),
        (["--suite", "acceptence"], "acceptance"),
        (["--resume", "no-such-run"], "no-such-run"),
        (["--run-dir", "/proc/nowhere"], "--run-dir"),
        (["--retest", "failed"], "there is none"),
    ],
)
def test_a_wrong_option(checkout, options, told):
    checkout.cluster()
    code, output = campaign(checkout, *options)
    assert code == 4 and "ERROR: " in output and told in output, output
    assert not (checkout.folder / "runs").exists()


def test_an_unwritable_run_folder(checkout):
    checkout.cluster()
    (checkout.folder / "a-file").write_text("in the way")
    code, output = campaign(checkout, "--run-dir", "a-file")
    assert code == 4 and "--run-dir" in output and (checkout.folder / "a-file").read_text() == "in the way"


def test_checks_without_a_cluster():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "suites"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 4 and "--cluster local" in done.stdout + done.stderr


def test_a_campaign_is_not_shared_by_workers():
    option = SimpleNamespace(cluster="local", resume="", retest="", plan=False, numprocesses=2)
    with pytest.raises(pytest.UsageError, match="xdist"):
        plugin.pytest_cmdline_main(SimpleNamespace(option=option))


def test_a_check_that_asks_for_nothing(checkout):
    checkout.cluster()
    path = checkout.folder / "suites" / "test_nothing.py"
    try:
        path.write_text("def test_nothing(verdicts):\n    pass\n")
        code, output = campaign(checkout)
        assert code == 4 and "has no @needs" in output
    finally:
        path.unlink()


def test_a_check_that_does_not_import_is_not_accepted(checkout):
    checkout.cluster()
    path = checkout.folder / "suites" / "test_broken.py"
    try:
        path.write_text("import no_such_module\n")
        code, output = campaign(checkout)
        assert code not in (0, 6) and "no_such_module" in output
    finally:
        path.unlink()


@pytest.mark.slow
def test_stored_runs_that_are_not_what_they_should_be(checkout, tmp_path):
    checkout.cluster()
    run = checkout.run("--run-dir", str(tmp_path))
    folder = next(tmp_path.glob("*/run.json")).parent
    assert run.code == 0
    head, events = (folder / "run.json").read_text(), (folder / "events.jsonl").read_text()
    measurements = folder / "measurements.jsonl"
    whole = measurements.read_text()

    measurements.write_text(whole[:-30])  # a crash in the middle of the last line
    table = subprocess.run(
        [sys.executable, "-m", "reports", "table", str(folder)], cwd=checkout.folder, capture_output=True, text=True
    )
    assert "cut short" in table.stdout + table.stderr
    code, output = campaign(checkout, "--run-dir", str(tmp_path), "--resume", folder.name)
    assert code == 0, output
    assert measurements.read_text().startswith(whole[: whole[:-30].rfind("\n") + 1])

    (folder / "run.json").write_text(head.replace(f'"v":{SCHEMA}', f'"v":{SCHEMA + 1}'))
    code, output = campaign(checkout, "--run-dir", str(tmp_path), "--resume", folder.name)
    assert code == 4 and "newer" in output
    (folder / "run.json").write_text(head)

    checkout.cluster("\n# changed\n")
    code, output = campaign(checkout, "--run-dir", str(tmp_path), "--resume", folder.name)
    assert code == 4 and "another version of" in output
    checkout.cluster()

    lines = whole.splitlines()
    measurements.write_text("\n".join([lines[0], "garbage", *lines[1:], ""]))
    code, output = campaign(checkout, "--run-dir", str(tmp_path), "--resume", folder.name)
    assert code == 4 and "measurements.jsonl:2" in output
    measurements.write_text(whole)
    assert (folder / "events.jsonl").read_text().startswith(events)


@pytest.mark.slow
def test_lines_cut_out_of_a_run_are_missed(checkout, tmp_path):
    checkout.cluster()
    assert checkout.run("--run-dir", str(tmp_path)).code == 0
    folder = next(tmp_path.glob("*/run.json")).parent
    lines = (folder / "measurements.jsonl").read_text().splitlines()
    kept = [line for line in lines if json.loads(line)["metric"] != "planted.rate"]
    (folder / "measurements.jsonl").write_text("\n".join([*kept, ""]))
    table = subprocess.run(
        [sys.executable, "-m", "reports", "table", str(folder)], cwd=checkout.folder, capture_output=True, text=True
    )
    assert table.returncode == 3 and "INCOMPLETE" in table.stdout


def test_the_plan_is_instant_and_starts_nothing(checkout):
    checkout.cluster()
    script = (
        "import sys, pytest; code = pytest.main(['suites', '--cluster', 'local', '--plan']); "
        "print('torch' in sys.modules, code)"
    )
    begin = time.process_time(), os.times().children_user
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    spent = os.times().children_user - begin[1]
    assert done.stdout.rstrip().endswith("False 0"), done.stdout + done.stderr
    assert "worst case" in done.stdout and "node-hours" in done.stdout and "written" in done.stdout
    assert spent < 3.0, "a deadline of CPU time: the machine may be busy"
