"""The ready-made jobs of docs/examples do what they say, under a real sbatch."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaigns import CLUSTER, ROOT, Checkout
from tests.testbed.slurm import SlurmBed, until

pytestmark = [pytest.mark.slow, pytest.mark.machine("slurm")]
EXAMPLES = ROOT / "docs" / "examples"
ALL = '("acceptance", "nightly", "node")'


@pytest.fixture(scope="module")
def bed():
    with SlurmBed(names=("n10", "n9")) as made:
        yield made


@pytest.fixture
def checkout(tmp_path):
    made = Checkout(tmp_path / "checkout")
    made.cluster(
        "\n[campaign]\nstart_limit_s = 120\n", text=CLUSTER.replace("ranks_per_node = 2", "ranks_per_node = 1")
    )
    shutil.copytree(EXAMPLES, made.folder / "docs" / "examples")
    return made


def sbatch(bed: SlurmBed, checkout: Checkout, *words: str) -> str:
    """Submit from the checkout; returns the job's id."""
    done = subprocess.run(
        ["sbatch", "--parsable", *words], cwd=checkout.folder, text=True, capture_output=True, check=True,
        env={**bed.env, "PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    return done.stdout.strip()


def state(bed: SlurmBed, job: str) -> str:
    return re.search(r"JobState=(\w+)", bed.run("scontrol", "show", "job", job))[1]


def said(checkout: Checkout) -> str:
    return "".join(path.read_text() for path in sorted(checkout.folder.glob("*.log")))


def test_acceptance_is_requeued_and_goes_on(bed, checkout):
    checkout.plant("good", "talks", limit_s=60.0)
    job = sbatch(bed, checkout, "--nodes=2", "docs/examples/acceptance.sbatch", "planted.toml")
    until(lambda: "[ 2/2]" in said(checkout), "it does not start", lambda: said(checkout), limit_s=200)
    bed.run("scontrol", "requeue", job)
    until(lambda: state(bed, job) == "PENDING", "it is not queued again", lambda: said(checkout))
    bed.run("scontrol", "update", f"jobid={job}", "starttime=now")  # Slurm itself would wait for two minutes
    until(lambda: state(bed, job) in ("COMPLETED", "FAILED"), "it does not end", lambda: said(checkout), limit_s=300)
    assert state(bed, job) == "COMPLETED", said(checkout)
    (run,) = (checkout.folder / "runs" / f"job-{job}").glob("*/run.json")
    assert run.with_name("events.jsonl").read_text().count('"resumed"') == 1 and "ACCEPTED" in said(checkout)


@pytest.mark.parametrize(
    ("example", "words", "line"),
    [
        ("nightly", ["--nodes=2"], "launch 1: 2 CPU ranks over gloo on 2 nodes"),
        ("suspect", ["--nodelist=n9"], "nodes: all 1 of n9"),
    ],
)
def test_nightly_and_suspect(bed, checkout, example, words, line):
    checkout.plant("good" if example == "nightly" else "slow start", suites=ALL)
    text = (checkout.folder / "suites" / "test_planted.py").read_text()
    (checkout.folder / "suites" / "test_planted.py").write_text(text.replace("limit_s=", "on_rank=0, limit_s="))
    job = sbatch(bed, checkout, *words, f"docs/examples/{example}.sbatch", "planted.toml")
    until(lambda: state(bed, job) in ("COMPLETED", "FAILED"), "it does not end", lambda: said(checkout), limit_s=200)
    assert state(bed, job) == "COMPLETED" and line in said(checkout), said(checkout)


def test_the_examples_name_no_machine():
    for path in EXAMPLES.glob("*.sbatch"):
        assert "#SBATCH --exclusive" in path.read_text() and not re.search(r"/(home|work|tmp)/", path.read_text())
        assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0
    assert {path.stem for path in EXAMPLES.glob("*.sbatch")} >= {"acceptance", "nightly", "suspect"}
    assert all(name in Path(ROOT / "docs" / "slurm.md").read_text() for name in ("acceptance", "nightly", "suspect"))
