"""Folders that killed runs left behind: found, removed where their owner is certainly dead, reported otherwise.

A rank that is killed in the middle of a save leaves up to a terabyte. Its folder holds a file that names the owner:
host, process-id namespace, process id and that process' start. Only a folder of this user whose owner ran on this
very host and is gone is removed; everything else might belong to a run that is alive somewhere.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     claim(Path(folder))
...     owner_is_dead(Path(folder))
False
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path

OWNER = "owner.json"


def claim(folder: Path) -> None:
    """Say in `folder` that this process owns it."""
    (folder / OWNER).write_text(json.dumps(_identity(os.getpid())), encoding="utf-8")


def claimed(folder: Path) -> str:
    """What `claim` wrote in `folder`; "" where it cannot be read: it is another folder."""
    return _read(str(folder / OWNER))


def owner_is_dead(folder: Path) -> bool:
    """Whether the owner ran here, as this user, and is certainly gone. In doubt it is alive."""
    try:
        owner = json.loads((folder / OWNER).read_text(encoding="utf-8"))
        mine = _identity(os.getpid())
        if folder.stat().st_uid != os.getuid() or not mine["start"]:
            return False
        same_place = all(owner[key] == mine[key] for key in ("host", "boot", "namespace"))
        return bool(same_place and _identity(int(owner["pid"]))["start"] != owner["start"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def clear(parent: Path, prefix: str) -> tuple[list[str], list[str]]:
    """Names of the folders `parent/prefix*` that were removed, and of those that stay."""
    removed: list[str] = []
    left: list[str] = []
    for folder in sorted(parent.glob(f"{prefix}*")):
        if owner_is_dead(folder):
            shutil.rmtree(folder, ignore_errors=True)
        (left if folder.exists() else removed).append(folder.name)
    return removed, left


def _identity(pid: int) -> dict[str, str]:
    """Who a process is; "start" is empty where it is not there or the system does not tell."""
    return {
        "host": socket.gethostname(),
        "boot": _read("/proc/sys/kernel/random/boot_id"),
        "namespace": _link("/proc/self/ns/pid"),
        "pid": str(pid),
        "start": "".join(_read(f"/proc/{pid}/stat").rpartition(")")[2].split()[19:20]),  # proc(5): field 22
    }


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""
