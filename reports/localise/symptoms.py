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
from reports.localise.fabric import FLOOR, MOST, Fabric
from reports.localise.pairs import Floats, Ints, PairTable
from reports.localise.sides import Sides
from reports.localise.suspects import CERTAIN, Suspect, percent

MANY_RETRANSMITS = 5.0  # times the usual count, which counts as 1 at least
ALL_ALONG, NOW_AND_THEN = 2 / 3, 1 / 3  # of its slowness in its best repetition too: slow, or only disturbed
MIN_FLOWS = 3  # of a side, to speak of its losses


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
    """The suspects with those that lose packets called so, and losers that the speed does not show.

    Whose packets are sent again many times as often as everybody's loses them, unless it is slow in its best repetition
    too: then it is slow. Who is slow on average only, and loses nothing, is disturbed now and then.
    """
    losers = {loser.where: loser for loser in _losers(fabric.table, sides)}
    kept = []
    for s in suspects:
        if s.kind not in ("nic", "host", "dead") or best is None:
            kept.append(s)
            continue
        loser, effect = losers.get(s.where), _best_effect(s, fabric, sides, best)
        share = effect / math.log1p(-s.slower)  # of its slowness that its best repetition has too
        said = f"{s.evidence}; its best repetition is only {percent(-math.expm1(effect))} slower"
        if loser and share < ALL_ALONG:
            losers[s.where] = replace(loser, slower=s.slower, evidence=f"{loser.evidence}; {said}")
        elif share < NOW_AND_THEN:
            kept.append(replace(s, evidence=f"{said}: it is disturbed now and then, or loses packets"))
        else:
            losers.pop(s.where, None)  # a slow port drops what it cannot take
            kept.append(s)
    return kept + list(losers.values())


def _best_effect(s: Suspect, fabric: Fabric, sides: Sides, best: Sides) -> float:
    """How slow a suspect's best repetitions are, in logs."""
    rails, node = sides.num_rails, fabric.table.nodes.index(s.where)
    at = [node * rails + r for r in (range(rails) if s.rail is None else (s.rail,))]
    ways = (1,) if s.direction == "receive" else (0,) if s.direction == "transmit" else (0, 1)
    return min(middle(best.effects[way].effect[at]) for way in ways)


def retransmits_of(table: PairTable, rows: Ints) -> tuple[Floats, float]:
    """Retransmits of each of these flows, and how many are many: MANY_RETRANSMITS times the usual of all others."""
    assert table.retransmits is not None
    count = np.nan_to_num(table.retransmits)
    others = np.setdiff1d(np.arange(len(count)), rows)
    return count[rows], MANY_RETRANSMITS * max(1.0, middle(count[others]))


def _losers(table: PairTable, sides: Sides) -> list[Suspect]:
    """Sides most of whose flows are retransmitted many times as often as everybody's.

    A round trip tells no side. Where both a sender and its receivers stand out, the side that does so more is meant.
    """
    if table.retransmits is None or table.there_and_back:
        return []
    count, rails, found = np.nan_to_num(table.retransmits), sides.num_rails, []
    many = MANY_RETRANSMITS * max(1.0, middle(count))
    for way in (0, 1):
        num = len(table.nodes) * rails
        typical = upper_median(count, sides.row[way], num)
        cells = np.bincount(sides.row[way], minlength=num)
        over = np.bincount(sides.row[way][count >= many], minlength=num)
        for at in np.flatnonzero((cells >= MIN_FLOWS) & (over >= MOST * cells)).tolist():
            node, rail = divmod(at, rails)
            name, direction = table.nodes[node], ("transmit", "receive")[way]
            subject = f"rail {rail} of {name}" if rails > 1 else name
            verb = ("sends", "should receive")[way]
            found.append((float(typical[at]), Suspect(
                kind="loss", where=name, rail=rail, direction=direction, nodes=(name,), num_cells=int(cells[at]),
                num_agree=int(over[at]), confidence=1 - 0.05 / max(len(table.nodes), 1),
                evidence=f"what {subject} {verb} is sent again {typical[at]:.0f} times a flow, elsewhere "
                         f"{middle(count):.0f} times ({over[at]} of {cells[at]} flows): packets are lost there",
            )))  # fmt: skip
    worst = {s.where: s for _, s in sorted(found, key=lambda one: one[0])}  # of each node the side that loses most
    return list(worst.values())


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
