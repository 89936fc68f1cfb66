"""ssh to a list of hosts: for machines without a scheduler.

The launcher is a fan-out process (`benchmarks.launch.fanout`) that holds one ssh connection a host. The checkout and
the interpreter must be at the same paths on every host; nothing else is shared. Keys, ports and users are ssh's own
business: ~/.ssh/config, or further words (`-F file`) by `--launcher-options`.
"""

from __future__ import annotations

import re

from benchmarks.launch import container
from benchmarks.launch.job import Job

REFUSED = re.compile(r"^(\S+): ended: (ssh could not reach it.*)$", re.MULTILINE)
ENDED = re.compile(r"^rank (\d+) on (\S+) ended: (.+)$", re.MULTILINE)


def command(job: Job) -> list[str]:
    """The command line of the fan-out. ValueError where no host is named, or not as many as the place has nodes."""
    container.without_pyxis(job.image)
    if len(job.hosts) != job.place.nodes:
        raise ValueError(
            f"ssh needs {job.place.nodes} host(s) by name, {len(job.hosts)} given: name them with --nodelist"
        )
    words = [
        job.python, "-m", "benchmarks.launch.fanout", f"--hosts={','.join(job.hosts)}",
        f"--ranks-per-node={job.place.ranks_per_node}", f"--rank-log={job.rank_log}", f"--module={job.module}",
        f"--python={job.python}",
    ]  # fmt: skip
    if job.image:
        words.append(f"--image={job.image}")
    return [*words, "--", *job.options]


def complaint(log: str) -> str:
    """Hosts that ssh could not reach; "" where there are none."""
    return "; ".join(f"{host}: {why}" for host, why in REFUSED.findall(log))


def deaths(log: str) -> dict[int, str]:
    """Rank -> how it ended, from what the nodes say."""
    return {int(rank): f"{end} on {node}" for rank, node, end in ENDED.findall(log)}
