"""Token files, written once and read cold by other ranks than those that wrote them, in order and at random.

    torchrun --nproc-per-node=8 -m benchmarks reads --directory /scratch/me --large-bytes 4294967296

In order, each rank reads every byte of another rank's files. At random, each reads windows anywhere in all files, as a
shuffling data loader does, and no two the same. Every word is checked, outside the clock. Reads go through the page
cache, as loaders' do, from files that were evicted everywhere; where it cannot be proven that they were cold, a rate is
an error.
"""

from __future__ import annotations

import functools
import hashlib
import os
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.checkpoint.pattern import mix
from benchmarks.checkpoint.place import opened
from benchmarks.checkpoint.save import together
from benchmarks.measurement import Measurement
from benchmarks.reads.spec import FILES, Reads
from benchmarks.storage.aligned import Staging
from benchmarks.storage.cold import COLD, ColdRead, read_cold
from benchmarks.world import World

CHUNK = 8 * 2**20
WORD = 8


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A part of one token file."""

    name: str
    offset: int
    length: int


@dataclass(kw_only=True)
class Results:
    """What has been read so far of one kind of files."""

    turns: dict[str, list[ColdRead]] = field(default_factory=lambda: defaultdict(list))  # sequential | random
    bytes_read: dict[str, int] = field(default_factory=dict)  # of all ranks together
    wrong: int = 0


def run(spec: Reads, world: World) -> Iterator[Measurement]:
    """reads.* of the whole world, on rank 0. Raises ValueError or RuntimeError, on all ranks alike."""
    with opened(spec, world) as directory:
        found = {}
        for files in FILES:
            write(spec, files, directory.folder, world)
            found[files] = _measure(spec, files, directory.folder, directory.sort, world)
    if world.is_first:
        place: dict[str, Any] = {"filesystem": directory.where.to_dict(), "sort": directory.sort}
        for files in FILES:
            yield from _measurements(spec, files, found[files], place, world)


def write(spec: Reads, files: str, folder: Path, world: World) -> None:
    """This rank's files, synced."""
    staging = Staging(folder)
    count, size = spec.shape(files)
    with together(world, folder):
        for index in range(count):
            name = file_name(files, world.rank, index)
            staging.write(folder / name, [words(name, 0, size).view(torch.uint8)])


def file_name(files: str, rank: int, index: int) -> str:
    """The name of one token file."""
    return f"tokens-{files}-{rank}-{index}.bin"


def words(name: str, offset: int, length: int) -> Tensor:
    """What the file `name` holds from byte `offset` on, as int64 words: random, and known from name and place alone."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little", signed=True)
    return mix(torch.arange(offset // WORD, (offset + length) // WORD), seed)


def sequential(spec: Reads, files: str, world: World) -> list[Piece]:
    """Every byte of the files that the rank one node further on wrote; within one node, one rank further on."""
    count, size = spec.shape(files)
    owner = (world.rank + (len(world.local_ranks) % world.size or 1)) % world.size
    return [
        Piece(name=file_name(files, owner, index), offset=start, length=min(CHUNK, size - start))
        for index in range(count)
        for start in range(0, size, CHUNK)
    ]


def at_random(spec: Reads, files: str, world: World, repetition: int) -> list[Piece]:
    """Windows at places that differ by rank and repetition, in files of all ranks; none is read by anybody twice.

    What a second rank of the node reads again comes from memory: rank r of n has every n-th window, from r on.
    """
    count, size = spec.shape(files)
    per_file = size // spec.window_bytes
    own = count * per_file
    chosen = random.Random(f"{files} {world.rank} {repetition}").sample(range(own), min(spec.random_reads, own))
    found = []
    for number in chosen:
        file, window = divmod(number * world.size + (world.rank + repetition) % world.size, per_file)
        owner, index = divmod(file, count)
        offset = window * spec.window_bytes
        found.append(Piece(name=file_name(files, owner, index), offset=offset, length=spec.window_bytes))
    return found


def _measure(spec: Reads, files: str, folder: Path, sort: str, world: World) -> Results:
    count, _ = spec.shape(files)
    everything = [folder / file_name(files, rank, index) for rank in range(world.size) for index in range(count)]
    results = Results()
    for repetition in range(spec.repetitions):
        for order in ("sequential", "random"):
            in_order = order == "sequential"
            pieces = sequential(spec, files, world) if in_order else at_random(spec, files, world, repetition)
            buffer = torch.empty(sum(piece.length for piece in pieces), dtype=torch.uint8).fill_(0)
            wanted = _touched(world.gather(pieces))
            turn = read_cold(
                everything, world, sort=sort, wanted_bytes=wanted,
                work=functools.partial(_read, pieces, buffer, folder, world),
            )  # fmt: skip
            results.turns[order].append(turn)
            results.bytes_read[order] = sum(world.gather(buffer.numel()))
            results.wrong += sum(world.gather(wrong_words(pieces, buffer)))
    return results


def _touched(of_ranks: list[list[Piece]]) -> int:
    """Bytes that must come from the device: those of different pieces."""
    return sum({(p.name, p.offset): p.length for pieces in of_ranks for p in pieces}.values())


def _read(pieces: list[Piece], buffer: Tensor, folder: Path, world: World) -> float:
    """Read the pieces one after another into `buffer`, each file opened when it comes up; this rank's seconds."""
    view, done = memoryview(buffer.numpy()), 0
    begin = time.perf_counter()
    with together(world, folder):
        for piece in pieces:
            descriptor = os.open(folder / piece.name, os.O_RDONLY)
            try:
                read_exactly(descriptor, view[done : done + piece.length], piece.offset)
            finally:
                os.close(descriptor)
            done += piece.length
        return time.perf_counter() - begin


