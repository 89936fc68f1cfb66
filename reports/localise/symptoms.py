"""Symptoms beyond a slow side: wrong data, loss, path collisions.

Each reads the optional column it needs (`wrong`; `best` and `retransmits`; repeated pairs) and says
nothing where the table has none.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np

from reports.localise.effects import certainty, middle, probability_bad, spread, sums, upper_median
from reports.localise.fabric import FLOOR, Fabric
from reports.localise.pairs import Floats, PairTable
from reports.localise.sides import Sides
from reports.localise.suspects import CERTAIN, Suspect, percent

MANY_RETRANSMITS = 5.0  # times the fleet's typical count


def corrupters(table: PairTable) -> list[Suspect]:
    """Who sends, or receives, wrong data: the fewest ends that explain all wrong flows, greedily.

    Wrong data needs no statistics: one wrong element is one too many. A single wrong pair cannot tell its
    sender from its receiver.
    """
    if table.wrong is None:
        return []
    bad = np.flatnonzero(np.nan_to_num(table.wrong) > 0)
    flows = list(zip(table.a[bad].tolist(), table.b[bad].tolist(), table.rail[bad].tolist(), strict=True))
    suspects = []
    while flows:
        partners = Counter((0, a) for a, _ in {(a, b) for a, b, _ in flows})
        partners.update((1, b) for _, b in {(a, b) for a, b, _ in flows})
        most = max(partners.values())
        side, node = max(end for end, count in partners.items() if count == most)
        mine = [f for f in flows if f[side] == node]
        flows = [f for f in flows if f[side] != node]
        suspects.append(_corrupter(table, side, node, mine, num_partners=most))
    return suspects


def _corrupter(table: PairTable, side: int, node: int, flows: list[tuple[int, int, int]], *,
               num_partners: int) -> Suspect:  # fmt: skip
    rails = {rail for _, _, rail in flows}
    a, b = (table.nodes[i] for i in flows[0][:2])
    name, one = table.nodes[node], num_partners == 1
    num_cells = int(((table.a, table.b)[side] == node).sum())
    said = f"{len(flows)} of {num_cells} flows {('from', 'to')[side]} {name} arrived wrong, at {num_partners} partners"
    if one:
        said = f"only flows from {a} to {b} arrived wrong: sender and receiver cannot be told apart"
    return Suspect(
        kind="corruption", where=a if one else name, peer=b if one else "",
        rail=rails.pop() if len(rails) == 1 and table.num_rails > 1 else None,
        direction="" if one else ("transmit", "receive")[side], nodes=(a, b) if one else (name,),
        num_cells=num_cells, num_agree=len(flows), confidence=0.5 if one else 1.0, evidence=said,
    )  # fmt: skip


def lossy(suspects: list[Suspect], fabric: Fabric, sides: Sides, best: Sides | None) -> list[Suspect]:
    """Suspects whose best repetition is as fast as anyone's: they lose packets rather than run slowly."""
    if best is None:
        return suspects
    table, rails = fabric.table, sides.num_rails
    index = {name: i for i, name in enumerate(table.nodes)}
    counts = _retransmits(table, sides)
    renamed = []
    for s in suspects:
        if s.kind not in ("nic", "host", "dead"):
            renamed.append(s)
            continue
        at = [index[s.where] * rails + r for r in (range(rails) if s.rail is None else (s.rail,))]
        ways = (1,) if s.direction == "receive" else (0,) if s.direction == "transmit" else (0, 1)
        effect = min(middle(best.effects[way].effect[at]) for way in ways)
        if effect <= math.log1p(-s.slower) / 3:
            renamed.append(s)
            continue
        said = f"{s.evidence}; its best repetition is unaffected ({percent(-math.expm1(effect))} slower)"
        lost = counts is not None and max(middle(counts[way][at]) for way in ways) >= MANY_RETRANSMITS
        if lost:
            said += ", and retransmits are many times those of its peers: it loses packets"
            renamed.append(replace(s, kind="loss", evidence=said))
        else:
            renamed.append(replace(s, evidence=f"{said}: it is disturbed now and then, or loses packets"))
    return renamed


def _retransmits(table: PairTable, sides: Sides) -> tuple[Floats, Floats] | None:
    """Mean retransmits of each side's flows over the fleet's typical mean (at least 1), per direction."""
    if table.retransmits is None:
        return None
    count = np.nan_to_num(table.retransmits)
    means = []
    for row, effects in zip(sides.row, sides.effects, strict=True):
        total = np.bincount(row, weights=count, minlength=len(effects.effect))
        mean = np.divide(total, effects.num_cells, out=np.full(len(total), np.nan), where=effects.num_cells > 0)
        means.append(mean / max(1.0, middle(mean)))
    return means[0], means[1]


def slow_pairs(fabric: Fabric, sides: Sides) -> list[Suspect]:
    """Pairs that are slow every time though both their ends are well: a path collision.

    Only pairs measured at least twice count: one slow measurement is an outlier, and so are two where outliers
    are so common that two in one pair must be expected somewhere.
    """
    table, noise = fabric.table, sides.noise.scale
    code = (table.a * len(table.nodes) + table.b) * sides.num_rails + table.rail
    cells, count = np.unique(code, return_counts=True)
    again = count * sides.weight >= 2
    cells, count = cells[again], count[again]
    if not len(cells):
        return []
    everything = np.sort(sides.rest)
    cell = np.minimum(np.searchsorted(cells, code), len(cells) - 1)
    repeated = cells[cell] == code
    cell, rest = cell[repeated], sides.rest[repeated]
    effect = upper_median(rest, cell, len(cells))
    z = effect * np.sqrt(count * sides.weight) / max(noise, spread(effect))
    odds = sides.weight * sides.noise.log_odds(rest, effect[cell])
    often = (np.searchsorted(everything, effect / 2) + 1) / (len(everything) + 1)  # any flow as slow as that
    sure = np.minimum(probability_bad(sums(odds, cell, len(cells)), count, noise), certainty(z, len(cells)))
    sure = np.minimum(sure, 1 - len(cells) * often ** (count * sides.weight))
    flagged = effect <= -FLOOR
    suspects = []
    for at in np.flatnonzero(flagged & (sure >= CERTAIN)).tolist():
        pair, rail = divmod(int(cells[at]), sides.num_rails)
        a, b = (table.nodes[i] for i in divmod(pair, len(table.nodes)))
        mine = rest[cell == at]
        slower = -math.expm1(float(effect[at]))
        agree = int((mine <= effect[at] / 2).sum())
        suspects.append(
            Suspect(kind="pair", where=a, peer=b, rail=rail, nodes=(a, b), slower=slower, z=float(z[at]),
                    num_cells=int(count[at]), num_agree=agree, confidence=float(sure[at]),
                    evidence=f"only {a} to {b} is {percent(slower)} slower, {agree} of {count[at]} times; both are "
                             "well with others: two flows share one path, or the route between them is bad")
        )  # fmt: skip
    return suspects
