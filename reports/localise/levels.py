"""Levels: what a healthy flow of each rail, load and kind reaches, and what is slow as a whole.

A rail that lags on every node, and flows across leaves that lag everywhere alike, are no single node's
fault; they are named here and taken out before leaves and nodes are judged.
"""

from __future__ import annotations

import math

import numpy as np

from reports.localise.effects import SMALLEST_NOISE, certainty, middle, spread, upper_median
from reports.localise.fabric import FLOOR, Fabric
from reports.localise.pairs import Floats, Ints
from reports.localise.suspects import Suspect, percent

MIN_RAILS = 3  # of two rails none can be said to lag
OFFSET = 0.15  # pairs across leaves may be this much slower than pairs inside by design


def without_levels(fabric: Fabric, y: Floats, *, but_rail: int | None = None) -> Floats:
    """`y` about the level of its rail, load and kind of flow: inside a leaf or across.

    `but_rail` is held to the middle of the other rails' levels instead of its own.
    """
    level, code, num_rails = _levels(fabric, y)
    if but_rail is not None:
        per_rail = level.reshape(-1, num_rails)
        others = np.delete(per_rail, but_rail, axis=1)
        per_rail[:, but_rail] = [middle(row) if np.isfinite(row).any() else np.nan for row in others]
        level = per_rail.ravel()
    about: Floats = y - level[code]
    return about


def levels(fabric: Fabric, y: Floats) -> tuple[Floats, list[Suspect]]:
    """`y` about the level of its flow's kind, and rails that lag."""
    level, code, num_rails = _levels(fabric, y)
    per_rail = level.reshape(-1, num_rails)
    return y - level[code], _slow_rails(fabric, per_rail, y - level[code]) + _across_offset(fabric, per_rail)


def _levels(fabric: Fabric, y: Floats) -> tuple[Floats, Ints, int]:
    """Level of every kind of flow, which kind each flow is (load, then inside or across, then rail), and the rails.

    A level is a median: of each rail, load, and kind (inside a leaf or across). Between two leaves, where one slow
    trunk is half of all flows across, it is the fastest block's.
    """
    num_rails, load = fabric.table.num_rails, fabric.load
    kind = fabric.across if len(fabric.leaves) != 2 or fabric.one_level_each else np.zeros(len(y), dtype=bool)
    code = (load * 2 + kind) * num_rails + fabric.table.rail
    num = 2 * (int(load.max()) + 1) * num_rails
    level = upper_median(y, code, num)
    if len(fabric.leaves) == 2:
        blocks = upper_median(y, code * 4 + fabric.leaf_a * 2 + fabric.leaf_b, 4 * num).reshape(num, 4)
        level = np.where(np.isnan(level), np.nan, np.nan_to_num(blocks, nan=-np.inf).max(axis=1))
    return level, code, num_rails


def _slow_rails(fabric: Fabric, per_rail: Floats, rest: Floats) -> list[Suspect]:
    """Rails that lag behind the others at every level; `per_rail` is (kinds of flow, rails)."""
    num_rails = per_rail.shape[1]
    if num_rails < MIN_RAILS:
        return []
    off = np.array([middle(column) for column in (per_rail - [[middle(row)] for row in per_rail]).T])
    cells = np.bincount(fabric.table.rail, minlength=num_rails)
    error = np.maximum(spread(off), spread(rest) / np.sqrt(np.maximum(cells, 1)) + SMALLEST_NOISE)
    sure = certainty(off / error, num_rails)
    return [
        Suspect(
            kind="rail", where=str(r), rail=r, slower=-math.expm1(off[r]), z=float(off[r] / error[r]),
            num_cells=int(cells[r]), num_agree=int(cells[r]), confidence=float(sure[r]),
            evidence=f"rail {r} is {percent(-math.expm1(off[r]))} slower than the other rails on every node: its "
                     "switches, or a setting of that rail",
        )
        for r in np.flatnonzero((off <= -FLOOR) & (sure > 0.5)).tolist()
    ]  # fmt: skip


def _across_offset(fabric: Fabric, per_rail: Floats) -> list[Suspect]:
    """Whether pairs across leaves are slower than pairs inside, everywhere alike."""
    if len(fabric.leaves) <= 2 or fabric.one_level_each:
        return []
    inside, across = per_rail
    off = middle(across - inside)
    if off > math.log(1 - OFFSET):
        return []
    how = f"pairs across leaves are {percent(-math.expm1(off))} slower than pairs inside, in every leaf and both ways"
    return [
        Suspect(kind="oversubscription", where="", slower=-math.expm1(off), num_cells=len(fabric.table), confidence=0.5,
                evidence=f"{how}: slow even alone, or only together? Measure one flow alone")
    ]  # fmt: skip
