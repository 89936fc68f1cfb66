"""srun, one task a rank: the scheduler's own launcher, in an allocation that exists.

The ranks' output comes back over Slurm to one file beside srun's own, each line labelled with its rank, so nodes need
no shared folder and a dead rank's last words are kept. `--kill-on-bad-exit` ends the step within a tenth of a second
when a rank dies. Every rank sees all GPUs of its node: NCCL reaches neighbours over NVLink only then.
"""

from __future__ import annotations

import re
import signal

from benchmarks.launch import container
from benchmarks.launch.checkout import ROOT
from benchmarks.launch.job import Job
from benchmarks.launch.torchrun import how

# srun: error: n[2-3]: tasks 4-5,7: Killed
ENDED = re.compile(r"^srun: error: (\S+): tasks? ([\d,-]+): (.+?)(?: \(core dumped\))?$", re.MULTILINE)
EXITED = re.compile(r"Exited with exit code (\d+)")
COMPLAINT = re.compile(
    r"^srun: error: ((?:Node failure on|Task launch for \S+ failed on node|Unable to|Slurm job).*)$", re.MULTILINE
)
BY_WORDS = {signal.strsignal(s): s for s in signal.Signals}


def command(job: Job) -> list[str]:
    """The command line of one step with a task for each rank."""
    rank = container.inside(job.image, [job.rank_python, "-m", job.module], mount=ROOT)
    return [*step(job, tasks_per_node=job.place.ranks_per_node), *rank]


def step(job: Job, *, tasks_per_node: int) -> list[str]:
    """srun and its options, for that many tasks on every node of the job."""
    nodes = job.place.nodes
    words = [
        "srun", f"--nodes={nodes}", f"--ntasks={nodes * tasks_per_node}", f"--ntasks-per-node={tasks_per_node}",
        "--kill-on-bad-exit=1", "--overlap", "--mem=0", "--cpu-bind=none", "--mpi=none", "--input=none", "--label",
        f"--output={job.rank_log}", f"--chdir={ROOT}", f"--job-name={job.name}",
    ]  # fmt: skip
    if job.allocation:
        words.append(f"--jobid={job.allocation}")
    if job.hosts:
        words.append(f"--nodelist={','.join(job.hosts)}")
    return [*words, *container.srun_options(job.image, mount=ROOT), *job.options]


def deaths(log: str) -> dict[int, str]:
    """Rank -> how it ended, from srun's error lines, where one task is one rank."""
    return {task: f"{end} on {node}" for task, (end, node) in ends(log).items()}


def ends(log: str) -> dict[int, tuple[str, str]]:
    """Task -> (how it ended, its node or nodes)."""
    found: dict[int, tuple[str, str]] = {}
    for nodes, tasks, words in ENDED.findall(log):
        exited = EXITED.match(words)
        end = how(int(exited[1])) if exited else _signal(words)
        for task in _numbers(tasks):
            found.setdefault(task, (end, nodes))
    return found


def complaint(log: str) -> str:
    """Why a step did not come up, in srun's words: which node failed or could not be reached; "" where none says so."""
    return "; ".join(dict.fromkeys(COMPLAINT.findall(log)))


def _signal(words: str) -> str:
    return BY_WORDS[words].name if words in BY_WORDS else words


def _numbers(text: str) -> list[int]:
    """4-5,7 -> [4, 5, 7]."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found
