"""How the time-outs of a campaign nest, and which of the cluster's own could end it: set by us, or read and told.

From the inside out: a benchmark, the process group, NCCL's watchdog; a launch; the scheduler's. A hang is to be found
and diagnosed by the innermost; each of the others is a net behind the one before.

>>> nccl(70.0, environ={})["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"]
'130'
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from datetime import datetime

from benchmarks import scratch
from suites import slurm

MARGIN_S = 60.0  # from one to the next
OF_SLURM = ("SlurmdTimeout", "KillWait", "InactiveLimit", "UnkillableStepTimeout")
OF_NCCL = {"NCCL_IB_TIMEOUT": "20", "NCCL_IB_RETRY_CNT": "7"}  # and what NCCL takes where nothing is set


def nccl(group_s: float, *, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What ranks over NCCL are given, where the environment does not say otherwise.

    torch's own watchdog would end a rank after 480 s without a heartbeat, in the middle of a long benchmark: it is put
    behind the process group's time-out, `group_s` seconds. The flight recorder is on; at a time-out each rank writes
    it beside the scratch folders of its node, so it outlives the run.
    """
    dump = f"{scratch.root()}/rackproof-flight-recorder-"
    ours = {
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3",
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": str(math.ceil(group_s + MARGIN_S)),
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_FR_DUMP_TEMP_FILE": dump,
    }
    return {name: environ.get(name, value) for name, value in ours.items()}


def lines(
    *, longest_s: float, group_s: float, start_s: float, backend: str = "gloo", cluster: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
) -> list[str]:  # fmt: skip
    """The time-outs in words: ours in one line, then `cluster`'s, which `of_slurm` reads."""
    ours = f"time-outs: a benchmark {longest_s:.0f} s at most, then the process group {group_s:.0f} s"
    found = []
    if backend == "nccl":
        given = nccl(group_s, environ=environ)
        beat = given["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"]
        ours += f", then NCCL's watchdog {beat} s (TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC)"
        if beat.isdigit() and float(beat) <= group_s:
            found.append(
                f"warning: TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC={beat} of this environment may end a rank before its "
                f"group's time-out of {group_s:.0f} s: unset it"
            )
        wire = ", ".join(f"{name}={environ.get(name, default)}" for name, default in OF_NCCL.items())
        dump = given["TORCH_FR_DUMP_TEMP_FILE"]
        found.append(f"NCCL gives up a lost packet by {wire}; at a time-out each rank leaves {dump}RANK on its node")
    return [f"{ours}; a launch {start_s:.0f} s", *found, *cluster]


def of_slurm(job: str, *, worst_s: float, now: datetime) -> list[str]:
    """Slurm's time-outs, and a warning where the job may end before the plan does; [] where Slurm does not answer."""
    try:
        told = slurm.settings(OF_SLURM)
        end = slurm.job_fields(job).get("EndTime", "") if job else ""
    except slurm.SlurmError:
        return []
    found = [f"Slurm: {', '.join(f'{name} {value}' for name, value in told.items())}"] if told else []
    try:
        left_s = (datetime.fromisoformat(end) - now.replace(tzinfo=None)).total_seconds()
    except ValueError:
        return found  # Unknown: no limit
    if left_s < worst_s:
        found.append(
            f"warning: Slurm ends job {job} in {left_s / 60:.0f} min, the plan may take {worst_s / 60:.0f}: what is "
            "missing then waits for --resume (or ask for more with --time)"
        )
    return found
