"""Save, write plainly, load: the same state again and again, each save durable and each load cold.

    torchrun --nproc-per-node=4 -m benchmarks checkpoint --directory /lustre/scratch --contents weights

A repetition makes new data, saves it with torch.distributed.checkpoint and with plain writes (in alternating
order, so that neither always meets the emptier cache), evicts the files, and loads them into zeroed memory. The
previous checkpoint stays until the new one is whole. What it leaves behind is nothing.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.checkpoint.save import COLD, Loaded, Saved, load, save
from benchmarks.checkpoint.shards import rank_shards
from benchmarks.checkpoint.spec import Checkpoint
from benchmarks.checkpoint.state import State
from benchmarks.checkpoint.writers import write_plain, write_sharded
from benchmarks.measurement import Measurement
from benchmarks.storage.filesystem import FileSystem, filesystem_of
from benchmarks.world import World
from reference_model.shape import shape_of

PREFIX = "rackproof-checkpoint-"
MAX_NAMES = 16
IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")


def run(spec: Checkpoint, world: World) -> Iterator[Measurement]:
    """checkpoint.save.*, raw.*, load.* of the whole world, on rank 0.

    Raises ValueError or RuntimeError, on all ranks, where the folder is no place for two checkpoints.
    """
    layout = spec.layout_at(world.place)
    size = spec.state_bytes(world.place)
    folder = _open_folder(spec, world, size)
    saves: list[Saved] = []
    raws: list[Saved] = []
    loads: list[Loaded] = []
    try:
        state = State.random(rank_shards(shape_of(spec.model), layout, world.rank, spec.contents), layout, world)
        for repetition in range(spec.repetitions):
            state.stamp(repetition)
            _repeat(state, folder, world, repetition, saves, raws, loads)
            if loads[-1].wrong:  # the state is spoilt: what follows would measure something else
                break
        where = filesystem_of(folder)
    finally:
        if world.is_first:
            shutil.rmtree(folder, ignore_errors=True)
    if world.is_first:
        yield from _measurements(spec, world, size, where, saves, raws, loads)


def _repeat(
    state: State, folder: Path, world: World, repetition: int,
    saves: list[Saved], raws: list[Saved], loads: list[Loaded],
) -> None:  # fmt: skip
    hashes = state.hashes()
    step, raw = folder / f"step-{repetition}", folder / "raw"
    turns = [(saves, step, write_sharded), (raws, raw, write_plain)]
    for results, path, write in turns if repetition % 2 else reversed(turns):
        results.append(save(state, path, world, write=write, hashes=hashes))
    if world.is_first:
        shutil.rmtree(raw)
        if repetition:
            shutil.rmtree(folder / f"step-{repetition - 1}")
    loads.append(load(state, step, world, hashes=hashes))


def _measurements(
    spec: Checkpoint, world: World, size: int, where: FileSystem,
    saves: list[Saved], raws: list[Saved], loads: list[Loaded],
) -> Iterator[Measurement]:  # fmt: skip
    def measured(name: str, samples: list[float], results: list[Any] | None = None) -> Measurement:
        metric = spec.metric(name, world.place)
        columns = _rank_columns(results) if results else {}
        return metric.measured(*samples, subject=world.all(), columns=columns, notes=notes)

    notes = {"filesystem": where.to_dict(), "files": len(saves[-1].files), "file_bytes": sum(saves[-1].files.values())}
    yield measured("save.time", [s.seconds for s in saves], saves)
    yield measured("save.bandwidth", [size / s.seconds for s in saves])
    yield measured("raw.bandwidth", [size / s.seconds for s in raws], raws)
    coldest = min(loads, key=lambda found: found.cold_share)
    notes = {**notes, **coldest.evidence}
    if loads[-1].wrong:
        notes = {**notes, "wrong": loads[-1].wrong[:MAX_NAMES]}
    yield measured("load.wrong_tensors", [len(loads[-1].wrong)])
    yield measured("load.cold_share", [coldest.cold_share])
    if coldest.cold_share >= COLD:
        yield measured("load.time", [found.seconds for found in loads], loads)
    else:
        yield spec.metric("load.time", world.place).measured(
            subject=world.all(), outcome="error", notes=notes,
            reason=f"not proven cold on {where.kind}: {coldest.doubt}; set [checkpoint] directory to a disk or a "
            "parallel file system",
        )  # fmt: skip


def _rank_columns(results: list[Any]) -> dict[str, list[Any]]:
    """Median seconds of each rank: evidence that names the slow one."""
    per_rank = zip(*(r.rank_seconds for r in results), strict=True)
    medians = [sorted(seconds)[len(results) // 2] for seconds in per_rank]
    return {"rank": list(range(len(medians))), "rank_s": medians}


def _open_folder(spec: Checkpoint, world: World, size: int) -> Path:
    """A new folder that all ranks see, with room for two checkpoints and a raw write. Raises on all ranks alike."""
    made, problem = "", ""
    if world.is_first:
        try:
            made = _make_folder(spec, world, size)
        except (OSError, ValueError) as error:
            problem = str(error)
    made, problem = world.gather((made, problem))[0]
    if problem:
        raise ValueError(problem)
    folder = Path(made)
    unseen = [rank for rank, sees in enumerate(world.gather((folder / "here").is_file())) if not sees]
    if unseen:
        if world.is_first:
            shutil.rmtree(folder, ignore_errors=True)
        raise ValueError(
            f"checkpoint: rank {', '.join(map(str, unseen))} does not see {folder}: "
            "set [checkpoint] directory to a file system that all nodes share"
        )
    return folder


def _make_folder(spec: Checkpoint, world: World, size: int) -> str:
    parent = Path(spec.directory) if spec.directory else _default_parent(world)
    if not parent.is_dir():
        raise ValueError(f"checkpoint: no folder {parent}: make it, or set [checkpoint] directory to one that exists")
    free = os.statvfs(parent).f_bavail * os.statvfs(parent).f_frsize
    if free < 3 * size:
        raise ValueError(
            f"checkpoint: {parent} has {free / 1e9:.3g} GB free, two checkpoints and a raw write need "
            f"{3 * size / 1e9:.3g} GB: free space, or set [checkpoint] directory"
        )
    made = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
    (Path(made) / "here").touch()
    return made


def _default_parent(world: World) -> Path:
    """Where to save when nobody says: the scratch folder, unless it is memory and /var/tmp is not."""
    scratch = Path(world.scratch or tempfile.gettempdir())
    lasting = Path("/var/tmp")
    if filesystem_of(scratch).kind in IN_MEMORY and os.access(lasting, os.W_OK):
        return lasting
    return scratch
