"""One campaign at a time per cluster: a lock that names its holder.

Two campaigns on the same nodes disturb each other's numbers. The lock is held by the kernel (flock), so that
it goes when its holder dies. It lies in the machine's temporary folder, or in the cluster file's
`[campaign] lock` folder where several login nodes share one.
"""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import re
import socket
import tempfile
from pathlib import Path
from typing import IO

from benchmarks.measurement import now
from clusters.cluster import Cluster


class LockedError(RuntimeError):
    """Another campaign runs on this cluster; the message names who."""


class CampaignLock:
    """Held from `acquire` until `release` or the end of the process."""

    def __init__(self, cluster: Cluster) -> None:
        folder = Path(cluster.setting("campaign", "lock", "") or tempfile.gettempdir())
        self.cluster = cluster.name
        self.path = folder / f"rackproof-{re.sub(r'[^A-Za-z0-9._-]', '_', cluster.name)}.lock"
        self._file: IO[str] | None = None

    def acquire(self, run_folder: str) -> None:
        """Take the lock, or raise LockedError naming the holder (user, host, process, run, since)."""
        old = os.umask(0)
        try:
            file = os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666), "r+")
        except OSError as error:
            raise LockedError(f"the lock {self.path} cannot be opened: {error.strerror}") from None
        finally:
            os.umask(old)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = _holder(file.read())
            file.close()
            raise LockedError(f"a campaign already runs on {self.cluster}: {holder}; wait for it, or end it") from None
        file.truncate(0)
        json.dump(
            {"user": getpass.getuser(), "host": socket.gethostname(), "pid": os.getpid(), "run": run_folder,
             "since": now()}, file,
        )  # fmt: skip
        file.flush()
        self._file = file

    def release(self) -> None:
        """Give the lock back; the file stays, empty."""
        if self._file:
            self._file.truncate(0)
            self._file.close()
            self._file = None


def _holder(text: str) -> str:
    try:
        who = json.loads(text)
        return f"{who['user']} on {who['host']}, process {who['pid']}, since {who['since']}, run {who['run']}"
    except (ValueError, KeyError, TypeError):
        return "its holder has not written its name yet"
