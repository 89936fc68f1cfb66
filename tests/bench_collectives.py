"""What measuring adds to a collective and to a message: ours against the tightest hand-written loop.

    pytest tests/bench_collectives.py -s           # make bench runs it

The loop does the same with nothing around it: barrier, clock, call, clock. It runs twice in every round, in a new
random order with ours, so that its difference from itself (A/A) says what this machine can tell apart: either of the
two may be called the first, so its interval is as wide to both sides. A difference of ours inside it is none; else it
is printed. Times are the slowest rank's, of a message half a round trip; the fastest call of a round stands for it,
since whatever else runs on the machine only adds.
"""

from __future__ import annotations

import math
import os
import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tabulate import tabulate

from benchmarks.collectives.layout import SUMMED
from benchmarks.collectives.operations import Operation
from benchmarks.collectives.pattern import Pattern
from benchmarks.collectives.repetition import Z95, median_interval
from benchmarks.collectives.spread import percentile
from benchmarks.collectives.stopwatch import time_calls
from benchmarks.collectives.teams import teams
from benchmarks.links.exchange import Link
from benchmarks.links.tournament import seated
from benchmarks.world import World
from tests.ranks import on_ranks

Ways = dict[str, Callable[[], list[float]]]
GOAL_S = 2e-6
CASES = [(op, ranks, size) for op in ("all_reduce", "all_gather") for ranks in (2, 4) for size in (8, 64 << 20)]
ROWS: list[list[Any]] = []


def interleaved(world: World, ways: Ways, rounds: int) -> dict[str, list[float]]:
    """The fastest call of every way in every round, seconds; the slowest rank's times. The same on all ranks."""
    order = random.Random(3)
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name in order.sample(sorted(ways), len(ways)):
            slowest = [max(each) for each in zip(*world.gather(ways[name]()), strict=True)]
            found[name].append(min(slowest))
    return found


def collective(world: World, op: str, size: int) -> dict[str, list[float]]:
    """The loop, the loop again and ours, on one collective."""
    calls = 32 if size < 1 << 20 else 1
    source = torch.ones(max(size // 4 // (world.size if op == "all_gather" else 1), 1))
    output = torch.zeros(source.numel() * world.size if op == "all_gather" else 0)

    def loop() -> list[float]:
        durations = []
        for _ in range(calls):
            dist.barrier(group=world.control)
            begin = time.perf_counter()
            if op == "all_gather":
                dist.all_gather_into_tensor(output, source)
            else:
                dist.all_reduce(source)
            durations.append(time.perf_counter() - begin)
        return durations

    pattern = Pattern(members=world.size, dtype=torch.float32, summed=op in SUMMED)
    with teams("world", world) as (team,):
        count = size // 4 if op == "all_reduce" else source.numel() * world.size
        ours = Operation(op=op, team=team, num_elements=count, pattern=pattern, num_slots=calls)

        def measured() -> list[float]:
            ours.prepare(0)
            durations = time_calls([slot.call for slot in ours.slots], world=world)
            assert ours.verify(0).count == 0
            return durations

        return interleaved(world, {"loop": loop, "again": loop, "ours": measured}, 30 if calls > 1 else 12)


def message(world: World, size: int) -> dict[str, list[float]]:
    """The same for round trips between two ranks; of four, both pairs in the turns that the tournament gives them."""
    calls, peer, leads = (16 if size < 1 << 20 else 1), world.rank ^ 1, world.rank % 2 == 0
    there, back = (torch.randint(0, 200, (size,), dtype=torch.uint8) for _ in range(2))  # memory of its own, as ours
    word = torch.zeros(1, dtype=torch.int64)

    def loop() -> list[float]:
        durations = []
        if leads:
            dist.recv(word, peer)
        else:
            dist.send(word, peer)
        for _ in range(calls):
            begin = time.perf_counter()
            if leads:
                dist.send(there, peer)
                dist.recv(back, peer)
            else:
                dist.recv(back, peer)
                dist.send(there, peer)
            durations.append(time.perf_counter() - begin)
        return durations

    pattern = Pattern(members=world.size, dtype=torch.uint8, summed=False)
    ours = Link(world=world, peer=peer, leads=leads, pattern=pattern, kind="latency", num_bytes=size, num_slots=calls)

    def measured() -> list[float]:
        seconds, wrong = ours.repeat(0, calls)
        assert wrong.count == 0
        return seconds

    cores = [os.cpu_count() or 1] * world.size
    turns = seated([(r, r + 1) for r in range(0, world.size, 2)], nodes=world.nodes, cores=cores)

    def in_turn(way: Callable[[], list[float]]) -> list[float]:
        durations: list[float] = []
        for pairs in turns:
            world.barrier()
            if any(world.rank in pair for pair in pairs):
                durations = way()
        return durations

    ways = {name: partial(in_turn, way) for name, way in (("loop", loop), ("again", loop), ("ours", measured))}
    return interleaved(world, ways, 60 if calls > 1 else 16)


def compare(name: str, ranks: int, size: int, found: dict[str, list[float]], *, messages: int = 1) -> None:
    """One row: what ours adds to the loop a message, beside what the loop adds to itself."""
    apart = [abs(b - a) / messages for a, b in zip(found["loop"], found["again"], strict=True)]
    added = [(b - (a + c) / 2) / messages for a, b, c in zip(found["loop"], found["ours"], found["again"], strict=True)]
    same = percentile(sorted(apart), min(1.0, Z95 / math.sqrt(len(apart))))  # 95 % of the median of +-differences
    middle = statistics.median(added)
    inside = "inside A/A" if abs(middle) <= same else "under 2 us" if middle < GOAL_S else "MORE"
    loop = statistics.median(found["loop"]) / messages
    micro = [f"{1e6 * x:.1f}" for x in (loop, same, middle, *median_interval(added))]
    ROWS.append([name, ranks, size, micro[0], f"+-{micro[1]}", micro[2], f"{micro[3]} .. {micro[4]}", inside])


@pytest.mark.parametrize(("op", "ranks", "size"), CASES)
def test_a_collective(benchmark: Any, op: str, ranks: int, size: int) -> None:
    found = benchmark.pedantic(
        on_ranks, (ranks, lambda world: collective(world, op, size)), {"deadline_s": 300.0}, rounds=1
    )[0]
    benchmark.extra_info.update(found)
    compare(op, ranks, size, found)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("size", [8, 64 << 20])
def test_a_round_trip(benchmark: Any, ranks: int, size: int) -> None:
    found = benchmark.pedantic(on_ranks, (ranks, lambda world: message(world, size)), {"deadline_s": 300.0}, rounds=1)[
        0
    ]
    benchmark.extra_info.update(found)
    compare("message", ranks, size, found, messages=2)


@pytest.fixture(scope="module", autouse=True)
def table() -> Any:
    """Print all rows at the end."""
    yield
    print(f"\nload of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, by this and everything else")
    head = ["", "ranks", "bytes", "loop us", "A/A us (95 %)", "ours adds us", "(95 %)", ""]
    print(f"\n{tabulate(ROWS, head, disable_numparse=True)}")
