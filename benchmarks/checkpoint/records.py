"""From what was measured to records: every number with who was slow, what it cost, and where it was.

Nothing is measured or judged here. Only the first rank has records.

    yield from measurements(spec, world, directory, results)
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.checkpoint import sustained
from benchmarks.checkpoint.place import Directory
from benchmarks.checkpoint.save import Loaded, Saved
from benchmarks.checkpoint.scaling import Rates, network_ceiling, projected
from benchmarks.checkpoint.spec import ASYNC, METRICS, PROVEN, RAW, STALL, Checkpoint
from benchmarks.measurement import Measurement
from benchmarks.storage.cold import COLD
from benchmarks.world import World
from clusters.physics import daly_interval, lost_share
from clusters.projection import ProjectionError

MAX_NAMES = 16
SHOWN = 3  # of them in a sentence
EVERYBODY = "measure on all nodes of the cluster"


@dataclass(kw_only=True)
class Results:
    """What has been measured so far. `saves` and `loads` are kept by writer."""

    saves: dict[str, list[Saved]] = field(default_factory=lambda: defaultdict(list))
    loads: dict[str, list[Loaded]] = field(default_factory=lambda: defaultdict(list))
    raws: list[Saved] = field(default_factory=list)
    files_rate: dict[str, list[float]] = field(default_factory=dict)  # metadata operation -> files per second
    mode: str = ""  # how the raw writer wrote: direct, uncached or buffered
    stripes: dict[str, Any] = field(default_factory=dict)  # what Lustre says of the first save's files
    osts: dict[str, list[str]] = field(
        default_factory=lambda: defaultdict(list)
    )  # of the slowest rank's files, by save
    scaling: Rates = field(default_factory=dict)  # where the job has more ranks than there are
    rows: list[Saved] = field(default_factory=list)  # saves in a row

    @property
    def spoilt(self) -> bool:
        """Whether a load came back wrong: what follows would measure something else."""
        return any(found.wrong for loads in self.loads.values() for found in loads)


def measurements(spec: Checkpoint, world: World, directory: Directory, results: Results) -> Iterator[Measurement]:
    """All that `spec.emits` promises."""
    place = {
        "filesystem": directory.where.to_dict(), "sort": directory.sort, "raw_mode": results.mode, **results.stripes,
    }  # fmt: skip
    room = {"size_bytes": directory.size_bytes, "free_bytes": directory.free_bytes, "problems": directory.problems}
    room |= {"leftovers": directory.leftovers} if directory.leftovers else {}
    if spec.repetitions:
        says = {"says": "; ".join(directory.problems)} if directory.problems else {}
        yield spec.problems().measured(len(directory.problems), subject=world.all(), notes={**place, **room, **says})
        for operation, files_rate in results.files_rate.items():
            yield spec.metadata(operation).measured(*files_rate, subject=world.all())
        yield from (_projected if spec.partial(world.place) else _whole)(spec, world, results, place)
    if results.rows:
        yield from _in_a_row(spec, world, results.rows, place)


def _whole(spec: Checkpoint, world: World, results: Results, place: dict[str, Any]) -> Iterator[Measurement]:
    rates = [spec.state_bytes(world.place) / s.seconds for s in results.raws]
    columns = _rank_columns(results.raws, world)
    notes = {**place, **_cost(results.raws), **_slowest(results.raws, world, results.osts[RAW])}
    yield spec.raw(world.place).measured(*rates, subject=world.all(), columns=columns, notes=notes)
    for writer in spec.writers:
        yield from _of_saves(spec, world, writer, results, place)
        yield from _of_loads(spec, world, writer, results.loads[writer], place)


def _projected(spec: Checkpoint, world: World, results: Results, place: dict[str, Any]) -> Iterator[Measurement]:
    """What each doubling of nodes reached, what the whole job's ranks would, and what loads of a part can prove."""
    for writer, by_nodes in results.scaling.items():
        for number, samples in by_nodes.items():
            yield spec.scaling(writer, number, world.place).measured(*samples, subject=world.all(), notes=place)
    whole, there = spec.layout_at(world.place).ranks, world.place
    nodes, size = -(-whole // there.ranks_per_node), spec.whole_bytes(there)
    told = f"PROJECTED from {', '.join(map(str, results.scaling.get(RAW, ())))} to {nodes} nodes, {whole} ranks"
    notes = {**place, "projected": told}
    ceilings, missing = [network_ceiling(spec, nodes)] * spec.repetitions, "there is no projection of it"
    for writer in (RAW, *spec.writers):
        names = ("raw.bandwidth",) if writer == RAW else tuple(m for m in METRICS if m not in PROVEN)
        rates: list[float] = []
        try:
            if writer in results.scaling:
                rates = projected(results.scaling[writer], nodes=nodes, ceilings=ceilings)
        except ProjectionError as error:
            missing = f"cannot be projected: {error}"
        ceilings = rates if writer == RAW and rates else ceilings  # nobody saves faster than plain writes
        known = {"raw.bandwidth": rates, "save.bandwidth": rates, "save.time": [size / rate for rate in rates]}
        for name in names:
            if name == STALL and writer not in ASYNC:
                continue
            metric = spec.projected(name, writer.replace(RAW, ""), there)
            if known.get(name):
                yield metric.measured(*known[name], subject=world.all(), notes=notes)
            else:
                reason = f"{missing}; {EVERYBODY}"
                yield metric.measured(subject=world.all(), outcome="error", reason=reason, notes=place)
        if writer != RAW:
            yield from (m for m in _of_loads(spec, world, writer, results.loads[writer], place) if _proves(m))


def _proves(m: Measurement) -> bool:
    return m.metric.removeprefix("checkpoint.") in PROVEN


def _in_a_row(spec: Checkpoint, world: World, rows: list[Saved], place: dict[str, Any]) -> Iterator[Measurement]:
    size, counted = spec.state_bytes(world.place), sustained.last_third(rows)
    notes = {
        **place, **_cost(rows), "saves": len(rows), "seconds": sum(row.seconds for row in rows),
        "rates": [size / row.seconds for row in rows],
    }  # fmt: skip
    rates = [size / row.seconds for row in counted]
    columns = _rank_columns(counted, world)
    bandwidth, kept = (spec.sustained(name, world.place) for name in ("bandwidth", "kept"))
    if spec.partial(world.place):
        reason = (
            f"{world.size} of {spec.layout_at(world.place).ranks} ranks: saves in a row are not projected; {EVERYBODY}"
        )
        yield bandwidth.measured(subject=world.all(), outcome="error", reason=reason, notes=notes)
    else:
        yield bandwidth.measured(*rates, subject=world.all(), columns=columns, notes=notes)
    yield kept.measured(sustained.kept(rows), subject=world.all(), notes=notes)


def _of_saves(
    spec: Checkpoint, world: World, writer: str, results: Results, where: dict[str, Any]
) -> Iterator[Measurement]:
    saves, size = results.saves[writer], spec.state_bytes(world.place)
    notes = {**where, **_cost(saves), **_slowest(saves, world, results.osts[writer])}

    def measured(name: str, samples: list[float], **fields: Any) -> Measurement:
        return spec.metric(name, writer, world.place).measured(*samples, subject=world.all(), **fields)

    stops = [s.stall_s if writer in ASYNC else s.seconds for s in saves]
    seconds, told = [s.seconds for s in saves], {**notes, **_goodput(spec, stops)}
    yield measured("save.time", seconds, columns=_rank_columns(saves, world), notes=told)
    if writer in ASYNC:
        yield measured("save.stall", [s.stall_s for s in saves], notes=notes)
    yield measured("save.bandwidth", [size / s.seconds for s in saves], notes=notes)


def _of_loads(
    spec: Checkpoint, world: World, writer: str, loads: list[Loaded], where: dict[str, Any]
) -> Iterator[Measurement]:
    def measured(name: str, samples: list[float], **fields: Any) -> Measurement:
        return spec.metric(name, writer, world.place).measured(*samples, subject=world.all(), **fields)

    coldest = min(loads, key=lambda found: found.cold_share)
    notes = {**where, **coldest.evidence}
    wrong = loads[-1].wrong
    named = {**notes, "wrong": wrong[:MAX_NAMES], "says": f"wrong: {', '.join(wrong[:SHOWN])}"} if wrong else notes
    yield measured("load.wrong_tensors", [len(wrong)], notes=named)
    yield measured(
        "load.cold_share", [coldest.cold_share], notes={**notes, "says": coldest.doubt} if coldest.doubt else notes
    )
    columns = _rank_columns(loads, world)
    if coldest.cold_share >= COLD:
        yield measured("load.time", [found.seconds for found in loads], columns=columns, notes=notes)
        return
    reason = f"not proven cold on {where['filesystem']['kind']}: {coldest.doubt}"
    cure = "set [checkpoint] directory to a disk or a parallel file system"
    yield measured("load.time", [], columns=columns, outcome="error", notes=notes, reason=f"{reason}; {cure}")


def _cost(saves: list[Saved]) -> dict[str, Any]:
    size = sum(saves[-1].files.values())
    cpu = sum(s.cpu_s for s in saves) / len(saves) / (size / 2**30)
    extra = [s.extra_bytes for s in saves if s.extra_bytes is not None]
    known = {"extra_memory_bytes": max(extra)} if extra else {}  # of one rank, on top of the state
    return {"files": len(saves[-1].files), "file_bytes": size, "cpu_s_per_gib": round(cpu, 3), **known}


def _slowest(saves: list[Saved], world: World, osts: list[str]) -> dict[str, str]:
    """Whom everybody waited for in the slowest save: rank, host, and on Lustre the targets of its files."""
    worst = max(range(len(saves)), key=lambda i: saves[i].seconds)
    rank = saves[worst].slowest_rank
    targets = f" ({osts[worst]})" if osts and osts[worst] else ""
    slowest = f"rank {rank} on {world.nodes[rank]}{targets}"
    return {"slowest": slowest, "says": f"the slowest save waited for {slowest}"}


def _goodput(spec: Checkpoint, stops: list[float]) -> dict[str, float]:
    """Share of training time lost to saves and failures at the spec's interval and at the best one (Young, Daly).

    `stops`: seconds that each save stops training for; of an asynchronous one that is the stall.
    """
    if not spec.mtbf_s:
        return {}
    save_s = statistics.median(stops)
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
