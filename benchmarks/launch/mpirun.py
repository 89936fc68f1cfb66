"""mpirun, one process a rank: Open MPI's launcher, over ssh or inside whatever scheduler it knows.

Open MPI hands on only the variables that are named, so all that a rank needs are; their values travel by Open MPI's
own line and never stand on a command line. Output comes back through mpirun, each line marked with its rank.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from benchmarks.launch import container
from benchmarks.launch.checkout import ROOT
from benchmarks.launch.forwarded import forwarded
from benchmarks.launch.job import Job
from benchmarks.launch.srun import BY_WORDS
from benchmarks.launch.torchrun import how

KILLED = re.compile(r"process rank (\d+) with PID \d+ on node (\S+) exited on\s+signal (\d+)")
EXITED = re.compile(r"Process name: \[\[\d+,\d+\],(\d+)\]\s+Exit code:\s+(\d+)")


def command(job: Job, *, environ: Mapping[str, str] = os.environ) -> list[str]:
    """The command line. Ranks are laid out node by node in the order of the hosts. ValueError for an image of Pyxis."""
    container.without_pyxis(job.image)
    place = job.place
    words = ["mpirun", "-np", str(place.ranks), "--map-by", f"ppr:{place.ranks_per_node}:node", "--bind-to", "none",
             "--tag-output", "--wdir", ROOT]  # fmt: skip
    if job.hosts:
        words += ["--host", ",".join(f"{host}:{place.ranks_per_node}" for host in job.hosts)]
    for name in sorted({*forwarded(environ), *job.env}):
        words += ["-x", name]
    return [*words, *job.options, *container.inside(job.image, [job.rank_python, "-m", job.module], mount=ROOT)]


def deaths(log: str) -> dict[int, str]:
    """Rank -> how it ended, from what mpirun says at its end."""
    flat = re.sub(r"\s*\n\s*", " ", log)
    found = {int(rank): how(int(code)) for rank, code in EXITED.findall(flat)}
    numbers = {int(s): s.name for s in BY_WORDS.values()}
    return found | {
        int(rank): f"{numbers.get(int(number), number)} on {node}" for rank, node, number in KILLED.findall(flat)
    }
