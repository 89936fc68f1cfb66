"""srun and torchrun: one task a node, and in it an agent that starts and watches the node's ranks.

For sites whose ranks need torchrun's own environment. The agents meet on the first node, at a port that the job
names; a free one cannot be known from here, so a launch that finds it taken fails and the next one takes another.
The node's number comes from Slurm inside the step, never from a batch script.
"""

from __future__ import annotations

import re
import shlex

from benchmarks.launch import container, srun, torchrun
from benchmarks.launch.checkout import ROOT
from benchmarks.launch.job import Job

LABEL = re.compile(r"^\s*\d+: ", re.MULTILINE)


def command(job: Job) -> list[str]:
    """The command line of one step with an agent for each node. ValueError where no host is named."""
    if not job.hosts:
        raise ValueError("srun-torchrun needs the nodes by name: their agents meet on the first")
    agent = [
        job.rank_python, "-m", "torch.distributed.run", f"--nnodes={job.place.nodes}",
        f"--nproc-per-node={job.place.ranks_per_node}", "--max-restarts=0", "--rdzv-backend=static",
        f"--master-addr={job.hosts[0]}", f"--master-port={job.port}",
    ]  # fmt: skip
    line = f"exec {shlex.join(agent)} --node-rank=$SLURM_NODEID -m {shlex.quote(job.module)}"
    one_line = container.inside(job.image, ["sh", "-c", line], mount=ROOT)
    return [*srun.step(job, tasks_per_node=1), *one_line]


def deaths(log: str) -> dict[int, str]:
    """Rank -> how it ended, from the agents' closing reports."""
    return torchrun.deaths(LABEL.sub("", log))
