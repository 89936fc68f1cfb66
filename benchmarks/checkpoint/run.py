"""Save, write plainly, load: the same state again and again, each save durable and each load cold.

    torchrun --nproc-per-node=4 -m benchmarks checkpoint --directory /lustre/scratch --contents weights

A repetition makes new data and saves it with every writer and with plain writes, in another order each time. After
each save the files are evicted and loaded into zeroed memory by other ranks than those that wrote them. The previous
checkpoint stays until the new one is whole. What it leaves behind is nothing.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.checkpoint.background import Background
from benchmarks.checkpoint.metadata import storm
from benchmarks.checkpoint.place import Directory, opened
from benchmarks.checkpoint.save import Loaded, Saved, load, save
from benchmarks.checkpoint.spec import ASYNC, Checkpoint
from benchmarks.checkpoint.state import State
from benchmarks.checkpoint.writers import WRITERS, Tools, write_plain
from benchmarks.measurement import Measurement
from benchmarks.storage import lustre
from benchmarks.storage.aligned import Staging
from benchmarks.storage.cold import COLD
from benchmarks.storage.filesystem import filesystem_of
from benchmarks.storage.identity import sort_of
from benchmarks.world import World
from clusters.physics import daly_interval, lost_share
from reference_model.shape import shape_of

RAW = "raw"
MAX_NAMES = 16


@dataclass(kw_only=True)
class Results:
    """What has been measured so far. `saves` and `loads` are kept by writer."""

    saves: dict[str, list[Saved]] = field(default_factory=lambda: defaultdict(list))
    loads: dict[str, list[Loaded]] = field(default_factory=lambda: defaultdict(list))
    raws: list[Saved] = field(default_factory=list)
    files_rate: dict[str, list[float]] = field(default_factory=dict)  # metadata operation -> files per second
    mode: str = ""  # how the raw writer wrote: direct, uncached or buffered
    stripes: dict[str, Any] = field(default_factory=dict)  # what Lustre says of the first save's files

    @property
    def spoilt(self) -> bool:
        """Whether a load came back wrong: what follows would measure something else."""
        return any(found.wrong for loads in self.loads.values() for found in loads)


def run(spec: Checkpoint, world: World) -> Iterator[Measurement]:
    """checkpoint.save.*, raw.*, load.* of the whole world, on rank 0.

    Raises ValueError or RuntimeError, on all ranks, where the folder is no place for two checkpoints.
    """
    with opened(spec, world) as directory:
        results = _measure(spec, world, directory.folder)
    if world.is_first:
        yield from _measurements(spec, world, directory, results)


def _measure(spec: Checkpoint, world: World, folder: Path) -> Results:
    shape, layout = shape_of(spec.model), spec.layout_at(world.place)
    state = State.allocate(shape, layout, spec.contents, world)
    target = State.allocate(shape, spec.load_layout_at(world.place), spec.contents, world, shift=reader_shift(world))
    staging = Staging(folder, threads=spec.threads, pinned=world.device.type == "cuda")
    results = Results(mode=staging.mode)
    if spec.metadata_files:
        results.files_rate = storm(folder, world, num_files=spec.metadata_files)
    with ExitStack() as open_tools:
        beside = any(writer in ASYNC for writer in spec.writers)
        background = open_tools.enter_context(Background(folder, world)) if beside else None
        _repeat(spec, world, folder, state, target, Tools(staging=staging, background=background), results)
    return results


def _repeat(
    spec: Checkpoint, world: World, folder: Path, state: State, target: State, tools: Tools, results: Results
) -> None:
    previous: Path | None = None
    for repetition in range(spec.repetitions):
        state.fill(repetition=repetition)
        for turn in rotated([RAW, *spec.writers], repetition):
            step = folder / (RAW if turn == RAW else f"step-{repetition}-{turn}")
            write = write_plain if turn == RAW else WRITERS[turn][0]
            saved = save(state, step, world, write=write, tools=tools)
            if turn == RAW:
                results.raws.append(saved)
                _remove(step, world)
                continue
            results.saves[turn].append(saved)
            if world.is_first and not results.stripes and filesystem_of(step).kind == "lustre":
                results.stripes = lustre.evidence(step, [step / name for name in saved.files][:MAX_NAMES])
            _remove(previous, world)
            previous = step
            loaded = load(
                target, step, world, read=WRITERS[turn][1], repetition=repetition, sort=sort_of(filesystem_of(step))
            )
            results.loads[turn].append(loaded)
        if results.spoilt:
            break
        time.sleep(spec.pause_s)


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


def _measurements(spec: Checkpoint, world: World, directory: Directory, results: Results) -> Iterator[Measurement]:
    place = {
        "filesystem": directory.where.to_dict(), "sort": directory.sort, "raw_mode": results.mode, **results.stripes,
    }  # fmt: skip
    room = {"size_bytes": directory.size_bytes, "free_bytes": directory.free_bytes, "problems": directory.problems}
    room |= {"leftovers": directory.leftovers} if directory.leftovers else {}
    yield spec.problems().measured(len(directory.problems), subject=world.all(), notes={**place, **room})
    for operation, files_rate in results.files_rate.items():
        yield spec.metadata(operation).measured(*files_rate, subject=world.all())
    rates = [spec.state_bytes(world.place) / s.seconds for s in results.raws]
    columns = _rank_columns(results.raws, world)
    notes = {**place, **_cost(results.raws), **_slowest(results.raws, world)}
    yield spec.raw(world.place).measured(*rates, subject=world.all(), columns=columns, notes=notes)
    for writer in spec.writers:
        yield from _of_writer(spec, world, writer, results.saves[writer], results.loads[writer], place)


def _of_writer(
    spec: Checkpoint, world: World, writer: str, saves: list[Saved], loads: list[Loaded], where: dict[str, Any]
) -> Iterator[Measurement]:
    def measured(name: str, *samples: float, results: list[Any] | None = None, **fields: Any) -> Measurement:
        columns = _rank_columns(results, world) if results else {}
        return spec.metric(name, writer, world.place).measured(*samples, subject=world.all(), columns=columns, **fields)

    size, notes = spec.state_bytes(world.place), {**where, **_cost(saves), **_slowest(saves, world)}
    yield measured("save.time", *(s.seconds for s in saves), results=saves, notes={**notes, **_goodput(spec, saves)})
    if writer in ASYNC:
        yield measured("save.stall", *(s.stall_s for s in saves), notes=notes)
    yield measured("save.bandwidth", *(size / s.seconds for s in saves), notes=notes)
    coldest = min(loads, key=lambda found: found.cold_share)
    notes = {**where, **coldest.evidence}
    wrong = loads[-1].wrong
    named = {**notes, "wrong": wrong[:MAX_NAMES]} if wrong else notes
    yield measured("load.wrong_tensors", len(wrong), notes=named)
    yield measured("load.cold_share", coldest.cold_share, notes=notes)
    if coldest.cold_share >= COLD:
        yield measured("load.time", *(found.seconds for found in loads), results=loads, notes=notes)
    else:
        yield measured(
            "load.time", outcome="error", notes=notes,
            reason=f"not proven cold on {where['filesystem']['kind']}: {coldest.doubt}; "
            "set [checkpoint] directory to a disk or a parallel file system",
        )  # fmt: skip


def _cost(saves: list[Saved]) -> dict[str, Any]:
    size = sum(saves[-1].files.values())
    cpu = sum(s.cpu_s for s in saves) / len(saves) / (size / 2**30)
    extra = [s.extra_bytes for s in saves if s.extra_bytes is not None]
    known = {"extra_memory_bytes": max(extra)} if extra else {}  # of one rank, on top of the state
    return {"files": len(saves[-1].files), "file_bytes": size, "cpu_s_per_gib": round(cpu, 3), **known}


def _slowest(results: list[Any], world: World) -> dict[str, str]:
    """Which rank everybody waited for in the slowest save, and its host."""
    seconds = max(results, key=lambda r: r.seconds).rank_seconds
    rank = max(range(len(seconds)), key=seconds.__getitem__)
    return {"slowest": f"rank {rank} on {world.nodes[rank]}"}


def _goodput(spec: Checkpoint, saves: list[Saved]) -> dict[str, float]:
    """Share of training time lost to saves and failures at the spec's interval and at the best one (Young, Daly)."""
    if not spec.mtbf_s:
        return {}
    save_s = statistics.median(s.seconds for s in saves)
    best = daly_interval(save_s=save_s, mtbf_s=spec.mtbf_s)
    lost = {"best": best, **({"file": spec.interval_s} if spec.interval_s else {})}
    shares = {
        f"lost_share_at_{name}_interval": lost_share(
            interval_s=interval, save_s=save_s, restart_s=spec.restart_s, mtbf_s=spec.mtbf_s
        )
        for name, interval in lost.items()
    }
    return {"best_interval_s": best, **shares}


def _rank_columns(results: list[Any], world: World) -> dict[str, list[Any]]:
    """Evidence that names the slow rank: median seconds of each, and when it began and ended in the slowest turn.

    Both count from the barrier that the turn begins with.
    """
    per_rank = zip(*(r.rank_seconds for r in results), strict=True)
    medians = [sorted(seconds)[len(results) // 2] for seconds in per_rank]
    worst = max(results, key=lambda r: r.seconds)
    ends = [begin + seconds for begin, seconds in zip(worst.rank_begins, worst.rank_seconds, strict=True)]
    return {
        "rank": list(range(len(medians))), "node": list(world.nodes), "rank_s": medians,
        "begin_s": list(worst.rank_begins), "end_s": ends,
    }  # fmt: skip
