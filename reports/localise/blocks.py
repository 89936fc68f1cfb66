"""Leaves and uplinks: blocks of the pair table that are slow together.

A leaf whose flows to everyone else are slow has a slow uplink; one whose own pairs are slow too is slow
itself, or its rack is. This needs three leaves; two are the business of `trunk`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from reports.localise.effects import SMALLEST_NOISE, certainty, few, middle, spread, two_way, upper_median
from reports.localise.fabric import FLOOR, MIN_HOSTS, MOST, SUSPECT_Z, Fabric
from reports.localise.pairs import Floats, Ints
from reports.localise.suspects import Suspect, percent


def leaves(fabric: Fabric, y: Floats) -> tuple[Floats, list[Suspect]]:
    """Leaves slow as a whole and uplinks; their effects are taken out of `y`."""
    blocks = Blocks.of(fabric, y)
    suspects, y = [], y.copy()
    for leaf in range(len(fabric.leaves)):
        out, into = bool(blocks.sure[0, leaf] > 0.5), bool(blocks.sure[1, leaf] > 0.5)
        if not (out or into) or len(fabric.hosts[leaf]) < MIN_HOSTS:
            continue
        suspects.append(blocks.suspect(leaf, out=out, into=into))
        for side, codes, found in ((0, fabric.leaf_a, out), (1, fabric.leaf_b, into)):
            if found:
                y[(codes == leaf) & fabric.across] -= blocks.effect[side, leaf]
        inside = (fabric.leaf_a == leaf) & ~fabric.across
        if np.isfinite(blocks.inside[leaf]):
            y[inside] -= blocks.inside[leaf]
    return y, racks(fabric, suspects)


def racks(fabric: Fabric, suspects: list[Suspect]) -> list[Suspect]:
    """Where each rail has leaves of its own: the rack, once, if most of its leaves are slow, else the leaves."""
    kept = [s for s in suspects if s.kind != "leaf"]
    slow = [s for s in suspects if s.kind == "leaf"]
    for rack in dict.fromkeys(rack_of(fabric, s.nodes) for s in slow):
        mine = [s for s in slow if rack_of(fabric, s.nodes) == rack]
        num_leaves = sum(set(hosts) <= set(mine[0].nodes) for hosts in fabric.hosts if hosts)
        if not rack or len(mine) < MOST * num_leaves:
            kept += mine
            continue
        worst = min(mine, key=lambda s: s.z)
        ways = {s.direction for s in mine}
        said = worst.evidence.replace(f"leaf {worst.where}", f"rack {rack}", 1)
        more = f"; so are {len(mine)} of its {num_leaves} leaves" if num_leaves > 1 else ""
        kept.append(
            replace(worst, kind="rack", where=rack, direction=ways.pop() if len(ways) == 1 else "both",
                    evidence=said + more)
        )  # fmt: skip
    return kept


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Leaf by leaf: what leaves, enters and stays inside each; effects in logs."""

    fabric: Fabric
    effect: Floats  # (2, leaves): out, in
    z: Floats  # (2, leaves)
    sure: Floats  # (2, leaves)
    inside: Floats  # (leaves,); NaN where fewer than three pairs inside were measured
    num_cells: Ints  # (2, leaves)
    agree: Floats  # (2, leaves): share of the leaf's hosts that show it

    @classmethod
    def of(cls, fabric: Fabric, y: Floats) -> Blocks:
        """Fit rows and columns of leaves; the unit of replication is a leaf in a round, not a flow."""
        num, across = len(fabric.leaves), fabric.across
        codes = [fabric.leaf_a[across], fabric.leaf_b[across]]
        fit = two_way(y[across], codes[0], codes[1], num, num)
        effect, rest = np.array([fit.row.effect, fit.col.effect]), fit.rest
        count = np.array([np.bincount(c, minlength=num) for c in codes])
        z = np.array([_by_round(fabric, effect[i], codes[i], rest, count[i]) for i in (0, 1)])
        ends = (fabric.table.a[across], fabric.table.b[across])
        agree = np.array([_hosts_agree(effect[i], codes[i], rest, ends[i]) for i in (0, 1)])
        sure = np.where((effect <= -FLOOR) & (z <= SUSPECT_Z) & (agree >= MOST), certainty(z, 2 * num), 0.0)
        return cls(fabric=fabric, effect=effect, z=z, sure=sure, num_cells=count, agree=agree,
                   inside=_inside(fabric, y))  # fmt: skip

    def suspect(self, leaf: int, *, out: bool, into: bool) -> Suspect:
        """The leaf itself, its rack, or its uplink: decided by the pairs that never left it."""
        fabric, side = self.fabric, 0 if out and not (into and self.effect[1, leaf] < self.effect[0, leaf]) else 1
        effect, inside = float(self.effect[side, leaf]), float(self.inside[leaf])
        slower, name, hosts = percent(-math.expm1(effect)), fabric.leaves[leaf], fabric.hosts[leaf]
        sure = float(max(self.sure[:, leaf]))
        whole = math.isfinite(inside) and inside <= effect / 2
        kind, where = "uplink", name
        direction = "both" if out and into else "out" if out else "in"
        if whole:
            kind = "leaf"
            direction = {"both": "both", "out": "transmit", "in": "receive"}[direction]
            why = f"pairs inside it are slow as well ({percent(-math.expm1(inside))}), so it is no uplink"
        elif math.isfinite(inside):
            why = "pairs inside it are as fast as elsewhere, so its hosts are well"
        else:
            sure, why = min(sure, 0.5), "no pair inside it was measured, so a slow rack is not ruled out"
        ways = {"both": "leave and enter", "transmit": "leave", "out": "leave"}.get(direction, "enter")
        return Suspect(
            kind=kind, where=where, direction=direction, nodes=hosts, slower=-math.expm1(effect),
            z=float(self.z[side, leaf]), num_cells=int(self.num_cells[side, leaf]),
            num_agree=round(float(self.agree[side, leaf]) * len(hosts)), confidence=sure,
            evidence=f"flows that {ways} {kind if whole else 'leaf'} {where} are {slower} slower for "
                     f"{percent(float(self.agree[side, leaf]))} of its {len(hosts)} hosts; {why}",
        )  # fmt: skip


