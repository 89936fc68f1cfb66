"""Every launcher: the command line it makes, what it learns from the output of its kind, and who its ranks are."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import kubernetes_validate
import pytest

from benchmarks import devices
from benchmarks.launch import LAUNCHERS, Job, container, kubernetes, mpirun, srun, srun_torchrun, ssh, steps
from benchmarks.launch.__main__ import main
from benchmarks.launch.address import facing
from benchmarks.launch.forwarded import forwarded
from benchmarks.launch.identity import identify
from benchmarks.spec import Place

TWO = Job(place=Place(nodes=2, ranks_per_node=4), hosts=("n9", "n10"), log_dir="logs", python="python3")


def options(words: list[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words if word.startswith("--") and "=" in word)


# -- who a rank is -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "who"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, (3, 8, 1, 2)),
        (
            {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "3",
             "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, (3, 8, 3, 4),
        ),
        (
            {"SLURM_STEP_ID": "0", "SLURM_PROCID": "31", "SLURM_STEP_NUM_TASKS": "32", "SLURM_NTASKS": "32",
             "SLURM_NNODES": "4", "SLURM_LOCALID": "7", "SLURM_STEP_TASKS_PER_NODE": "8(x4)"}, (31, 32, 7, 8),
        ),
        (
            {"SLURM_STEP_ID": "0", "SLURM_PROCID": "9", "SLURM_STEP_NUM_TASKS": "15", "SLURM_LOCALID": "1",
             "SLURM_STEP_TASKS_PER_NODE": "8,7"}, (9, 15, 1, 8),
        ),
        (
            {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "SLURM_STEP_ID": "0",
             "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0"}, (5, 8, 1, 4),
        ),
    ],
)  # fmt: skip
def test_a_rank_knows_who_it_is(environ, who):
    found = identify(environ)
    assert (found.rank, found.world, found.local_rank, found.local_world) == who


def test_a_batch_script_is_no_rank():
    lying = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_NNODES": "4", "SLURM_LOCALID": "0"}
    with pytest.raises(ValueError, match="use srun"):
        identify(lying)


def test_half_a_set_of_variables_is_an_error():
    with pytest.raises(ValueError, match="not whole"):
        identify({"RANK": "0"})


@pytest.mark.parametrize(("local_rank", "visible", "index"), [(0, 8, 0), (7, 8, 7), (3, 1, 0), (0, 1, 0)])
def test_a_rank_takes_its_own_gpu_however_many_it_sees(local_rank, visible, index):
    assert devices.index_of(local_rank=local_rank, visible=visible) == index


@pytest.mark.parametrize(("local_rank", "visible"), [(0, 0), (2, 2), (7, 4)])
def test_a_rank_without_a_gpu_is_refused(local_rank, visible):
    with pytest.raises(ValueError, match="has no GPU"):
        devices.index_of(local_rank=local_rank, visible=visible)


def test_ranks_that_share_a_gpu_are_named():
    told = devices.shared([("n1", "a"), ("n1", "a"), ("n2", "a"), ("n2", "b")])
    assert told.startswith("ranks 0, 1 of n1 share one GPU (a)") and "n2" not in told
    assert devices.shared([("n1", ""), ("n1", "")]) == "" == devices.shared([("n1", "a"), ("n2", "a")])


# -- srun --------------------------------------------------------------------------------------------------------


def test_srun_starts_a_task_for_each_rank_and_never_multiplies():
    words = srun.command(replace(TWO, allocation="12", options=("--gpus-per-node=4",)))
    told = options(words)
    assert (told["--nodes"], told["--ntasks"], told["--ntasks-per-node"]) == ("2", "8", "4")
    assert told["--nodelist"] == "n9,n10" and told["--jobid"] == "12" and told["--kill-on-bad-exit"] == "1"
    assert words[-4:] == ["--gpus-per-node=4", "python3", "-m", "benchmarks.worker"]


SAID = """srun: error: n2: task 1: Killed
srun: launch/slurm: _step_signal: Terminating StepId=1.0
srun: error: n[3-4]: tasks 2-3,6: Terminated
srun: error: n1: task 0: Exited with exit code 7
srun: error: n5: task 4: Segmentation fault (core dumped)
srun: error: Node failure on n3
"""


def test_srun_says_who_died_where_and_how():
    assert srun.deaths(SAID) == {
        1: "SIGKILL on n2", 2: "SIGTERM on n[3-4]", 3: "SIGTERM on n[3-4]", 6: "SIGTERM on n[3-4]",
        0: "exit status 7 on n1", 4: "SIGSEGV on n5",
    }  # fmt: skip
    assert srun.complaint(SAID) == "Node failure on n3"
    refused = "srun: error: Task launch for StepId=4.1 failed on node n2: Communication connection failure\n"
    assert "failed on node n2: Communication connection failure" in srun.complaint(refused * 2)
    assert srun.deaths("srun: Force Terminated StepId=1.0") == {}


def test_what_slurm_told_this_process_is_no_option_of_srun():
    environ = {"SLURM_NTASKS": "128", "SLURM_JOB_ID": "1", "SLURM_CONF": "/etc/slurm.conf", "HOME": "/root"}
    assert steps.clean(environ) == {"SLURM_CONF": "/etc/slurm.conf", "HOME": "/root"}


def test_torchrun_under_srun_is_one_task_a_node_and_meets_on_the_first():
    words = srun_torchrun.command(replace(TWO, port=23456))
    assert options(words)["--ntasks-per-node"] == "1" and options(words)["--ntasks"] == "2"
    line = words[-1]
    assert "--master-addr=n9 --master-port=23456" in line and "--node-rank=$SLURM_NODEID" in line
    assert "--nnodes=2 --nproc-per-node=4" in line
    with pytest.raises(ValueError, match="by name"):
        srun_torchrun.command(replace(TWO, hosts=()))
    said = "1:   rank      : 5 (local_rank: 1)\n1:   exitcode  : -9 (pid: 73)  (SIGKILL)\n"
    assert srun_torchrun.deaths(said) == {5: "SIGKILL"}


# -- containers --------------------------------------------------------------------------------------------------


def test_a_reference_is_pyxis_and_a_file_is_apptainer(tmp_path):
    pyxis = srun.command(replace(TWO, image="registry.example/torch:1"))
    assert options(pyxis)["--container-image"] == "registry.example/torch:1"
    assert pyxis[-3:] == ["python3", "-m", "benchmarks.worker"]
    sif = tmp_path / "torch.sif"
    sif.write_bytes(b"an image")
    apptainer = srun.command(replace(TWO, image=str(sif)))
    assert "--container-image" not in options(apptainer)
    assert apptainer[-9:-7] == ["apptainer", "exec"] and str(sif) in apptainer
    assert apptainer[-3:] == ["python3", "-m", "benchmarks.worker"], "of the image"
    assert container.digest(str(sif)) == "sha256:" + hashlib.sha256(b"an image").hexdigest()


@pytest.mark.parametrize("launcher", ["torchrun", "mpirun", "ssh"])
def test_no_launcher_runs_a_rank_outside_of_the_image_asked_for(launcher, tmp_path):
    one = replace(TWO, place=Place(nodes=1 if launcher == "torchrun" else 2), python="/opt/python")
    sif = tmp_path / "torch.sif"
    sif.write_bytes(b"an image")
    words = LAUNCHERS[launcher].command(replace(one, image=str(sif)))
    assert str(sif) in " ".join(words)
    if launcher != "ssh":  # whose far end wraps each rank
        assert words[words.index(str(sif)) + 1] == "python3" and "/opt/python" not in words
    with pytest.raises(ValueError, match="reference for Pyxis, which needs --launcher srun"):
        LAUNCHERS[launcher].command(replace(one, image="registry.example/torch:1"))


def test_a_digest_is_what_pins_an_image():
    pinned = f"registry.example/torch@sha256:{'0' * 64}"
    assert container.digest(pinned) == f"sha256:{'0' * 64}"
    assert "no digest" in container.digest("registry.example/torch:1")
    with pytest.raises(ValueError, match="no container image"):
        container.digest("no/such.sif")


# -- mpirun ------------------------------------------------------------------------------------------------------


def test_mpirun_lays_ranks_out_node_by_node_and_names_variables_without_their_values():
    job = replace(TWO, env={"RACKPROOF_KEY": "secret"})
    words = mpirun.command(job, environ={"NCCL_DEBUG": "INFO", "HOME": "/root"})
    assert words[words.index("-np") + 1] == "8" and words[words.index("--host") + 1] == "n9:4,n10:4"
    assert "ppr:4:node" in words
    assert [words[i + 1] for i, w in enumerate(words) if w == "-x"] == ["NCCL_DEBUG", "RACKPROOF_KEY"]
    assert "secret" not in " ".join(words)


def test_mpirun_says_who_died_and_how():
    said = (
        "mpirun noticed that process rank 3 with PID 0 on node n2 exited on\nsignal 9 (Killed).\n"
        "  Process name: [[23761,1],1]\n  Exit code:    7\n"
    )
    assert mpirun.deaths(said) == {3: "SIGKILL on n2", 1: "exit status 7"}


@pytest.mark.slow
@pytest.mark.machine("mpi")
def test_ranks_under_a_real_mpirun_know_who_they_are(tmp_path):
    (tmp_path / "who.py").write_text(
        "import os\nfrom pathlib import Path\n"
        "from benchmarks.launch.identity import identify\nwho = identify(os.environ)\n"
        "said = f\"{who.rank} {who.world} {who.local_rank} {who.launcher} {os.environ['RACKPROOF_KEY']}\"\n"
        "Path(__file__).with_name(f'rank{who.rank}').write_text(said)\n"
        "if who.rank == 1: os._exit(7)\n"
    )
    place = Place(nodes=1, ranks_per_node=2)
    env = {"RACKPROOF_KEY": "k", "PYTHONPATH": os.pathsep.join([str(Path.cwd()), str(tmp_path)])}
    job = Job(place=place, log_dir=str(tmp_path), module="who", env=env, options=("--oversubscribe",))
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(
        mpirun.command(job),
        env={**os.environ, **env, **allowed},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    # Read from files: mpirun may cut a rank's line in two and label both parts.
    said = [path.read_text() for path in sorted(tmp_path.glob("rank?"))]
    assert said == ["0 2 0 Open MPI k", "1 2 1 Open MPI k"], done.stderr
    assert mpirun.deaths(done.stdout + done.stderr) == {1: "exit status 7"}


# -- ssh ---------------------------------------------------------------------------------------------------------


def test_ssh_wants_every_host_by_name():
    words = ssh.command(replace(TWO, options=("-F", "config")))
    assert options(words)["--hosts"] == "n9,n10" and words[-3:] == ["--", "-F", "config"]
    with pytest.raises(ValueError, match="--nodelist"):
        ssh.command(replace(TWO, hosts=("n9",)))
    assert ssh.deaths("rank 3 on n10 ended: SIGKILL\n") == {3: "SIGKILL on n10"}


def node(tmp_path, text: str, ranks: int = 2) -> subprocess.Popen[str]:
    """benchmarks.launch.node with ranks that run `text`."""
    (tmp_path / "program.py").write_text(text)
    env = {"PYTHONPATH": str(tmp_path), "SECRET": "s3cret"}
    given = {"world": 4, "first": 2, "ranks": ranks, "module": "program", "env": env}
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.launch.node"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        stderr=subprocess.STDOUT, env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )  # fmt: skip
    process.stdin.write(json.dumps(given) + "\n")
    process.stdin.flush()
    return process


def test_a_nodes_ranks_are_numbered_and_labelled(tmp_path):
    process = node(tmp_path, "import os\nprint(os.environ['RANK'], os.environ['LOCAL_RANK'], os.environ['SECRET'])")
    assert sorted(process.stdout.read().splitlines()) == ["2: 2 0 s3cret", "3: 3 1 s3cret"]
    assert process.wait(20) == 0


@pytest.mark.timeout(60)
def test_a_rank_that_ends_badly_ends_its_neighbours(tmp_path):
    process = node(tmp_path, "import os, time\nos.environ['RANK'] == '3' and os.kill(os.getpid(), 9)\ntime.sleep(600)")
    said = process.stdout.read()
    assert process.wait(20) == 1 and " ended: SIGKILL" in said and said.startswith("rank 3 on ")


def test_ranks_end_with_whoever_asked_for_them(tmp_path):
    process = node(tmp_path, "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)", ranks=1)
    pid = int(process.stdout.readline().removeprefix("2: "))
    process.stdin.close()
    assert process.wait(20) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


# -- Kubernetes --------------------------------------------------------------------------------------------------

VERSION = "1.34"


@pytest.mark.parametrize("gpus", [True, False])
def test_a_manifest_is_valid_by_the_published_schema(gpus):
    service, job = kubernetes.render(image="r/torch:1", num_nodes=4, ranks_per_node=8, gpus=gpus)["items"]
    for item in (service, job):
        kubernetes_validate.validate(item, VERSION, strict=True)
    pod = job["spec"]["template"]["spec"]
    line = pod["containers"][0]["command"][-1]
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 4
    assert "--nnodes=4 --nproc-per-node=8" in line and "--node-rank=$JOB_COMPLETION_INDEX" in line
    assert "--master-addr=rackproof-0.rackproof" in line and pod["subdomain"] == service["metadata"]["name"]
    assert ("limits" in pod["containers"][0]["resources"]) == gpus
    text = json.dumps(job)
    assert '"RACKPROOF_KEY", "valueFrom": {"secretKeyRef"' in text, "no key stands in a manifest"


def test_the_schema_would_notice():
    service, _ = kubernetes.render(image="r/torch:1", num_nodes=1, ranks_per_node=1)["items"]
    service["spec"]["selektor"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(service, VERSION, strict=True)


def test_a_jobset_wraps_a_valid_job():
    """The schema of JobSet is its own controller's; the Job inside is Kubernetes' own."""
    jobset = kubernetes.render(image="r/torch:1", num_nodes=2, ranks_per_node=8, jobset=True)
    (replicated,) = jobset["spec"]["replicatedJobs"]
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, **replicated["template"]}
    kubernetes_validate.validate(job, VERSION, strict=True)
    assert "--master-addr=rackproof-workers-0-0.rackproof" in json.dumps(jobset)


@pytest.mark.parametrize("wrong", [{"name": "Big_Name"}, {"num_nodes": 0}, {"ranks_per_node": 0}])
def test_a_manifest_that_no_cluster_would_take_is_refused(wrong):
    with pytest.raises(ValueError, match=r"name of pods|at least one"):
        kubernetes.render(**{"image": "i", "num_nodes": 1, "ranks_per_node": 1, **wrong})


# -- printed -----------------------------------------------------------------------------------------------------


def test_the_command_line_of_any_launcher_is_printed(capsys):
    assert main(["srun", "--nodes", "2", "--ranks-per-node", "4", "--hosts", "n[9-10]"]) == 0
    assert "--ntasks=8" in capsys.readouterr().out
    assert main(["kubernetes", "--nodes", "2", "--image", "r/torch:1", "--cpu"]) == 0
    assert json.loads(capsys.readouterr().out)["items"][1]["kind"] == "Job"
    assert main(["kubernetes"]) == 4 and "--image" in capsys.readouterr().err
    assert main(["torchrun", "--nodes", "2"]) == 4 and "2 nodes" in capsys.readouterr().err


def test_every_launcher_has_a_place_for_a_whole_node():
    for name, launcher in LAUNCHERS.items():
        place = Place(nodes=2 if launcher.spans_nodes else 1, ranks_per_node=4)
        words = launcher.command(replace(TWO, place=place))
        assert words and all(isinstance(word, str) for word in words), name


def test_ranks_find_us_at_the_address_that_faces_them():
    assert facing(replace(TWO, hosts=(), reach="")) == "127.0.0.1"
    assert facing(replace(TWO, reach="127.0.0.1")) == "127.0.0.1"
    with pytest.raises(ValueError, match=r"no route from this machine to no\.such\.host"):
        facing(replace(TWO, reach="no.such.host.invalid"))


def test_only_what_ranks_need_is_handed_on():
    assert forwarded({"NCCL_IB_HCA": "mlx5", "PATH": "/bin", "RACKPROOF_KEY": "0", "DISPLAY": ":0"}) == {
        "NCCL_IB_HCA": "mlx5", "RACKPROOF_KEY": "0",
    }  # fmt: skip
