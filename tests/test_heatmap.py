"""Maps of pairs: the worst pair of a cell counts, what is absent is empty, and the picture is a picture."""

from __future__ import annotations

import struct
import zlib
from xml.etree import ElementTree

import numpy as np
import pytest

from reports import heatmap, png


def pairs(num):
    return [(a, b) for a in range(num) for b in range(num) if a != b]


def test_each_pair_has_its_cell_and_the_diagonal_is_empty():
    table, block = heatmap.cells(pairs(3), np.arange(6.0), higher=True)
    assert block == 1
    assert np.isnan(np.diag(table)).all()
    assert table[0, 1:].tolist() == [0.0, 1.0]
    assert table[2, :2].tolist() == [4.0, 5.0]


@pytest.mark.parametrize(("higher", "kept"), [(True, 1.0), (False, 9.0)])
def test_a_cell_of_many_pairs_shows_the_worst(higher, kept):
    identities = pairs(600)
    values = np.full(len(identities), 5.0)
    values[identities.index((300, 7))] = kept
    table, block = heatmap.cells(identities, values, higher=higher)
    assert block == 3
    assert len(table) == 200
    assert table[100, 2] == kept
    assert (table == 5.0).sum() == table.size - 1


def test_what_was_not_measured_stays_empty():
    table, _ = heatmap.cells([(0, 1), (2, 0)], np.array([3.0, 4.0]), higher=False)
    assert np.isnan(table).sum() == 7


def test_only_labels_of_pairs_are_marked():
    assert heatmap.marked(["3->11", "rank 4", "<b>->1", "130->2"], 10) == {(0, 1), (13, 0)}


def test_levels_use_the_whole_palette_worst_first():
    table = np.array([[np.nan, 1.0], [2.0, 3.0]])
    assert heatmap.levels(table, higher=True).tolist() == [[heatmap.NOTHING, 0], [4, 8]]
    assert heatmap.levels(table, higher=False).tolist() == [[heatmap.NOTHING, 8], [4, 0]]
    assert heatmap.levels(np.ones((2, 2)), higher=True).tolist() == [[8, 8], [8, 8]]


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (256, 256), (255, 254)])
def test_a_png_holds_exactly_its_cells(shape):
    levels = np.random.default_rng(1).integers(0, heatmap.NOTHING + 1, shape).astype(np.uint8)
    made = png.picture(levels, heatmap.PALETTE, clear=True)
    assert made.startswith(b"\x89PNG")
    chunks, place = {}, 8
    while place < len(made):
        (length,) = struct.unpack(">I", made[place : place + 4])
        kind, content = made[place + 4 : place + 8], made[place + 8 : place + 8 + length]
        assert struct.unpack(">I", made[place + 8 + length : place + 12 + length]) == (zlib.crc32(kind + content),)
        chunks[kind] = content
        place += 12 + length
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    assert (height, width) == shape
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), dtype=np.uint8).reshape(height, -1)
    assert (lines[:, 0] == 0).all()
    assert (lines[:, 1:] == levels).all()
    assert len(chunks[b"PLTE"]) == 3 * (heatmap.NOTHING + 1)
    assert chunks[b"tRNS"][-1] == 0  # what was not measured shows the page


def test_a_level_without_a_colour_is_refused():
    with pytest.raises(ValueError, match="palette of 10 colours"):
        png.picture(np.array([[10]], dtype=np.uint8), heatmap.PALETTE)


@pytest.mark.parametrize("num", [3, 32, 33, 700])
def test_maps_of_any_size_are_small_and_well_formed(num):
    identities = pairs(num)
    values = np.random.default_rng(1).normal(1e9, 1e7, len(identities))
    table, block = heatmap.cells(identities, values, higher=True)
    what = heatmap.told(table, {(0, 1)}, metric="links.bandwidth", pairs=len(values), unit="B/s")
    drawn = heatmap.draw(table, block, {(0, 1)}, unit="B/s", higher=True, what=what)
    ElementTree.fromstring(drawn)
    assert ("data:image/png" in drawn) == (num > heatmap.SQUARES)
    assert len(drawn) < 300_000
    assert "1 marked as failing" in drawn
