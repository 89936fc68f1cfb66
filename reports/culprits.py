"""Who is to blame in a run: its link tables, screened and confirmed by its own re-tests.

From the records alone (and the topology file kept beside them), so that the terminal, the page and anybody later
come to the same suspects. A run on one node has no links to accuse: its ranks share one memory; of two nodes neither
can be told from the other.

    found = culprits(stored)
    for suspect in found.accused:
        print(suspect.title, suspect.evidence)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.measurement import Measurement
from reports.cabling import miscabled, topology_of, unchecked
from reports.evidence import listed
from reports.localise import Findings, PairTable, Suspect, Topology, confirm, screen
from reports.localise.crowding import under_load
from reports.localise.decision import OF_ONE_NODE
from reports.localise.delays import told_apart
from reports.localise.symptoms import corrupters
from reports.pairtables import BANDWIDTH, FLOWS, LATENCY, WRONG, flow_table, latest, pair_table, seats_of
from reports.runs import StoredRun

SUSPECTS = "links.suspects"  # the controller's own number: how many elements it accuses
FOLLOW_UP = "follow_up"  # the event that names a re-test: {"config": its id, "of": the screening's, "attempt"}
LEAST_NODES = 3  # with two, nobody can tell which of them is slow
TWO_NODES = "two nodes cannot be told apart: a slow pair may be the fault of either; measure them with a third"
SELF_EVIDENT = ("corruption", "cable")  # exact: what arrived wrong, what is plugged elsewhere
SAMPLE = 8  # nodes that stand for all, where a suspect is no node's (a rail, a spine)


@dataclass(frozen=True, kw_only=True)
class Culprits:
    """The suspects of one screening, and what was said beside them."""

    config: str  # the links config that was screened
    attempt: int  # of it: a new attempt has a re-test of its own
    screened: Findings
    findings: Findings  # after the re-tests, where there were any
    retested: bool

    @property
    def accused(self) -> tuple[Suspect, ...]:
        """Suspects that a re-test confirmed, or that need none, each element once: the plainest evidence first."""
        kept: list[Suspect] = []
        for s in sorted(self.findings.suspects, key=lambda s: s.kind not in SELF_EVIDENT):
            told_before = any(_covers(k, s) for k in kept)
            if (s.confirmed or s.kind in SELF_EVIDENT) and not told_before:
                kept.append(s)
        return tuple(kept)

    @property
    def unsettled(self) -> str:
        """Why nobody may be called healthy although nobody is accused; "" where every suspicion was settled.

        A re-test that died, hung or heard too little has cleared nobody.
        """
        if self.findings.unjudged:
            return f"too few pairs to judge {listed(self.findings.unjudged)}"
        doubted = {s.element for s in self.screened.suspects if not self.retested or s.kind in OF_ONE_NODE}
        left = [
            s.title for s in self.findings.suspects
            if s.element in doubted and not s.confirmed and s.kind not in SELF_EVIDENT
        ]  # fmt: skip
        if left:
            why = "heard too little of it" if self.retested else "gave no number"
            return f"suspect, and the re-test {why}: {listed(left)}"
        return ""

    @property
    def to_retest(self) -> tuple[str, ...]:
        """Nodes that a re-test must look at: those of the suspects, and those that answered too little.

        All of them where many are slow and share nothing: a bad moment is to be told from a bad setting.
        """
        if self.screened.common_cause and self.screened.table:
            return self.screened.table.nodes
        doubtful = [s for s in self.screened.suspects if s.kind not in SELF_EVIDENT]
        nodes = {node for s in doubtful for node in s.nodes} | set(self.screened.unjudged)
        if any(not s.nodes for s in doubtful) and self.screened.table:
            everybody = self.screened.table.nodes
            nodes |= set(everybody[:: max(1, -(-len(everybody) // SAMPLE))])
        return tuple(sorted(nodes))


def _covers(kept: Suspect, other: Suspect) -> bool:
    """Whether a suspect that is accused already is what another one is seen by, too."""
    if None not in (kept.rail, other.rail) and kept.rail != other.rail:
        return False  # two ports of one host
    one_place = len(kept.nodes) == 1 or kept.kind == "corruption"
    return bool(other.nodes) and one_place and set(other.nodes) <= set(kept.nodes)


def culprits(stored: StoredRun, *, topology: Topology | None = None) -> Culprits | None:
    """The suspects of a run's tournament; None where it has none between three or more nodes.

    `topology`: another one than the run was given.
    """
    seats = seats_of(stored)
    if len({node for node, _ in seats.values()}) < LEAST_NODES:
        return None
    again = {
        e.detail["config"]: (e.detail["of"], e.detail.get("attempt", 1)) for e in stored.events if e.kind == FOLLOW_UP
    }
    tables = [m for m in stored.measurements if m.metric in (BANDWIDTH, LATENCY, WRONG, FLOWS) and m.outcome == "ok"]
    screenings = [m for m in tables if m.config not in again]
    if not screenings:
        return None
    topology = topology or topology_of(stored)
    config = screenings[-1].config
    attempt = max(m.attempt for m in screenings if m.config == config)
    first = latest(m for m in tables if m.config == config)
    retests = [latest(m for m in tables if m.config == c) for c, of in again.items() if of == (config, attempt)]
    by_metric, excused = _by_metric(first, seats, topology, _window(stored, config))
    screened = _screen(by_metric)
    findings = screened
    for kind, own in by_metric.items():
        for measured in retests:
            findings = _confirmed(findings, kind, own, measured, seats, topology)
    freed = {s.where for s in findings.cleared if s.kind == "delay"}  # then the delay excuses nobody
    if back := tuple(s for s in excused if s.where in freed):
        again_slow = replace(by_metric[BANDWIDTH], suspects=back)
        for measured in retests:
            findings = _confirmed(findings, BANDWIDTH, again_slow, measured, seats, topology)
    findings = _with_wrong(_with_shared(findings, [first, *retests], seats, topology), retests, seats)
    findings = replace(findings, suspects=(*miscabled(stored), *findings.suspects))
    if said := unchecked(stored):
        findings = replace(findings, notes=(*findings.notes, said))
    return Culprits(
        config=config, attempt=attempt, screened=screened, findings=findings,
        retested=any(BANDWIDTH in measured for measured in retests),
    )  # fmt: skip


def told(stored: StoredRun) -> dict[str, Any]:
    """What the campaign concluded: "suspects", "cleared", "notes", "common_cause"; {} where it looked for none.

    "judged" is False where some nodes, or two of two, could not be: then nobody is called healthy.
    """
    concluded = [m.notes for m in stored.measurements if m.metric == SUSPECTS]
    if concluded:
        return concluded[-1]
    if len(stored.latest_environments) == LEAST_NODES - 1 and any(m.metric == BANDWIDTH for m in stored.measurements):
        return {"suspects": [], "cleared": [], "notes": [TWO_NODES], "common_cause": "", "judged": False}
    return {}


def _window(stored: StoredRun, config: str) -> int:
    """Messages that are on their way at once where bandwidth is measured; 0 where the run does not say."""
    spec = next((c.spec for c in stored.run.configs if c.id == config), {})
    return int(spec.get("window", 0))


def _by_metric(
    measured: Mapping[str, list[Measurement]], seats: Mapping[int, tuple[str, int]], topology: Topology | None,
    window: int,
) -> tuple[dict[str, Findings], tuple[Suspect, ...]]:  # fmt: skip
    """What bandwidth shows, and what latency shows beyond it; and whom a delay excuses from being slow as well."""
    tables = {metric: pair_table(metric, measured, seats) for metric in (BANDWIDTH, LATENCY)}
    found = {metric: screen(t, topology=topology) for metric, t in tables.items() if t is not None}
    if len(found) < len(tables):
        return found, ()
    size = max(int(m.params.get("bytes", 0)) for m in measured[BANDWIDTH])
    slow, late = told_apart(found[BANDWIDTH], found[LATENCY], bytes_at_once=window * size, round_trips=window + 1)
    kept = {s.element for s in slow.suspects}
    excused = tuple(s for s in found[BANDWIDTH].suspects if s.element not in kept)
    return {BANDWIDTH: slow, LATENCY: late}, excused


def _screen(by_metric: Mapping[str, Findings]) -> Findings:
    """All of them as one: bandwidth's table, and everybody's suspects."""
    findings = Findings()
    for found in by_metric.values():
        findings = found if findings.table is None else _joined(findings, found)
    return findings


def _with_shared(
    findings: Findings, measured: Sequence[Mapping[str, list[Measurement]]], seats: Mapping[int, tuple[str, int]],
    topology: Topology | None,
) -> Findings:  # fmt: skip
    """What only shows when flows run together: by the boundary probe where there was one, else by the first sweep."""
    for one in reversed(measured):
        table = flow_table(one, seats)
        if table is None:
            continue
        crowd = under_load(table, topology=topology)
        known = {s.element for s in findings.suspects}
        shared = [replace(s, confirmed=s.certain) for s in crowd if s.element not in known]
        said = [f"{s.evidence}: give --topology to probe it" for s in shared if topology is None or not topology.leaf]
        return replace(findings, suspects=(*findings.suspects, *shared), notes=(*findings.notes, *said))
    return findings


def _with_wrong(
    findings: Findings, retests: Sequence[Mapping[str, list[Measurement]]], seats: Mapping[int, tuple[str, int]]
) -> Findings:
    """Who sent or received wrong data in a re-test: no check expects its numbers, so this is where they count."""
    rows = [
        (seats[a][0], seats[b][0], seats[a][1], max(map(abs, samples), default=0.0))
        for measured in retests for m in measured.get(WRONG, ())
        for a, b, samples in zip(m.columns["a"], m.columns["b"], m.columns["samples"], strict=True)
        if a in seats and b in seats
    ]  # fmt: skip
    if not any(wrong for *_, wrong in rows):
        return findings
    a, b, rail, wrong = zip(*rows, strict=True)
    known = {s.element for s in findings.suspects}
    found = corrupters(PairTable.of(a=a, b=b, rail=rail, value=[1.0] * len(rows), wrong=wrong))
    return replace(findings, suspects=(*findings.suspects, *(s for s in found if s.element not in known)))


def _joined(findings: Findings, more: Findings) -> Findings:
    """With the suspects of a second quantity."""
    notes = (*findings.notes, *(n for n in more.notes if n not in findings.notes))
    return replace(findings, suspects=(*findings.suspects, *more.suspects), notes=notes)


def _confirmed(
    findings: Findings, metric: str, own: Findings, again: Mapping[str, list[Measurement]],
    seats: Mapping[int, tuple[str, int]], topology: Topology | None,
) -> Findings:  # fmt: skip
    """The findings after one quantity's re-test: only suspects that this quantity raised are touched."""
    retest = pair_table(metric, again, seats)
    if retest is None:
        return findings
    mine = {s.element for s in own.suspects}
    after = confirm(own, retest)
    others = tuple(s for s in findings.suspects if s.element not in mine)
    kept = tuple(s for s in after.suspects if s.element not in {o.element for o in others})
    still = bool(findings.common_cause) and (metric != BANDWIDTH or screen(retest, topology=topology).common_cause)
    return replace(
        findings, suspects=(*kept, *others), cleared=(*findings.cleared, *after.cleared),
        common_cause=findings.common_cause if still else "",
        unjudged=tuple(n for n in findings.unjudged if n in after.unjudged),
    )  # fmt: skip
