"""Whole campaigns on a real Slurm of four nodes: every way that a node, a step or a job can go, and what resumes it.

Run folders are hidden from the nodes throughout, as they are on clusters where nothing is shared.
"""

from __future__ import annotations

import hashlib
import re
import signal
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

import pytest

from reports.runs import load
from tests.campaigns import CLUSTER, Checkout, Finished
from tests.testbed.faults import Fault, planted
from tests.testbed.slurm import SlurmBed, until

pytestmark = [pytest.mark.slow, pytest.mark.machine("slurm")]
FOUR = CLUSTER.replace("nodes = 1", "nodes = 4").replace("ranks_per_node = 2", "ranks_per_node = 1")
START = "\n[campaign]\nstart_limit_s = 120\n"


@pytest.fixture(scope="module")
def bed():
    with SlurmBed() as made:
        yield made


@pytest.fixture
def checkout(bed, tmp_path):
    """A checkout that every node sees, with a folder of runs that none does."""
    bed.wait_for_state("idle", *bed.names)
    made = Checkout(tmp_path / "checkout")
    made.cluster(START, text=FOUR)
    (made.folder / "runs").mkdir()
    for name in bed.names:
        hide(bed, name, made.folder / "runs")
    yield made
    for name in bed.names:
        if bed.processes(name):
            subprocess.run(bed.inside(name, "umount", str(made.folder / "runs")), check=False, capture_output=True)
    bed.run("scancel", "--user=root", check=False)
    bed.wait_for_no_jobs()


def hide(bed: SlurmBed, name: str, folder: Path) -> None:
    """Put an empty folder over one of this machine's, on a node."""
    subprocess.run(bed.inside(name, "mount", "-t", "tmpfs", "none", str(folder)), check=True)


def start(bed: SlurmBed, checkout: Checkout, *options: str, **env: str) -> subprocess.Popen[str]:
    return checkout.start(*options, env={**bed.env, **env})


def run(bed: SlurmBed, checkout: Checkout, *options: str, **env: str) -> Finished:
    return checkout.finish(start(bed, checkout, *options, **env), timeout_s=400)


def wait_for(checkout: Checkout, kind: str, *, count: int = 1, limit_s: float = 150.0) -> None:
    """Until the run has so many events of a kind."""
    marks = (f'"kind":"{kind}"', f'"kind": "{kind}"')

    def there() -> bool:
        path = checkout.newest() / "events.jsonl"
        return path.is_file() and sum(path.read_text().count(mark) for mark in marks) >= count

    until(there, f"no {kind}: ", checkout.said, limit_s=limit_s)


def reasons(finished: Finished) -> str:
    return "\n".join(str(e.detail.get("reason", e.detail)) for e in finished.stored.events if e.kind == "error")


def of_kind(finished: Finished, kind: str) -> list[dict]:
    return [e.detail for e in finished.stored.events if e.kind == kind]


def statuses(finished: Finished) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for v in finished.stored.verdicts(today=date(2026, 12, 1)):
        found.setdefault(v.params["cause"], set()).add(v.status)
    return found


def nothing_is_left(bed: SlurmBed) -> None:
    bed.wait_for_no_jobs(20)
    left = {n: p for n in bed.names for p in [bed.processes(n, "benchmarks.worker")] if p}
    assert not left


def test_a_campaign_from_the_login_node_names_whoever_dies_hangs_or_leaves_something(bed, checkout):
    checkout.plant("good", "killed", "stopped", "raises", "orphan", limit_s=8.0)
    finished = run(bed, checkout)
    found = statuses(finished)
    assert found["good"] == {"pass"} == found["orphan"], finished.output
    assert found["killed"] == found["stopped"] == found["raises"] == {"error"}
    said = reasons(finished)
    assert "rank 1 on n2 died: SIGKILL on n2" in said and "rank 1 on n2 raised RuntimeError: planted" in said
    assert re.search(r"rank 1 on n2 hangs", said), said
    assert "launcher: srun (Slurm answers here" in finished.output and "nodes: all 4 of n[1-4]" in finished.output
    left = [what for e in of_kind(finished, "leftover") for what in e["what"]]
    assert any("process" in what and "holds port" in what and what.endswith("on n2") for what in left), left
    assert all("on n2" in what for what in left), left
    nothing_is_left(bed)
    assert len(of_kind(finished, "launch")) == 4, "one launch, and one more after each trouble"
    batches = [e["seconds"] for e in of_kind(finished, "batch")]
    assert max(batches) < 8.0 + 5.0, "the hung rank is named within the benchmark's limit"


