"""A real Slurm cluster on the hosts of a bed: munged, slurmctld and one slurmd a host, without systemd or cgroups.

    with SlurmBed(names=("n1", "n2")) as bed:
        bed.run("srun", "-N2", "hostname")          # as on a login node: this machine
        bed.kill_node("n2")                         # power loss, without a word to anybody

Each node has its own network, name, processes, /dev/shm and /var/tmp. Slurm and the campaign's control line talk
over `ctl0`, gloo over `eth0` where it is told so. GPUs are fake: copies of /dev/null that Slurm hands out with
CUDA_VISIBLE_DEVICES. A daemon ends with the process that made the bed, however that ends.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.testbed.bed import Bed
from tests.testbed.namespaces import PATH, BedError

WITH_US = ("setpriv", "--pdeathsig", "KILL")  # the kernel ends a daemon when the thread that started it ends
UP_S = 60.0
INIT = """
hostname {name}
for file in hosts nsswitch.conf; do mount --bind {folder}/$file /etc/$file; done
mount -t tmpfs tmpfs /dev/shm; mount -t tmpfs tmpfs /var/tmp
slurmd -D -N {name} & wait $!; sleep infinity & wait
"""
CONF = """
ClusterName=testbed
SlurmctldHost={host}({controller})
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/spool/%n/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_min_interval=200000,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MpiDefault=none
SlurmdParameters=config_overrides
GresTypes=gpu
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=10
KillWait=2
MessageTimeout=4
MinJobAge=3600
InactiveLimit=0
TreeWidth=64
{extra}
"""


class SlurmBed(Bed):
    """Nodes with the names given, in one partition `main` (and `urgent`, whose jobs preempt those of `main`)."""

    def __init__(self, *, names: tuple[str, ...] = ("n1", "n2", "n3", "n4"), cpus: int = 8, gpus: int = 0,
                 rate_mbit: float = 200, extra: str = "") -> None:  # fmt: skip
        super().__init__(hosts=len(names), rate_mbit=rate_mbit)
        self.names, self.cpus, self.gpus, self.extra = names, cpus, gpus, extra
        self._inits: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> SlurmBed:
        super().__enter__()
        with ExitStack() as undo:
            undo.callback(super().__exit__)
            self._write_conf()
            socket_ = self.folder / "munge.socket"
            self._daemon(undo, "munged", "--foreground", "--force", f"--key-file={self.folder}/munge.key",
                         f"--socket={socket_}", f"--pid-file={self.folder}/munged.pid",
                         f"--log-file={self.folder}/munged.log", f"--seed-file={self.folder}/munge.seed")  # fmt: skip
            until(socket_.exists, f"munged did not start: {self.said('munged')}")
            self._daemon(undo, "slurmctld", "-D", "-c")
            undo.callback(self._end_nodes)
            for name in self.names:
                self.boot(name, wait=False)
            self.wait_for_state("idle", *self.names)
            self._undo_slurm = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo_slurm.close()

    # -- names --------------------------------------------------------------------------------------------------

    def name(self, host: int) -> str:
        """What the host calls itself, and Slurm calls it."""
        return self.names[host]

    @property
    def env(self) -> dict[str, str]:
        """What every command of Slurm needs in its environment."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
        return {**inherited, "PATH": PATH, "SLURM_CONF": str(self.folder / "slurm.conf")}

    # -- commands -----------------------------------------------------------------------------------------------

    def run(self, *words: str, limit_s: float = 60.0, check: bool = True) -> str:
        """Run a command on the login node (this machine) and return what it printed; BedError where it fails."""
        done = subprocess.run(
            words, env=self.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit_s,
            check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if check and done.returncode:
            raise BedError(f"{' '.join(words)}: {done.returncode}\n{done.stdout}")
        return done.stdout

    def inside(self, name: str, *words: str) -> list[str]:
        """The command line that runs `words` on a node, as its root would."""
        return ["nsenter", "-t", str(self.init(name)), "-n", "-u", "-i", "-m", "-p", *words]

    def state_of(self, name: str) -> str:
        """A node's state as sinfo says it: idle, allocated, drained, down ..., with its * where it does not answer."""
        return self.run("sinfo", "-h", "-N", "-n", name, "-o", "%T", "-p", "main").strip()

    def wait_for_state(self, state: str, *names: str, limit_s: float = UP_S) -> None:
        """Until all these nodes are in a state. BedError with what they are instead."""
        until(lambda: all(self.state_of(n) == state for n in names), f"not {state}: ", self._states, limit_s=limit_s)

    def wait_for_no_jobs(self, limit_s: float = UP_S) -> None:
        """Until nothing is queued or running."""
        until(lambda: not self.run("squeue", "-h").strip(), "jobs are left: ", lambda: self.run("squeue"),
              limit_s=limit_s)  # fmt: skip

    def processes(self, name: str, having: str = "") -> dict[int, str]:
        """Process ids as this machine sees them -> command lines, of all that run on a node."""
        if self._inits[name].poll() is not None:
            return {}
        space = Path(f"/proc/{self.init(name)}/ns/pid").readlink()
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if (entry / "ns/pid").readlink() == space:
                    words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if having in words:
                        found[int(entry.name)] = words.strip()
            except OSError:
                continue
        return found

    def daemons(self, name: str) -> list[int]:
        """The node's slurmd, as this machine numbers it."""
        return [pid for pid, words in self.processes(name).items() if words.startswith("slurmd ")]

    # -- faults -------------------------------------------------------------------------------------------------

    def kill_node(self, name: str, *, silently: bool = True) -> None:
        """Power loss: every process is gone. Silently: no connection is closed either, as the link goes first."""
        if silently:
            self.cut(name)
        self._inits[name].kill()
        self._inits[name].wait()

    def cut(self, name: str) -> None:
        """Pull the cable of the control network."""
        self.fabric.run("ip", "link", "set", f"ctl{self.names.index(name)}", "down")

    def join(self, name: str) -> None:
        """Put the cable back."""
        self.fabric.run("ip", "link", "set", f"ctl{self.names.index(name)}", "up")

    def boot(self, name: str, *, wait: bool = True) -> None:
        """Start a node (again): its processes, its slurmd."""
        namespace = self.hosts[self.names.index(name)]
        script = INIT.format(name=name, folder=self.folder)
        isolated = ("unshare", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
        self.join(name)
        with (self.folder / f"{name}.out").open("ab") as out:
            self._inits[name] = subprocess.Popen(
                [*WITH_US, *namespace.command(*isolated, "bash", "-c", script)], env=self.env, stdout=out, stderr=out,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        if wait:
            self.wait_for_state("idle", name)

    def kill_slurmd(self, name: str) -> None:
        """Only the daemon dies; the steps that it started live on."""
        for pid in self.daemons(name):
            os.kill(pid, signal.SIGKILL)

    def start_slurmd(self, name: str) -> None:
        """The daemon again, on a node that lives."""
        with (self.folder / f"{name}.out").open("ab") as out:
            subprocess.Popen(
                self.inside(name, "slurmd", "-N", name), env=self.env, stdout=out, stderr=out, stdin=subprocess.DEVNULL
            ).wait()

    def init(self, name: str) -> int:
        """The node's first process, as this machine numbers it."""
        outer = self._inits[name].pid
        children = Path(f"/proc/{outer}/task/{outer}/children")
        until(lambda: children.exists() and bool(children.read_text().split()), f"{name} is not running")
        return int(children.read_text().split()[0])

    def said(self, what: str) -> str:
        """The end of a daemon's output: munged, slurmctld, or a node's name."""
        texts = [p.read_text(errors="replace") for p in self.folder.glob(f"*{what}*") if p.suffix in (".log", ".out")]
        return "\n".join(texts)[-3000:]

    # -- building -----------------------------------------------------------------------------------------------

    def _write_conf(self) -> None:
        for name in ("state", "dev", *(f"spool/{n}" for n in self.names)):
            (self.folder / name).mkdir(parents=True)
        self.folder.chmod(0o755)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        port = 26000 + self.slot
        text = CONF.format(
            host=socket.gethostname().partition(".")[0], controller=self.controller, port=port, folder=self.folder,
            extra=self.extra,
        )  # fmt: skip
        gres = f" Gres=gpu:h100:{self.gpus}" if self.gpus else ""
        for k, name in enumerate(self.names):
            address = self.address(k, None)
            text += f"NodeName={name} NodeAddr={address} CPUs={self.cpus} RealMemory=2000{gres} State=UNKNOWN\n"
        text += "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1\n"
        text += "PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=9 PreemptMode=OFF\n"
        (self.folder / "slurm.conf").write_text(text, encoding="utf-8")
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n", encoding="utf-8")
        for k in range(self.gpus):  # gres.conf wants character devices
            os.mknod(self.folder / "dev" / f"nvidia{k}", 0o666 | 0o020000, os.makedev(1, 3))
        if self.gpus:
            line = f"Name=gpu Type=h100 File={self.folder}/dev/nvidia[0-{self.gpus - 1}]\n"
            (self.folder / "gres.conf").write_text(line, encoding="utf-8")

    def _daemon(self, undo: ExitStack, *words: str) -> None:
        with (self.folder / f"{words[0]}.out").open("ab") as out:
            process = subprocess.Popen(
                [*WITH_US, *words], env=self.env, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip

        def end() -> None:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

        undo.callback(end)

    def _end_nodes(self) -> None:
        for process in self._inits.values():
            process.kill()
        for process in self._inits.values():
            process.wait()

    def _states(self) -> str:
        return self.run("sinfo", "-N", "-p", "main", "-o", "%N %T %E") + self.said("slurmctld")


def until(holds: Callable[[], bool], complaint: str, more: Callable[[], str] = str, *, limit_s: float = UP_S) -> None:
    """Wait until `holds()`; BedError with the complaint after `limit_s`."""
    end = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > end:
            raise BedError(complaint + more())
        time.sleep(0.05)
