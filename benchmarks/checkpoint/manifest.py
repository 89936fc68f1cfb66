"""When a checkpoint is whole: a manifest, renamed into place after everything it names is durable.

Folder layout: `step-3/` with data files and, last, `MANIFEST.json`: names and sizes of the files, hashes of the
tensors, and a hash of itself. A folder without a whole manifest is no checkpoint. Standard library only.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as parent:
...     folder = Path(parent) / "step-1"
...     folder.mkdir()
...     write_manifest(folder, {"files": {}})
...     newest(Path(parent)) == folder
True
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

NAME = "MANIFEST.json"


class ManifestError(RuntimeError):
    """The folder is no whole checkpoint, and why."""


def sync_file(path: Path) -> None:
    """fsync a file that somebody else wrote."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """fsync a folder: its entries (new files, renames) survive a crash only after this."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_manifest(folder: Path, content: dict[str, Any]) -> None:
    """Make the checkpoint in `folder` whole: write, sync, rename, sync the folder."""
    text = json.dumps({"sha256": _digest(content), **content}, indent=1, sort_keys=True)
    partial = folder / f"{NAME}.partial"
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(folder / NAME)
    sync_folder(folder)


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a whole checkpoint, without its own hash.

    Raises ManifestError where it is absent, cut or altered, or a file it names is absent or of another size.
    """
    path = folder / NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        claimed = content.pop("sha256")
    except FileNotFoundError:
        raise ManifestError(f"{folder} has no {NAME}: the save did not finish") from None
    except (ValueError, AttributeError, KeyError):
        raise ManifestError(f"{path} is cut or no manifest") from None
    if claimed != _digest(content):
        raise ManifestError(f"{path} was altered: its hash does not fit")
    for name, size in content["files"].items():
        try:
            found = (folder / name).stat().st_size
        except FileNotFoundError:
            raise ManifestError(f"{folder / name} is missing") from None
        if found != size:
            raise ManifestError(f"{folder / name} has {found} bytes, the manifest says {size}")
    return content  # type: ignore[no-any-return]


def newest(parent: Path) -> Path | None:
    """The checkpoint `step-N` with the highest N that is whole; None where there is none."""
    steps = [(int(p.name[5:]), p) for p in parent.glob("step-*") if p.name[5:].isdigit()]
    for _, folder in sorted(steps, reverse=True):
        try:
            read_manifest(folder)
        except ManifestError:
            continue
        return folder
    return None


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