def test_srun_starts_torchrun_on_every_node(bed, checkout):
    checkout.plant("good", "killed", limit_s=20.0)
    finished = run(bed, checkout, "--launcher", "srun-torchrun")
    assert statuses(finished) == {"good": {"pass"}, "killed": {"error"}}, finished.output
    assert "rank 1 on n2 died: SIGKILL" in reasons(finished)
    assert of_kind(finished, "launch")[0]["ranks"] == 4
    nothing_is_left(bed)


TOGETHER = """
from benchmarks.collectives.spec import Collective

@needs(lambda cluster: Collective(op="all_reduce", sizes=(1024,), limit_s=20.0), suites=("nightly",))
def test_together(verdicts):
    verdicts("collectives.all_reduce.wrong_elements").must_pass()
"""
LIMIT = """
[limits.exact]
metric = "collectives.*.wrong_elements"
unit = "1"
equal = 0
source = "definition: what was sent"
"""
BAD = '[n4]\nowner = "rack team"\nticket = "HW-7"\nexpires = 2099-01-01\n'


def test_a_night_goes_on_without_the_node_that_fails_by_itself(bed, checkout, tmp_path):
    """Idle nodes are chosen, a drained one is none of them; one is known to be bad; ranks run in a container."""
    checkout.cluster(START + LIMIT, text=FOUR)
    checkout.plant("slow", limit_s=20.0)
    spec = checkout.folder / "benchmarks" / "planted" / "spec.py"
    spec.write_text(spec.read_text().replace('= "world"', '= "device"'))
    with (checkout.folder / "suites" / "test_planted.py").open("a") as file:
        file.write(TOGETHER)
    (tmp_path / "bad.toml").write_text(BAD)
    (tmp_path / "image.sif").write_bytes(b"an image")
    (tmp_path / "apptainer").write_text('#!/bin/sh\nshift 5; exec "$@"\n')  # exec --nv --bind PATHS IMAGE COMMAND
    (tmp_path / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')  # the image's
    for name in ("apptainer", "python3"):
        (tmp_path / name).chmod(0o755)
    bed.run("scontrol", "update", "node=n1", "state=drain", "reason=nic")
    try:
        later = time.strftime("%H:%M", time.localtime(time.time() + 7200))
        finished = run(
            bed, checkout, "--suite", "nightly", "--nodes", "idle:3-4", "--within-nights", "7", "--until", later,
            "--known-bad", str(tmp_path / "bad.toml"), "--container-image", str(tmp_path / "image.sif"),
            "--continue-without-failed", PATH=f"{tmp_path}:{bed.env['PATH']}",
        )  # fmt: skip
    finally:
        bed.run("scontrol", "update", "node=n1", "state=resume")
    assert finished.code == 1 and "tonight: n[2-4], idle; least recently tested: never" in finished.output
    assert "not tested within 7 nights: n1" in finished.output and "n4 is known to be bad (HW-7" in finished.output
    whole, rest = (load(p.parent) for p in sorted((checkout.folder / "runs").glob("*/run.json")))
    today = date(2026, 12, 1)
    by_config = {v.metric.partition(".")[0]: v for v in whole.verdicts(today=today)}
    assert by_config["collectives"].status == "error" and "n3 failed by itself" in by_config["collectives"].reason
    assert whole.outcome(whole.verdicts(today=today)) == "REJECTED" and whole.excused == {"n4"}
    assert set(rest.latest_environments) == {"n2", "n4"} and rest.run.nodes == 2
    together = [v for v in rest.verdicts(today=today) if v.metric == "collectives.all_reduce.wrong_elements"]
    assert together and {v.status for v in together} == {"pass"}
    digests = {e.facts["container"] for e in whole.environments}
    assert digests == {"sha256:" + hashlib.sha256(b"an image").hexdigest()}
    nothing_is_left(bed)


def test_a_node_that_loses_power_is_named_within_seconds_and_resume_finishes(bed, checkout):
    checkout.plant("good", "talks", "slow", limit_s=60.0)
    process = start(bed, checkout)
    wait_for(checkout, "batch")
    time.sleep(1.0)
    died = time.time()
    bed.kill_node("n3")
    wait_for(checkout, "error")
    assert time.time() - died < 5.0 + 2.0, "a dead rank is reported within 5 s (and the test looks now and then)"
    process.send_signal(signal.SIGTERM)
    finished = checkout.finish(process)
    assert "rank 2 on n3 died: its machine has not answered" in reasons(finished)
    assert finished.code == 2 and statuses(finished)["good"] == {"pass"}
    bed.run("scontrol", "update", "node=n3", "state=down", "reason=dead")  # at once, not when Slurm notices
    bed.boot("n3", wait=False)
    bed.run("scontrol", "update", "node=n3", "state=resume")
    bed.wait_for_state("idle", *bed.names)
    hide(bed, "n3", checkout.folder / "runs")
    resumed = run(bed, checkout, "--resume", finished.folder.name)
    assert statuses(resumed)["talks"] == {"pass"} and resumed.code == 1, resumed.output


def test_without_slurmd_a_step_lives_on_and_the_next_one_names_the_node(bed, checkout):
    checkout.plant("talks", "killed once", "good", limit_s=60.0)
    process = start(bed, checkout)
    wait_for(checkout, "launch")
    time.sleep(1.0)
    bed.kill_slurmd("n2")
    finished = checkout.finish(process, timeout_s=400)
    assert statuses(finished)["talks"] == {"pass"}, finished.output
    assert statuses(finished)["good"] <= {"error", "missing"} and finished.code == 3
    assert "failed on node n2" in reasons(finished), reasons(finished)
    bed.start_slurmd("n2")
    bed.wait_for_state("idle", *bed.names)
    resumed = run(bed, checkout, "--resume", finished.folder.name)
    assert resumed.code == 0, resumed.output


def test_a_partition_of_the_data_network_ends_within_the_limit(bed, checkout):
    checkout.plant("talks", "good", limit_s=16.0)
    with planted(bed, Fault(kind="partition", host=2, rail=0)):
        pass  # the tools work before the clock runs
    process = start(bed, checkout, GLOO_SOCKET_IFNAME="eth0")
    wait_for(checkout, "launch")
    time.sleep(1.0)
    with planted(bed, Fault(kind="partition", host=2, rail=0)):
        wait_for(checkout, "batch")
    finished = checkout.finish(process)
    first = of_kind(finished, "batch")[0]
    assert first["seconds"] < 16.0 + 10.0 and statuses(finished)["talks"] == {"error"}
    assert statuses(finished)["good"] == {"pass"}, "the wire is whole again"
    nothing_is_left(bed)


def test_a_control_link_that_is_cut_is_a_dead_machine(bed, checkout):
    checkout.plant("talks", "good", limit_s=60.0)
    process = start(bed, checkout)
    wait_for(checkout, "launch")
    time.sleep(1.0)
    bed.cut("n4")
    cut = time.time()
    try:
        wait_for(checkout, "error")
        assert time.time() - cut < 5.0 + 2.0
    finally:
        bed.join("n4")
    finished = checkout.finish(process)
    assert "rank 3 on n4 died: its machine has not answered" in reasons(finished)
    assert statuses(finished)["good"] == {"pass"}, "the link is back: the next launch has all nodes"
    nothing_is_left(bed)


def test_a_cancelled_step_costs_one_benchmark_and_a_preempted_job_waits_for_resume(bed, checkout):
    checkout.plant("talks", "good", "slow start", limit_s=60.0)
    process = start(bed, checkout)
    wait_for(checkout, "launch")
    time.sleep(1.0)
    steps = bed.run("squeue", "-s", "-h", "-o", "%i %j").split()
    bed.run("scancel", next(step for step, name in zip(steps[::2], steps[1::2], strict=True) if "rackproof" in name))
    wait_for(checkout, "launch", count=2)
    urgent = subprocess.Popen(["srun", "-Q", "-p", "urgent", "-N4", "--exclusive", "sleep", "2"], env=bed.env)
    finished = checkout.finish(process)
    assert urgent.wait(60) == 0
    assert statuses(finished)["talks"] == {"error"} and finished.code == 3, finished.output
    assert "its nodes were taken away" in finished.output and "--resume" in finished.output
    bed.wait_for_state("idle", *bed.names)
    resumed = run(bed, checkout, "--resume", finished.folder.name)
    assert resumed.code == 0, resumed.output


def test_nodes_that_differ_are_named_before_anything_is_measured(bed, checkout, tmp_path):
    checkout.plant("good")
    shared = checkout.folder / "benchmarks" / "scratch.py"
    other = tmp_path / "other.py"
    other.write_text(shared.read_text() + "\n# an older checkout\n")
    subprocess.run(bed.inside("n3", "mount", "--bind", str(other), str(shared)), check=True)
    metadata = next(Path(torch_folder()).glob("torch-*.dist-info")) / "METADATA"
    older = tmp_path / "METADATA"
    older.write_text(re.sub(r"^Version: .*$", "Version: 2.9.0", metadata.read_text(), count=1, flags=re.M))
    subprocess.run(bed.inside("n2", "mount", "--bind", str(older), str(metadata)), check=True)
    try:
        finished = run(bed, checkout)
    finally:
        subprocess.run(bed.inside("n3", "umount", str(shared)), check=True)
        subprocess.run(bed.inside("n2", "umount", str(metadata)), check=True)
    said = reasons(finished)
    assert (
        "torch differs between nodes: n2 has 2.9.0; n[1,3-4]" in said
        and "sources differs between nodes: n3 has" in said
    )
    assert finished.code == 3 and len(of_kind(finished, "launch")) == 1 and not of_kind(finished, "batch")


def torch_folder() -> str:
    import torch

    return str(Path(torch.__file__).parent.parent)


def test_a_checkout_that_is_missing_on_a_node_is_named(bed, checkout):
    checkout.plant("good")
    hide(bed, "n4", checkout.folder)
    try:
        finished = run(bed, checkout)
    finally:
        subprocess.run(bed.inside("n4", "umount", str(checkout.folder)), check=True)
    assert finished.code == 3
    assert f"(rank 3: exit status 1 on n4; every node needs this checkout at {checkout.folder}" in reasons(finished)
    assert any("No module named" in e.get("log", "") for e in of_kind(finished, "error"))


BATCH = """#!/bin/bash
export SLURM_NTASKS=128 SLURM_PROCID=5 SLURM_LOCALID=3   # a script that got its sums wrong
cd {folder} && {command} --nodes 3 --nodelist n[1,3-4]; echo "status $?"
"""


def test_a_batch_script_that_lies_and_leaves_a_node_out(bed, checkout, tmp_path):
    checkout.plant("good")
    script = BATCH.format(
        folder=checkout.folder, command=" ".join(checkout.command("--run-dir", str(tmp_path / "out")))
    )
    out = tmp_path / "batch.log"
    subprocess.run(
        ["sbatch", "-N4", "-n32", "--overcommit", "-o", str(out)],
        input=script,
        text=True,
        check=True,
        capture_output=True,
        env={**bed.env, "CUDA_VISIBLE_DEVICES": ""},
    )
    until(lambda: "status " in (out.read_text() if out.exists() else ""), "the batch job says nothing", limit_s=200)
    said = out.read_text()
    assert "launcher: srun (inside Slurm job" in said and "nodes: 3 (n[1,3-4]); left out as asked: n2" in said
    assert "launch 1: 3 CPU ranks" in said, "neither 128 ranks nor 32"
    assert "INCOMPLETE: " in said and "only 3 of the 4 nodes" in said and "status 3" in said
