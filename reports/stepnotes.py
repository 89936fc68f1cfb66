"""What a training step was, in words and numbers: the notes that the benchmark left beside its times, as one table.

MFU in each convention with its peak, the straggler, hidden communication, collectives beside their closed form, memory.
Notes come from a record, so anything may stand in them: what is no number is left out. Nothing is judged here.

>>> facts({"training.step.time": Measurement(metric="", unit="s", better="lower", notes={"p95_s": 2.0})})
[('95 of 100 steps', 'within 2 s')]
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from markupsafe import Markup

from benchmarks.measurement import Measurement
from reports.drawing import Panel
from reports.quantities import quantity, share
from reports.statistics import median

STEP, FLOPS, TOKENS = "training.step.time", "training.flops", "training.tokens_rate"
SHARES = ("MFU, causal", "MFU, full attention", "HFU, causal", "share of own products")
DIFFERING = 6  # collectives that are listed


def panel(of: str, found: Mapping[str, Measurement]) -> Panel | None:
    """The table of one job; `found` are its measurements by metric. None where nothing was noted."""
    if not any(found[name].notes for name in (STEP, FLOPS) if name in found):
        return None
    rows = facts(found)
    lines = Markup("").join(Markup('<tr><th scope="row">{}</th><td>{}</td></tr>').format(*row) for row in rows)
    return Panel(
        title="account of the step",
        detail=of,
        chart=Markup("<table><tbody>{}</tbody></table>").format(lines),
        wide=True,
    )


def facts(found: Mapping[str, Measurement]) -> list[tuple[str, str]]:
    """Rows of the table: what, and how much."""
    step, flops = (found[name].notes if name in found else {} for name in (STEP, FLOPS))
    return [*_rates(found, flops), *_steadiness(step), *_communication(step), *_memory(found, step), *_learning(step)]


def _rates(found: Mapping[str, Measurement], flops: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    tokens = found.get(TOKENS)
    if tokens is not None and tokens.samples and tokens.subject.ranks:
        yield "tokens of one rank", quantity(median(tokens.samples) / tokens.subject.ranks, "1/s")
    for name in SHARES:
        if (value := _number(flops.get(name))) is not None:
            yield name, share(value)
    if (peak := _number(flops.get("peak"))) is not None:
        yield "peak", f"{quantity(peak, 'FLOP/s')}, dense bf16: {flops.get('peak_source', 'of unknown source')}"
    elif "MFU" in flops:
        yield "MFU", str(flops["MFU"])


def _steadiness(step: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if isinstance(warning := step.get("warning"), str):
        yield "warning", warning
    if (late := _number(step.get("p95_s"))) is not None:
        yield "95 of 100 steps", f"within {quantity(late, 's')}"
    if (spread := _number(step.get("variation"))) is not None:
        yield "spread of the steps", f"{share(spread)} (standard deviation by mean)"
    straggler = step.get("straggler")
    if isinstance(straggler, dict) and (waited := _number(straggler.get("waited_for"))) is not None:
        who = f"rank {straggler.get('rank')} on {straggler.get('node')}"
        yield "slowest at its own work", f"{who}: the others wait for it for {share(waited)} of that work"


def _communication(step: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    hidden = step.get("hidden")
    for axis, value in hidden.items() if isinstance(hidden, dict) else ():
        if (part := _number(value)) is not None:
            yield f"communication along {axis}", f"{share(part)} of it hidden"
    rows = step.get("collectives")
    sent = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    if sent:
        bad = [r for r in sent if (r.get("count"), r.get("bytes")) != (r.get("planned_count"), r.get("planned_bytes"))]
        volume = sum(_number(r.get("bytes")) or 0.0 for r in sent)
        yield "collectives", f"{len(sent) - len(bad)} of {len(sent)} kinds as planned, {quantity(volume, 'B')} in all"
        for r in bad[:DIFFERING]:
            what = f"{r.get('operation')} along {r.get('axis')}, pipeline rank {r.get('pipeline_rank')}"
            planned = f"planned {r.get('planned_count')} of {r.get('planned_bytes')} B"
            yield what, f"{r.get('count')} of {r.get('bytes')} B, {planned}"


def _memory(found: Mapping[str, Measurement], step: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    peaks = found[STEP].columns.get("peak_bytes") if STEP in found else None
    measured, planned = _numbers(peaks), _numbers(step.get("predicted_bytes"))
    per_stage = len(measured) // len(planned) if planned else 0
    for r, plan in enumerate(planned if per_stage else ()):
        own = max(measured[r * per_stage : (r + 1) * per_stage])
        yield f"memory of pipeline rank {r}", f"{quantity(own, 'B')} at most, planned {quantity(plan, 'B')}"
    use = step.get("memory_use")
    if isinstance(use, dict) and (part := _number(use.get("share_of_copy"))) is not None:
        yield "memory traffic", f"{share(part)} of a plain copy's rate, by the operations' operands"


def _learning(step: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, words in (("losses", "loss"), ("gradient_norms", "norm of the gradients")):
        values = _numbers(step.get(name))
        if values:
            yield words, f"{values[0]:.4g} at first, {values[-1]:.4g} after {len(values)} steps"


def _numbers(value: Any) -> list[float]:
    return [n for n in map(_number, value) if n is not None] if isinstance(value, list) else []


def _number(value: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
