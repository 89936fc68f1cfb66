"""What a campaign on Slurm costs beside measuring, how soon a death is told, how long a plan of 1,024 nodes takes.

    make bench ARGS="-k slurm"

On a bed of four nodes, one rank each, so all of it shares this machine's cores: the floor is measured there too, with
the same four nodes and nothing of ours.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

import pytest

from tests.campaigns import CLUSTER, Checkout
from tests.testbed.slurm import SlurmBed, until

pytestmark = pytest.mark.machine("slurm")
FLOOR = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo", rank=int(os.environ["SLURM_PROCID"]), world_size=4)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def bed():
    with SlurmBed() as made:
        yield made


@pytest.fixture
def checkout(tmp_path):
    made = Checkout(tmp_path / "checkout")
    text = CLUSTER.replace("nodes = 1", "nodes = 4").replace("ranks_per_node = 2", "ranks_per_node = 1")
    made.cluster("\n[campaign]\nstart_limit_s = 120\n", text=text)
    return made


def details(finished, kind):
    return [e.detail for e in finished.stored.events if e.kind == kind]


@pytest.mark.parametrize("launcher", ["srun", "srun-torchrun"])
def test_slurm_overhead(benchmark, bed, checkout, tmp_path, launcher):
    checkout.plant(*[f"good {k}" for k in range(20)])

    def campaign():
        return checkout.finish(checkout.start("--launcher", launcher, env=bed.env), timeout_s=400)

    finished = benchmark.pedantic(campaign, rounds=3)
    assert finished.code == 0
    (launch,), batches = details(finished, "launch"), [e["overhead_s"] for e in details(finished, "batch")]
    least = statistics.median(floor(bed, tmp_path) for _ in range(3))
    print(
        f"\n{launcher}, campaign of {len(batches)} benchmarks on 4 nodes: {benchmark.stats.stats.median:.2f} s in all\n"
        f"  per launch     {launch['seconds']:.2f} s, of it import {launch['import_s']:.2f} s and group "
        f"{launch['group_s']:.2f} s (1 launch)\n"
        f"  floor          {least:.2f} s: srun of 4 ranks that import torch, join, meet once and leave\n"
        f"  per benchmark  {statistics.median(batches) * 1e3:.1f} ms that are not measuring (median), "
        f"{max(batches) * 1e3:.1f} ms at most"
    )


def floor(bed, folder):
    """Seconds of the smallest torch job that srun can run on the four nodes."""
    script = folder / "floor.py"
    script.write_text(FLOOR)
    env = {**bed.env, "OMP_NUM_THREADS": "1", "MASTER_ADDR": bed.address(0, None), "MASTER_PORT": "29411"}
    begin = time.perf_counter()
    subprocess.run(["srun", "-Q", "-N4", "-n4", sys.executable, str(script)], env=env, check=True, capture_output=True)
    return time.perf_counter() - begin


@pytest.mark.parametrize("how", ["rank", "node"])
def test_slurm_death_is_told(benchmark, bed, checkout, how):
    """Seconds from the death of a rank by SIGKILL, or of a whole node by power loss, to the line in the run."""
    checkout.plant("talks", limit_s=60.0)

    def prepare():
        process = checkout.start(env=bed.env)
        until(lambda: '"launch"' in events(checkout), "no launch", limit_s=200)
        time.sleep(1.0)
        return (process,), {}

    def death(_):
        if how == "node":
            bed.kill_node("n3")
        else:
            for pid in bed.processes("n3", "-m benchmarks.worker"):
                subprocess.run(["kill", "-9", str(pid)], check=False)
        until(lambda: '"error"' in events(checkout), "nobody noticed")

    def clean(process):
        process.terminate()
        process.communicate(timeout=120)
        if how == "node":
            bed.boot("n3", wait=False)
            bed.run("scontrol", "update", "node=n3", "state=resume", check=False)
        bed.wait_for_state("idle", *bed.names)

    benchmark.pedantic(death, setup=prepare, teardown=clean, rounds=1)
    print(f"\ndeath of a {how}: told after {benchmark.stats.stats.median:.2f} s")


def events(checkout):
    path = checkout.newest() / "events.jsonl"
    return path.read_text() if path.is_file() else ""


def test_slurm_plan_of_1024_nodes(benchmark):
    """Seconds of `--plan`, as a user waits for it."""
    words = [sys.executable, "-m", "pytest", "suites", "--cluster", "h100-sxm-ndr400", "--nodes", "1024", "--plan"]
    done = benchmark.pedantic(
        lambda: subprocess.run(words, capture_output=True, text=True, check=False), rounds=3, warmup_rounds=1
    )
    assert done.returncode == 0, done.stdout + done.stderr
    print(f"\n--plan of 1,024 nodes of 8 GPUs: {benchmark.stats.stats.median:.2f} s\n{done.stdout[-300:]}")
