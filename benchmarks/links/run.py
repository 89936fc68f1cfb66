"""Measure every ordered pair of ranks: latency, bandwidth, and whether what was sent arrived.

Rounds of disjoint pairs; in each round first one end leads, then the other, so that a link is measured in
both directions by clocks on both ends. All pairs of a round measure the same thing at the same time. Rank 0
yields one table per metric, a row per ordered pair. A number belongs to the pair: whether an end, a cable or
the fabric between is at fault, the reports work out from the whole table. Column "lost" tells loss from mere
delay: what the counters of the two nodes saw while the pair was measured (beside other pairs of these nodes).

    torchrun --nproc-per-node=4 -m benchmarks links --both-ways yes --flows 1,2 --congestion yes
"""

from __future__ import annotations

import os
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.collectives.pattern import Pattern, Wrong
from benchmarks.collectives.repetition import Repetition
from benchmarks.collectives.wire import losses, lost_between
from benchmarks.links import congestion
from benchmarks.links.exchange import Link, Seen
from benchmarks.links.flows import measure_flows, scaling
from benchmarks.links.paths import paths_from
from benchmarks.links.schedule import schedule
from benchmarks.links.spec import Links
from benchmarks.links.tournament import partner
from benchmarks.measurement import Measurement
from benchmarks.world import World

DIGITS = 6  # of a sample in a table: a tournament of 512 ranks has millions of them

Pair = tuple[int, int]


@dataclass(kw_only=True)
class Book:
    """What one rank saw in the whole tournament."""

    timed: dict[tuple[str, int, Pair], list[Seen]] = field(default_factory=lambda: defaultdict(list))
    wrong: dict[Pair, Wrong] = field(default_factory=lambda: defaultdict(Wrong))  # (from, to me)
    lost: dict[Pair, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))  # by my node meanwhile


def run(spec: Links, world: World) -> Iterator[Measurement]:
    """Play the whole tournament; rank 0 yields the tables."""
    spec.emits(world.place)
    pattern = Pattern(members=world.size, dtype=torch.uint8, summed=False, device=world.device, seed=spec.seed)
    book = Book()
    for pairs in schedule(spec, nodes=world.nodes, cores=_cores(world)):
        peer = partner(pairs, world.rank)
        for kind, size in spec.kinds():
            for lower_leads in (True, False):
                world.barrier()
                if peer is not None:
                    leads = (world.rank < peer) == lower_leads
                    meet(spec, world, pattern, book, kind=kind, size=size, peer=peer, leads=leads)
    yield from report_pairs(spec, world, book)
    measured = []
    for measurement, sweep in measure_flows(spec, world, pattern):
        measured.append(measurement)
        for a, b in zip(measurement.columns["a"], measurement.columns["b"], strict=True):
            for sender, receiver in ((a, b), (b, a)):
                if receiver == world.rank and receiver in sweep.wrong:
                    found = Wrong(count=sweep.wrong[receiver], first=sweep.first_wrong[receiver])
                    book.wrong[sender, receiver].add(found)
    if world.is_first:
        yield from measured
        yield from scaling(spec, measured)
    if spec.congestion:
        watched, errors = congestion.measure_congestion(spec, world, pattern)
        for pair, wrong in errors.items():
            book.wrong[pair].add(wrong)
        if world.is_first:
            yield from congestion.report(spec, watched)
    yield from report_wrong(spec, world, book)


def _cores(world: World) -> list[int]:
    """Usable cores of every rank's node where ranks run on CPUs; [] on GPUs, where nobody waits for one."""
    if world.device.type == "cuda":
        return []
    own = os.cpu_count() or 1 if not hasattr(os, "sched_getaffinity") else len(os.sched_getaffinity(0))
    return world.gather(own)


