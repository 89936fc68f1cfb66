"""Where the ranks run: this machine, named hosts, a Slurm job that we are in, or one that we ask for.

`hold` decides, says why in one line, and holds the nodes until `release`. A job that we asked for hangs on this
process by a pipe: when this process ends, however it ends, Slurm takes the nodes back. A job that we are in is its
owner's, and stays.

    with hold(Wish(launcher="auto", nodes=1)) as held:
        held.job(place, log_dir="logs")
"""

from __future__ import annotations

import math
import os
import shlex
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from benchmarks.launch import Job, container
from benchmarks.spec import Place
from suites import nodes, slurm
from suites.nodes import NodesError
from suites.slurm import SlurmError

AUTO = "auto"
OF_SLURM = ("srun", "srun-torchrun")
BY_NAME = ("ssh", "mpirun")
RELEASE_S = 15.0

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What nodes are asked for."""

    launcher: str = AUTO
    nodes: int = 1  # exactly so many
    nodelist: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    partition: str = ""
    options: tuple[str, ...] = ()  # further words for the launcher
    salloc: tuple[str, ...] = ()  # further words for salloc
    image: str = ""
    gpus_per_node: int = 0
    seconds: float = 0.0  # the plan's worst case


@dataclass(kw_only=True)
class Allocation:
    """Nodes that are ours for now."""

    launcher: str
    why: str
    hosts: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()  # allocated, but not measured: asked for by --nodelist or --exclude
    notes: list[str] = field(default_factory=list)
    slurm_job: str = ""
    reach: str = ""
    wish: Wish = field(default_factory=Wish)
    holder: subprocess.Popen[str] | None = None  # salloc, where the job is ours

    def __enter__(self) -> Allocation:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.release()

    def job(self, place: Place, *, log_dir: str) -> Job:
        """The job that starts a place's ranks on these nodes."""
        image = self.wish.image
        if image and container.is_apptainer(image):
            image = str(Path(image).absolute())  # ranks start elsewhere
        env = {container.DIGEST: container.digest(image)} if image else {}
        return Job(
            place=place, hosts=self.hosts, log_dir=log_dir, allocation=self.slurm_job, reach=self.reach,
            options=(*self._gpu_options(place), *self.wish.options), image=image, env=env,
        )  # fmt: skip

    def lost(self) -> str:
        """Why the nodes are no longer ours; "" while they are."""
        if not self.slurm_job:
            return ""
        try:
            told = slurm.job_fields(self.slurm_job)
        except SlurmError as error:
            return f"Slurm no longer knows job {self.slurm_job}: {error}" if "Invalid job id" in str(error) else ""
        state = told.get("JobState", "")
        return "" if state in slurm.RUNNING else f"Slurm job {self.slurm_job} is {state}: its nodes were taken away"

    def release(self) -> None:
        """Give back what we asked for; leave what we were given."""
        holder, self.holder = self.holder, None
        if holder is None:
            return
        assert holder.stdin and holder.stdout
        holder.stdin.close()
        try:
            holder.wait(RELEASE_S)
        except subprocess.TimeoutExpired:
            holder.kill()
            holder.wait()
            subprocess.run(["scancel", self.slurm_job], capture_output=True, timeout=RELEASE_S, check=False)
        holder.stdout.close()

    def _gpu_options(self, place: Place) -> tuple[str, ...]:
        """Every rank sees every GPU of its node: peers on NVLink are found only so."""
        if place.device != "cuda" or self.launcher not in OF_SLURM or not self.slurm_job:
            return ()
        if not any(state.gpus for state in slurm.nodes(self.hosts[:1])):
            return ()  # Slurm does not manage the GPUs here
        return (f"--gpus-per-node={self.wish.gpus_per_node or place.ranks_per_node}",)


def hold(wish: Wish, *, environ: Mapping[str, str] = os.environ, say: Say = lambda _: None) -> Allocation:
    """The nodes of a wish. NodesError with the cure where they cannot be had."""
    try:
        launcher, why = choose(wish, environ)
        if launcher in OF_SLURM:
            inside = environ.get("SLURM_JOB_ID", "")
            return _inside(wish, launcher, why, inside) if inside else _asked_for(wish, launcher, why, say)
    except SlurmError as error:
        raise NodesError(str(error)) from None
    if launcher in BY_NAME and (wish.nodelist or launcher == "ssh"):
        hosts = tuple(n for n in wish.nodelist if n not in wish.exclude)
        if len(hosts) != wish.nodes:
            raise NodesError(
                f"{wish.nodes} node(s) wanted, {len(hosts)} named: name them with --nodelist, "
                f"or say --nodes {len(hosts)}"
            )
        return Allocation(launcher=launcher, why=why, hosts=hosts, reach=hosts[0], wish=wish)
    return Allocation(launcher=launcher, why=why, wish=wish)


