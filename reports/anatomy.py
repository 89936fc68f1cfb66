"""Where the time of steps, pipelines and saves went: panels from what benchmarks noted beside their numbers.

    panels(stored)["training"]      # step-time breakdown, pipeline timeline, time by rank

Only what was recorded is drawn; `absent` says what was not, so that nobody looks for it. Nothing is judged here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.measurement import Expected, Measurement
from reports import charts, spans, stepnotes
from reports.drawing import Line, Panel
from reports.quantities import param, quantity, share
from reports.runs import StoredRun
from reports.statistics import median

SPLIT, TIMELINE = "split", "timeline"  # notes of training.step.time
PARTS = {  # of a step, in the order of a bar, and what they are called
    "compute": "compute", "busy": "work in the passes", "tp": "tensor parallel, exposed",
    "cp": "context parallel, exposed", "dp": "data parallel, exposed", "pp": "between stages, exposed",
    "bubble": "pipeline bubble", "waiting": "waiting in the passes", "optimizer": "optimizer", "data": "data",
    "report": "report", "other": "other",
}  # fmt: skip
EXPECTED = (("predicted", "predicted from this run's own parts"), ("planned", "planned from the data sheets"))
SAVES = 6  # saves and loads that are drawn
SLOTS = 4000  # of one pipeline; more would be no picture


@dataclass(kw_only=True)
class Anatomy:
    """Panels of a family, and what was not recorded for it."""

    panels: list[Panel] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)


def anatomies(stored: StoredRun) -> Mapping[str, Anatomy]:
    """Family -> its panels; families without any of this are not there."""
    found: dict[str, Anatomy] = defaultdict(Anatomy)
    latest = dict(_latest(stored))
    steps = [(e, m) for e, m in latest.values() if e.metric == "training.step.time"]
    if steps:
        _steps(found["training"], steps, {e.config: m for e, m in latest.values() if e.metric == "training.bubble"})
        for e, _ in steps:
            beside = {other.metric: m for other, m in latest.values() if other.config == e.config}
            if (table := stepnotes.panel(_words(e), beside)) is not None:
                found["training"].panels.append(table)
    saves = [(e, m) for e, m in latest.values() if e.metric in ("checkpoint.save.time", "checkpoint.load.time")]
    if saves:
        _saves(found["checkpoint"], saves)
    for e, m in latest.values():
        rates = _numbers(m.notes.get("rates"))
        if e.metric.startswith("checkpoint.") and e.metric.endswith(".bandwidth") and len(rates) > 1:
            found["checkpoint"].panels.append(_in_a_row(e, rates))
    return found


def _latest(stored: StoredRun) -> Iterator[tuple[tuple[str, str, str], tuple[Expected, Measurement]]]:
    """The last sound record of each number of one unit, in the order in which they were expected."""
    for e in stored.run.expected:
        attempts = stored.evidence.attempts(e) if e.per == "world" else []
        if attempts and not attempts[-1].problem:
            number = attempts[-1].number
            for m in stored.evidence.by_key[e.config, e.key]:
                if m.attempt == number:
                    yield (e.config, *e.key), (e, m)


def _steps(made: Anatomy, steps: Sequence[tuple[Expected, Measurement]], bubbles: Mapping[str, Measurement]) -> None:
    split = [(e, m) for e, m in steps if isinstance(m.notes.get(SPLIT), dict)]
    if split:
        made.panels.append(_breakdown(split))
    else:
        made.absent.append("no run of the training benchmark noted where a step's time went")
    for e, m in steps:
        if rows := _slots(m.notes.get(TIMELINE)):
            made.panels.append(_pipeline(e, rows, bubbles.get(e.config)))
        elif e.config in bubbles:
            made.absent.append(f"{_words(e)}: the pipeline's schedule was not noted, so it is not drawn")
        if times := _numbers(m.columns.get("median_s")):
            made.panels.append(_by_rank(e, times, [(median(m.samples), "step")], "step time by rank", "the steps"))


def _breakdown(steps: Sequence[tuple[Expected, Measurement]]) -> Panel:
    """A bar for each measured step, and below it those that were predicted, on the scale of their own step."""
    bars = []
    for e, m in steps:
        bars.append((f"{_words(e)} · measured, {quantity(median(m.samples), 's')} a step", _parts(m.notes[SPLIT])))
        for name, words in EXPECTED:
            noted = m.notes.get(name)
            if isinstance(noted, dict) and isinstance(noted.get(SPLIT), dict):
                bars.append((f"{words}, {quantity(noted.get('step_s'), 's')} a step", _parts(noted[SPLIT])))
    used = {name: PARTS.get(name, name) for _, parts in bars for name, part in parts if part > 0}
    names = [*PARTS, *(name for name in used if name not in PARTS)]
    told = "; ".join(f"{title}: " + ", ".join(f"{name} {share(part)}" for name, part in parts) for title, parts in bars)
    return Panel(
        title="step-time breakdown",
        detail="shares of all ranks' time",
        chart=spans.shares(bars, names, what=f"where the time of a step goes: {told}"),
        wide=True,
        legend=spans.legend(names, used),
    )


def _parts(split: Mapping[str, Any]) -> list[tuple[str, float]]:
    order = list(PARTS)
    named = [(str(k), float(v)) for k, v in split.items() if isinstance(v, int | float) and v > 0]
    return sorted(named, key=lambda part: order.index(part[0]) if part[0] in PARTS else len(order))


def _slots(noted: Any) -> list[tuple[int, str, int, int, float, float]]:
    """The schedule's slots as they were noted; empty where they were not, or are no slots."""
    if not isinstance(noted, list) or len(noted) > SLOTS:
        return []
    try:
        rows = [(int(r), str(k), int(s), int(i), float(b), float(e)) for r, k, s, i, b, e in noted]
    except (TypeError, ValueError):
        return []
    sane = all(0 <= r < 4096 and k in spans.KINDS and 0 <= begin <= end < 1e9 for r, k, _, _, begin, end in rows)
    return rows if sane else []