def read_exactly(descriptor: int, view: memoryview, offset: int) -> None:
    """Fill `view` from `offset` on. OSError where the file ends before."""
    done = 0
    while done < len(view):
        step = os.preadv(descriptor, [view[done:]], offset + done)
        if step == 0:
            raise OSError(f"a token file ends at byte {offset + done}, {len(view) - done} bytes too early")
        done += step


def wrong_words(pieces: list[Piece], buffer: Tensor) -> int:
    """How many 8-byte words differ from what was written."""
    found, done = 0, 0
    for piece in pieces:
        got = buffer[done : done + piece.length].view(torch.int64)
        found += int((got != words(piece.name, piece.offset, piece.length)).sum())
        done += piece.length
    return found


def _measurements(
    spec: Reads, files: str, results: Results, place: dict[str, Any], world: World
) -> Iterator[Measurement]:
    turns = [turn for of_order in results.turns.values() for turn in of_order]
    coldest = min(turns, key=lambda turn: turn.share)
    reads = results.bytes_read["random"] // spec.window_bytes
    for order, of_order in results.turns.items():
        size = results.bytes_read[order]
        of_ranks = zip(*(turn.rank_seconds for turn in of_order), strict=True)
        medians = [sorted(seconds)[len(seconds) // 2] for seconds in of_ranks]
        columns = {"rank": list(range(world.size)), "node": list(world.nodes), "rank_s": medians}
        worst = min(of_order, key=lambda turn: turn.share)
        fields = {"subject": world.all(), "columns": columns, "notes": {**place, **worst.evidence}}
        if worst.share < COLD:
            kind = place["filesystem"]["kind"]
            cure = "set [checkpoint] directory to a disk or a parallel file system"
            fields |= {"outcome": "error", "reason": f"not proven cold on {kind}: {worst.doubt}; {cure}"}
        rates = [size / turn.seconds for turn in of_order] if worst.share >= COLD else []
        yield spec.metric(f"{order}.bandwidth", files).measured(*rates, **fields)
        if order == "random":
            yield spec.metric("random.rate", files).measured(*(rate / spec.window_bytes for rate in rates), **fields)
    notes = {**place, **coldest.evidence, "reads": reads, **({"says": coldest.doubt} if coldest.doubt else {})}
    yield spec.metric("cold_share", files).measured(coldest.share, subject=world.all(), notes=notes)
    yield spec.metric("wrong_elements", files).measured(results.wrong, subject=world.all(), notes=notes)
