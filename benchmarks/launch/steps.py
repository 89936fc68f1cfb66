"""The Slurm steps of a job of ours: found by their name, ended by their ids; nobody else's are touched.

srun ends its step when it is ended itself. This is for the step that outlives its srun, because srun was killed or
an orphan holds the step's output.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping

from benchmarks.launch.job import Job

KEPT = ("SLURM_CONF", "SLURM_CLUSTERS")
ASK_S = 15.0
ENDING_S = 5.0
TERM_S = 10.0  # from TERM to KILL


def clean(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what Slurm told this process: srun reads its variables as if they were options."""
    return {k: v for k, v in environ.items() if not k.startswith("SLURM") or k in KEPT}


def running(job: Job) -> list[str]:
    """Ids of the job's steps that still run; none where Slurm does not answer."""
    if not job.allocation:
        return []
    said = _ask("squeue", "--steps", "--noheader", f"--jobs={job.allocation}", "--format=%i %j")
    return [words[0] for line in said.splitlines() if len(words := line.split()) == 2 and words[1] == job.name]


def left(job: Job) -> list[str]:
    """Steps that are still there after a moment: one that is just ending is none."""
    end = time.monotonic() + ENDING_S
    while (found := running(job)) and time.monotonic() < end:
        time.sleep(0.2)
    return found


def cancel(job: Job) -> None:
    """TERM to the steps that are left, ten seconds, KILL."""
    for number, patience_s in (("TERM", TERM_S), ("KILL", TERM_S / 2)):
        left = running(job)
        if not left:
            return
        _ask("scancel", f"--signal={number}", *left)
        end = time.monotonic() + patience_s
        while running(job) and time.monotonic() < end:
            time.sleep(0.2)


def _ask(*words: str) -> str:
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=ASK_S, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
