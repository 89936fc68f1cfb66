"""The pair table of a search as a map: rows send, columns receive, darker is slower, suspects are outlined.

Beside it how each rail and each leaf did as a whole. Up to 64 nodes it is drawn as shapes with names, above that as a
picture of one dot a pair, above 1,024 nodes of the worst pair of each block. Nothing is judged here.

    found = blame_map(culprits(stored))
    found.picture, found.rails, found.leaves
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from markupsafe import Markup, escape

from reports import png
from reports.culprits import Culprits
from reports.drawing import Frame, svg, text
from reports.localise import PairTable, Suspect, Topology
from reports.localise.effects import upper_median
from reports.localise.pairs import Floats, Ints, logs

SHAPES = 64  # nodes up to which each pair is a shape
DOTS = 1024  # a side of the picture
STEP = 0.025  # of the speed: one of eight shades; the darkest is 20 % slower or worse
LISTED = 12  # rails or leaves in a table
COLOURS = (
    "#c27632", "#cd8c4f", "#d9a671", "#e6c6a0", "#eee0cc", "#dbe3ea", "#bcd0e0", "#9dbdd6", "#7eaacb", "#fbfaf7",
    "#b0261c",
)  # fmt: skip
EMPTY, OUTLINE = 9, 10  # of COLOURS: a pair that did not meet, and a suspect's frame


class Margin(NamedTuple):
    """One rail or leaf as a whole: the middle of its flows, against the middle of all."""

    name: str
    slower: float  # share; negative is faster
    flows: int


class Box(NamedTuple):
    """What is outlined: rows and columns, first and behind the last."""

    top: int
    bottom: int
    left: int
    right: int
    title: str


@dataclass(frozen=True, kw_only=True)
class Map:
    """What the page shows of a pair table."""

    picture: Markup
    detail: str
    rails: list[Margin]
    leaves: list[Margin]
    more_leaves: int = 0


def blame_map(found: Culprits | None) -> Map | None:
    """The map of a search; None where there was none, or it measured nothing."""
    if found is None or found.screened.table is None or not len(found.screened.table):
        return None
    table, topology = found.screened.table, found.screened.topology or Topology()
    y, _ = logs(table)
    share = np.exp(y - np.median(y))
    leaf, names = topology.leaves(table.nodes, 1)
    order = sorted(range(len(table.nodes)), key=lambda i: (leaf[i, 0], _natural(table.nodes[i])))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    block = max(1, math.ceil(len(order) / DOTS))
    side = math.ceil(len(order) / block)
    levels = _levels(table, share, place // block, side)
    boxes = [box for s in found.accused for box in _boxes(s, table, place, block)]
    what = f"speed of {len(table):,} flows between {len(order):,} nodes, {len(boxes)} suspects outlined"
    if len(order) <= SHAPES:
        drawn = _shapes(levels, [table.nodes[i] for i in order], boxes, what)
    else:
        drawn = _image(levels, boxes, what)
    leaves = sorted(_leaves(table, topology, share), key=lambda m: -m.slower)
    return Map(
        picture=drawn, rails=list(_rails(table, share)) if table.num_rails > 1 else [], leaves=leaves[:LISTED],
        more_leaves=max(0, len(leaves) - LISTED),
        detail=_detail(block, names=len(names)),
    )  # fmt: skip


def _detail(block: int, *, names: int) -> str:
    by = "nodes in the order of their leaves" if names > 1 else "nodes in the order of their names"
    worst = f"; the worst pair of every {block} x {block} nodes" if block > 1 else ""
    return f"row sends to column, {by}; the worst rail of a pair{worst}; the darkest is {8 * STEP:.0%} slower or more"


def _levels(table: PairTable, share: Floats, at: Ints, side: int) -> Ints:
    """Shade per cell, shape (side, side): 8 as fast as the middle or faster, 0 far slower, EMPTY nobody met."""
    worst = np.full(side * side, np.inf)
    np.minimum.at(worst, at[table.a] * side + at[table.b], share)
    shade = np.clip(8 - np.floor((1 - np.where(np.isfinite(worst), worst, 1.0)) / STEP + 0.5), 0, 8)
    found: Ints = np.where(np.isfinite(worst), shade, EMPTY).astype(np.int64).reshape(side, side)
    return found


def _boxes(s: Suspect, table: PairTable, place: Ints, block: int) -> Iterator[Box]:
    """The rows of whoever sends slowly, the columns of whoever receives slowly; of a pair its one cell."""
    index = {name: i for i, name in enumerate(table.nodes)}
    side = math.ceil(len(table.nodes) / block)
    if s.kind == "pair" and s.where in index and s.peer in index:
        i, j = int(place[index[s.where]]) // block, int(place[index[s.peer]]) // block
        yield Box(i, i + 1, j, j + 1, s.title)
        return
    rows = sorted({int(place[index[node]]) // block for node in s.nodes if node in index})
    for first, last in _runs(rows):
        if s.direction not in ("receive", "in"):
            yield Box(first, last + 1, 0, side, s.title)
        if s.direction not in ("transmit", "out"):
            yield Box(0, side, first, last + 1, s.title)


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Neighbours as (first, last)."""
    first = last = None
    for number in numbers:
        if last is not None and number == last + 1:
            last = number
            continue
        if first is not None and last is not None:
            yield first, last
        first = last = number
    if first is not None and last is not None:
        yield first, last


