"""Confirm suspects by a re-test: the second stage of naming a culprit.

The re-test pairs each suspect with known-good partners, on other leaves where there are any. A suspect stays
only where the re-test agrees in at least two pairs, and where either both tables together or the re-test alone leave
next to no doubt. Nodes that the screening could not judge may be re-tested with the suspects; nobody else can be
accused here, for that would be a second screening.

    findings = screen(table, topology=topology)
    ...                                              # suites.rounds.retest says who meets whom
    findings = confirm(findings, retest)
    findings.accused, findings.cleared
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from reports.localise.pairs import PairTable
from reports.localise.screening import examine
from reports.localise.suspects import CERTAIN, Findings, Suspect, ordered
from reports.localise.testimony import MIN_CONFIRMATIONS, NODE_KINDS, Witnesses, certain_among


def confirm(findings: Findings, retest: PairTable) -> Findings:
    """The suspects of `findings` that a re-test bears out.

    Returns Findings whose suspects are `confirmed`; those it spoke against are in `cleared`, those it measured less
    than twice stay as they were and are not accused. Raises ValueError where the re-test measures something else
    than the screening did, or `findings` did not come from `screen`.
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
    witnesses = Witnesses(analysis, np.flatnonzero(fresh), again.suspects)
    kept = _confirmed(findings, again.suspects, witnesses)
    cleared = []
    for old in findings.suspects:
        if any(_same_place(old, new) for new in kept):
            continue
        heard = witnesses.heard(old)
        if heard.num_pairs >= MIN_CONFIRMATIONS:
            cleared.append(replace(old, confidence=0.0, evidence=f"{old.evidence}; {heard.said}"))
        else:
            said = "re-tested only once" if heard.num_pairs else "not re-tested"
            kept.append(replace(old, evidence=f"{old.evidence}; {said}"))
    return replace(again, suspects=ordered(kept), cleared=ordered(cleared), retested=True)


def _confirmed(before: Findings, now: tuple[Suspect, ...], witnesses: Witnesses) -> list[Suspect]:
    """The suspects of both tables together that were suspects before, or not judged, and whose re-test agrees."""
    kept = []
    for new in now:
        if new.where not in before.unjudged and not any(_same_place(s, new) for s in before.suspects):
            continue
        heard = witnesses.heard(new)
        sure = max(new.confidence, certain_among(heard, len(before.suspects) + len(before.unjudged)))
        if sure >= CERTAIN and heard.agrees:
            kept.append(replace(new, confidence=sure, confirmed=True, evidence=f"{new.evidence}; {heard.said}"))
    return kept


def _same_place(old: Suspect, new: Suspect) -> bool:
    """Whether both accuse one element, or one host, or one the group that the other belongs to."""
    if old.element == new.element:
        return True
    if old.kind in NODE_KINDS and new.kind in NODE_KINDS:
        return old.where == new.where
    group = new if new.kind not in NODE_KINDS else old
    single = old if group is new else new
    if "" in (group.where, single.where) or group.kind in ("pair", "corruption", "rail", "spine", "oversubscription"):
        return False
    return bool(single.nodes) and set(single.nodes) <= set(group.nodes)
