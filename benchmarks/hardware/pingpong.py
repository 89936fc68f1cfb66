"""A ping-pong between two GPUs of an NVLink domain, played by the GPUs alone: how long a word takes to arrive.

One end stores a word into the other's memory; the other waits for it and stores it back. No library, no host and no
kernel launch is in a trip, so half a round trip is the link's own latency. A sample is the mean of many trips in a
row. Every word has another value, and each end compares what came with what must come.

Pairs meet in rounds of disjoint pairs, in all domains at once; first one end leads, then the other. Where the words
lie and what moves them comes from outside (`Words`): symmetric memory and a kernel on GPUs, plain memory in tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch.distributed as dist

from benchmarks.hardware.spec import Hardware
from benchmarks.links.tournament import partner, tournament
from benchmarks.measurement import Measurement
from benchmarks.world import World

WARM_UP = 200  # trips before a sample's clock starts: both ends are under way by then
Pair = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Domain:
    """The ranks that NVLink joins, seen from one of them."""

    ranks: tuple[int, ...]  # in the world
    place: int  # this rank's place among them
    group: Any  # their process group


class Words(Protocol):
    """One word of memory per pair of a domain, which both ends can write."""

    def play(self, peer: int, *, leads: bool, first: int, warm_up: int, trips: int) -> tuple[float, int]:
        """Trips with the member at place `peer`: the seconds of the last `trips`, and how many words were wrong.

        Both ends call it alike, except for `leads`. `first` is how many trips this pair has made before.
        RuntimeError where the other end does not answer.
        """
        ...


@dataclass(kw_only=True)
class Book:
    """What one rank saw: half round trips that it led, and wrong words that came to it."""

    seconds: dict[Pair, list[float]] = field(default_factory=dict)
    wrong: dict[Pair, int] = field(default_factory=dict)


def measure(spec: Hardware, world: World, *, open_words: Callable[[World, Domain], Words]) -> Iterator[Measurement]:
    """Play all rounds; rank 0 yields the tables, a row per ordered pair of a domain. Every rank calls it."""
    found = domains(world.nodes, spec.domain_nodes)
    groups = [dist.new_group(list(ranks)) for ranks in found]
    mine = next(i for i, ranks in enumerate(found) if world.rank in ranks)
    domain = Domain(ranks=found[mine], place=found[mine].index(world.rank), group=groups[mine])
    words, book = open_words(world, domain), Book()
    for pairs in tournament(len(domain.ranks)):
        peer, made = partner(pairs, domain.place), 0
        for lower_leads in (True, False):
            world.barrier()
            if peer is not None:
                leads = (domain.place < peer) == lower_leads
                made = _meet(spec, domain, words, book, peer=peer, leads=leads, made=made)
    world.barrier()
    del words  # before its group
    dist.destroy_process_group(groups[mine])
    yield from report(spec, world, book)


def domains(nodes: Sequence[str], joined: int) -> list[tuple[int, ...]]:
    """The ranks of each domain of `joined` nodes, where `nodes` is the node of every rank.

    >>> domains(["a", "a", "b", "b"], 1), domains(["a", "a", "b", "b"], 2)
    ([(0, 1), (2, 3)], [(0, 1, 2, 3)])
    """
    order = list(dict.fromkeys(nodes))
    return [
        tuple(rank for rank, node in enumerate(nodes) if order.index(node) // joined == i)
        for i in range(-(-len(order) // joined))
    ]


def _meet(spec: Hardware, domain: Domain, words: Words, book: Book, *, peer: int, leads: bool, made: int) -> int:
    """All samples of one pair with one end leading, into the book; how many trips the pair has made by then."""
    me, other = domain.ranks[domain.place], domain.ranks[peer]
    for _ in range(spec.repetitions):
        seconds, wrong = words.play(peer, leads=leads, first=made, warm_up=WARM_UP, trips=spec.trips)
        made += WARM_UP + spec.trips
        book.wrong[other, me] = book.wrong.get((other, me), 0) + wrong
        if leads:
            book.seconds.setdefault((me, other), []).append(seconds / spec.trips / 2)
    return made


def report(spec: Hardware, world: World, book: Book) -> Iterator[Measurement]:
    """Latency and wrong words on rank 0. All ranks hand in their books."""
    books: list[Any] = [None] * world.size if world.is_first else []
    dist.gather_object(book, books or None, dst=0, group=world.control)
    if not world.is_first:
        return
    latency, wrong = spec.ping_pong(world.place)
    seconds = {pair: samples for each in books for pair, samples in each.seconds.items()}
    counts = {pair: [float(count)] for each in books for pair, count in each.wrong.items()}
    for metric, rows in ((latency, seconds), (wrong, counts)):
        pairs = sorted(rows)
        columns = {"a": [a for a, _ in pairs], "b": [b for _, b in pairs], "samples": [rows[pair] for pair in pairs]}
        yield metric.measured(columns=columns, subject=world.all(), notes={"trips": spec.trips})
