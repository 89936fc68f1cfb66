"""Stragglers of a run: devices that compute more slowly than their peers, and ranks that arrive late.

From the records alone. GEMM is each device's own work, and so is what a rank computes in a training step, beside the
others of its pipeline rank: who is slow there, and again when it is repeated, is accused. Of collectives only the
lateness shows (the late rank's time is the shortest), and why it is late it does not say: that is a note. Who is slow
is decided in `reports.localise.stragglers`.

    found = slow_devices(stored)
    found.accused, found.to_repeat, found.notes
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from benchmarks.measurement import Measurement
from reports.culprits import FOLLOW_UP, LEAST_NODES
from reports.localise import Suspect, Topology
from reports.localise.stragglers import MIN_RANKS, late_ranks, slow_ranks
from reports.localise.suspects import Findings
from reports.pairtables import seats_of
from reports.runs import StoredRun

GEMM, STEP = "gemm.flops", "training.step.time"
SYNCHRONISING = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")  # a broadcast's root may leave early
OFTEN = 0.75  # of the collectives in which a rank must be late
LEAST_COLLECTIVES = 3


@dataclass(frozen=True, kw_only=True)
class SlowDevices:
    """Who is slow in compute, before and after it was repeated, and who is late."""

    suspects: tuple[Suspect, ...]
    accused: tuple[Suspect, ...]
    cleared: tuple[Suspect, ...]
    to_repeat: tuple[str, ...]  # configs whose suspects wait for a second measurement
    notes: tuple[str, ...]


def slow_devices(stored: StoredRun, *, topology: Topology | None = None) -> SlowDevices:
    """The stragglers of a run between three or more nodes; nobody in a smaller one."""
    nodes = {rank: node for rank, (node, _) in seats_of(stored).items()}
    if len(set(nodes.values())) < LEAST_NODES:
        return SlowDevices(suspects=(), accused=(), cleared=(), to_repeat=(), notes=())
    again = {
        (e.detail["of"], e.detail.get("attempt", 1)): e.detail["config"] for e in stored.events if e.kind == FOLLOW_UP
    }
    measured = [m for m in stored.measurements if m.outcome == "ok" and _computing(m)]
    repeats = set(again.values())
    suspects, accused, cleared, to_repeat, notes = [], [], [], [], []
    for config in dict.fromkeys(m.config for m in measured if m.config not in repeats):
        attempt = max(m.attempt for m in measured if m.config == config)
        first = _slow((m for m in measured if (m.config, m.attempt) == (config, attempt)), nodes, topology)
        second = [m for m in measured if m.config == again.get((config, attempt))]
        if set().union(*map(_computing, second)) < set(nodes):
            second = []  # who was not heard again is not cleared
        notes += [f.common_cause for f in first.values() if f.common_cause]
        named = _worst(first.values())
        suspects += named
        if named and not second:
            to_repeat.append(config)
        seen = {s.element for s in _worst(_slow(second, nodes, topology).values())}
        for s in named if second else ():
            if s.element in seen:
                accused.append(replace(s, confirmed=True, evidence=f"{s.evidence}; so it was when repeated"))
            else:
                cleared.append(s)
    return SlowDevices(
        suspects=tuple(suspects), accused=_once(accused), cleared=_once(cleared), to_repeat=tuple(to_repeat),
        notes=(*dict.fromkeys(notes), *_late(stored, nodes)),
    )  # fmt: skip


def attempt_of(stored: StoredRun, config: str) -> int:
    """The latest attempt at a config."""
    return max((m.attempt for m in stored.measurements if m.config == config), default=1)


def _slow(
    measured: Iterable[Measurement], nodes: Mapping[int, str], topology: Topology | None
) -> dict[str, Findings]:  # fmt: skip
    """Findings by product (dtype and shape), and of the training step."""
    rates: dict[str, dict[int, float]] = {}
    found, ranks = {}, sorted(nodes)
    where = [nodes[rank] for rank in ranks]
    for m in measured:
        rank = m.subject.rank
        if m.metric == STEP:
            values, what = _own_work(m), f"its own part of the step of {m.params.get('model', 'a model')}"
            found[what] = slow_ranks(
                [values.get(r, math.nan) for r in ranks], nodes=where, what=what, step_s=statistics.median(m.samples),
                topology=topology,
            )  # fmt: skip
        elif rank is not None and rank in nodes and m.samples:
            what = f"{m.params.get('dtype', '')} GEMM {m.params.get('m')} x {m.params.get('n')} x {m.params.get('k')}"
            rates.setdefault(what, {})[rank] = statistics.median(m.samples)
    for what, by_rank in rates.items():
        rate = [by_rank.get(r, math.nan) for r in ranks]
        found[what] = slow_ranks(rate, nodes=where, what=what, better="higher", topology=topology)
    return found


def _computing(m: Measurement) -> set[int]:
    """The ranks of whose own work a measurement tells."""
    if m.metric == GEMM and m.subject.rank is not None:
        return {m.subject.rank}
    return set(m.columns["rank"]) if m.metric == STEP and "pipeline_rank" in m.columns and m.samples else set()


def _own_work(m: Measurement) -> dict[int, float]:
    """Seconds of each rank's own work in a step, as if all pipeline ranks had as much of it.

    Stages differ (the head is one's alone), so each rank is held against its own pipeline rank; where that has fewer
    than three, none of them can be called the slow one.
    """
    alike: dict[int, dict[int, float]] = {}
    for rank, stage, seconds in zip(m.columns["rank"], m.columns["pipeline_rank"], m.columns["compute_s"], strict=True):
        if seconds > 0:
            alike.setdefault(stage, {})[rank] = seconds
    groups = [group for group in alike.values() if len(group) >= MIN_RANKS]
    if not groups:
        return {}
    usual = statistics.median(seconds for group in groups for seconds in group.values())
    return {
        rank: usual * seconds / statistics.median(group.values()) for group in groups for rank, seconds in group.items()
    }


def _worst(findings: Iterable[Findings]) -> list[Suspect]:
    """Every certain suspect once, by the product in which it is slowest."""
    worst: dict[object, Suspect] = {}
    for s in sorted((s for f in findings for s in f.suspects if s.certain), key=lambda s: s.slower):
        worst[s.element] = s
    return list(worst.values())


def _once(suspects: Iterable[Suspect]) -> tuple[Suspect, ...]:
    return tuple({s.element: s for s in suspects}.values())


def _late(stored: StoredRun, nodes: Mapping[int, str]) -> list[str]:
    """Ranks that arrive late in most collectives over all ranks."""
    tables = [
        m for m in stored.measurements
        if m.metric.startswith("collectives.") and m.metric.endswith(".latency") and m.outcome == "ok"
        and m.metric.split(".")[1] in SYNCHRONISING and sorted(m.columns.get("rank", ())) == sorted(nodes)
    ]  # fmt: skip
    late: Counter[str] = Counter()
    for m in tables:
        where = [nodes[rank] for rank in m.columns["rank"]]
        found = late_ranks([[seconds] for seconds in m.columns["median_s"]], nodes=where)
        late.update(s.title for s in found.suspects if s.certain)
    least = max(LEAST_COLLECTIVES, OFTEN * len(tables))
    return [
        f"{title} arrives late in {count} of {len(tables)} collectives, the others wait: look at its cores and clocks"
        for title, count in late.items() if count >= least
    ]  # fmt: skip
