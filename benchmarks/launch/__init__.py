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
    """How ranks are started, what the launcher's output says of ranks that died, and where they find us."""

    command: Callable[[Job], list[str]]
    deaths: Callable[[str], dict[int, str]] = field(default=lambda _: {})
    address: Callable[[], str] = field(default=lambda: "127.0.0.1")  # of this machine, as its ranks reach it


LAUNCHERS = {"torchrun": Launcher(command=torchrun.command, deaths=torchrun.deaths)}
