"""Who is to blame in a run: its link tables, screened and confirmed by its own re-tests.

From the records alone, so that the terminal, the page and anybody later come to the same suspects. The
elements are nodes, with a rail for every rank of a node; only ranks of one rail meet across nodes. A run on one
node has no links to accuse: its ranks share one memory.

    found = culprits(stored)
    for suspect in found.accused:
        print(suspect.title, suspect.evidence)
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.measurement import Measurement
from reports.localise import Findings, PairTable, Suspect, Topology, confirm, screen
from reports.runs import StoredRun

BANDWIDTH, LATENCY, WRONG, FLOWS = "links.bandwidth", "links.latency", "links.wrong_elements", "links.flows.bandwidth"
SUSPECTS = "links.suspects"  # the controller's own number: how many elements it accuses
FOLLOW_UP = "follow_up"  # the event that names a re-test: {"config": its id, "of": the screening's}
SELF_EVIDENT = ("corruption", "oversubscription")  # told from exact data, or by a comparison of its own
RETRANSMITS = ("tcp_retransmits", "packet_seq_err", "local_ack_timeout_err")


@dataclass(frozen=True, kw_only=True)
class Culprits:
    """The suspects of one screening, and what was said beside them."""

    config: str  # the links config that was screened
    screened: Findings
    findings: Findings  # after the re-tests, where there were any
    retested: bool

    @property
    def accused(self) -> tuple[Suspect, ...]:
        """Suspects that a re-test confirmed, or that need none, each element once: the plainest evidence first."""
        kept: list[Suspect] = []
        for s in sorted(self.findings.suspects, key=lambda s: s.kind not in SELF_EVIDENT):
            told_before = s.nodes and any(set(s.nodes) <= set(k.nodes) for k in kept)
            if (s.confirmed or s.kind in SELF_EVIDENT) and not told_before:
                kept.append(s)
        return tuple(kept)

    @property
    def to_retest(self) -> tuple[str, ...]:
        """Nodes that a re-test must look at."""
        doubtful = [s for s in self.screened.suspects if s.kind not in SELF_EVIDENT]
        return tuple(sorted({node for s in doubtful for node in s.nodes}))


def culprits(stored: StoredRun, *, topology: Topology | None = None) -> Culprits | None:
    """The suspects of a run's tournament; None where it has none between three or more nodes."""
    seats = seats_of(stored)
    if len({node for node, _ in seats.values()}) < 3:
        return None
    again = {e.detail["config"]: e.detail["of"] for e in stored.events if e.kind == FOLLOW_UP}
    tables = [m for m in stored.measurements if m.metric in (BANDWIDTH, LATENCY, WRONG, FLOWS) and m.outcome == "ok"]
    screenings = [m.config for m in tables if m.config not in again]
    if not screenings:
        return None
    config = screenings[-1]
    first = _latest(m for m in tables if m.config == config)
    retests = [_latest(m for m in tables if m.config == c) for c, of in again.items() if of == config]
    screened = _screen(first, seats, topology)
    findings = screened
    for kind in (BANDWIDTH, LATENCY):
        for measured in retests:
            findings = _confirmed(findings, kind, first, measured, seats, topology)
    return Culprits(config=config, screened=screened, findings=findings, retested=bool(retests))


def told(stored: StoredRun) -> dict[str, Any]:
    """What the campaign concluded: "suspects", "cleared", "notes", "common_cause"; {} where it looked for none."""
    concluded = [m.notes for m in stored.measurements if m.metric == SUSPECTS]
    return concluded[-1] if concluded else {}


def seats_of(stored: StoredRun) -> dict[int, tuple[str, int]]:
    """rank -> (node, rail) of the run's last launch."""
    return {
        rank: (node, rail)
        for node, environment in stored.latest_environments.items()
        for rail, rank in enumerate(sorted(environment.ranks))
    }


