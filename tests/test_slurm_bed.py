"""The Slurm test bed does what it says: real steps on real nodes, and faults that hit what they name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testbed.namespaces import BedError
from tests.testbed.slurm import SlurmBed, until

pytestmark = [pytest.mark.slow, pytest.mark.machine("slurm")]


@pytest.fixture(scope="module")
def bed():
    with SlurmBed(names=("n10", "n9", "n1"), gpus=4) as made:
        yield made


def test_a_step_runs_on_every_node_under_its_name(bed):
    assert sorted(bed.run("srun", "-Q", "-N3", "hostname").split()) == ["n1", "n10", "n9"]


def test_nodes_have_memory_and_temporary_files_of_their_own(bed):
    bed.run("srun", "-N1", "-w", "n9", "touch", "/dev/shm/mine", "/var/tmp/mine")
    for name, there in (("n9", "yes"), ("n1", "no")):
        said = bed.run(
            "srun", "-N1", "-w", name, "sh", "-c", "test -e /dev/shm/mine -a -e /var/tmp/mine && echo yes || echo no"
        )
        assert said.split() == [there]
    assert not Path("/dev/shm/mine").exists()


def test_each_task_is_given_its_own_gpu(bed):
    said = bed.run(
        "srun", "-Q", "-N2", "-n4", "--gpus-per-task=2", "sh", "-c", "echo $SLURM_LOCALID=$CUDA_VISIBLE_DEVICES"
    )
    assert sorted(said.split()) == ["0=0,1", "0=0,1", "1=2,3", "1=2,3"]


def test_a_batch_script_has_the_variables_of_a_rank_and_is_none(bed, tmp_path):
    out = tmp_path / "out"
    script = "#!/bin/bash\necho $SLURM_PROCID,$SLURM_NTASKS,${SLURM_STEP_ID:-outside}\n"
    subprocess.run(
        ["sbatch", "-N3", "-n6", "-o", str(out)], input=script, text=True, env=bed.env, check=True, capture_output=True
    )
    until(lambda: out.exists() and "," in out.read_text(), "the batch script said nothing")
    assert out.read_text().strip() == "0,6,outside"


def test_a_node_loses_power_and_comes_back(bed):
    bed.kill_node("n9")
    assert not bed.processes("n9")
    bed.run("scontrol", "update", "node=n9", "state=down", "reason=test")
    bed.boot("n9", wait=False)
    until(lambda: "n9" in bed.run("srun", "-N1", "-w", "n9", "hostname", check=False), "n9 did not come back")


def test_a_daemon_dies_and_its_steps_live_on(bed):
    step = subprocess.Popen(["srun", "-N1", "-w", "n1", "sleep", "77"], env=bed.env)
    until(lambda: bool(bed.processes("n1", "sleep 77")), "no step")
    bed.kill_slurmd("n1")
    until(lambda: not bed.daemons("n1"), "slurmd lives")
    assert bed.processes("n1", "sleep 77")
    bed.start_slurmd("n1")
    step.terminate()
    assert step.wait(30) != 0
    until(lambda: not bed.processes("n1", "sleep 77"), "the step lives on")
    bed.wait_for_state("idle", "n1")


def test_a_failed_command_is_an_error_with_its_own_words(bed):
    with pytest.raises(BedError, match="invalid partition"):
        bed.run("srun", "-p", "nowhere", "hostname")


def test_a_cluster_vanishes_when_its_owner_is_killed():
    script = (
        "import time\nfrom tests.testbed.slurm import SlurmBed\n"
        "with SlurmBed(names=('n1',)) as bed:\n    print(bed.folder, flush=True)\n    time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    folder = owner.stdout.readline().strip()
    assert "testbed-" in folder and running(folder)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    until(lambda: not running(folder), "daemons outlive the owner of their bed")


def running(folder: str) -> list[str]:
    """Daemons of the bed in that folder, by their command lines and environments."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if entry.name != str(os.getpid()) and folder.encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_text())
        except OSError:
            continue
    return found
