"""Questions to Slurm, and the few things this suite asks of it: one function each, over Slurm's own commands.

Every command has a time-out; a Slurm that does not answer is an error that says so, not an empty answer.

    nodes_of_job("12")          # ('n1', 'n2', 'n10'), in Slurm's order, which is that of ranks
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

ASK_S = 30.0
USABLE = ("IDLE", "MIXED", "ALLOCATED", "COMPLETING")
RUNNING = ("RUNNING", "CONFIGURING")


class SlurmError(RuntimeError):
    """Slurm is not there, does not answer, or refuses; the message holds its own words."""


@dataclass(frozen=True, kw_only=True)
class NodeState:
    """One node as Slurm sees it."""

    name: str
    address: str
    states: tuple[str, ...]  # IDLE, DRAIN, NOT_RESPONDING ...
    reason: str = ""
    gpus: bool = False

    @property
    def trouble(self) -> str:
        """Why no job can start on it: "n3 is drained (bad nic [root@...])"; "" where one can."""
        bad = [s for s in self.states if s not in USABLE and s not in ("PLANNED", "RESERVED", "CLOUD")]
        if not bad:
            return ""
        return f"{self.name} is {'+'.join(bad).lower()}" + (f" ({self.reason})" if self.reason else "")


def is_here() -> bool:
    """Whether this machine has Slurm's commands and its controller answers."""
    if not shutil.which("srun"):
        return False
    try:
        return subprocess.run(["scontrol", "ping"], capture_output=True, timeout=ASK_S, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def ask(*words: str) -> str:
    """What a command of Slurm prints. SlurmError where it fails or does not answer."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=ASK_S, check=False)
    except FileNotFoundError:
        raise SlurmError(f"there is no {words[0]} here: run this on a login node or in a job") from None
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{words[0]} did not answer within {ASK_S:.0f} s: is slurmctld up? (scontrol ping)") from None
    if done.returncode:
        raise SlurmError(f"{' '.join(words[:3])}: {' '.join((done.stderr or done.stdout).split())[:300]}")
    return done.stdout


def settings(names: Sequence[str]) -> dict[str, str]:
    """Values of Slurm's configuration, such as SlurmdTimeout ("300 sec"), in that order; absent where it has none."""
    said = {}
    for line in ask("scontrol", "show", "config").splitlines():
        key, _, value = line.partition("=")
        said[key.strip()] = value.strip()
    return {name: said[name] for name in names if name in said}


def hostnames(nodelist: str) -> tuple[str, ...]:
    """The names of Slurm's own short form, in Slurm's order."""
    return tuple(ask("scontrol", "show", "hostnames", nodelist).split()) if nodelist else ()


def job_fields(job: str) -> dict[str, str]:
    """What Slurm says of a job: JobState, NodeList, Reason ... SlurmError where it does not know it."""
    return fields(ask("scontrol", "show", "job", job, "--oneliner"))


def nodes_of_job(job: str) -> tuple[str, ...]:
    """The nodes of a running job, in the order in which Slurm numbers its tasks.

    Raises SlurmError where the job does not run: SLURM_JOB_ID may be left over in a shell.
    """
    told = job_fields(job)
    if told.get("JobState") not in RUNNING:
        raise SlurmError(
            f"Slurm job {job} is {told.get('JobState', 'unknown')}, not running: "
            "its variables are left over in this shell (unset SLURM_JOB_ID), or it has ended"
        )
    return hostnames(told.get("NodeList", ""))


def nodes(names: Sequence[str] = (), *, partition: str = "") -> list[NodeState]:
    """The nodes named, or all of a partition. SlurmError for one that Slurm does not know."""
    chosen = list(names) or list(hostnames(_partition_nodes(partition)))
    if not chosen:
        return []
    lines = ask("scontrol", "show", "node", ",".join(chosen), "--oneliner").splitlines()
    found = {state.name: state for line in lines if (state := _node(line))}
    if missing := [name for name in chosen if name not in found]:
        raise SlurmError(f"Slurm knows no node {', '.join(missing)}: see sinfo -N")
    return [found[name] for name in chosen]


def _partition_nodes(partition: str) -> str:
    words = ["sinfo", "--noheader", "--format=%N", *([f"--partition={partition}"] if partition else [])]
    said = ask(*words).split()
    if not said:
        raise SlurmError(f"no partition {partition!r}: see sinfo" if partition else "sinfo lists no nodes")
    return ",".join(said)


def _node(line: str) -> NodeState | None:
    told = fields(line)
    if "NodeName" not in told:
        return None
    return NodeState(
        name=told["NodeName"], address=told.get("NodeAddr", ""), reason=_reason(line),
        states=tuple(part.rstrip("*~#!%$@^-") for part in told.get("State", "UNKNOWN").split("+")),
        gpus="gpu" in told.get("Gres", ""),
    )  # fmt: skip


def fields(line: str) -> dict[str, str]:
    """scontrol's Key=value words; a value with blanks is cut at the first."""
    return dict(pair.split("=", 1) for pair in line.split() if "=" in pair)


def _reason(line: str) -> str:
    found = re.search(r"\bReason=(.*?)\s*(?:$|\s\w+=)", line)
    return found[1] if found else ""
