"""Save, write plainly, load: the same state again and again, each save durable and each load cold.

    torchrun --nproc-per-node=4 -m benchmarks checkpoint --directory /lustre/scratch --contents weights

A repetition makes new data and saves it with every writer and with plain writes, in another order each time. After
each save the files are evicted and loaded into zeroed memory by other ranks than those that wrote them. The previous
checkpoint stays until the new one is whole. What it leaves behind is nothing.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.checkpoint.background import Background
from benchmarks.checkpoint.metadata import storm
from benchmarks.checkpoint.place import opened
from benchmarks.checkpoint.records import Results, measurements
from benchmarks.checkpoint.save import Saved, load, save
from benchmarks.checkpoint.scaling import scaling
from benchmarks.checkpoint.spec import ASYNC, RAW, Checkpoint
from benchmarks.checkpoint.state import State
from benchmarks.checkpoint.sustained import in_a_row
from benchmarks.checkpoint.writers import WRITERS, Tools, write_plain
from benchmarks.measurement import Measurement
from benchmarks.storage import lustre
from benchmarks.storage.aligned import Staging
from benchmarks.storage.filesystem import filesystem_of
from benchmarks.storage.identity import sort_of
from benchmarks.world import World
from reference_model.shape import shape_of

MAX_FILES = 1024  # that Lustre is asked about, once


def run(spec: Checkpoint, world: World) -> Iterator[Measurement]:
    """checkpoint.* of the whole world, on rank 0.

    Raises ValueError or RuntimeError, on all ranks, where the folder is no place for two checkpoints.
    """
    with opened(spec, world) as directory:
        results = _measure(spec, world, directory.folder)
    if world.is_first:
        yield from measurements(spec, world, directory, results)


def _measure(spec: Checkpoint, world: World, folder: Path) -> Results:
    shape, layout = shape_of(spec.model), spec.layout_at(world.place)
    state = State.allocate(shape, layout, spec.contents, world)
    staging = Staging(folder, threads=spec.threads, pinned=world.device.type == "cuda")
    results = Results(mode=staging.mode)
    with ExitStack() as open_tools:
        beside = spec.repetitions and any(writer in ASYNC for writer in spec.writers)
        background = open_tools.enter_context(Background(folder, world)) if beside else None
        tools = Tools(staging=staging, background=background)
        if spec.repetitions:
            _with_loads(spec, world, folder, state, tools, results)
        if spec.in_a_row and not results.spoilt:
            if not spec.repetitions:
                state.fill(repetition=0)
            results.rows = in_a_row(spec, world, folder, state, tools)
    return results


def _with_loads(spec: Checkpoint, world: World, folder: Path, state: State, tools: Tools, results: Results) -> None:
    shape, layout = shape_of(spec.model), spec.load_layout_at(world.place)
    target = State.allocate(shape, layout, spec.contents, world, shift=reader_shift(world))
    if spec.metadata_files:
        results.files_rate = storm(folder, world, num_files=spec.metadata_files)
    _repeat(spec, world, folder, state, target, tools, results)
    if spec.partial(world.place) and not results.spoilt:
        results.scaling = scaling(spec, world, folder, state, tools)


def _repeat(
    spec: Checkpoint, world: World, folder: Path, state: State, target: State, tools: Tools, results: Results
) -> None:
    previous: Path | None = None
    where = filesystem_of(folder)
    for repetition in range(spec.repetitions):
        state.fill(repetition=repetition)
        for turn in rotated([RAW, *spec.writers], repetition):
            step = folder / (RAW if turn == RAW else f"step-{repetition}-{turn}")
            write = write_plain if turn == RAW else WRITERS[turn][0]
            saved = save(state, step, world, write=write, tools=tools)
            if world.is_first and where.kind == "lustre":
                results.osts[turn].append(_targets(step, saved))
                results.stripes = results.stripes or lustre.evidence(step, _sized(step, saved))
            if turn == RAW:
                results.raws.append(saved)
                _remove(step, world)
                continue
            results.saves[turn].append(saved)
            _remove(previous, world)
            previous = step
            read = WRITERS[turn][1]
            results.loads[turn].append(load(target, step, world, read=read, repetition=repetition, sort=sort_of(where)))
        if results.spoilt:
            break
        time.sleep(spec.pause_s)


def _targets(step: Path, saved: Saved) -> str:
    """The Lustre targets of the files of the rank that everybody waited for."""
    return lustre.targets_of([step / name for name in saved.rank_files[saved.slowest_rank]])


def _sized(step: Path, saved: Saved) -> dict[Path, int]:
    return {step / name: size for name, size in list(saved.files.items())[:MAX_FILES]}


def reader_shift(world: World) -> int:
    """Each rank loads what was saved one node further on; within one node, one rank further on."""
    return len(world.local_ranks) % world.size or 1


def rotated(turns: list[str], repetition: int) -> list[str]:
    """Another order each time, so that no writer always meets the emptier device."""
    first = repetition % len(turns)
    return turns[first:] + turns[:first]


def _remove(folder: Path | None, world: World) -> None:
    if folder and world.is_first:
        shutil.rmtree(folder)
