"""Campaigns over ssh, against a real sshd on every node; and Open MPI over the same."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from benchmarks.launch import Job, mpirun, ssh
from benchmarks.spec import Place
from tests.campaigns import CLUSTER, Checkout
from tests.testbed.slurm import SlurmBed, until
from tests.testbed.sshd import Sshd

pytestmark = [pytest.mark.slow, pytest.mark.machine("slurm"), pytest.mark.machine("sshd")]
TWO = CLUSTER.replace("nodes = 1", "nodes = 2").replace("ranks_per_node = 2", "ranks_per_node = 1")
ALLOWED = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
WHO = """
import os, socket, time
from benchmarks.launch.identity import identify
who = identify(os.environ)
said = f"I am {who.rank} {who.world} {who.local_rank} {socket.gethostname()} {os.environ['RACKPROOF_KEY']}\\n"
os.write(1, said.encode())
time.sleep(float(os.environ.get("RACKPROOF_STAY", "0")))
"""


@pytest.fixture(scope="module")
def sshd():
    with SlurmBed(names=("n1", "n2")) as bed, Sshd(bed) as made:
        yield made


@pytest.fixture
def job(sshd, tmp_path):
    """Two ranks on each of two nodes that print who they are."""
    (tmp_path / "who.py").write_text(WHO)
    root = os.pathsep.join([os.path.curdir, str(tmp_path)])
    return Job(
        place=Place(nodes=2, ranks_per_node=2), hosts=(sshd.address("n1"), sshd.address("n2")), log_dir=str(tmp_path),
        module="who", env={"RACKPROOF_KEY": "s3cret", "PYTHONPATH": root}, options=tuple(sshd.options),
    )  # fmt: skip


def start(job, **env):
    return subprocess.Popen(
        ssh.command(job), env={**os.environ, **job.env, **env}, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip


def test_ranks_are_numbered_host_by_host_and_labelled(job, tmp_path):
    process = start(job)
    said = process.communicate(timeout=90)[0]
    lines = sorted((tmp_path / "ranks.log").read_text().splitlines())
    assert process.returncode == 0, said
    assert lines == [f"{r}: I am {r} 4 {r % 2} n{r // 2 + 1} s3cret" for r in range(4)]
    assert "s3cret" not in shlex.join(ssh.command(job))


def test_remote_ranks_end_with_the_launcher(job, sshd):
    process = start(job, RACKPROOF_STAY="60")
    until(lambda: all(len(sshd.bed.processes(n, "-m who")) == 2 for n in ("n1", "n2")), "no ranks")
    for name in ("n1", "n2"):
        commands = " ".join(sshd.bed.processes(name).values())
        assert "s3cret" not in commands, "the key stands on no command line"
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    until(lambda: not any(sshd.bed.processes(n, "-m who") for n in ("n1", "n2")), "ranks live on")


def test_a_host_that_refuses_is_named_and_the_others_let_go(job, sshd):
    sshd.stop("n2")
    try:
        process = start(job, RACKPROOF_STAY="60")
        said = process.communicate(timeout=90)[0]
    finally:
        sshd.start("n2")
    assert process.returncode == 1
    assert f"{sshd.address('n2')}: ended: ssh could not reach it" in said and "Connection refused" in said
    until(lambda: not sshd.bed.processes("n1", "-m who"), "ranks of the other host live on")


def test_a_campaign_over_ssh(sshd, tmp_path):
    checkout = Checkout(tmp_path / "checkout")
    checkout.cluster("\n[campaign]\nstart_limit_s = 120\n", text=TWO)
    checkout.plant("good", "killed", limit_s=20.0)
    hosts = ",".join([sshd.address("n1"), sshd.address("n2")])
    words = ["--launcher", "ssh", "--nodelist", hosts, "--launcher-options", shlex.join(sshd.options)]
    finished = checkout.finish(checkout.start(*words), timeout_s=300)
    by_cause = {}
    for m in finished.stored.measurements:
        by_cause.setdefault(m.params.get("cause"), set()).add(m.outcome)
    assert by_cause["good"] == {"ok"} and "error" in by_cause["killed"], finished.output
    assert "rank 1 on n2 died: SIGKILL on n2" in finished.output
    assert not [e for e in finished.stored.events if e.kind == "leftover"]
    sshd.stop("n2")
    try:
        refused = checkout.finish(checkout.start(*words), timeout_s=300)
    finally:
        sshd.start("n2")
    assert f"({sshd.address('n2')}: ssh could not reach it or was refused)" in refused.output and refused.code == 3


@pytest.mark.machine("mpi")
def test_a_campaign_under_open_mpi(sshd, tmp_path):
    checkout = Checkout(tmp_path / "checkout")
    checkout.cluster("\n[campaign]\nstart_limit_s = 120\n", text=TWO)
    checkout.plant("good", "killed", limit_s=20.0)
    agent = ["--mca", "plm_rsh_agent", f"ssh {shlex.join(sshd.options)}", "--mca", "plm", "rsh"]
    hosts = ",".join([sshd.address("n1"), sshd.address("n2")])
    words = ["--launcher", "mpirun", "--nodelist", hosts, "--launcher-options", shlex.join(agent)]
    finished = checkout.finish(checkout.start(*words, env=ALLOWED), timeout_s=300)
    outcomes = {(m.params.get("cause"), m.outcome) for m in finished.stored.measurements if m.metric != "conditions"}
    assert {("good", "ok"), ("killed", "error")} <= outcomes and ("good", "error") not in outcomes, finished.output
    assert "rank 1 on n2 died: SIGKILL" in finished.output and "launcher: mpirun (asked for)" in finished.output
    assert not [e for e in finished.stored.events if e.kind == "leftover"]


@pytest.mark.machine("mpi")
def test_open_mpi_reaches_the_same_hosts(job, sshd, tmp_path):
    agent = f"ssh {shlex.join(sshd.options)}"
    words = mpirun.command(replace(job, options=("--mca", "plm_rsh_agent", agent, "--mca", "plm", "rsh")))
    done = subprocess.run(
        words, env={**os.environ, **job.env, **ALLOWED}, capture_output=True, text=True, timeout=120, check=False
    )
    found = sorted(line.partition("I am ")[2] for line in done.stdout.splitlines() if "I am" in line)
    assert found == [f"{r} 4 {r % 2} n{r // 2 + 1} s3cret" for r in range(4)], done.stdout + done.stderr
    assert sys.executable in words and str(tmp_path) not in " ".join(words)
