"""Launchers: each is one function from a job to the command line that starts its ranks.

The ranks find the controller by the environment (`benchmarks.control`); rank, world size and the process
group's address come from the launcher's own environment. A launcher starts nothing itself.

>>> sorted(LAUNCHERS)
['torchrun']
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.launch import torchrun
from benchmarks.launch.job import Job

__all__ = ["LAUNCHERS", "Job", "Launcher"]


@dataclass(frozen=True, kw_only=True)
class Launcher:
    """How ranks are started (`command`) and what its output says of ranks that died (`deaths`)."""

    command: Callable[[Job], list[str]]
    deaths: Callable[[str], dict[int, str]] = field(default=lambda _: {})


LAUNCHERS = {"torchrun": Launcher(command=torchrun.command, deaths=torchrun.deaths)}
