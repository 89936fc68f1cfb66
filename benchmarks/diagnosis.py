"""Where is a process stuck? Its state, its Python stack and the end of its log, without root.

A rank can look at itself while its interpreter still runs threads. A rank that does not answer (stopped, or
inside native code that holds the interpreter) is looked at from outside, by another rank of its node or by
the controller: `arm` made it dump its stack on SIGUSR1, into memory that others of the same user can read.
A stopped process is continued for that, so this is for the moment before it is ended. Linux reads /proc;
elsewhere the state is unknown and the stack comes from a temporary file.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from benchmarks.flightrecorder import entered
from benchmarks.ports import ports

STATES = {"R": "running", "S": "sleeping", "D": "in uninterruptible I/O", "T": "stopped", "t": "traced", "Z": "dead"}
_keep: list[Any] = []  # faulthandler writes to this file until the process ends: it must stay open


@dataclass(frozen=True, kw_only=True)
class Handle:
    """What another process needs to examine this one."""

    pid: int
    born: str  # start time: a pid that was given to another process is never signalled
    stack_path: str
    log_path: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain fields, for a message."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was found: a state in words, a stack (innermost call last) and the log's last lines."""

    state: str
    stack: str = ""
    log: str = ""
    ports: dict[str, str] = field(default_factory=dict)  # network ports of its node: up or down
    entered: dict[str, int] = field(default_factory=dict)  # collectives so far, by group: see flightrecorder

    def to_dict(self) -> dict[str, Any]:
        """Plain fields, for a message."""
        return asdict(self)

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> Report:
        """The report that a message carries."""
        return cls(**{f.name: message[f.name] for f in fields(cls) if f.name in message})

    @property
    def in_collective(self) -> bool:
        """Whether the stack waits inside torch.distributed, as a victim of the culprit would."""
        return "distributed_c10d.py" in self.stack


def arm() -> Handle:
    """Let this process dump its stack on SIGUSR1; returns the handle others need."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("rackproof-stack")
        path = f"/proc/{os.getpid()}/fd/{fd}"
        sink: Any = os.fdopen(fd, "w")
    else:
        sink = tempfile.NamedTemporaryFile("w", prefix="rackproof-stack-")  # noqa: SIM115 - open for life
        path = sink.name
    _keep.append(sink)
    faulthandler.register(signal.SIGUSR1, file=sink, all_threads=True, chain=False)
    return Handle(pid=os.getpid(), born=born(os.getpid()), stack_path=path, log_path=_own_log())


def myself(thread_id: int) -> Report:
    """This process seen from one of its own threads: the stack of `thread_id`."""
    frame = sys._current_frames().get(thread_id)
    stack = "".join(traceback.format_stack(frame)) if frame else ""
    return Report(state="answering", stack=stack, log=tail(_own_log()), ports=ports(), entered=entered())


def examine(handle: Handle, *, patience_s: float = 1.5) -> Report:
    """Another process of this node and user. A stopped one is continued, to let it write its stack."""
    state = state_of(handle)
    if state == "gone":
        return Report(state=state, log=tail(handle.log_path))
    size = _size(handle.stack_path)
    _signal_main_thread(handle, signal.SIGUSR1)
    signal_process(handle, signal.SIGCONT)
    end, stack = time.monotonic() + patience_s, ""
    while time.monotonic() < end:
        time.sleep(0.05)
        before, stack = stack, _read(handle.stack_path)[size:]
        if stack and stack == before:  # it has stopped growing
            break
    main_thread = stack.rstrip().rpartition("\n\n")[2]  # faulthandler writes it last
    return Report(state=state, stack=main_thread, log=tail(handle.log_path))


def born(pid: int) -> str:
    """The start time of a process as the kernel counts it; "" where there is no /proc or no such process."""
    fields = _stat(pid)
    return fields[19] if fields else ""


def state_of(handle: Handle) -> str:
    """running, stopped ... or gone (also: the pid is another process's by now)."""
    fields = _stat(handle.pid)
    if not fields:
        return "gone" if Path("/proc/self/stat").exists() else "unknown"
    if fields[19] != handle.born:
        return "gone"
    return STATES.get(fields[0], fields[0])


def is_alive(handle: Handle) -> bool:
    """Whether that very process still runs (False where it cannot be known)."""
    return state_of(handle) not in ("gone", "dead", "unknown")


def signal_process(handle: Handle, number: int) -> bool:
    """Signal exactly that process; False where it is gone."""
    if state_of(handle) == "gone":
        return False
    try:
        os.kill(handle.pid, number)
    except ProcessLookupError:
        return False
    return True


def _signal_main_thread(handle: Handle, number: int) -> None:
    """Signal the main thread itself: continued, it then writes its stack before it runs on."""
    tgkill = getattr(ctypes.CDLL(None), "tgkill", None)  # glibc 2.30 and newer
    if tgkill is None:
        signal_process(handle, number)
    elif state_of(handle) != "gone":
        tgkill(handle.pid, handle.pid, number)


def tail(path: str, lines: int = 15) -> str:
    """The last lines of a text file; "" where there is none."""
    try:
        with Path(path).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 16384))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; [] where there are none."""
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _size(path: str) -> int:
    return len(_read(path))


def _own_log() -> str:
    """The file behind our standard error, if it is one."""
    try:
        path = Path("/proc/self/fd/2").readlink()
    except OSError:
        return ""
    return str(path) if path.is_file() else ""
