"""What a campaign is asked to do, and the one error for what it cannot."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from suites.allocation import Wish
from suites.nightly import Range

STARTER = ("RACKPROOF_BY", "SUDO_USER", "SLURM_JOB_USER")  # who started it, before the name of this process's user
LONGEST = 80  # characters of a name


class UsageError(ValueError):
    """What was asked for cannot be done; one line with the cure. Exit status 4."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The command line of a campaign."""

    cluster: str
    suite: str = "acceptance"
    runs: Path = Path("runs")
    resume: str = ""  # a run folder, or its name under `runs`
    retest: str = ""  # "failed", a metric, or a node, rank or other subject
    baseline: str = ""  # a run folder to compare with
    nodes: int | None = None  # of the cluster; None: as many as its file says
    wish: Wish = field(default_factory=Wish)  # which nodes, and what starts ranks on them
    idle: Range | None = None  # so many idle nodes, chosen by who waits longest
    within_nights: int = 7  # every node is tested at least so often
    until: str = ""  # a time of day: no benchmark begins that might run past it
    known_bad: Path | None = None
    continue_without_failed: bool = False  # later stages, on the nodes that passed the node-local one
    topology: Path | None = None  # where the nodes sit
    cabling: Path | None = None  # what was found plugged
    budget_s: float | None = None  # of the search for a culprit
    checkpoint_dir: str = ""  # where checkpoints are saved, instead of what the cluster file says
    by: str = ""  # who started it


def who(named: str, environ: Mapping[str, str] = os.environ) -> str:
    """Who starts a campaign: as named, else as the environment says, else the user of this process; in one line.

    >>> who("", {"SUDO_USER": "kim", "USER": "root"})
    'kim'
    """
    found = named or next((environ[name] for name in STARTER if environ.get(name)), "")
    with contextlib.suppress(KeyError, OSError):  # a container may run under a number that has no name
        found = found or getpass.getuser()
    return " ".join(found.split())[:LONGEST]


def seconds(text: str) -> float | None:
    """A length of time as people write it. UsageError where it is none.

    >>> seconds("20m"), seconds("1.5h"), seconds("90"), seconds("")
    (1200.0, 5400.0, 90.0, None)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)?", text)
    if not text:
        return None
    if found is None or not float(found[1]):
        raise UsageError(f"--budget {text}: a length of time, such as 20m, 90s or 1.5h")
    return float(found[1]) * {"h": 3600.0, "m": 60.0, "min": 60.0}.get(found[2], 1.0)