def _shapes(levels: Ints, names: Sequence[str], boxes: Sequence[Box], what: str) -> Markup:
    n = len(names)
    cell = max(7.0, min(40.0, 640 / n))
    left, top = 8.0 + 6.5 * max(map(len, names)), 20.0
    parts = []
    for i, name in enumerate(names):
        parts.append(text(left - 5, top + (i + 0.5) * cell + 4, name, "tick end") if cell >= 11 or i % 2 == 0 else "")
        for j in range(n):
            if levels[i, j] != EMPTY:
                x, y, edge = left + j * cell, top + i * cell, cell - 1
                box = f'x="{x:.1f}" y="{y:.1f}" width="{edge:.1f}" height="{edge:.1f}"'
                parts.append(f'<rect class="h{levels[i, j]}" {box}/>')
    for b in boxes:
        box = (
            f'x="{left + b.left * cell - 1:.1f}" y="{top + b.top * cell - 1:.1f}" '
            f'width="{(b.right - b.left) * cell + 1:.1f}" height="{(b.bottom - b.top) * cell + 1:.1f}"'
        )
        parts.append(f'<rect class="outline" {box}><title>{escape(b.title)}</title></rect>')
    side = left + n * cell + 4
    frame = Frame(side, top + n * cell + 4, 0, 1, 0, 1)
    return svg(frame, parts, what, css="heat", style=f' style="max-width:{side:.0f}px"')


def _image(levels: Ints, boxes: Sequence[Box], what: str) -> Markup:
    """One dot a cell, or a few where there is room; frames around the suspects' rows and columns."""
    side = len(levels)
    dot = max(1, DOTS // side)
    dots = np.kron(levels, np.ones((dot, dot), dtype=np.int64))
    margin = 4
    canvas = np.full((side * dot + 2 * margin,) * 2, EMPTY, dtype=np.int64)
    canvas[margin:-margin, margin:-margin] = dots
    for b in boxes:
        y0, y1, x0, x1 = (margin + dot * v for v in (b.top, b.bottom, b.left, b.right))
        for y, x in ((y0, x0), (y1 + 2, x0)):
            canvas[y - 2 : y, x - 2 : x1 + 2] = OUTLINE
        for y, x in ((y0, x0), (y0, x1 + 2)):
            canvas[y - 2 : y1 + 2, x - 2 : x] = OUTLINE
    source = png.data_uri(png.picture(canvas, COLOURS))
    return Markup('<img class="map" src="{}" alt="{}" width="{}" height="{}">').format(source, what, *canvas.shape)


def _rails(table: PairTable, share: Floats) -> Iterator[Margin]:
    middle = upper_median(share, table.rail, table.num_rails)
    for rail, count in enumerate(np.bincount(table.rail, minlength=table.num_rails).tolist()):
        if count:
            yield Margin(f"rail {rail}", 1 - float(middle[rail]), count)


def _leaves(table: PairTable, topology: Topology, share: Floats) -> Iterator[Margin]:
    """What leaves and what enters every leaf."""
    at, names = topology.leaves(table.nodes, table.num_rails)
    sends, receives = at[table.a, table.rail], at[table.b, table.rail]
    across = (sends != receives) & (sends >= 0) & (receives >= 0)
    for way, codes in (("out of", sends), ("into", receives)):
        middle = upper_median(share[across], codes[across], len(names))
        count = np.bincount(codes[across], minlength=len(names))
        for leaf in np.flatnonzero(count).tolist():
            yield Margin(f"{way} {names[leaf]}", 1 - float(middle[leaf]), int(count[leaf]))


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort key by which n10 comes after n9."""
    parts, digits = [], ""
    for character in f"{name}\0":
        if character.isdigit():
            digits += character
            continue
        if digits:
            parts.append((int(digits), ""))
            digits = ""
        parts.append((-1, character))
    return parts
