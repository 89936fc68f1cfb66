"""What a launch leaves behind on a node: processes, GPU memory, shared memory, scratch folders, listening ports.

    RACKPROOF_REMAINS=TOKEN python -m benchmarks.remains

Every rank carries its launch's token in its environment, and so does whatever it started: that is how a process is
known as ours however far it ran away. A file in /dev/shm counts where it is our user's, named as torch or NCCL name
theirs, and no process has it mapped: nobody will ever remove it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import time
from pathlib import Path

from benchmarks import gpumemory, inventory, scratch

LAUNCH = "RACKPROOF_LAUNCH"  # the mark, with the token, of a launcher and all that it starts
ASKED = "RACKPROOF_REMAINS"  # the token asked about: who asks must not carry the mark, or it would find itself
SPARED = "RACKPROOF_SPARED"  # HOST:PID of a launcher that still lives, and is being ended in an orderly way
MARK = LAUNCH.encode() + b"="
PATIENCE_S = 2.0
SHARED = ("torch_*", "nccl-*")


def remains(
    token: str, *, end: bool = False, spared: int = 0, proc: Path = Path("/proc"),
    ask: inventory.Ask = inventory.ask_nvidia_smi,
) -> list[str]:  # fmt: skip
    """One line for each thing of that launch that is still here; this process and its parents do not count.

    Neither do the process `spared` and its children. With `end`, its processes are ended after they were noted, and its
    scratch folder is removed before it is looked for: ranks that were ended cannot remove it themselves.
    """
    found = []
    last = time.monotonic() + PATIENCE_S
    while (marked := _marked(token, proc, spared)) and time.monotonic() < last:
        time.sleep(0.05)  # a process that is just ending is none that remains
    for pid in marked:
        words = _read(proc / str(pid) / "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
        ports = _listening(pid, proc)
        holds = f", holds port {', '.join(map(str, ports))}" if ports else ""
        found.append(f"process {pid} ({words[:80] or 'a zombie'}){holds}")
        if end:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    folder = scratch.folder(token)
    if end:
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        found.append(f"folder {folder}")
    found += [f"shared memory {path}" for path in _shared_memory(proc)]
    return found + gpumemory.unclaimed(ask=ask, patience_s=PATIENCE_S)


def is_ours(pid: int, *, proc: Path = Path("/proc")) -> bool:
    """Whether a process belongs to a launch of this suite."""
    return MARK in _read(proc / str(pid) / "environ")


def _marked(token: str, proc: Path, spared: int) -> list[int]:
    mark = MARK + token.encode()
    own = _ancestors(os.getpid(), proc)
    pids = sorted(int(entry.name) for entry in proc.glob("[0-9]*"))
    marked = [p for p in pids if p not in own and mark in _read(proc / str(p) / "environ").split(b"\0")]
    return [p for p in marked if not (spared and spared in _ancestors(p, proc))]


def _ancestors(pid: int, proc: Path) -> set[int]:
    found = set()
    while pid > 0 and pid not in found:
        found.add(pid)
        fields = _read(proc / str(pid) / "stat").rpartition(b")")[2].split()
        pid = int(fields[1]) if fields else 0
    return found


def _listening(pid: int, proc: Path) -> list[int]:
    """TCP ports that a process listens on."""
    inodes = set()
    try:
        for link in (proc / str(pid) / "fd").iterdir():
            target = str(link.readlink())
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    except OSError:
        return []
    ports = set()
    for name in ("tcp", "tcp6"):
        for line in _read(proc / str(pid) / "net" / name).splitlines()[1:]:
            fields = line.split()
            if fields[3] == b"0A" and fields[9].decode() in inodes:  # 0A: LISTEN
                ports.add(int(fields[1].rpartition(b":")[2], 16))
    return sorted(ports)


def _shared_memory(proc: Path, folder: Path = Path("/dev/shm")) -> list[Path]:
    mine = [p for pattern in SHARED for p in folder.glob(pattern) if _owner(p) == os.getuid()]
    if not mine:
        return []
    maps = b"".join(_read(entry / "maps") for entry in proc.glob("[0-9]*"))
    return sorted(p for p in mine if str(p).encode() not in maps)


def _owner(path: Path) -> int:
    try:
        return path.stat().st_uid
    except OSError:
        return -1


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def main() -> int:
    """Print what remains on this node as one line of JSON, and end it."""
    host, _, launcher = os.environ.get(SPARED, "").rpartition(":")
    spared = int(launcher) if launcher and host == socket.gethostname() else 0
    found = remains(os.environ[ASKED], end=True, spared=spared)
    print(json.dumps({"node": socket.gethostname(), "remains": found}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
