"""Drain only confirmed suspects, never too many, and give back only our own; a node's own health in one line."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import pytest

from benchmarks.inventory import DriverError
from benchmarks.measurement import Verdict
from clusters.loader import load
from suites import drain, health, slurm
from suites.drain import Suspect
from tests.testbed.slurm import SlurmBed


def verdict(**fields):
    given = {"metric": "gemm.flops", "unit": "FLOP/s", "better": "higher", "status": "fail", "reason": "slow",
             "attempts": 2, "evidence": {"node": "n2"}}  # fmt: skip
    return Verdict(**(given | fields))


def test_a_suspect_is_a_node_that_failed_a_mandatory_limit_twice():
    assert drain.suspects([verdict()], ["n1", "n2"]) == [Suspect(node="n2", reason="gemm.flops: slow")]
    assert drain.suspects([verdict(evidence={}, subject="n2")], ["n2"])[0].node == "n2"


@pytest.mark.parametrize(
    "fields", [{"attempts": 1}, {"mandatory": False}, {"status": "noisy"}, {"evidence": {}, "subject": "world of 8"},
               {"evidence": {"node": "n9"}}]
)  # fmt: skip
def test_nobody_else_is(fields):
    assert drain.suspects([verdict(**fields)], ["n1", "n2"]) == []


@pytest.fixture(scope="module")
def bed():
    with SlurmBed(names=("n1", "n2", "n3")) as made:
        yield made


@pytest.fixture
def here(bed, monkeypatch):
    monkeypatch.setenv("SLURM_CONF", bed.env["SLURM_CONF"])
    yield bed
    bed.run("scontrol", "update", "node=n1,n2,n3", "state=resume", check=False)
    bed.wait_for_state("idle", *bed.names)


def accused(*names):
    return [Suspect(node=name, reason="gemm.flops: slow") for name in names]


@pytest.mark.slow
@pytest.mark.machine("slurm")
def test_only_our_own_drains_are_given_back(here):
    here.run("scontrol", "update", "node=n1", "state=drain", "reason=rack team: new fan")
    lines = drain.drain("run-7", accused("n1", "n2"), max_share=0.7)
    assert "n1: left as it is" in lines[0] and "n2: drained (rackproof run-7: gemm.flops: slow)" in lines[1]
    states = {s.name: s for s in slurm.nodes()}
    assert drain.is_ours(states["n2"], "run-7") and not drain.is_ours(states["n1"], "run-7")
    assert drain.undrain("run-8") == [], "another run's"
    assert drain.undrain("run-7") == ["n2: back in service"]
    here.wait_for_state("idle", "n2")
    assert here.state_of("n1").startswith("drain")


@pytest.mark.slow
@pytest.mark.machine("slurm")
def test_never_more_than_a_share_of_the_partition(here):  # noqa: ARG001
    with pytest.raises(ValueError, match=r"2 of 3 nodes accused .* at most 1"):
        drain.drain("run-7", accused("n1", "n2"))
    assert not any(s.trouble for s in slurm.nodes())


# -- health ------------------------------------------------------------------------------------------------------


def fit(cluster):  # noqa: ARG001
    yield from ()


def hangs(cluster):
    time.sleep(60)
    yield str(cluster)


def lost(cluster):  # noqa: ARG001
    raise DriverError("nvidia-smi failed (status 9): a GPU is lost")
    yield


def test_a_check_that_hangs_is_a_finding(monkeypatch):
    monkeypatch.setattr(health, "LIMIT_S", 1)
    begin = time.monotonic()
    assert health.findings(None, [fit, hangs, lost]) == ["the check of hangs did not end within 1 s"]
    assert time.monotonic() - begin < 5


def test_a_driver_that_fails_is_a_finding():
    assert health.findings(None, [lost, fit]) == ["nvidia-smi failed (status 9): a GPU is lost"]


def test_gpus_that_are_missing_or_of_another_kind_are_named(monkeypatch):
    monkeypatch.setattr(health.inventory, "gpus", lambda: ())
    assert list(health.gpus(load("h100-sxm-ndr400"))) == ["0 GPUs of 8"]
    assert list(health.gpus(load("local"))) == [] == list(health.gpus(None))


def test_a_port_without_a_link_is_named(monkeypatch):
    monkeypatch.setattr(health, "ports", lambda: {"eth0": "up", "mlx5_0/1": "up", "mlx5_1/1": "down"})
    assert list(health.links(load("h100-sxm-ndr400"))) == ["mlx5_1/1 has no link", "1 InfiniBand ports up of 8"]


def test_a_healthy_node_says_so_in_one_line_within_ten_seconds():
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "suites.health"], capture_output=True, text=True, check=False, timeout=60,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": ".", "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    assert done.returncode in (0, 1) and done.stdout.count("\n") == 1
    assert done.stdout.startswith(socket.gethostname().partition(".")[0] + ": ")
    assert time.monotonic() - begin < 10


@pytest.mark.slow
@pytest.mark.machine("slurm")
def test_slurm_itself_asks_and_a_node_without_a_link_drains_itself(tmp_path):
    program = tmp_path / "health.sh"
    root = os.path.realpath(os.curdir)
    with SlurmBed(names=("n1", "n2"), extra=f"HealthCheckProgram={program}\nHealthCheckInterval=2") as bed:
        program.write_text(
            f"#!/bin/sh\nexport SLURM_CONF={bed.env['SLURM_CONF']} CUDA_VISIBLE_DEVICES=\n"
            f"cd {root} && exec {sys.executable} -m suites.health --drain\n"
        )
        program.chmod(0o755)
        bed.fabric.run("ip", "link", "set", "r0host1", "down")
        until_drained(bed)
        assert "eth0 has no link" in bed.run("sinfo", "-h", "-N", "-n", "n2", "-o", "%E", "-p", "main")
        assert bed.state_of("n1") == "idle"


def until_drained(bed):
    end = time.monotonic() + 60
    while not bed.state_of("n2").startswith("drain"):
        assert time.monotonic() < end, bed.said("slurmctld")
        time.sleep(0.2)
