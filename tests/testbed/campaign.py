"""Campaigns on a test bed: a launcher for its hosts, offered to pytest as `--launcher testbed`.

    python -m pytest -p tests.testbed.campaign suites --cluster bed.toml --launcher testbed

The variable TESTBED names the state file of the bed (`Bed.state`); `variables` and `cluster_file` give both.
Ranks dial the controller over the bed's control network, which no fault touches.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from benchmarks.launch import LAUNCHERS, Job, Launcher
from tests.testbed import launch
from tests.testbed.bed import Bed

STATE = "TESTBED"


def command(job: Job) -> list[str]:
    """The command line that runs a job's ranks on the hosts of the bed."""
    words = ("-m", job.module)
    place = job.place
    return launch.command(
        os.environ[STATE], *words, log_dir=job.log_dir, ranks_per_host=place.ranks_per_node, hosts=place.nodes
    )


def variables(bed: Bed) -> dict[str, str]:
    """What a campaign on this bed needs in its environment."""
    return {STATE: str(bed.state)}


def cluster_file(bed: Bed, *, settings: str = "") -> Path:
    """Write a cluster file for the bed: its hosts as nodes, one rank each, and the settings given (TOML)."""
    path = bed.folder / f"{bed.interface}.toml"  # its stem names the cluster: beds do not lock each other out
    head = f'description = "a test bed of {bed.num_hosts} hosts"\nnodes = {bed.num_hosts}\nranks_per_node = 1\n'
    path.write_text(f"{head}\n{settings}\n", encoding="utf-8")
    return path


if STATE in os.environ:
    controller = json.loads(Path(os.environ[STATE]).read_text(encoding="utf-8"))["controller"]
    LAUNCHERS["testbed"] = Launcher(command=command, deaths=launch.deaths, address=lambda _: controller)
