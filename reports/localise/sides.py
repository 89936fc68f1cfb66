"""Every NIC's two sides: how much slower it sends and receives than the fleet, and how sure that is.

A side is one (node, rail) in one direction. Two passes: the first finds candidates, so that the second can
take out the weather by flows that no candidate touches. Then each candidate's flows testify: the flows
to healthy partners only, each weighed by the fleet's own distribution of noise.

A side's index is node x rails + rail, in both directions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reports.localise.effects import (
    PRIOR_BAD,
    SMALLEST_NOISE,
    Effects,
    Noise,
    certainty,
    few,
    probability_bad,
    shared_weight,
    spread,
    sums,
    two_way,
)
from reports.localise.fabric import FLOOR, SUSPECT_Z, Fabric, weather
from reports.localise.pairs import Bools, Floats, Ints

PASSES = 2


@dataclass(frozen=True, kw_only=True)
class Testimony:
    """What the flows of each side say about it, if it were slower by the effect in question."""

    log_odds: Floats  # (sides,)
    num_cells: Ints  # flows to healthy partners
    num_agree: Ints  # of them, slow by more than half the effect


@dataclass(frozen=True, kw_only=True)
class Sides:
    """Transmit and receive effects of every side, and the flows as they were judged."""

    row: tuple[Ints, Ints]  # side of each flow: sender's, receiver's
    effects: tuple[Effects, Effects]  # transmit, receive
    candidate: tuple[Bools, Bools]
    cells: Floats  # logs of each flow about the healthy level, weather taken out
    noise: Noise
    num_rails: int
    weight: float

    def heard(self, way: int, effect: Floats) -> Testimony:
        """The testimony of all sides of one direction (0 transmit, 1 receive) with a finite `effect`."""
        mine, other = self.row[way], self.row[1 - way]
        use = np.flatnonzero(np.isfinite(effect)[mine] & ~self.candidate[1 - way][other])
        side, cells = mine[use], self.cells[use]
        odds = self.weight * self.noise.log_odds(cells, effect[side])
        num = len(effect)
        agree = cells <= effect[side] / 2
        return Testimony(
            log_odds=sums(odds, side, num),
            num_cells=np.bincount(side, minlength=num),
            num_agree=np.bincount(side[agree], minlength=num),
        )

    def confidence(self, way: int) -> tuple[Floats, Testimony]:
        """Probability that each candidate is bad (0 for the others): by its flows, and by the fleet's spread."""
        effects, candidate = self.effects[way], self.candidate[way]
        heard = self.heard(way, np.where(candidate, effects.effect, np.nan))
        num_judged = sum(int(e.judged.sum()) for e in self.effects)
        prior = PRIOR_BAD / (2 * self.num_rails)  # of a host's sides any one may be the bad one
        odds = heard.log_odds / shared_weight(heard.num_cells, self.spread, self.noise.scale)
        by_flows = probability_bad(odds, heard.num_cells, self.noise.scale, prior=prior)
        return np.where(candidate, np.minimum(by_flows, certainty(effects.z, num_judged)), 0.0), heard

    @property
    def spread(self) -> float:
        """By how much healthy sides really differ, in logs."""
        return max(e.spread for e in self.effects)

    @property
    def rest(self) -> Floats:
        """Each flow after the effects of both its candidate sides."""
        known = [
            np.where(c, e.effect, 0.0)[row] for c, e, row in zip(self.candidate, self.effects, self.row, strict=True)
        ]
        left: Floats = self.cells - known[0] - known[1]
        return left


def fit_sides(fabric: Fabric, y: Floats, *, weight: float = 1.0) -> Sides:
    """Fit every side to `y` (flows,), logs with what nodes share already taken out."""
    table = fabric.table
    rails = table.num_rails
    row = (table.a * rails + table.rail, table.b * rails + table.rail)
    num = len(table.nodes) * rails
    candidate = (np.zeros(num, dtype=bool), np.zeros(num, dtype=bool))
    for step in range(PASSES):
        fit = two_way(y, row[0], row[1], num, num, weight=weight)
        effects = (fit.row, fit.col)
        candidate = (_candidates(fit.row), _candidates(fit.col))
        clean = ~candidate[0][row[0]] & ~candidate[1][row[1]]
        if step < PASSES - 1:
            y = _without_weather(fabric, y - fit.level, clean)
    cells = y - fit.level
    witnesses = cells[clean] if clean.sum() >= 4 else fit.rest
    scale = max(spread(witnesses, 0.0), SMALLEST_NOISE) * few(len(witnesses))
    return Sides(row=row, effects=effects, candidate=candidate, cells=cells, noise=Noise.of(witnesses, scale),
                 num_rails=rails, weight=weight)  # fmt: skip


def _candidates(effects: Effects) -> Bools:
    with np.errstate(invalid="ignore"):
        slow: Bools = (effects.effect <= -FLOOR) & (effects.z <= SUSPECT_Z)
    return slow


def _without_weather(fabric: Fabric, y: Floats, clean: Bools) -> Floats:
    """`y` without what all flows of a round, out of a leaf in a round, or into one, had in common."""
    num = len(fabric.leaves)
    for group in (fabric.table.round, *((fabric.table.round * num + leaf) for leaf in (fabric.leaf_a, fabric.leaf_b))):
        y = y - weather(y, group, clean)
    return y
