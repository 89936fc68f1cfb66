"""Screen all nodes: the first of two stages of naming a culprit.

`screen` is generous: whoever looks slow is a suspect and gets a re-test; only a `certain` one may be accused
on this table alone. `confirmation` is the second stage. Nothing here measures.

>>> screen(PairTable.of(a=["n0"], b=["n0"], value=[1.0])).suspects
()
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from reports.localise.blocks import leaves
from reports.localise.crowding import crowded
from reports.localise.decision import OF_ONE_NODE, grouped, node_suspects
from reports.localise.effects import MIN_CELLS, middle, upper_median
from reports.localise.fabric import FLOOR, Fabric
from reports.localise.levels import levels
from reports.localise.pairs import Bools, Floats, PairTable, logs, mirrored
from reports.localise.paths import lagging_shares, paths
from reports.localise.sides import Sides, fit_sides
from reports.localise.suspects import Findings, Suspect, ordered, percent
from reports.localise.symptoms import corrupters, lossy, slow_pairs
from reports.localise.topology import Topology
from reports.localise.trunk import trunk


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """One table, taken apart."""

    fabric: Fabric
    raw: Floats  # logs as measured
    sides: Sides
    suspects: tuple[Suspect, ...]
    common_cause: str


def analyse(table: PairTable, topology: Topology) -> Analysis:
    """Fit a clean table of at least three nodes, and read the decision table off it."""
    if table.there_and_back:
        table = mirrored(table)
    fabric, (y, _) = Fabric.of(table, topology), logs(table)
    settled, shared = settle(fabric, y)
    sides = _sides(fabric, settled)
    nodes = node_suspects(fabric, sides)
    best = None
    if nodes and table.best is not None:
        y_best, _ = logs(replace(table, value=table.best))
        best = _sides(fabric, settle(fabric, y_best)[0])
    nodes = lossy(nodes, fabric, sides, best)
    seen = np.unique(np.concatenate([table.a, table.b])).tolist()
    nodes, cause = grouped(nodes, [table.nodes[i] for i in seen], topology)
    if table.num_rails == 1:
        nodes = [s if s.kind in OF_ONE_NODE else replace(s, rail=None) for s in nodes]
    found = [*shared, *nodes, *slow_pairs(fabric, sides), *crowded(fabric, y)]
    found += lagging_shares(fabric, sides.rest, found)
    return Analysis(fabric=fabric, raw=y, sides=sides, suspects=tuple(found), common_cause=cause)


def settle(fabric: Fabric, y: Floats) -> tuple[Floats, list[Suspect]]:
    """Take out what nodes share: levels, then leaves and uplinks, then paths; and name what is slow of it."""
    y, suspects = levels(fabric, y)
    if fabric.across.any():
        for part in (trunk if len(fabric.leaves) == 2 else leaves, paths):
            y, found = part(fabric, y)
            suspects += found
    return y, suspects


def screen(table: PairTable, *, topology: Topology | None = None) -> Findings:
    """Who looks slow, loses, or corrupts. Never fails on bad numbers; says what could not be judged."""
    return examine(table, topology or Topology()).findings


@dataclass(frozen=True, kw_only=True)
class Examination:
    """Findings, and what they rest on."""

    findings: Findings
    analysis: Analysis | None  # None where fewer than three nodes, or next to none, answered
    kept_rows: Bools  # rows of the table that could be used


def examine(table: PairTable, topology: Topology) -> Examination:
    """`screen`, with its working."""
    usable, kept_rows, notes = _usable(table)
    if not topology.leaf:
        notes.append("no topology: the fabric is taken as flat, so no leaf or uplink can be named")
    suspects, cause, analysis = corrupters(usable), "", None
    num_nodes = len(np.unique(np.concatenate([usable.a, usable.b])))
    if num_nodes < 2:
        notes.append("fewer than two nodes answered: there is no pair to judge")
    elif logs(usable)[1].mean() > 0.5:
        cause = "more than half of all flows moved nothing: suspect the software or the network as a whole, no node"
    elif num_nodes == 2:
        found, said = _two_nodes(usable)
        suspects += found
        notes.append(said)
    else:
        analysis = analyse(usable, topology)
        suspects += analysis.suspects
        cause = analysis.common_cause
    findings = Findings(suspects=ordered(suspects), notes=tuple(notes), unjudged=_unjudged(table, usable),
                        common_cause=cause, scatter=analysis.sides.noise.scale if analysis else 0.0, table=table,
                        topology=topology)  # fmt: skip
    return Examination(findings=findings, analysis=analysis, kept_rows=kept_rows)


def _sides(fabric: Fabric, y: Floats) -> Sides:
    return fit_sides(fabric, y, weight=0.5 if fabric.table.there_and_back else 1.0)


def _usable(table: PairTable) -> tuple[PairTable, Bools, list[str]]:
    """The rows between two different nodes, which rows those are, and what is wrong with the table."""
    different: Bools = table.a != table.b
    usable, notes = table.rows(different), []
    usable = replace(usable, round=np.unique(usable.round, return_inverse=True)[1].astype(np.int64))
    if twice := sorted({name.rpartition("#")[0] for name in table.nodes if "#" in name}):
        notes.append(f"several hosts are called {', '.join(twice)}: give each its own name; here they are numbered")
    if lost := int((~different).sum()):
        notes.append(f"{lost} rows measure a node against itself and were left out: do two hosts share a name?")
    failed = logs(usable)[1]
    if failed.any():
        notes.append(f"{int(failed.sum())} of {len(usable)} flows moved nothing (zero, negative or no number)")
    return usable, different, notes


def _unjudged(table: PairTable, usable: PairTable) -> tuple[str, ...]:
    """Nodes with fewer than two measurements on some rail, in some direction: they have not passed."""
    rails, num = max(usable.num_rails, 1), len(table.nodes)
    counts = [np.bincount(end * rails + usable.rail, minlength=num * rails) for end in (usable.a, usable.b)]
    fewest = counts[0] + counts[1] if table.there_and_back else np.minimum(*counts)
    few = (fewest.reshape(num, rails) < MIN_CELLS).any(axis=1)
    return tuple(table.nodes[i] for i in np.flatnonzero(few).tolist())


def _two_nodes(table: PairTable) -> tuple[list[Suspect], str]:
    """Two nodes cannot accuse each other: only a rail or a direction that differs from the others is named."""
    y, _ = logs(table)
    code = table.rail * 2 + (table.a > table.b)
    level = upper_median(y, code, 2 * table.num_rails)
    off = level - middle(level)
    suspects = []
    for at in np.flatnonzero(off <= -FLOOR).tolist():
        rail, back = divmod(at, 2)
        ends = sorted({table.nodes[i] for i in (*table.a.tolist(), *table.b.tolist())}, key=table.nodes.index)
        a, b = ends[::-1] if back else ends
        slower = -math.expm1(float(off[at]))
        suspects.append(
            Suspect(kind="pair", where=a, peer=b, rail=rail, nodes=(a, b), slower=slower, confidence=0.5,
                    num_cells=int((code == at).sum()), num_agree=int((code == at).sum()),
                    evidence=f"{a} to {b} on rail {rail} is {percent(slower)} slower than the rest; whether {a} sends "
                             f"or {b} receives badly needs a third node")
        )  # fmt: skip
    return suspects, "two nodes cannot be separated: a slow pair may be either's fault; measure with a third"
