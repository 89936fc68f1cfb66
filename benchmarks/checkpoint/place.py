"""Where checkpoints and token files go: a folder that all ranks see, with room for them, and what is wrong with it.

What makes measuring impossible (no folder, no room, not shared) raises, on all ranks alike. What is merely wrong
(NFS, a mount that failed, a full OST) is measured all the same and listed: `checkpoint.directory.problems`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from benchmarks import scratch
from benchmarks.checkpoint.leftovers import OWNER, claim, claimed, clear
from benchmarks.checkpoint.save import explain
from benchmarks.spec import Place
from benchmarks.storage import lustre
from benchmarks.storage.filesystem import FileSystem, filesystem_of
from benchmarks.storage.identity import apart, problems, sort_of
from benchmarks.world import World

PREFIX = "rackproof-checkpoint-"


class Wanted(Protocol):
    """What a spec says of its place."""

    @property
    def directory(self) -> str: ...  # empty: a temporary one
    @property
    def filesystem(self) -> str: ...  # sorts or kinds that are right
    @property
    def capacity_bytes(self) -> int: ...

    def space_bytes(self, place: Place) -> int:
        """Bytes that are there at the same time, at most."""
        ...


@dataclass(frozen=True, kw_only=True)
class Directory:
    """The run's own folder and what it lies on, as the first rank sees it."""

    folder: Path
    where: FileSystem
    sort: str  # parallel | network | local | memory | ... (storage/identity.py)
    free_bytes: int
    size_bytes: int
    problems: list[str] = field(default_factory=list)  # of all nodes
    leftovers: list[str] = field(default_factory=list)  # folders of other runs, dead or alive, that are still there


@contextmanager
def opened(spec: Wanted, world: World) -> Iterator[Directory]:
    """A new folder in the spec's directory that all ranks see; removed at the end, on every way out.

    Raises ValueError with the cure, on all ranks alike, where it cannot be made, shared, or hold what is wanted.
    """
    folder, leftovers = _make_folder_together(spec, world)
    try:
        yield _directory(spec, world, folder, leftovers)
    finally:
        if world.is_first:
            shutil.rmtree(folder, ignore_errors=True)


def _directory(spec: Wanted, world: World, folder: Path, leftovers: list[str]) -> Directory:
    where = filesystem_of(folder)
    sort, stat = sort_of(where), os.statvfs(folder)
    inode = (folder / OWNER).stat().st_ino
    everywhere = dict(zip(world.nodes, world.gather((where, sort, inode)), strict=True))
    size = stat.f_blocks * stat.f_frsize
    found = problems(spec.filesystem, [(node, place, sort) for node, (place, sort, _) in everywhere.items()])
    found += apart([(node, place, inode) for node, (place, _, inode) in everywhere.items()])
    if size < spec.capacity_bytes:
        found.append(
            f"{where.mount_point} holds {size / 1e12:.4g} TB, the cluster file says {spec.capacity_bytes / 1e12:.4g}"
        )
    if where.kind == "lustre" and world.is_first:
        found += _of_targets(folder, spec.space_bytes(world.place))
    return Directory(
        folder=folder, where=where, sort=sort, free_bytes=stat.f_bavail * stat.f_frsize, size_bytes=size,
        problems=found, leftovers=leftovers,
    )  # fmt: skip


def _of_targets(folder: Path, needed: int) -> list[str]:
    try:
        return lustre.target_problems(lustre.ask_lfs(("df", str(folder))), bytes_needed=needed)
    except lustre.LustreError as error:
        return [str(error)]


def _make_folder_together(spec: Wanted, world: World) -> tuple[Path, list[str]]:
    made, left, problem = "", [""], ""
    if world.is_first:
        try:
            made, left = _make_folder(spec, world)
        except ValueError as error:
            problem = str(error)
        except OSError as error:
            problem = f"checkpoint: {explain(error, Path(spec.directory))}"
    made, left, problem = world.gather((made, left, problem))[0]
    if problem:
        raise ValueError(problem)
    folder = Path(made)
    claims = world.gather(claimed(folder))
    unseen = [rank for rank, claim in enumerate(claims) if claim != claims[0]]
    if unseen:
        if world.is_first:
            shutil.rmtree(folder, ignore_errors=True)
        raise ValueError(
            f"checkpoint: rank {', '.join(map(str, unseen))} does not see {folder}: "
            "set [checkpoint] directory to a file system that all nodes share"
        )
    return folder, left


def _make_folder(spec: Wanted, world: World) -> tuple[str, list[str]]:
    parent = Path(spec.directory) if spec.directory else default_parent(world)
    if not parent.is_dir():
        raise ValueError(f"checkpoint: no folder {parent}: make it, or set [checkpoint] directory to one that exists")
    _, left = clear(parent, PREFIX)
    needed = spec.space_bytes(world.place)
    free = os.statvfs(parent).f_bavail * os.statvfs(parent).f_frsize
    if free < needed:
        raise ValueError(
            f"checkpoint: {parent} has {free / 1e9:.3g} GB free, {needed / 1e9:.3g} GB are needed (two checkpoints and "
            f"a raw write, or token files): free space, or set [checkpoint] directory"
        )
    made = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
    claim(Path(made))
    return made, left


def default_parent(world: World) -> Path:
    """Where to save when nobody says: the launch's scratch folder, which lies on a disk where there is one."""
    return Path(world.scratch or scratch.root())
