"""What load does to latency: a pair's round trips alone, then the same while every other pair sends.

The factor is loaded over alone, of the mean and of the 99th percentile; 1 means that the fabric keeps flows
apart. In every pass another pair is watched. The watched pair starts once every other pair is sending and the
others send until it is done, so all of its samples are taken under load; both signals go through the job's store.
"""

from __future__ import annotations

import random
import statistics
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from benchmarks.collectives.pattern import Pattern, Wrong
from benchmarks.collectives.repetition import Repetition
from benchmarks.collectives.spread import percentile
from benchmarks.links.exchange import Link, Seen
from benchmarks.links.flows import halves
from benchmarks.links.spec import Links
from benchmarks.measurement import Measurement
from benchmarks.world import World

POLL_S = 0.0005
Errors = dict[tuple[int, int], Wrong]


@dataclass(kw_only=True)
class Watched:
    """Round trips of the watched pair, seconds."""

    a: int
    b: int
    alone: list[float]
    loaded: list[float]


def measure_congestion(spec: Links, world: World, pattern: Pattern) -> tuple[list[Watched], Errors]:
    """One Watched per pass, the same on every rank, and the errors in what this rank received. For all ranks."""
    pairs = halves(world.nodes)
    order = random.Random(spec.seed).sample(pairs, len(pairs))
    found: list[Watched] = []
    errors: Errors = {}
    for i in range(spec.passes):
        watched = order[i % len(order)]
        alone = _watch(spec, world, pattern, watched, loads=[], errors=errors)
        loaded = _watch(spec, world, pattern, watched, loads=[p for p in pairs if p != watched], errors=errors)
        everyone = world.gather((alone, loaded))
        found.append(Watched(a=watched[0], b=watched[1], alone=everyone[watched[0]][0], loaded=everyone[watched[0]][1]))
    return found, errors


def report(spec: Links, found: Sequence[Watched]) -> Iterator[Measurement]:
    """The mean and the p99 factor, a sample per pass."""
    columns: dict[str, list[Any]] = {
        "a": [w.a for w in found], "b": [w.b for w in found], "trips": [len(w.loaded) for w in found],
    }  # fmt: skip
    for metric, statistic in zip(spec.congestion_metrics(), (_mean, _p99), strict=True):
        alone, loaded = [statistic(w.alone) / 2 for w in found], [statistic(w.loaded) / 2 for w in found]
        factors = [after / before for before, after in zip(alone, loaded, strict=True)]
        yield metric.measured(*factors, columns=columns | {"alone_s": alone, "loaded_s": loaded})


def _mean(samples: Sequence[float]) -> float:
    return statistics.fmean(samples)


def _p99(samples: Sequence[float]) -> float:
    return percentile(sorted(samples), 0.99)


def _watch(
    spec: Links,
    world: World,
    pattern: Pattern,
    watched: tuple[int, int],
    *,
    loads: list[tuple[int, int]],
    errors: Errors,
) -> list[float]:
    """Round trips of the watched pair while `loads` send; empty on every rank but its first."""
    key = world.gather(uuid.uuid4().hex)[0]
    store = dist.distributed_c10d._get_default_store()
    seen, peer = Seen(), -1
    if world.rank in watched:
        while store.add(f"{key}/sending", 0) < len(loads):
            time.sleep(POLL_S)
        peer = watched[1] if world.rank == watched[0] else watched[0]
        seen = _trips(spec, world, pattern, peer, leads=world.rank == watched[0])
        store.add(f"{key}/done", 1)
    for a, b in loads:
        if world.rank in (a, b):
            peer = b if world.rank == a else a
            seen = _load(spec, world, pattern, peer, leads=world.rank == a, store=store, key=key)
    if peer >= 0:
        errors.setdefault((peer, world.rank), Wrong()).add(seen.wrong)
    world.barrier()
    return seen.seconds if world.rank == watched[0] else []


def _trips(spec: Links, world: World, pattern: Pattern, peer: int, *, leads: bool) -> Seen:
    link = Link(world=world, peer=peer, leads=leads, pattern=pattern, kind="latency", num_bytes=min(spec.latency_sizes))
    fewest = spec.congestion_trips
    rule = Repetition(fewest=fewest, most=10 * fewest, budget_s=spec.latency_budget_s, precision=0.0)
    return link.measure(rule.stopped, most=rule.most)


def _load(spec: Links, world: World, pattern: Pattern, peer: int, *, leads: bool, store: Any, key: str) -> Seen:
    """Windows to `peer` until the watched pair is done."""
    link = Link(
        world=world, peer=peer, leads=leads, pattern=pattern, kind="bandwidth", num_bytes=max(spec.bandwidth_sizes),
        window=spec.window,
    )  # fmt: skip
    told = False

    def until_done(_: Sequence[float], __: float) -> str:
        nonlocal told
        if not told:
            store.add(f"{key}/sending", 1)
            told = True
        return "done" if store.add(f"{key}/done", 0) else ""

    seen = link.measure(until_done, most=1 << 62)
    seen.seconds.clear()
    return seen
