"""The map of all pairs of a run: who sends to whom, each cell the worst pair that it stands for.

    table, block = cells(identities, medians, higher=True)
    chart = draw(table, block, marked(labels, block), unit="B/s", higher=True, what="...")

Up to 32 ranks a side each pair is a square, up to 16 with its number. More become a picture of at most 256 cells a
side, with what fails outlined on it. What was not measured is empty.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from reports import charts, png
from reports.drawing import Frame, svg, text
from reports.quantities import digits, quantity, scale_of

SQUARES = 32  # so many ranks a side are drawn one by one
CELLS = 256  # cells a side of a picture
PALETTE = (
    "#c27632", "#cd8c4f", "#d9a671", "#e6c6a0", "#e9ddcb", "#d3dee7", "#b3cbde", "#94b7d3", "#74a3c7", "#000000",
)  # fmt: skip
"""Worst to best, ochre to blue: told apart by all eyes. The last stands for nothing measured, and is clear."""
NOTHING = len(PALETTE) - 1
OUTLINES = 400  # failing cells that are outlined
SIDE = 560.0  # of a picture, pixels

Table = npt.NDArray[np.float64]


def cells(identities: Sequence[tuple[Any, ...]], values: Table, *, higher: bool) -> tuple[Table, int]:
    """Values by cell (row sends to column; NaN: nothing measured), and how many ranks a side one cell stands for."""
    ends = np.array(identities, dtype=np.int64).reshape(-1, 2)
    num_ranks = 1 + int(ends.max())
    block = 1 if num_ranks <= SQUARES else math.ceil(num_ranks / CELLS)
    side = math.ceil(num_ranks / block)
    table = np.full((side, side), np.inf if higher else -np.inf)
    (np.minimum if higher else np.maximum).at(table, tuple((ends // block).T), values)
    return np.where(np.isinf(table), np.nan, table), block


def marked(bad: Iterable[str], block: int) -> set[tuple[int, int]]:
    """The cells of failing pairs, from their labels: 3->11."""
    found = set()
    for label in bad:
        a, arrow, b = label.partition("->")
        if arrow and a.isdecimal() and b.isdecimal():
            found.add((int(a) // block, int(b) // block))
    return found


def draw(table: Table, block: int, failing: set[tuple[int, int]], *, unit: str, higher: bool, what: str) -> Markup:
    """The map as squares, or as a picture where they are too many."""
    side = len(table)
    labels = [str(i * block) for i in range(side)]
    if side <= SQUARES:
        rows = [[None if math.isnan(v) else v for v in row] for row in table.tolist()]
        return charts.heat(rows, labels, failing, unit=unit, higher=higher, what=what)
    return _picture(table, labels, failing, unit=unit, higher=higher, what=what)


def _picture(
    table: Table, labels: Sequence[str], failing: set[tuple[int, int]], *, unit: str, higher: bool, what: str
) -> Markup:
    side, cell = len(table), SIDE / len(table)
    left, top = 40.0, 22.0
    image = f'x="{left}" y="{top}" width="{SIDE:g}" height="{SIDE:g}" preserveAspectRatio="none"'
    pixels = png.picture(levels(table, higher=higher), PALETTE, clear=True)
    parts = [f'<image class="pixels" {image} href="{png.data_uri(pixels)}"/>']
    for i in range(0, side, math.ceil(side / 16)):
        place = (i + 0.5) * cell
        parts.append(text(left - 6, top + place + 4, labels[i], "tick end"))
        parts.append(text(left + place, top - 6, labels[i], "tick mid"))
    edge = max(cell, 5.0)
    for i, j in sorted(failing)[:OUTLINES]:
        x, y = left + (j + 0.5) * cell - edge / 2, top + (i + 0.5) * cell - edge / 2
        parts.append(
            f'<rect class="outline" x="{x:.1f}" y="{y:.1f}" width="{edge:.1f}" height="{edge:.1f}">'
            f"<title>{labels[i]} to {labels[j]}</title></rect>"
        )
    factor, name = scale_of(float(np.nanmax(table)), unit)
    low, high = (digits(float(v) / factor) for v in (np.nanmin(table), np.nanmax(table)))
    worst, best = (low, high) if higher else (high, low)
    parts.append(text(left, top + SIDE + 16, f"{worst} {name} (ochre) to {best} {name} (blue)", "tick"))
    frame = Frame(left + SIDE + 4, top + SIDE + 22, 0, 1, 0, 1)
    return svg(frame, parts, what, css="heat", style=f' style="max-width:{frame.width:.0f}px"')


def levels(table: Table, *, higher: bool) -> npt.NDArray[np.uint8]:
    """Cells as levels of the palette, from worst to best; the whole range is used."""
    low, high = np.nanmin(table), np.nanmax(table)
    good = (table - low) / (high - low) if high > low else np.ones_like(table)
    found = np.round((good if higher else 1 - good) * (NOTHING - 1))
    level: npt.NDArray[np.uint8] = np.where(np.isnan(found), NOTHING, found).astype(np.uint8)
    return level


def told(table: Table, failing: set[tuple[int, int]], *, metric: str, pairs: int, unit: str) -> str:
    """What the map shows, in words."""
    middle = quantity(float(np.nanmedian(table)), unit)
    return f"{metric} of {pairs:,} pairs, median {middle}, {len(failing)} marked as failing"