def _by_round(fabric: Fabric, effect: Floats, codes: Ints, rest: Floats, count: Ints) -> Floats:
    """z of a leaf effect: its error comes from the scatter between rounds, widened to the leaves' own spread."""
    rounds = fabric.table.round[fabric.across]
    of_round = upper_median(rest, rounds * len(effect) + codes, (int(rounds.max()) + 1) * len(effect))
    seen = np.isfinite(of_round.reshape(-1, len(effect))).sum(axis=0)
    flow = max(spread(rest), SMALLEST_NOISE)
    error = np.maximum(spread(of_round) / np.sqrt(np.maximum(seen, 1)), 1.25 * flow / np.sqrt(np.maximum(count, 1)))
    z = effect / error
    wide: Floats = z / (max(1.0, spread(z)) * few(len(effect)))
    return wide


def _hosts_agree(effect: Floats, codes: Ints, rest: Floats, end: Ints) -> Floats:
    """Share of a leaf's hosts whose own flows show at least half of the leaf's effect."""
    num = len(effect)
    hosts, host = np.unique(end * num + codes, return_inverse=True)
    leaf = (hosts % num).astype(np.int64)
    own = upper_median(rest, host.astype(np.int64), len(hosts)) + effect[leaf]
    shows = np.bincount(leaf, weights=own <= effect[leaf] / 2, minlength=num)
    share: Floats = np.divide(shows, np.bincount(leaf, minlength=num), out=np.zeros(num), where=shows > 0)
    return share


def _inside(fabric: Fabric, y: Floats) -> Floats:
    num, inside = len(fabric.leaves), ~fabric.across
    own = upper_median(y[inside], fabric.leaf_a[inside], num)
    own[np.bincount(fabric.leaf_a[inside], minlength=num) < 3] = np.nan
    best: Floats = own - middle(own)
    return best


def rack_of(fabric: Fabric, hosts: tuple[str, ...]) -> str:
    """The rack that these hosts, and no others, share; "" where they share none."""
    racks = {fabric.topology.rack.get(host, "") for host in hosts}
    rack = racks.pop() if len(racks) == 1 else ""
    members = {node for node, name in fabric.topology.rack.items() if name == rack}
    return rack if rack and members & set(fabric.table.nodes) <= set(hosts) else ""