def pair_table(
    metric: str, measured: Mapping[str, list[Measurement]], seats: Mapping[int, tuple[str, int]]
) -> PairTable | None:
    """The pairs of one rail and two nodes as a PairTable; the largest message for bandwidth, the smallest for latency.

    Values are means, since a median hides loss, and `best` is the best repetition; wrong elements and
    retransmits come along where they were counted.
    """
    found = measured.get(metric)
    if not found:
        return None
    m = (max if metric == BANDWIDTH else min)(found, key=lambda m: m.params.get("bytes", 0))
    wrong = {}
    for w in measured.get(WRONG, ()):
        wrong = {(a, b): s[0] for a, b, s in zip(w.columns["a"], w.columns["b"], w.columns["samples"], strict=True)}
    lost = m.columns.get("lost") or [{}] * len(m.columns["a"])
    rows = [
        (seats[a][0], seats[b][0], seats[a][1], samples, wrong.get((a, b), 0.0), sum(c.get(k, 0) for k in RETRANSMITS))
        for a, b, samples, c in zip(m.columns["a"], m.columns["b"], m.columns["samples"], lost, strict=True)
        if a in seats and b in seats and seats[a][1] == seats[b][1] and seats[a][0] != seats[b][0]
    ]
    if not rows:
        return None
    a, b, rail, samples, bad, sent_again = zip(*rows, strict=True)
    best = max if metric == BANDWIDTH else min
    return PairTable.of(
        a=a, b=b, rail=rail, value=[statistics.fmean(s) if s else 0.0 for s in samples],
        best=[best(s) if s else 0.0 for s in samples], wrong=bad, retransmits=sent_again,
        better="higher" if metric == BANDWIDTH else "lower", there_and_back=metric == LATENCY,
    )  # fmt: skip


def _latest(measurements: Iterable[Measurement]) -> dict[str, list[Measurement]]:
    """Metric -> its measurements of the last attempt."""
    listed = list(measurements)
    last = max((m.attempt for m in listed), default=1)
    found: dict[str, list[Measurement]] = {}
    for m in listed:
        if m.attempt == last:
            found.setdefault(m.metric, []).append(m)
    return found


def _screen(
    measured: Mapping[str, list[Measurement]], seats: Mapping[int, tuple[str, int]], topology: Topology | None
) -> Findings:
    """Bandwidth first; latency adds the elements that bandwidth does not show (delay), flows add oversubscription."""
    findings = Findings()
    for metric in (BANDWIDTH, LATENCY):
        table = pair_table(metric, measured, seats)
        if table is None:
            continue
        found = screen(table, topology=topology)
        findings = found if findings.table is None else _joined(findings, found)
    table = flow_table(measured, seats)
    if table is not None:
        shared = [s for s in screen(table, topology=topology).suspects if s.kind == "oversubscription"]
        findings = replace(findings, suspects=(*findings.suspects, *shared))
    return findings


def flow_table(measured: Mapping[str, list[Measurement]], seats: Mapping[int, tuple[str, int]]) -> PairTable | None:
    """Simultaneous flows as a PairTable with their number as `load`."""
    rows = [
        (seats[a][0], seats[b][0], value, int(m.params["flows"]))
        for m in measured.get(FLOWS, ())
        for a, b, value in zip(m.columns["a"], m.columns["b"], m.columns["median_bandwidth"], strict=True)
        if a in seats and b in seats and seats[a][0] != seats[b][0]
    ]
    if len({load for *_, load in rows}) < 2:
        return None
    a, b, value, load = zip(*rows, strict=True)
    return PairTable.of(a=a, b=b, value=value, load=load)


def _joined(findings: Findings, more: Findings) -> Findings:
    """Suspects of a second quantity that the first one does not know already."""
    known = {node for s in findings.suspects for node in s.nodes}
    new = tuple(s for s in more.suspects if not set(s.nodes) & known)
    notes = (*findings.notes, *(n for n in more.notes if n not in findings.notes))
    return replace(findings, suspects=(*findings.suspects, *new), notes=notes)


def _confirmed(
    findings: Findings, metric: str, first: Mapping[str, list[Measurement]], again: Mapping[str, list[Measurement]],
    seats: Mapping[int, tuple[str, int]], topology: Topology | None,
) -> Findings:  # fmt: skip
    """The findings after one quantity's re-test: only suspects that this quantity raised are touched."""
    table, retest = pair_table(metric, first, seats), pair_table(metric, again, seats)
    if table is None or retest is None:
        return findings
    own = screen(table, topology=topology)
    mine = {s.element for s in own.suspects}
    after = confirm(own, retest)
    others = tuple(s for s in findings.suspects if s.element not in mine)
    kept = tuple(s for s in after.suspects if s.element not in {o.element for o in others})
    return replace(findings, suspects=(*kept, *others), cleared=(*findings.cleared, *after.cleared))
