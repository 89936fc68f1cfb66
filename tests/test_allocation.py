"""Which nodes a campaign gets, who starts its ranks, and what is refused before anything runs."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from benchmarks.spec import Place
from suites import nodes, slurm
from suites.allocation import Wish, choose, describe, hold
from suites.nodes import NodesError
from suites.options import Options, UsageError
from suites.preparation import plan_for
from tests.testbed.slurm import SlurmBed, until

# -- node sets ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("n10,n9", ("n10", "n9")),
        ("n[9-11]", ("n9", "n10", "n11")),
        ("r[1-2]n[9-10]", ("r1n9", "r1n10", "r2n9", "r2n10")),
        ("n[01-03],login", ("n01", "n02", "n03", "login")),
        ("10.0.0.1 10.0.0.2", ("10.0.0.1", "10.0.0.2")),
    ],
)
def test_a_node_set_is_read_in_its_order(text, names):
    assert nodes.expand(text) == names


@pytest.mark.parametrize(("text", "said"), [("n1,n[1-2]", "n1 named twice"), ("n[1-", "names no nodes")])
def test_a_wrong_node_set_says_what_is_wrong(text, said):
    with pytest.raises(NodesError, match=said):
        nodes.expand(text)


def test_names_fold_in_their_natural_order():
    assert nodes.fold(["n10", "n9", "n1"]) == "n[1,9-10]"


def test_choosing_keeps_the_order_of_the_allocation():
    assert nodes.choose(["n10", "n9", "n1"], nodelist=["n1", "n10"]) == ("n10", "n1")
    assert nodes.choose(["n10", "n9", "n1"], exclude=["n9"]) == ("n10", "n1")


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"nodelist": ["n7"]}, "--nodelist: n7 not among"),
        ({"exclude": ["n7"]}, "--exclude: n7 not among"),
        ({"exclude": ["n1", "n2"]}, "no node is left"),
    ],
)
def test_a_node_that_is_not_there_cannot_be_chosen(chosen, said):
    with pytest.raises(NodesError, match=said):
        nodes.choose(["n1", "n2"], **chosen)


# -- the choice of a launcher, without a scheduler -----------------------------------------------------------------


@pytest.fixture
def no_slurm(monkeypatch):
    monkeypatch.setattr(slurm, "is_here", lambda: False)


@pytest.mark.parametrize(
    ("wish", "launcher", "why"),
    [
        ({}, "torchrun", "one node"),
        ({"nodes": 2, "nodelist": ("a", "b")}, "ssh", "hosts are named"),
        ({"launcher": "mpirun", "nodes": 2}, "mpirun", "asked for"),
    ],
)
def test_without_a_scheduler(no_slurm, wish, launcher, why):  # noqa: ARG001
    found = choose(Wish(**wish), {})
    assert found[0] == launcher and why in found[1]


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"nodes": 2}, "no scheduler answers here"),
        ({"launcher": "srun"}, "srun needs Slurm, and none answers here"),
        ({"launcher": "ssh", "nodes": 2, "nodelist": ("a",)}, "2 node\\(s\\) wanted, 1 named"),
    ],
)
def test_what_cannot_be_had_is_refused_with_the_cure(no_slurm, wish, said):  # noqa: ARG001
    with pytest.raises(NodesError, match=said):
        hold(Wish(**wish), environ={})


def test_a_left_over_job_id_does_not_make_a_job(no_slurm):  # noqa: ARG001
    assert choose(Wish(), {"SLURM_JOB_ID": "7"})[0] == "torchrun"


def test_an_empty_allocation_is_an_error(monkeypatch):
    monkeypatch.setattr(slurm, "is_here", lambda: True)
    monkeypatch.setattr(slurm, "job_fields", lambda _: {"JobState": "RUNNING", "NodeList": ""})
    with pytest.raises(NodesError, match="job 7 holds no nodes"):
        hold(Wish(), environ={"SLURM_JOB_ID": "7"})


def test_names_in_two_dimensions_keep_the_order_of_the_allocation(monkeypatch):
    held = ("r2n10", "r2n9", "r1n10", "r1n9")
    monkeypatch.setattr(slurm, "is_here", lambda: True)
    monkeypatch.setattr(slurm, "job_fields", lambda _: {"JobState": "RUNNING", "NodeList": "r[1-2]n[9-10]"})
    monkeypatch.setattr(slurm, "hostnames", lambda _: held)
    monkeypatch.setattr(
        slurm, "nodes", lambda names: [slurm.NodeState(name=n, address=f"at-{n}", states=("IDLE",)) for n in names]
    )
    with hold(Wish(nodes=3, exclude=("r2n9",)), environ={"SLURM_JOB_ID": "7"}) as found:
        assert found.hosts == ("r2n10", "r1n10", "r1n9") and found.left_out == ("r2n9",)
        assert found.reach == "at-r2n10", "the first host has rank 0"
        assert describe(found)[1] == "nodes: 3 (r1n[9-10],r2n10); left out as asked: r2n9"


def test_one_gpu_node_is_planned_from_a_login_node_without_gpus(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    told = Options(cluster="h100-sxm-ndr400", suite="node", nodes=1, wish=Wish(launcher="srun", nodelist=("n17",)))
    assert {c.place["ranks_per_node"] for c in plan_for(told).configs} == {8}
    with pytest.raises(UsageError, match="this machine shows 0"):
        plan_for(replace(told, wish=Wish(launcher="torchrun")))


# -- with a real Slurm -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bed():
    with SlurmBed(names=("n10", "n9", "n1"), gpus=2) as made:
        yield made


@pytest.fixture
def here(bed, monkeypatch):
    """This process is on the bed's login node."""
    for name in [name for name in os.environ if name.startswith("SLURM")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_CONF", bed.env["SLURM_CONF"])
    yield bed
    bed.wait_for_no_jobs()


slow = pytest.mark.slow
real = pytest.mark.machine("slurm")


@slow
@real
def test_nodes_are_asked_of_slurm_and_given_back(here):
    said = []
    with hold(Wish(nodes=3, seconds=60), environ={}, say=said.append) as held:
        assert held.launcher == "srun" and set(held.hosts) == set(here.names)
        assert here.run("squeue", "-h", "-o", "%j %D").split() == ["rackproof", "3"]
        assert "Granted job allocation" in "".join(said) and not held.lost()
        assert "all 3 of n[1,9-10]" in "\n".join(describe(held))
    until(lambda: bool(held.lost()), "Slurm still gives us the nodes")


@slow
@real
def test_every_rank_sees_every_gpu_of_its_node(here, tmp_path):
    place = Place(device="cuda", backend="nccl", nodes=2, ranks_per_node=2)
    with hold(Wish(nodes=2, gpus_per_node=2), environ={}) as held:
        job = held.job(place, log_dir=str(tmp_path))
        assert job.options == ("--gpus-per-node=2",)
        told = here.run(
            "srun", "-Q", f"--jobid={job.allocation}", "-N2", "-n4", *job.options, "printenv", "CUDA_VISIBLE_DEVICES"
        )
    assert told.split() == ["0,1"] * 4


@slow
@real
def test_a_rank_that_sees_only_its_own_gpu_takes_it(here):
    script = (
        "import os; from benchmarks import devices; from benchmarks.launch.identity import identify; "
        "who = identify(os.environ); seen = os.environ['CUDA_VISIBLE_DEVICES'].split(','); "
        "print(who.local_rank, seen[devices.index_of(local_rank=who.local_rank, visible=len(seen))])"
    )
    words = ["srun", "-Q", "-N2", "-n4", "--gpus-per-task=1", f"--chdir={os.path.realpath(os.curdir)}"]
    told = here.run(*words, sys.executable, "-c", script)
    assert sorted(told.splitlines()) == ["0 0", "0 0", "1 1", "1 1"], "local rank k has GPU k of its node"


@slow
@real
def test_the_job_we_are_in_is_covered_whole_or_refused(here):
    holder = subprocess.Popen(
        ["salloc", "-N3", "sh", "-c", "cat"], env=here.env, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    until(lambda: " R " in here.run("squeue", "-h"), "no job")
    job = here.run("squeue", "-h", "-o", "%A").strip()
    inside = {"SLURM_JOB_ID": job, "SLURM_NTASKS": "96"}
    assert set(hold(Wish(nodes=3), environ=inside).hosts) == set(here.names)
    held = hold(Wish(nodes=2, exclude=("n9",)), environ=inside)
    assert held.left_out == ("n9",) and "left out as asked: n9" in "\n".join(describe(held))
    with pytest.raises(NodesError, match=r"4 node.s. wanted, Slurm job .* has 3"):
        hold(Wish(nodes=4), environ=inside)
    with pytest.raises(NodesError, match="every node is covered, so say --nodes 3"):
        hold(Wish(nodes=2), environ=inside)
    here.run("scontrol", "update", "node=n9", "state=drain", "reason=bad nic")
    noted = hold(Wish(nodes=3), environ=inside).notes
    assert len(noted) == 1 and "n9 is" in noted[0] and "drain" in noted[0] and "bad nic" in noted[0]
    holder.stdin.close()
    holder.wait(30)
    here.wait_for_no_jobs()
    with pytest.raises(NodesError, match="not running"):
        hold(Wish(nodes=3), environ=inside)
    with pytest.raises(NodesError, match=r"n9 is .*drain.*bad nic.*--exclude"):
        hold(Wish(nodes=3, nodelist=here.names), environ={})
    here.run("scontrol", "update", "node=n9", "state=resume")
    here.wait_for_state("idle", *here.names)


@slow
@real
@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"partition": "nowhere"}, "no partition 'nowhere'"),
        ({"nodelist": ("n77",)}, "n77"),
        ({"nodes": 9}, r"9 node.s. wanted, 3 of n\[1,9-10\] can be had"),
        ({"salloc": ("--account=nobody", "--no-such-option")}, "no-such-option"),
    ],
)
def test_what_slurm_refuses_is_said_in_its_own_words(here, wish, said):  # noqa: ARG001
    with pytest.raises(NodesError, match=said):
        hold(Wish(launcher="srun", **wish), environ={})


@slow
@real
def test_a_job_ends_with_the_process_that_asked_for_it(here):
    script = (
        "import time\nfrom suites.allocation import Wish, hold\n"
        "held = hold(Wish(nodes=2), environ={})\nprint('held', flush=True)\ntime.sleep(60)"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", script], env=os.environ | {"PYTHONPATH": "."}, stdout=subprocess.PIPE
    )
    owner.stdout.readline()
    assert here.run("squeue", "-h", "-o", "%D").split() == ["2"]
    owner.kill()
    owner.wait()
    here.wait_for_no_jobs()
