"""One path of several: which of a leaf's uplinks is slow, with the paths given and without.

Where the table says which spine each flow took, (leaf, spine) is an element like any other: rows upwards,
columns downwards. Where it does not, one slow uplink of sixteen shows as a sixteenth of the leaf's flows being
slow, beyond the outliers that every leaf has.
"""

from __future__ import annotations

import math

import numpy as np

from reports.localise.effects import Noise, certainty, middle, probability_bad, spread, sums, two_way
from reports.localise.fabric import FLOOR, MOST, Fabric
from reports.localise.pairs import Bools, Floats, Ints
from reports.localise.suspects import CERTAIN, Suspect, percent

DEPTHS = (0.15, 0.3, 0.5)  # how slow, in logs, a flow must be to count as one of the slow share
LEAST_SHARE = 0.02
LEAST_HOSTS = 3  # whose flows are slow: one host's are its own


def paths(fabric: Fabric, y: Floats) -> tuple[Floats, list[Suspect]]:
    """One path of several: rows are (leaf, path) upwards, columns downwards."""
    table = fabric.table
    if table.path is None:
        return y, []
    known = fabric.across & (table.path >= 0)
    num_paths, num = len(table.paths), len(fabric.leaves) * len(table.paths)
    if not known.any():
        return y, []
    rows = [codes[known] * num_paths + table.path[known] for codes in (fabric.leaf_a, fabric.leaf_b)]
    fit = two_way(y[known], rows[0], rows[1], num, num)
    y, suspects, m = y.copy(), [], int(fit.row.judged.sum() + fit.col.judged.sum())
    flows = y[known] - fit.level
    noise = Noise.of(flows, fit.noise)
    for side, (effects, codes) in enumerate(((fit.row, fabric.leaf_a), (fit.col, fabric.leaf_b))):
        effect_of = np.nan_to_num(effects.effect)
        odds = noise.log_odds(flows, effect_of[rows[side]])
        by_flows = probability_bad(sums(odds, rows[side], num), effects.num_cells, fit.noise, prior=1 / m)
        sure = np.where(effect_of <= -2 * FLOOR, np.minimum(by_flows, certainty(effects.z, m)), 0)
        for at in np.flatnonzero(sure > 0.5).tolist():
            leaf, path = divmod(at, num_paths)
            cells = known & (codes == leaf) & (table.path == path)
            effect = float(effects.effect[at])
            own = flows[rows[side] == at]
            suspects.append(_path_suspect(fabric, leaf, table.paths[path], side, effect, own,
                                          float(effects.z[at]), float(sure[at])))  # fmt: skip
            y[cells] -= effect
    return y, _spines(suspects, fabric)


def _path_suspect(fabric: Fabric, leaf: int, path: str, side: int, effect: float, own: Floats, z: float,
                  sure: float) -> Suspect:  # fmt: skip
    name, agree = fabric.leaves[leaf], int((own <= effect / 2).sum())
    way = ("out of", "into")[side]
    return Suspect(
        kind="path", where=name, path=path, direction=("out", "in")[side], nodes=fabric.hosts[leaf],
        slower=-math.expm1(effect), z=z, num_cells=len(own), num_agree=agree, confidence=sure,
        evidence=f"{agree} of {len(own)} flows {way} leaf {name} via {path} are {percent(-math.expm1(effect))} slower; "
                 "the leaf's other paths are as fast as elsewhere",
    )  # fmt: skip


def _spines(suspects: list[Suspect], fabric: Fabric) -> list[Suspect]:
    """Where most leaves complain about one path, it is the spine."""
    kept = []
    for path in sorted({s.path for s in suspects}):
        mine = [s for s in suspects if s.path == path]
        blamed = {s.where for s in mine}
        if len(blamed) >= max(3, MOST * len(fabric.leaves)):
            worst = min(mine, key=lambda s: s.z)
            kept.append(
                Suspect(kind="spine", where=path, direction="both", slower=worst.slower, z=worst.z,
                        num_cells=sum(s.num_cells for s in mine), num_agree=sum(s.num_agree for s in mine),
                        confidence=worst.confidence,
                        evidence=f"flows via {path} are slow from or to {len(blamed)} of {len(fabric.leaves)} leaves")
            )  # fmt: skip
        else:
            kept += mine
    return kept