def meet(
    spec: Links, world: World, pattern: Pattern, book: Book, *, kind: str, size: int, peer: int, leads: bool
) -> None:
    """One kind of measurement with one peer, into the book."""
    budget_s = spec.latency_budget_s if kind == "latency" else spec.bandwidth_budget_s
    rule = Repetition(fewest=spec.min_repetitions, most=spec.max_repetitions, budget_s=budget_s / spec.passes)
    link = Link(world=world, peer=peer, leads=leads, pattern=pattern, kind=kind, num_bytes=size, window=spec.window)
    before = losses()
    seen = link.measure(rule.stopped, most=rule.most)
    book.wrong[peer, world.rank].add(seen.wrong)
    pair = (world.rank, peer) if leads else (peer, world.rank)
    if leads:
        book.timed[kind, size, pair].append(seen)
    if leads or world.nodes[peer] != world.node:  # two ends of one node read the same counters
        book.lost[pair].update(lost_between(before, losses()))


def report_pairs(spec: Links, world: World, book: Book) -> Iterator[Measurement]:
    """One table per kind and size on rank 0, a row per ordered pair. All ranks hand in their books."""
    lost: dict[Pair, Counter[str]] = defaultdict(Counter)
    for theirs in to_first(world, dict(book.lost)):
        for pair, counts in theirs.items():
            lost[pair].update(counts)
    paths = to_first(world, paths_from(world))
    for kind, size in spec.kinds():
        mine = {pair: seen for (of, at, pair), seen in book.timed.items() if (of, at) == (kind, size)}
        rows = {pair: seen for theirs in to_first(world, mine) for pair, seen in theirs.items()}
        if not world.is_first:
            continue
        pairs, value = sorted(rows), values(spec, kind, size)
        columns: dict[str, list[Any]] = {
            "a": [a for a, _ in pairs],
            "b": [b for _, b in pairs],
            "samples": [[value(t) for seen in rows[pair] for t in seen.seconds] for pair in pairs],
            "first_s": [rows[pair][0].first_s for pair in pairs],
            "stopped": [" ".join(seen.stopped for seen in rows[pair]) for pair in pairs],
            "path": [paths[a][b] for a, b in pairs],
            "lost": [dict(lost[pair]) for pair in pairs],
        }
        for name, of in (("min", min), ("mean", statistics.fmean), ("max", max)):
            columns[name] = [of(samples) for samples in columns["samples"]]
        yield spec.pair_metric(kind, size).measured(subject=world.all(), columns=columns)


def to_first(world: World, value: Any) -> list[Any]:
    """`value` of every rank on rank 0, nothing on the others: a tournament is too large to be kept by everybody."""
    got = [None] * world.size if world.is_first else None
    dist.gather_object(value, got, dst=0, group=world.control)
    return got or []


def values(spec: Links, kind: str, size: int) -> Callable[[float], float]:
    """Seconds of one repetition -> the sample: half a round trip, or bytes per second."""
    if kind == "latency":
        return lambda seconds: rounded(seconds / 2)
    moved = size * spec.window * (2 if kind == "both_ways" else 1)
    return lambda seconds: rounded(moved / seconds)


def rounded(value: float) -> float:
    """`value` to DIGITS significant digits."""
    return float(f"{value:.{DIGITS}g}")


def report_wrong(spec: Links, world: World, book: Book) -> Iterator[Measurement]:
    """Wrong elements per ordered pair on rank 0, with the first of each. All ranks hand in their books."""
    wrong: dict[Pair, Wrong] = {pair: w for found in to_first(world, dict(book.wrong)) for pair, w in found.items()}
    if not world.is_first:
        return
    pairs = sorted(wrong)
    columns: dict[str, list[Any]] = {
        "a": [a for a, _ in pairs], "b": [b for _, b in pairs], "samples": [[float(wrong[p].count)] for p in pairs],
    }  # fmt: skip
    first = {f"{a}->{b}": wrong[a, b].first for a, b in pairs if wrong[a, b].count}
    yield spec.wrong_metric().measured(
        subject=world.all(), columns=columns, notes={"first_wrong": first} if first else {}
    )
