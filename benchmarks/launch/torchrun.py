"""torchrun on this machine: one agent, one rank a process, a port of its own."""

from __future__ import annotations

import re
import signal

from benchmarks.launch import container
from benchmarks.launch.checkout import ROOT
from benchmarks.launch.job import Job

DEATH = re.compile(r"rank\s*:\s*(\d+) \(local_rank: \d+\)\s*\n\s*exitcode\s*:\s*(-?\d+)")


def command(job: Job) -> list[str]:
    """The command line. `--standalone` lets the agent take a free port; each rank logs to its own file.

    Raises ValueError for more than one node (torchrun alone reaches only this machine), and for an image of Pyxis.
    """
    if job.place.nodes != 1:
        raise ValueError(f"torchrun starts ranks on this machine only, not on {job.place.nodes} nodes")
    container.without_pyxis(job.image)
    agent = [
        job.rank_python, "-m", "torch.distributed.run", "--standalone", "--max-restarts=0",
        f"--nproc-per-node={job.place.ranks_per_node}", f"--log-dir={job.log_dir}", "--redirects=3",
        "-m", job.module,
    ]  # fmt: skip
    return container.inside(job.image, agent, mount=ROOT, also=job.log_dir)


def deaths(log: str) -> dict[int, str]:
    """Rank -> how it ended, from the agent's closing report."""
    return {int(rank): how(int(code)) for rank, code in DEATH.findall(log)}


def how(code: int) -> str:
    """An exit status in words: SIGKILL, or exit status 1."""
    if code >= 0:
        return f"exit status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
