"""What a node says of itself before torch is imported: enough to refuse it before anything is measured.

Versions come from package metadata and sources from the files, so nothing is imported for it. One rank of each node
asks; the controller compares.

>>> sorted(facts())[:2]
['python', 'sources']
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
from pathlib import Path

from benchmarks.inventory import DriverError
from benchmarks.strangers import strangers

ROOMS = ("benchmarks", "clusters", "reference_model")


def facts(root: Path = Path(__file__).parent.parent) -> dict[str, str]:
    """Fact -> value: python, torch, sources (a hash of what ranks run), strangers (only where there are some)."""
    found = {"python": platform.python_version(), "torch": _version("torch"), "sources": sources(root)}
    try:
        others = ", ".join(map(str, strangers()))
    except DriverError as error:
        others = str(error)
    return found | ({"strangers": others} if others else {})


def sources(root: Path) -> str:
    """A short hash of every Python file that a rank may run: two nodes with the same one run the same code."""
    digest = hashlib.sha256()
    for path in sorted(p for room in ROOMS for p in (root / room).rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