def _pipeline(
    e: Expected, rows: Sequence[tuple[int, str, int, int, float, float]], bubble: Measurement | None
) -> Panel:
    measured = ""
    if bubble is not None and bubble.samples:
        measured = f" · bubble measured {share(median(bubble.samples))}"
        if isinstance(predicted := bubble.notes.get("predicted"), int | float):
            measured += f", predicted {share(predicted)}"
    num_ranks, micro = 1 + max(row[0] for row in rows), 1 + max(row[3] for row in rows)
    return Panel(
        title="pipeline timeline",
        detail=f"{_words(e)} · the schedule played with this run's own costs of each stage{measured}",
        chart=spans.slots(rows, what=f"schedule of {num_ranks} pipeline ranks and {micro} micro-batches{measured}"),
        wide=True,
        legend=spans.slot_legend(sorted({row[1] for row in rows})),
    )


def _saves(made: Anatomy, saves: Sequence[tuple[Expected, Measurement]]) -> None:
    for e, m in saves[:SAVES]:
        name = e.metric.removeprefix("checkpoint.").removesuffix(".time")
        times = _numbers(m.columns.get("rank_s"))
        if not times:
            made.absent.append(f"{name} {_words(e)}: the ranks' own times were not recorded")
            continue
        title, begins, ends = f"{name} timeline by rank", *(_times(m.columns.get(c)) for c in ("begin_s", "end_s"))
        if len(begins) == len(ends) > 0 and all(b <= end for b, end in zip(begins, ends, strict=True)):
            made.panels.append(_begun(e, begins, ends, max(m.samples), title))
        else:
            made.panels.append(_by_rank(e, times, [(median(m.samples), "all")], title, "the repetitions"))


def _numbers(noted: Any) -> list[float]:
    """Times or rates as they were noted; empty where they are none."""
    if not isinstance(noted, list | tuple) or not all(isinstance(v, int | float) and 0 < v < 1e18 for v in noted):
        return []
    return [float(v) for v in noted]


def _times(noted: Any) -> list[float]:
    """Times since a common moment, which may be zero; empty where they are none."""
    if not isinstance(noted, list | tuple) or not all(isinstance(v, int | float) and 0 <= v < 1e18 for v in noted):
        return []
    return [float(v) for v in noted]


def _in_a_row(e: Expected, values: Sequence[float]) -> Panel:
    """Saves one after the other, so that a buffer that fills is seen."""
    kept = values[-1] / max(values)
    detail = f"{_words(e)} · {len(values)} saves without a pause · the last has {share(kept)} of the fastest"
    names = [f"save {i}" for i in range(1, len(values) + 1)]
    chart = charts.trend(values, names, [], unit="B/s", what=f"bandwidth of {detail}", width=360, height=170)
    return Panel(title="saves in a row", detail=detail, chart=chart)


def _begun(e: Expected, begins: Sequence[float], ends: Sequence[float], whole: float, title: str) -> Panel:
    """The slowest save as it went: each rank from when it began to write to when its bytes were durable."""
    late, slowest = (max(range(len(times)), key=lambda i: times[i]) for times in (begins, ends))
    told = f"last to end is rank {slowest}, after {quantity(ends[slowest], 's')}"
    if begins[late] > 0:
        told += f"; last to begin is rank {late}, after {quantity(begins[late], 's')}"
    return Panel(
        title=title,
        detail=f"{_words(e)} · the slowest one, counted from its barrier · {told}",
        chart=spans.ranks(
            ends, [Line(whole, f"whole {quantity(whole, 's')}")], begins=begins,
            what=f"{title} of {len(ends)} ranks: {told}",
        ),
        wide=True,
    )  # fmt: skip


def _by_rank(e: Expected, values: Sequence[float], marks: Sequence[tuple[float, str]], title: str, of: str) -> Panel:
    """All ranks begin together, after a barrier; of each only how long it took is known."""
    lines = [Line(value, f"{name} {quantity(value, 's')}") for value, name in marks]
    slowest = max(range(len(values)), key=lambda i: values[i])
    ahead = values[slowest] / median(values) - 1
    told = f"slowest rank {slowest} with {quantity(values[slowest], 's')}, {share(ahead)} above the median rank"
    return Panel(
        title=title,
        detail=f"{_words(e)} · median of {of}, all begin together · {told}",
        chart=spans.ranks(values, lines, what=f"{title} of {len(values)} ranks: {told}"),
        wide=True,
    )


def _words(e: Expected) -> str:
    shown = sorted(e.params.items(), key=lambda item: (item[0] != "bytes", item[0]))
    return " · ".join(param(name, value) for name, value in shown)