def lagging_shares(fabric: Fabric, rest: Floats, found: list[Suspect]) -> list[Suspect]:
    """Leaves of whose flows a share is slow though no host and no path accounts for it.

    `rest` is (flows,), logs after the suspects' effects. Shares are compared with the other leaves' (which have
    their outliers too); a leaf already named is left out.
    """
    across = fabric.across
    if fabric.table.path is not None or not across.any():
        return []
    named = {s.where for s in found} | {s.peer for s in found if s.kind == "uplink"}
    ends = ((fabric.leaf_a, fabric.table.a), (fabric.leaf_b, fabric.table.b))
    suspects = []
    for side, (codes, host) in enumerate(ends[:1] if len(fabric.leaves) == 2 else ends):
        z, sure, depth = _most_lagging(rest[across], codes[across], len(fabric.leaves))
        for leaf in np.flatnonzero(sure >= CERTAIN).tolist():
            mine = across & (codes == leaf)
            slow = mine & (rest < -depth[leaf])
            if fabric.leaves[leaf] not in named and len(np.unique(host[slow])) >= LEAST_HOSTS:
                suspects.append(_share_suspect(fabric, leaf, side, mine, slow, rest, float(z[leaf]), float(sure[leaf])))
    return suspects


def _most_lagging(rest: Floats, leaf: Ints, num: int) -> tuple[Floats, Floats, Floats]:
    """z, certainty and depth per leaf, at the depth where its share of slow flows stands out most."""
    z, depth = np.zeros(num), np.full(num, DEPTHS[0])
    count = np.bincount(leaf, minlength=num)
    for at in DEPTHS:
        slow = np.bincount(leaf[rest < -at], minlength=num)
        share = np.divide(slow, count, out=np.zeros(num), where=count > 0)
        usual = middle(share[count > 0])
        here = _deviance(slow, count, max(usual, 0.5 / max(int(count.sum()), 1)))
        here = here / max(1.0, spread(-here))
        better = (here > z) & (share - usual >= LEAST_SHARE)
        z, depth = np.where(better, here, z), np.where(better, at, depth)
    return -z, certainty(-z, 2 * len(DEPTHS) * num), depth


def _deviance(slow: Ints, count: Ints, usual: float) -> Floats:
    """Signed root of the binomial deviance of `slow` of `count` against the share `usual`: nearly normal, even for few.

    2 n (q ln(q/p) + (1-q) ln((1-q)/(1-p))) with q = slow / count and p = usual (McCullagh and Nelder, 1989).
    """
    share = np.clip(np.divide(slow, count, out=np.full(len(slow), usual), where=count > 0), 1e-9, 1 - 1e-9)
    apart = share * np.log(share / usual) + (1 - share) * np.log((1 - share) / (1 - usual))
    root: Floats = np.sign(share - usual) * np.sqrt(2 * count * np.maximum(apart, 0))
    return root


def _share_suspect(fabric: Fabric, leaf: int, side: int, mine: Bools, slow: Bools, rest: Floats, z: float,
                   sure: float) -> Suspect:  # fmt: skip
    name, share = fabric.leaves[leaf], float(slow.sum() / mine.sum())
    slower = -math.expm1(float(np.median(rest[slow])))
    return Suspect(
        kind="path", where=name, direction=("out", "in")[side], nodes=fabric.hosts[leaf], slower=slower, z=z,
        num_cells=int(mine.sum()), num_agree=int(slow.sum()), confidence=sure,
        evidence=f"{percent(share)} of the flows {('out of', 'into')[side]} leaf {name} are {percent(slower)} slower, "
                 "whichever host they belong to: one of its uplinks (which one, the table does not say)",
    )  # fmt: skip
