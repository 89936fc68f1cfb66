"""A job: which ranks to start, and what they need to know."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from benchmarks.launch import container
from benchmarks.spec import Place


@dataclass(frozen=True, kw_only=True)
class Job:
    """Ranks of one place, started together."""

    place: Place
    hosts: tuple[str, ...] = ()  # the nodes by name; () where the launcher knows them itself
    log_dir: str  # a folder on the launcher's machine; the nodes need not see it
    env: dict[str, str] = field(default_factory=dict)  # on top of the environment that is inherited
    module: str = "benchmarks.worker"
    python: str = sys.executable
    allocation: str = ""  # the scheduler's id of the job that holds the nodes
    reach: str = ""  # an address of one of the nodes: it tells which of our own addresses they reach
    options: tuple[str, ...] = ()  # further words for the launcher itself
    image: str = ""  # a container image that the ranks run in (see `container`)
    name: str = "rackproof"  # what the scheduler calls its steps: unique to a launch
    port: int = 29500  # where agents of several nodes meet, for launchers that need one told

    @property
    def rank_python(self) -> str:
        """The interpreter of the ranks: of the image, where there is one."""
        return container.PYTHON if self.image else self.python

    @property
    def rank_log(self) -> str:
        """Where a launcher that collects the output of all ranks writes it: each line begins with "3: "."""
        return f"{self.log_dir}/ranks.log"