def choose(wish: Wish, environ: Mapping[str, str]) -> tuple[str, str]:
    """The launcher and the reason, in a few words. NodesError where nothing here can start that many nodes."""
    inside = environ.get("SLURM_JOB_ID", "")
    if wish.launcher != AUTO:
        if wish.launcher in OF_SLURM and not inside and not slurm.is_here():
            raise NodesError(
                f"{wish.launcher} needs Slurm, and none answers here: run this in a job or on a login node "
                "(scontrol ping), or take another --launcher"
            )
        return wish.launcher, "asked for"
    if inside and slurm.is_here():
        return "srun", f"inside Slurm job {inside}"
    if wish.nodes == 1 and not (wish.nodelist or wish.partition):
        return "torchrun", "one node, this one"
    if slurm.is_here():
        return "srun", "Slurm answers here: nodes are asked of it"
    if wish.nodelist:
        return "ssh", "no scheduler answers here, and hosts are named"
    raise NodesError(
        f"{wish.nodes} nodes wanted, and no scheduler answers here: run this inside salloc or on a login node, "
        "or name the hosts with --nodelist (they are reached by ssh)"
    )


def _inside(wish: Wish, launcher: str, why: str, job: str) -> Allocation:
    """The job that this process is in. All its nodes are covered, but those left out by name."""
    allocated = slurm.nodes_of_job(job)
    if not allocated:
        raise NodesError(f"Slurm job {job} holds no nodes: it is being set up or has ended (scontrol show job {job})")
    hosts = nodes.choose(allocated, nodelist=wish.nodelist, exclude=wish.exclude)
    if len(hosts) < wish.nodes:
        raise NodesError(
            f"{wish.nodes} node(s) wanted, Slurm job {job} has {len(hosts)} ({nodes.fold(hosts)}): "
            f"ask for more, or say --nodes {len(hosts)} for a run over these"
        )
    if len(hosts) > wish.nodes:
        raise NodesError(
            f"Slurm job {job} has {len(hosts)} nodes ({nodes.fold(hosts)}) and {wish.nodes} are wanted: every node is "
            f"covered, so say --nodes {len(hosts)}, or which ones with --nodelist or --exclude"
        )
    states = slurm.nodes(hosts)
    return Allocation(
        launcher=launcher, why=why, hosts=hosts, left_out=tuple(n for n in allocated if n not in hosts), wish=wish,
        slurm_job=job, reach=states[0].address, notes=[state.trouble for state in states if state.trouble],
    )  # fmt: skip


def _asked_for(wish: Wish, launcher: str, why: str, say: Say) -> Allocation:
    """A job of our own, by salloc, that ends with this process."""
    known = [n for n in slurm.nodes(wish.nodelist, partition=wish.partition) if n.name not in wish.exclude]
    bad = [state.trouble for state in known if state.trouble]
    if len(known) - len(bad) < wish.nodes:
        raise NodesError(
            f"{wish.nodes} node(s) wanted, {len(known) - len(bad)} of {nodes.fold(n.name for n in known)} can be had"
            + (f" ({'; '.join(bad)})" if bad else "")
            + ": Slurm would wait for ever; leave out what is broken with --exclude, or ask for fewer with --nodes"
        )
    words = salloc(wish, gpus=any(state.gpus for state in known))
    say(f"asking Slurm: {shlex.join(words[:-3])}\n")
    holder = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    job, heard = "", []
    assert holder.stdout and holder.stdin
    try:
        for line in holder.stdout:
            if line.startswith("held "):
                job = line.split()[1]
                break
            heard.append(line.strip())
            say(line)
        if not job:
            refusal = " ".join(heard)[-300:]
            raise NodesError(f"Slurm gives no nodes: {refusal or holder.wait()}")
        held = Allocation(launcher=launcher, why=why, wish=wish, slurm_job=job, holder=holder)
        held.hosts = slurm.nodes_of_job(job)
        held.reach = slurm.nodes(held.hosts[:1])[0].address
    except BaseException:
        holder.stdin.close()
        holder.terminate()
        holder.wait()
        raise
    return held


def salloc(wish: Wish, *, gpus: bool) -> list[str]:
    """The command line that holds the nodes for as long as its standard input is open."""
    words = ["salloc", f"--nodes={wish.nodes}", "--exclusive", "--no-bell", "--job-name=rackproof"]
    if wish.partition:
        words.append(f"--partition={wish.partition}")
    if wish.nodelist:
        words.append(f"--nodelist={','.join(n for n in wish.nodelist if n not in wish.exclude)}")
    if wish.exclude:
        words.append(f"--exclude={','.join(wish.exclude)}")
    if gpus and wish.gpus_per_node:
        words.append(f"--gpus-per-node={wish.gpus_per_node}")
    if wish.seconds and not any(word.startswith(("-t", "--time")) for word in wish.salloc):
        words.append(f"--time={math.ceil(wish.seconds / 60) + 10}")
    return [*words, *wish.salloc, "sh", "-c", 'echo "held $SLURM_JOB_ID"; exec cat']


def describe(held: Allocation) -> list[str]:
    """For the terminal: who starts ranks and why, which nodes are covered, which are not."""
    lines = [f"launcher: {held.launcher} ({held.why})"]
    if held.hosts:
        lines.append(f"nodes: all {len(held.hosts)} of {nodes.fold(held.hosts)}" if not held.left_out else
                     f"nodes: {len(held.hosts)} ({nodes.fold(held.hosts)}); left out as asked: "
                     f"{nodes.fold(held.left_out)}")  # fmt: skip
    return lines + [f"note: {note}" for note in held.notes]
