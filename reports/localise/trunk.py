"""Exactly two leaves: one trunk between them, and no third leaf to say which end is at fault.

Four blocks tell all there is to tell: inside each leaf, and each way between them. The fastest is taken as healthy,
since faults only slow down. Three or more leaves are `blocks`' business.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from reports.localise.blocks import rack_of
from reports.localise.effects import SMALLEST_NOISE, certainty, few, spread, upper_median
from reports.localise.fabric import FLOOR, MIN_HOSTS, MOST, SUSPECT_Z, Fabric
from reports.localise.pairs import Bools, Floats, Ints
from reports.localise.suspects import Suspect, percent


@dataclass(frozen=True, kw_only=True)
class Quarter:
    """Flows from one leaf to one leaf (the same, or the other), about the fastest of the four."""

    rows: Bools
    effect: float  # in logs
    z: float
    sure: float
    num_agree: int

    @property
    def slow(self) -> bool:
        """Whether the block as a whole is slow, not some flows in it."""
        return self.sure > 0.5


def trunk(fabric: Fabric, y: Floats) -> tuple[Floats, list[Suspect]]:
    """A leaf (or rack) that is slow as a whole, or the trunk between the two; their effects are taken out of `y`."""
    if min(len(hosts) for hosts in fabric.hosts) < MIN_HOSTS:
        return y, []
    block = {(i, j): _quarter(fabric, y, i, j) for i in (0, 1) for j in (0, 1)}
    sick = [leaf for leaf in (0, 1) if block[leaf, leaf].slow]
    across = [way for way in ((0, 1), (1, 0)) if block[way].slow]
    if not across or len(sick) == 2:
        return y, []
    y = y.copy()
    for quarter in (*(block[way] for way in across), *(block[leaf, leaf] for leaf in sick)):
        y[quarter.rows] -= quarter.effect
    worst = min((block[way] for way in across), key=lambda quarter: quarter.effect)
    seen = any(block[leaf, leaf].rows.sum() >= 3 for leaf in (0, 1))
    found = _leaf(fabric, sick[0], across, worst) if sick else _trunk(fabric, across, worst, seen=seen)
    return y, [found]


def _quarter(fabric: Fabric, y: Floats, leaf_a: int, leaf_b: int) -> Quarter:
    """One block, about 0 = the fastest block (`levels` has seen to that)."""
    rows: Bools = (fabric.leaf_a == leaf_a) & (fabric.leaf_b == leaf_b)
    own = y[rows]
    if len(own) < 3:
        return Quarter(rows=rows, effect=0.0, z=0.0, sure=0.0, num_agree=0)
    effect = float(upper_median(own, np.zeros(len(own), dtype=np.int64), 1)[0])
    z = effect / _error(fabric.table.round[rows], own)
    agree = int((own <= effect / 2).sum())
    bad = effect <= -FLOOR and z <= SUSPECT_Z and agree >= MOST * len(own)
    return Quarter(rows=rows, effect=effect, z=z, num_agree=agree, sure=float(certainty(np.array([z]), 4)[0]) * bad)


def _error(rounds: Ints, own: Floats) -> float:
    """Standard error of a block's median: by its flows, or by its rounds where those differ more."""
    seen, of_round = np.unique(rounds, return_inverse=True)
    by_round = spread(upper_median(own, of_round.astype(np.int64), len(seen))) * few(len(seen)) / math.sqrt(len(seen))
    return max(1.25 * max(spread(own), SMALLEST_NOISE) * few(len(own)) / math.sqrt(len(own)), by_round)


def _leaf(fabric: Fabric, leaf: int, across: list[tuple[int, int]], worst: Quarter) -> Suspect:
    rack = rack_of(fabric, fabric.hosts[leaf])
    kind, where = ("rack", rack) if rack else ("leaf", fabric.leaves[leaf])
    direction = "both" if len(across) == 2 else "transmit" if across[0][0] == leaf else "receive"
    slower = -math.expm1(worst.effect)
    return Suspect(
        kind=kind, where=where, direction=direction, nodes=fabric.hosts[leaf], slower=slower, z=worst.z,
        num_cells=int(worst.rows.sum()), num_agree=worst.num_agree, confidence=worst.sure,
        evidence=f"{kind} {where} is {percent(slower)} slower, to itself and to the other alike: what its "
                 f"{len(fabric.hosts[leaf])} hosts share",
    )  # fmt: skip


def _trunk(fabric: Fabric, across: list[tuple[int, int]], worst: Quarter, *, seen: bool) -> Suspect:
    (leaf, other), both = across[0], len(across) == 2
    where, peer, slower = fabric.leaves[leaf], fabric.leaves[other], percent(-math.expm1(worst.effect))
    how = f"{worst.num_agree} of {int(worst.rows.sum())} flows from {where} to {peer} are {slower} slower"
    why = "flows the other way and inside are not: one direction of the trunk"
    if both:
        why = "so are those back, and none inside: the trunk, or more flows than it is built for; measure one alone"
    elif not seen:
        why = "flows back are not; no pair inside a leaf was measured"
    return Suspect(
        kind="uplink", where=where, peer=peer, direction="both" if both else "out",
        nodes=fabric.hosts[leaf] + fabric.hosts[other], slower=-math.expm1(worst.effect), z=worst.z,
        num_cells=int(worst.rows.sum()), num_agree=worst.num_agree,
        confidence=min(worst.sure, 0.5) if both or not seen else worst.sure, evidence=f"{how}; {why}",
    )  # fmt: skip
