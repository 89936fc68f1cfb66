"""Confirm suspects by a re-test: the second stage of naming a culprit.

The re-test pairs each suspect with known-good partners, on other leaves where there are any. A suspect stays
only where the re-test alone agrees, in at least two pairs and in most, and both tables together leave next to no
doubt. Who was no suspect cannot become one here: that would be a second screening, not a confirmation.

    findings = screen(table, topology=topology)
    ...                                              # suites.rounds.retest_rounds says who meets whom
    findings = confirm(findings, retest)
    findings.suspects, findings.cleared
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from reports.localise.effects import middle, upper_median
from reports.localise.levels import without_levels
from reports.localise.pairs import Bools, Floats, Ints, PairTable
from reports.localise.screening import Analysis, examine
from reports.localise.suspects import Findings, Suspect, ordered

MIN_CONFIRMATIONS = 2
NODE_KINDS = ("nic", "host", "dead", "loss")


def confirm(findings: Findings, retest: PairTable) -> Findings:
    """The suspects of `findings` that a re-test bears out, judged by both tables together.

    Suspects that the re-test did not touch are kept as they were, unconfirmed. Raises ValueError where the
    re-test measures something else than the screening did.
    """
    if findings.table is None or findings.topology is None:
        raise ValueError("findings without their table cannot be confirmed: pass what screen() returned")
    both = findings.table.followed_by(retest)
    examined = examine(both, findings.topology)
    again, analysis = examined.findings, examined.analysis
    if analysis is None:
        return again
    fresh = (np.arange(len(both)) >= len(findings.table))[examined.kept_rows]
    fresh = np.tile(fresh, 2) if both.there_and_back else fresh
    level = _about_healthy(analysis, again.suspects)
    kept: list[Suspect] = []
    cleared = []
    for old in findings.suspects:
        new = _same(old, again.suspects)
        agree, seen = _agreement(analysis, level, fresh, new or old)
        if not seen:
            kept.append(replace(old, evidence=f"{old.evidence}; not re-tested"))
        elif new and new.certain and agree >= MIN_CONFIRMATIONS and 2 * agree > seen:
            said = f"{new.evidence}; the re-test agrees in {agree} of {seen} pairs"
            kept.append(replace(new, confirmed=True, evidence=said))
        else:
            said = f"{old.evidence}; the re-test agrees in only {agree} of {seen} pairs"
            cleared.append(replace(old, confidence=new.confidence if new else 0.0, evidence=said))
    return replace(again, suspects=ordered(list(dict.fromkeys(kept))), cleared=ordered(cleared))


def _same(old: Suspect, now: tuple[Suspect, ...]) -> Suspect | None:
    """The suspect of `now` that accuses the same element, or the group that it has become part of."""
    for s in now:
        if s.element == old.element:
            return s
    return next((s for s in now if old.nodes and set(old.nodes) < set(s.nodes)), None)


def _about_healthy(analysis: Analysis, suspects: tuple[Suspect, ...]) -> Floats:
    """Logs of all flows about the middle of those that concern no suspect."""
    y = without_levels(analysis.fabric, analysis.raw)
    healthy = np.ones(len(y), dtype=bool)
    for s in suspects:
        if s.kind not in NODE_KINDS:
            healthy &= ~_concerned(analysis, s)
    about: Floats = y - middle(y[healthy])
    return about


def _agreement(analysis: Analysis, level: Floats, fresh: Bools, s: Suspect) -> tuple[int, int]:
    """In how many of the re-test's pairs the suspect is slow by more than half its effect; of how many.

    A pair counts once a round, however many rails it has.
    """
    table = analysis.fabric.table
    which = np.flatnonzero(fresh)[_concerned(analysis, s, np.flatnonzero(fresh))]
    if s.kind == "corruption":
        wrong = np.zeros(0) if table.wrong is None else np.nan_to_num(table.wrong[which])
        return int((wrong > 0).sum()), len(wrong)
    cells = (analysis.sides.cells if s.kind in NODE_KINDS else level)[which]
    num = len(table.nodes)
    unit = (table.round[which] * num + table.a[which]) * num + table.b[which]
    units, unit = np.unique(unit, return_inverse=True)
    pairs = upper_median(cells, unit.astype(np.int64), len(units))
    return int((pairs <= math.log1p(-min(s.slower, 1 - 1e-12)) / 2).sum()), len(units)


def _concerned(analysis: Analysis, s: Suspect, rows: Ints | None = None) -> Bools:
    """Which flows (of `rows`, or all) run through the suspect."""
    fabric = analysis.fabric
    use = slice(None) if rows is None else rows
    table = fabric.table
    a, b = table.a[use], table.b[use]
    here: Bools = np.ones(len(a), dtype=bool) if s.rail is None else table.rail[use] == s.rail
    if s.kind == "rail":
        return here
    if s.kind in ("uplink", "path", "spine", "oversubscription"):
        here &= _through_fabric(analysis, s, use)
        return here
    index = {name: i for i, name in enumerate(table.nodes)}
    if s.peer:
        here &= (a == index.get(s.where, -1)) & (b == index.get(s.peer, -1))
        return here
    mine = np.array([index[n] for n in s.nodes if n in index], dtype=np.int64)
    sends, receives = np.isin(a, mine), np.isin(b, mine)
    here &= sends if s.direction == "transmit" else receives if s.direction == "receive" else sends | receives
    return here


def _through_fabric(analysis: Analysis, s: Suspect, use: Ints | slice) -> Bools:
    """Flows across leaves by the suspect's uplink, path or spine; those under load for an oversubscription."""
    fabric = analysis.fabric
    across, table = fabric.across[use], fabric.table
    if s.kind == "oversubscription":
        across &= fabric.load[use] == fabric.load.max()
        return across
    if table.path is not None and (s.path or s.kind == "spine"):
        across &= table.path[use] == table.paths.index(s.path or s.where)
    if s.kind == "spine":
        return across
    at = fabric.leaves.index(s.where)
    out, into = fabric.leaf_a[use] == at, fabric.leaf_b[use] == at
    across &= out if s.direction == "out" else into if s.direction == "in" else out | into
    return across
