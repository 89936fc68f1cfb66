"""Measure every ordered pair of ranks: latency, bandwidth, and whether what was sent arrived.

Rounds of disjoint pairs; in each round first one end leads, then the other, so that a link is measured in
both directions by clocks on both ends. All pairs of a round measure the same thing at the same time. Rank 0
yields one table per metric, a row per ordered pair. A number belongs to the pair: whether an end, a cable or
the fabric between is at fault, the reports work out from the whole table.

    torchrun --nproc-per-node=4 -m benchmarks links
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.collectives.pattern import Pattern, Wrong
from benchmarks.collectives.repetition import Repetition
from benchmarks.links.exchange import Link, Seen
from benchmarks.links.spec import Links
from benchmarks.links.tournament import partner, seated, tournament
from benchmarks.measurement import Measurement
from benchmarks.world import World

ANSWER_BYTES = 8  # of the answer that ends a bandwidth window
KINDS = ("latency", "bandwidth")


@dataclass(kw_only=True)
class Direction:
    """What this rank saw of the ordered pair (a, b): as a the time, as b the errors of what arrived."""

    kind: str
    a: int
    b: int
    seen: Seen


def run(spec: Links, world: World) -> Iterator[Measurement]:
    """Play the whole tournament; rank 0 yields the tables."""
    spec.emits(world.place)
    pattern = Pattern(members=world.size, dtype=torch.uint8, summed=False, device=world.device, seed=spec.seed)
    mine: list[Direction] = []
    for pairs in schedule(spec, world):
        peer = partner(pairs, world.rank)
        for kind in KINDS:
            for lower_leads in (True, False):
                world.barrier()
                if peer is not None:
                    mine += measure(spec, world, pattern, kind, peer, leads=(world.rank < peer) == lower_leads)
    everything = [direction for ranks in world.gather(mine) for direction in ranks]
    if world.is_first:
        yield from report(spec, world, everything)


def schedule(spec: Links, world: World) -> list[list[tuple[int, int]]]:
    """The rounds of all passes; on CPUs, no more pairs of a node at once than it has cores for."""
    rounds = [pairs for i in range(spec.passes) for pairs in tournament(world.size, seed=spec.seed + i)]
    if world.device.type == "cuda":
        return rounds
    cores = world.gather(os.cpu_count() if not hasattr(os, "sched_getaffinity") else len(os.sched_getaffinity(0)))
    return [part for pairs in rounds for part in seated(pairs, nodes=world.nodes, cores=cores)]


def measure(spec: Links, world: World, pattern: Pattern, kind: str, peer: int, *, leads: bool) -> list[Direction]:
    """One kind of measurement with one peer: what left here (if this rank leads) and what arrived."""
    size, budget_s, messages = spec.latency_bytes, spec.latency_budget_s, 1
    if kind == "bandwidth":
        size, budget_s, messages = spec.bandwidth_bytes, spec.bandwidth_budget_s, spec.window
    link = Link(
        world=world, peer=peer, leads=leads, pattern=pattern, num_bytes=size, messages=messages,
        answer_bytes=size if kind == "latency" else ANSWER_BYTES,
    )  # fmt: skip
    rule = Repetition(fewest=spec.min_repetitions, most=spec.max_repetitions, budget_s=budget_s / spec.passes)
    seen = link.measure(rule)
    arrived = Direction(kind="arrived", a=peer, b=world.rank, seen=Seen(wrong=seen.wrong))
    return [Direction(kind=kind, a=world.rank, b=peer, seen=seen), arrived] if leads else [arrived]


def report(spec: Links, world: World, everything: list[Direction]) -> Iterator[Measurement]:
    """One table per metric: columns a, b and samples, sorted by pair."""
    timed: dict[tuple[str, int, int], list[Seen]] = defaultdict(list)
    wrong: dict[tuple[int, int], Wrong] = defaultdict(Wrong)
    for d in everything:
        if d.kind == "arrived":
            wrong[d.a, d.b].add(d.seen.wrong)
        else:
            timed[d.kind, d.a, d.b].append(d.seen)
    pairs = sorted(wrong)
    window_bytes = spec.bandwidth_bytes * spec.window
    rows: dict[str, list[list[float]]] = {
        "latency": [[t / 2 for seen in timed["latency", a, b] for t in seen.seconds] for a, b in pairs],
        "bandwidth": [[window_bytes / t for seen in timed["bandwidth", a, b] for t in seen.seconds] for a, b in pairs],
        "wrong_elements": [[float(wrong[pair].count)] for pair in pairs],
    }
    for metric in spec.metrics():
        kind = metric.name.rpartition(".")[2]
        columns: dict[str, list[Any]] = {"a": [a for a, _ in pairs], "b": [b for _, b in pairs], "samples": rows[kind]}
        notes: dict[str, Any] = {}
        if kind in KINDS:
            columns["first_s"] = [timed[kind, a, b][0].first_s for a, b in pairs]
            columns["stopped"] = [" ".join(seen.stopped for seen in timed[kind, a, b]) for a, b in pairs]
        else:
            notes = {"first_wrong": {f"{a}->{b}": wrong[a, b].first for a, b in pairs if wrong[a, b].count}}
        yield metric.measured(subject=world.all(), columns=columns, notes=notes)
