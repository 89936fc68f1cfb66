"""A job: which ranks to start, and what they need to know."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from benchmarks.spec import Place


@dataclass(frozen=True, kw_only=True)
class Job:
    """Ranks of one place, started together."""

    place: Place
    hosts: tuple[str, ...] = ()  # the nodes by name, in rank order; () where the launcher knows them itself
    log_dir: str  # a folder on each rank's own node: stdout and stderr of each rank
    env: dict[str, str] = field(default_factory=dict)  # on top of the environment that is inherited
    module: str = "benchmarks.worker"
    python: str = sys.executable
