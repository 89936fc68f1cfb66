"""Which file system a path is really on: the mount table's longest match of its real path.

The name of a folder says nothing: a failed mount leaves an empty folder on the root disk, and a symlink may lead
into memory. Nothing here judges; the cluster file says what should be there.

>>> filesystem_of(Path("/dev/shm")).kind
'tmpfs'
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

MOUNTS = Path("/proc/self/mountinfo")


@dataclass(frozen=True, kw_only=True)
class FileSystem:
    """One mounted file system, as the mount table has it."""

    kind: str  # ext4, xfs, lustre, nfs4, tmpfs, fuse.NAME ...
    source: str  # device, server:/export or name
    mount_point: str
    device: str = ""  # major:minor
    options: str = ""  # of the mount and of the file system

    def to_dict(self) -> dict[str, Any]:
        """Its fields, for a record."""
        return asdict(self)


def filesystem_of(path: Path, mounts: Path = MOUNTS) -> FileSystem:
    """The file system that holds `path`. OSError where the mount table cannot be read."""
    real = os.path.realpath(path)
    if not mounts.exists():
        return _by_df(real)
    inside = [m for m in parse_mounts(mounts.read_text(encoding="utf-8", errors="surrogateescape")) if _holds(m, real)]
    longest = max(len(m.mount_point) for m in inside)
    return [m for m in inside if len(m.mount_point) == longest][-1]  # of mounts on one point, the last is on top


def parse_mounts(text: str) -> list[FileSystem]:
    """The lines of a mountinfo (proc(5)), in order."""
    found = []
    for line in text.splitlines():
        mount, _, rest = line.partition(" - ")
        left, right = mount.split(), rest.split()
        if len(left) < 6 or len(right) < 2:
            continue
        source, point, options = _unescape(right[1]), _unescape(left[4]), ",".join([left[5], *right[2:3]])
        found.append(FileSystem(kind=right[0], source=source, mount_point=point, device=left[2], options=options))
    return found


def _holds(mount: FileSystem, real: str) -> bool:
    return mount.mount_point == "/" or real == mount.mount_point or real.startswith(mount.mount_point + "/")


def _unescape(text: str) -> str:
    """Spaces, tabs, newlines and backslashes are octal in the mount table: "\\040"."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text)


def _by_df(real: str) -> FileSystem:
    """Without a mount table (macOS): `df` names source and mount point, not the kind."""
    done = subprocess.run(["df", "-P", real], capture_output=True, text=True, timeout=30, check=True)
    words = done.stdout.splitlines()[-1].split()
    return FileSystem(kind=f"unknown on {sys.platform}", source=words[0], mount_point=words[-1])
