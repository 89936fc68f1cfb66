"""A copy is measured by its definition, a wrong one is counted, and a cache is not taken for memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.memory import run as memory_run
from benchmarks.memory.run import CHUNK, cache_bytes, count_wrong, run
from benchmarks.memory.spec import Memory
from benchmarks.spec import Place
from benchmarks.world import World


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(memory_run, "cache_bytes", lambda _: 2**12)
    return World(rank=0, size=1, local_rank=0, place=Place(), device=torch.device("cpu"), node="a", nodes=("a",))


def test_it_delivers_what_it_promised(world: World):
    spec = Memory(bytes=2**16, repetitions=3, sample_s=1e-4)
    got = list(run(spec, world))
    assert [(m.metric, m.params) for m in got] == [(m.name, m.params) for m in spec.emits(world.place)]
    assert len(got[0].samples) == 3
    assert got[1].samples == (0.0,)


def test_bytes_read_and_bytes_written_both_count(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(World, "timed", lambda _, work: (work(), 0.5)[1])
    got = list(run(Memory(bytes=2**16, repetitions=2), world))
    assert got[0].samples == (2 * 2**16 / 0.5,) * 2


def test_a_copy_that_does_nothing_is_wrong_everywhere(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.Tensor, "copy_", lambda self, _: self)
    got = list(run(Memory(bytes=2**16, repetitions=1), world))
    assert got[1].samples == (2**16 / 8,)
    assert got[1].notes == {"first_wrong_word": 0}


def test_wrong_words_are_counted_over_chunks():
    source = torch.arange(2 * CHUNK + 5)
    target = source.clone()
    target[[CHUNK + 3, 2 * CHUNK + 4]] ^= 1
    assert count_wrong(source, target) == (2, CHUNK + 3)
    assert count_wrong(source, source.clone()) == (0, None)


def test_a_buffer_that_fits_the_cache_is_an_error_with_the_cure(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(memory_run, "cache_bytes", lambda _: 2**30)
    with pytest.raises(ValueError, match=r"set \[memory\] bytes to 1073741824 or more"):
        next(run(Memory(bytes=2**20), world))


def test_the_largest_cache_counts(tmp_path: Path):
    for index, size in enumerate(("48K", "2048K", "266240K\n")):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(size)
    assert cache_bytes(torch.device("cpu"), tmp_path) == 260 * 2**20
    assert cache_bytes(torch.device("cpu"), tmp_path / "none") == 0


@pytest.mark.parametrize("size", [0, -8, 7])
def test_a_bad_size_is_refused(size: int):
    with pytest.raises(ValueError, match="multiple of 8"):
        Memory(bytes=size)
