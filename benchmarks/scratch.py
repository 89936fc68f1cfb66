"""The folder that the ranks of one launch share on one node, for what a benchmark writes.

It lies in /var/tmp where there is one: /tmp is memory on many systems, and what is written to memory says
nothing of a disk. RACKPROOF_SCRATCH chooses another place. The launch's random token is in its name.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

ROOT = "RACKPROOF_SCRATCH"


def folder(token: str) -> Path:
    """Where a launch's scratch folder is on this node, made or not."""
    return Path(root()) / f"rackproof-{token}"


def root() -> str:
    """The folder that scratch folders are made in."""
    if chosen := os.environ.get(ROOT):
        return chosen
    return "/var/tmp" if os.access("/var/tmp", os.W_OK) else tempfile.gettempdir()


def make(token: str) -> str:
    """Make it, for this user only; whichever rank comes first does."""
    path = folder(token)
    path.mkdir(mode=0o700, exist_ok=True)
    return str(path)
