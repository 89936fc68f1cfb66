"""Token files are read whole, by others than wrote them, cold, and every wrong word is counted."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo  # before the fork: the checkpoint's folder imports it

from benchmarks.measurement import Measurement, decode, encode
from benchmarks.reads import run as reads
from benchmarks.reads.run import at_random, sequential, words, wrong_words
from benchmarks.reads.spec import Reads
from benchmarks.spec import Place
from benchmarks.storage import aligned, cache
from benchmarks.world import World
from tests.ranks import on_ranks
from tests.test_checkpoint import patched

SMALL = Reads(large_bytes=2**22, small_files=8, random_reads=32, repetitions=2)


def world_of(rank: int, nodes: tuple[str, ...]) -> World:
    return World(
        rank=rank, size=len(nodes), local_rank=0, place=Place(), device=torch.device("cpu"), node=nodes[rank],
        nodes=nodes,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "said"),
    [({"window_bytes": 12}, "whole multiples of 8"), ({"small_bytes": 1024}, "must hold a window"),
     ({"random_reads": 0}, "at least one")],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(fields: dict[str, int], said: str):
    with pytest.raises(ValueError, match=said):
        Reads(**fields)


def test_in_order_every_byte_is_read_once_by_another_node():
    nodes = ("a", "a", "b", "b")
    read = [p for rank in range(4) for p in sequential(SMALL, "small", world_of(rank, nodes))]
    assert len({(p.name, p.offset) for p in read}) == len(read)
    assert sum(p.length for p in read) == 4 * SMALL.small_files * SMALL.small_bytes
    assert {p.name.split("-")[2] for p in sequential(SMALL, "large", world_of(0, nodes))} == {"2"}


def test_at_random_nothing_is_read_twice_by_a_rank_and_turns_differ():
    worlds = [world_of(rank, ("a", "b")) for rank in range(2)]
    first, again, other = (
        at_random(SMALL, "large", worlds[0], 0), at_random(SMALL, "large", worlds[0], 1),
        at_random(SMALL, "large", worlds[1], 0),
    )  # fmt: skip
    assert len(set(first)) == len(first) == SMALL.random_reads
    assert first != again and first != other
    assert {p.name for p in first} == {"tokens-large-0-0.bin", "tokens-large-1-0.bin"}


@pytest.mark.parametrize("files", ["large", "small"])
@pytest.mark.parametrize("num_ranks", [1, 3, 8])
def test_at_random_no_rank_reads_what_another_left_in_memory(files: str, num_ranks: int):
    many = dataclasses.replace(SMALL, random_reads=1000)  # more than there are windows
    nodes = ("a",) * num_ranks
    read = [(p.name, p.offset) for r in range(num_ranks) for p in at_random(many, files, world_of(r, nodes), 1)]
    count, size = SMALL.shape(files)
    assert len(set(read)) == len(read) == num_ranks * count * (size // SMALL.window_bytes)


def test_words_follow_from_name_and_place_alone():
    whole = words("f", 0, 4096)
    assert torch.equal(words("f", 1024, 512), whole[128:192])
    assert not torch.equal(words("g", 0, 4096), whole)
    pieces = [reads.Piece(name="f", offset=1024, length=512)]
    buffer = words("f", 1024, 512).view(torch.uint8).clone()
    assert wrong_words(pieces, buffer) == 0
    buffer[17] ^= 1
    assert wrong_words(pieces, buffer) == 1


@pytest.mark.slow
def test_it_delivers_what_it_promised_and_tells_wrong_and_warm(tmp_path: Path):
    spec = dataclasses.replace(SMALL, directory=str(tmp_path))

    def measured(world: World, **fields: Any) -> dict[tuple[str, Any], Measurement]:
        found = [decode(Measurement, encode(m)) for m in reads.run(dataclasses.replace(spec, **fields), world)]
        return {(m.metric.removeprefix("reads."), m.params["files"]): m for m in found}

    def cases(world: World) -> list[Any]:
        good = measured(world)
        buffered = ("buffered",) * 3  # written past the page cache, nothing of it would be warm
        with patched(cache, "evict", lambda _: None), patched(aligned, "MODES", buffered):
            warm = measured(world, repetitions=1)
        with patched(reads, "write", _write_wrong if world.rank == 1 else reads.write):
            wrong = measured(world, repetitions=1)
        return [good, warm, wrong]

    (good, warm, wrong), other = on_ranks(2, cases, deadline_s=200.0)
    assert other == [{}, {}, {}]
    promised = spec.emits(Place(ranks_per_node=2))
    assert sorted((m.metric, str(m.params)) for m in good.values()) == sorted((m.name, str(m.params)) for m in promised)
    for files in ("large", "small"):
        assert good["wrong_elements", files].samples == (0.0,)
        assert good["cold_share", files].samples[0] >= 0.95
        for order in ("sequential", "random"):
            assert len(good[f"{order}.bandwidth", files].samples) == 2
            assert "not proven cold" in warm[f"{order}.bandwidth", files].reason
            assert warm[f"{order}.bandwidth", files].outcome == "error"
        assert wrong["wrong_elements", files].samples[0] > 0
    assert list(tmp_path.iterdir()) == []


def _write_wrong(spec: Reads, files: str, folder: Path, world: World) -> None:
    """As `write`, from other words."""
    with patched(reads, "words", lambda name, offset, length: words(name + "x", offset, length)):
        _WRITE(spec, files, folder, world)


_WRITE = reads.write
