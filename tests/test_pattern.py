"""The bytes of a checkpoint follow from their place alone, and no wrong byte passes."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.checkpoint import pattern
from benchmarks.checkpoint.pattern import expected_bytes, fill, flat_bytes, matches, region
from benchmarks.checkpoint.shards import ITEM_BYTES, Shard
from benchmarks.checkpoint.state import DTYPES

CPU = torch.device("cpu")


def whole_of(rows: int, columns: int | None, dtype: str) -> Shard:
    shape = (rows,) if columns is None else (rows, columns)
    return Shard(name="w", dtype=dtype, whole=shape, shape=shape, offset=(0,) * len(shape))


def data_of(shard: Shard, repetition: int = 0) -> torch.Tensor:
    tensor = torch.zeros(shard.shape, dtype=DTYPES[shard.dtype])
    fill(tensor, shard, repetition=repetition)
    return tensor


def test_one_word_by_hand():
    """splitmix64 of i with state seed + i x golden ratio, in Python's own integers."""
    mask = 2**64 - 1
    seed = int.from_bytes(pattern.hashlib.sha256(b"w 0").digest()[:8], "little")
    x = (seed + 3 * 0x9E3779B97F4A7C15) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    x ^= x >> 31
    words = data_of(whole_of(8, None, "int64")).numpy().view(numpy.uint64)
    assert words[3] == x


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_part_is_the_same_place_of_the_whole(data: st.DataObject):
    dtype = data.draw(st.sampled_from(sorted(ITEM_BYTES)))
    rows, words = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 12))
    columns = words * 8 // ITEM_BYTES[dtype]
    whole = whole_of(rows, columns, dtype)
    first = data.draw(st.integers(0, rows - 1))
    count = data.draw(st.integers(1, rows - first))
    left = data.draw(st.integers(0, words - 1)) * 8 // ITEM_BYTES[dtype]
    width = data.draw(st.integers(1, (columns - left) * ITEM_BYTES[dtype] // 8)) * 8 // ITEM_BYTES[dtype]
    part = replace(whole, shape=(count, width), offset=(first, left))
    expected = data_of(whole)[first : first + count, left : left + width].contiguous()
    assert torch.equal(flat_bytes(data_of(part)), flat_bytes(expected))
    assert matches(expected, part, repetition=0)


@settings(max_examples=60, deadline=None)
@given(size=st.integers(1, 400), first=st.integers(0, 300), dtype=st.sampled_from(sorted(ITEM_BYTES)))
def test_a_row_may_start_and_end_anywhere(size: int, first: int, dtype: str):
    whole = whole_of(first + size, None, dtype)
    part = replace(whole, shape=(size,), offset=(first,))
    assert torch.equal(flat_bytes(data_of(part)), flat_bytes(data_of(whole)[first:]))


def test_chunks_meet_without_a_seam(monkeypatch: pytest.MonkeyPatch):
    shards = [whole_of(700, None, "bfloat16"), replace(whole_of(40, 64, "float32"), shape=(40, 32), offset=(0, 16))]
    in_one = [data_of(shard) for shard in shards]
    monkeypatch.setattr(pattern, "CHUNK", 256)
    for shard, expected in zip(shards, in_one, strict=True):
        assert sum(part.numel() for _, part in expected_bytes(shard, 0, CPU)) == shard.bytes
        assert torch.equal(flat_bytes(data_of(shard)), flat_bytes(expected))


@settings(max_examples=40, deadline=None)
@given(bit=st.integers(0, 8 * 1000 - 1))
def test_every_flipped_bit_is_seen(bit: int):
    shard = whole_of(500, None, "bfloat16")
    tensor = data_of(shard)
    flat_bytes(tensor)[bit // 8] ^= 1 << bit % 8
    assert not matches(tensor, shard, repetition=0)


def test_other_names_and_repetitions_are_other_data():
    shard = whole_of(500, None, "uint8")
    assert not matches(data_of(shard), shard, repetition=1)
    assert not matches(data_of(shard), replace(shard, name="v"), repetition=0)
    assert not matches(torch.zeros(500, dtype=torch.uint8), shard, repetition=0)


def test_it_does_not_compress():
    raw = bytes(flat_bytes(data_of(whole_of(2**16, None, "float32"))).numpy())
    assert len(zlib.compress(raw, 9)) > 0.999 * len(raw)


def test_columns_that_are_no_whole_words_are_refused():
    whole = whole_of(4, 8, "bfloat16")
    with pytest.raises(ValueError, match="use a smaller tp"):
        region(replace(whole, shape=(4, 2), offset=(0, 0)))
