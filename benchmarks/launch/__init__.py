"""Launchers: each is one function from a job to the command line that starts its ranks.

The ranks find the controller by the environment (`benchmarks.control`) and who they are by their launcher's variables
(`identity`). A launcher starts nothing itself; what it prints is read again to learn how ranks ended.

>>> sorted(LAUNCHERS)
['mpirun', 'srun', 'srun-torchrun', 'ssh', 'torchrun']
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from benchmarks.launch import mpirun, srun, srun_torchrun, ssh, steps, torchrun
from benchmarks.launch.address import facing
from benchmarks.launch.job import Job

__all__ = ["LAUNCHERS", "Job", "Launcher"]


@dataclass(frozen=True, kw_only=True)
class Launcher:
    """How ranks are started, what the launcher's output says of them, and what is left to end."""

    command: Callable[[Job], list[str]]
    deaths: Callable[[str], dict[int, str]] = field(default=lambda _: {})  # what it printed -> rank -> how it ended
    complaint: Callable[[str], str] = field(default=lambda _: "")  # what it printed -> why ranks never came
    address: Callable[[Job], str] = facing  # of this machine, as the ranks reach it
    label: Callable[[Job, int], int] = field(default=lambda _, rank: rank)  # what a rank's lines begin with
    environ: Callable[[Mapping[str, str]], dict[str, str]] = dict  # what it inherits of the environment
    end: Callable[[Job], None] = field(default=lambda _: None)  # what is left of the job elsewhere, by its id
    left: Callable[[Job], list[str]] = field(default=lambda _: [])  # what could not be ended
    spans_nodes: bool = True


LAUNCHERS = {
    "torchrun": Launcher(command=torchrun.command, deaths=torchrun.deaths, spans_nodes=False),
    "srun": Launcher(
        command=srun.command, deaths=srun.deaths, complaint=srun.complaint, environ=steps.clean, end=steps.cancel,
        left=steps.left,
    ),
    "srun-torchrun": Launcher(
        command=srun_torchrun.command, deaths=srun_torchrun.deaths, complaint=srun.complaint, environ=steps.clean,
        end=steps.cancel, left=steps.left, label=lambda job, rank: rank // job.place.ranks_per_node,
    ),
    "mpirun": Launcher(command=mpirun.command, deaths=mpirun.deaths),
    "ssh": Launcher(command=ssh.command, deaths=ssh.deaths, complaint=ssh.complaint),
}  # fmt: skip
