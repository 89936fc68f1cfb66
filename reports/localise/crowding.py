"""What only shows when flows run together: a boundary that is narrower than what crosses it.

Every ordered pair of leaves is a boundary of its own: how much slower are flows over it together than alone, beyond
what flows inside the leaves lose when as many of them run? Most boundaries: the fabric is oversubscribed. Some: those
uplinks, one way or both. Without a topology the two directions between the halves of the nodes are all there is, and
nothing to compare them with: that is only worth a note.

>>> of_load(np.array([1, 1, 4]))
(1, 4)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from reports.localise.effects import SMALLEST_NOISE, certainty, few, middle, spread, upper_median
from reports.localise.fabric import MOST, Fabric
from reports.localise.pairs import Bools, Floats, Ints, PairTable, logs
from reports.localise.suspects import Suspect, percent
from reports.localise.topology import Topology

UNDER_LOAD = 0.1  # flows together may be this much slower than one alone before the fabric is blamed
ENOUGH = 4  # rounds of flows together over one boundary that are needed to accuse it


@dataclass(frozen=True, kw_only=True)
class Boundary:
    """One ordered pair of leaves."""

    leaf: int
    peer: int
    net: float  # logs: what its flows lose together, beyond flows inside
    z: float
    num_rounds: int
    num_agree: int


def under_load(table: PairTable, *, topology: Topology | None = None) -> list[Suspect]:
    """What a table of simultaneous flows shows by itself: see `crowded`."""
    return crowded(Fabric.of(table, topology or Topology()), logs(table)[0]) if len(table) else []


def crowded(fabric: Fabric, y: Floats) -> list[Suspect]:
    """Flows over a boundary that are fast alone and slow together, where flows inside a leaf are not."""
    load = fabric.table.load
    if load is None or (found := of_load(load)) is None:
        return []
    least, most = found
    boundaries = _boundaries(fabric, y, load == least, load == most)
    slow = [b for b in boundaries if b.net <= math.log(1 - UNDER_LOAD)]
    if not slow:
        return []
    inside = ~fabric.across if fabric.across.any() else np.zeros(len(y), dtype=bool)
    control = bool((inside & (load == most)).any() and (inside & (load == least)).any())
    sure = certainty(np.array([b.z for b in slow]), len(boundaries))
    known = [control and b.num_rounds >= ENOUGH for b in slow]
    confidence = [float(s) if k else 0.5 for s, k in zip(sure, known, strict=True)]
    if len(slow) >= MOST * len(boundaries) or not fabric.across.any():
        return [_oversubscription(fabric, slow, max(confidence), int(most), control=control)]
    return [_uplink(fabric, b, c, int(most), control=control) for b, c in zip(slow, confidence, strict=True)]


def of_load(load: Ints) -> tuple[int, int] | None:
    """The lowest and the highest known load; None where there is only one."""
    known = load[load >= 0]
    if not len(known) or known.min() == load.max():
        return None
    return int(known.min()), int(load.max())


def _boundaries(fabric: Fabric, y: Floats, alone: Bools, together: Bools) -> list[Boundary]:
    """Every ordered pair of leaves (or of halves of the nodes) over which flows ran together."""
    table = fabric.table
    if fabric.across.any():
        ends, across = (fabric.leaf_a, fabric.leaf_b), fabric.across
    else:
        half = len(table.nodes) // 2
        ends, across = ((table.a >= half).astype(np.int64), (table.b >= half).astype(np.int64)), table.a >= 0
    usual = _by_round(y, table.round, alone & across)
    inside, lost = _by_round(y, table.round, alone & ~across), _by_round(y, table.round, together & ~across)
    shared = middle(lost) - middle(inside) if len(lost) and len(inside) else 0.0
    if not len(usual):
        return []
    found = []
    num = int(max(end.max() for end in ends)) + 1
    for code in np.unique((ends[0] * num + ends[1])[together & across]).tolist():
        mine = together & across & (ends[0] * num + ends[1] == code)
        own = _by_round(y, table.round, mine)
        net = middle(own) - middle(usual) - shared
        noise = max(spread(own), spread(usual), SMALLEST_NOISE) * few(len(own))
        found.append(Boundary(
            leaf=code // num, peer=code % num, net=net, z=net / (noise * math.sqrt(1 / len(own) + 1 / len(usual))),
            num_rounds=len(own), num_agree=int((own - middle(usual) <= net / 2).sum()),
        ))  # fmt: skip
    return found


def _by_round(y: Floats, rounds: Ints, which: Bools) -> Floats:
    """The middle of each round's flows of those in `which`: flows of one round ran together and count once."""
    seen, of = np.unique(rounds[which], return_inverse=True)
    return upper_median(y[which], of.astype(np.int64), len(seen))


def _oversubscription(fabric: Fabric, slow: list[Boundary], sure: float, load: int, *, control: bool) -> Suspect:
    worst = min(slow, key=lambda b: b.z)
    net = middle(np.array([b.net for b in slow]))
    two = len(fabric.leaves) == 2 and fabric.across.any()
    return Suspect(
        kind="oversubscription", where=fabric.leaves[0] if two else "", peer=fabric.leaves[1] if two else "",
        slower=-math.expm1(net), z=worst.z, num_cells=sum(b.num_rounds for b in slow),
        num_agree=sum(b.num_agree for b in slow), confidence=sure,
        evidence=f"{load} flows together are {percent(-math.expm1(net))} slower each than one alone "
                 f"({math.exp(-net):.1f}:1 over the boundary); {_beside(control)}",
    )  # fmt: skip


def _uplink(fabric: Fabric, b: Boundary, sure: float, load: int, *, control: bool) -> Suspect:
    where, peer = fabric.leaves[b.leaf], fabric.leaves[b.peer]
    return Suspect(
        kind="uplink", where=where, peer=peer, direction="out", nodes=fabric.hosts[b.leaf] + fabric.hosts[b.peer],
        slower=-math.expm1(b.net), z=b.z, num_cells=b.num_rounds, num_agree=b.num_agree, confidence=sure,
        evidence=f"{load} flows together are {percent(-math.expm1(b.net))} slower each from {where} to {peer} than one "
                 f"alone, but not over other boundaries or back: one direction of a trunk; {_beside(control)}",
    )  # fmt: skip


def _beside(control: bool) -> str:
    return "flows inside a leaf are not slowed" if control else "no flows inside a leaf were measured to compare"
