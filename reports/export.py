"""A run in other people's formats: CSV, Parquet, pytest-benchmark JSON, OpenMetrics, JUnit.

    python -m reports export RUN --to csv -o run.csv

CSV and Parquet hold every record of every attempt, a row per unit, errors among them. The others hold what is
judged: the latest attempt. The run folder stays the truth; nothing is read back from these.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.measurement import PAIRS, Expected, Measurement, Verdict, params_key
from reports import junit
from reports.numbers import Number, numbers, title
from reports.runs import RunError, StoredRun
from reports.statistics import estimates
from reports.units import Unit, units_of

PER_AMOUNT = {"B/s": (1e9, "s per GB"), "FLOP/s": (1e12, "s per TFLOP"), "1/s": (1e3, "s per 1000")}
PREFIX = "rackproof"

Write = Callable[[StoredRun, Sequence[Verdict], Path], None]


def records(stored: StoredRun) -> pd.DataFrame:
    """Every record of the run, a row per unit; columns in SI units."""
    expected = {(e.config, *e.key): e for e in stored.run.expected}
    benchmarks = {c.id: c.benchmark for c in stored.run.configs}
    rows = []
    for m in stored.measurements:
        e = expected.get((m.config, *m.key))
        shared = {
            "run": stored.run.id,
            "cluster": stored.run.cluster,
            "suite": stored.run.suite,
            "run_started_at": stored.run.started_at,
            "benchmark": benchmarks.get(m.config, ""),
            "config": m.config,
            "attempt": m.attempt,
            "metric": m.metric,
            "params": params_key(m.params),
            "unit": m.unit,
            "better": m.better,
            "outcome": m.outcome,
            "reason": m.reason,
            "started_at": m.started_at,
        }
        rows += [{**shared, **row} for row in _units(e, m)]
    whole = dict.fromkeys(("rank", "from_rank", "to_rank"), "Int64")
    return pd.DataFrame(rows).astype(whole) if rows else pd.DataFrame()


def _units(e: Expected | None, m: Measurement) -> Iterator[dict[str, Any]]:
    """What one record says of each of its units."""
    per = e.per if e else "world"
    whole = Unit((), m.subject.label, m.subject.node, m.samples)
    for unit in units_of(per, m) if m.outcome == "ok" else [whole]:
        values = [v for v in unit.samples if isinstance(v, int | float)]
        sound = bool(values) and len(values) == len(unit.samples) and all(map(math.isfinite, values))
        found = estimates([values]).at(0) if sound else None
        ends = unit.identity if per in PAIRS else ()
        yield {
            "subject": unit.label,
            "node": unit.node,
            "rank": unit.identity[0] if per == "rank" and unit.identity else m.subject.rank,
            "from_rank": ends[0] if ends else None,
            "to_rank": ends[1] if ends else None,
            "gpu_serial": m.subject.gpu_serial,
            "n": len(unit.samples),
            "median": found.median if found else None,
            "low": found.low if found else None,
            "high": found.high if found else None,
            "min": min(values) if sound else None,
            "max": max(values) if sound else None,
        }


def to_csv(stored: StoredRun, verdicts: Sequence[Verdict], path: Path) -> None:  # noqa: ARG001 - one signature for all
    """Comma-separated values."""
    records(stored).to_csv(path, index=False)


def to_parquet(stored: StoredRun, verdicts: Sequence[Verdict], path: Path) -> None:  # noqa: ARG001
    """Parquet. RunError where no engine is installed."""
    try:
        records(stored).to_parquet(path, index=False)
    except ImportError:
        raise RunError("Parquet needs pyarrow: pip install pyarrow, or export --to csv") from None


def to_benchmark(stored: StoredRun, verdicts: Sequence[Verdict], path: Path) -> None:  # noqa: ARG001
    """JSON of pytest-benchmark, for its `compare`: times in seconds, rates as seconds per amount, lower is better."""
    made = [_benchmark(n) for n in numbers(stored) if n.expected.unit == "s" or n.expected.unit in PER_AMOUNT]
    whole = {
        "machine_info": {"node": stored.run.cluster, **_machine(stored)},
        "commit_info": {"id": stored.run.revision, "dirty": stored.run.revision.endswith("+dirty"), "project": PREFIX},
        "benchmarks": made,
        "datetime": stored.run.started_at,
        "version": "5.0.0",
    }
    path.write_text(json.dumps(whole, indent=1))


def _machine(stored: StoredRun) -> dict[str, Any]:
    facts = next((e.facts for e in stored.latest_environments.values()), {})
    cpu = str(facts.get("cpu", "unknown"))
    return {"cpu": {"brand_raw": cpu}, "python_version": facts.get("python", ""), "machine": facts.get("machine", "")}


def _benchmark(number: Number) -> dict[str, Any]:
    """One entry: the samples of the median unit, as times."""
    e = number.expected
    middle = int(np.argsort(number.estimates.median)[len(number.units) // 2])
    samples = np.array(number.units[middle].samples, dtype=np.float64)
    amount, words = PER_AMOUNT.get(e.unit, (None, ""))
    data = np.sort(samples if amount is None else amount / samples)
    q1, median, q3 = (float(np.quantile(data, q)) for q in (0.25, 0.5, 0.75))
    low, high = q1 - 1.5 * (q3 - q1), q3 + 1.5 * (q3 - q1)
    mean, spread = float(data.mean()), float(data.std(ddof=1)) if len(data) > 1 else 0.0
    far = int(((data < low) | (data > high)).sum()), int((abs(data - mean) > spread).sum())
    name = title(e) + (f" ({words})" if words else "")
    return {
        "group": e.metric.partition(".")[0],
        "name": name,
        "fullname": f"{e.test}[{name}]",
        "params": dict(e.params) or None,
        "param": None,
        "extra_info": {"unit": e.unit, "units": len(number.units), "config": e.config},
        "options": {"disable_gc": False, "timer": "time", "min_rounds": len(data), "warmup": False},
        "stats": {
            "min": float(data[0]), "max": float(data[-1]), "mean": mean, "stddev": spread, "rounds": len(data),
            "median": median, "iqr": q3 - q1, "q1": q1, "q3": q3, "iqr_outliers": far[0], "stddev_outliers": far[1],
            "outliers": f"{far[1]};{far[0]}", "ld15iqr": float(data[data >= low][0]),
            "hd15iqr": float(data[data <= high][-1]), "ops": 1 / mean, "total": float(data.sum()),
            "data": data.tolist(), "iterations": 1,
        },
    }  # fmt: skip


def to_openmetrics(stored: StoredRun, verdicts: Sequence[Verdict], path: Path) -> None:
    """OpenMetrics text: outcome, verdicts by status, and of each number the median and the worst unit."""
    path.write_text("\n".join([*_families(stored, verdicts), "# EOF", ""]), encoding="utf-8")


def _families(stored: StoredRun, verdicts: Sequence[Verdict]) -> Iterator[str]:
    run = {"cluster": stored.run.cluster, "suite": stored.run.suite}
    outcome = stored.outcome(verdicts)
    yield from _head("outcome", "1 for the outcome that the run has")
    for name in ("ACCEPTED", "CONDITIONAL", "INCOMPLETE", "REJECTED"):
        yield _sample("outcome", {**run, "outcome": name}, float(name == outcome))
    yield from _head("started_timestamp_seconds", "when the run began", unit="seconds")
    yield _sample("started_timestamp_seconds", run, datetime.fromisoformat(stored.run.started_at).timestamp())
    yield from _head("verdicts", "verdicts by status")
    counts: dict[tuple[str, str], int] = {}
    for v in verdicts:
        counts[v.metric, v.status] = counts.get((v.metric, v.status), 0) + 1
    for (metric, status), count in sorted(counts.items()):
        yield _sample("verdicts", {**run, "metric": metric, "status": status}, count)
    yield from _head("value", "measured value in the SI unit of its label")
    for n in numbers(stored):
        e, values = n.expected, n.estimates.median
        worst = float(values.min() if e.better == "higher" else values.max())
        labels = {**run, "metric": e.metric, "unit": e.unit, "config": e.config}
        labels |= {f"param_{re.sub('[^a-zA-Z0-9_]', '_', k)}": str(v) for k, v in e.params.items()}
        yield _sample("value", {**labels, "of": "median"}, float(np.median(values)))
        yield _sample("value", {**labels, "of": "worst"}, worst)


def _head(name: str, words: str, *, unit: str = "") -> Iterator[str]:
    yield f"# TYPE {PREFIX}_{name} gauge"
    if unit:
        yield f"# UNIT {PREFIX}_{name} {unit}"
    yield f"# HELP {PREFIX}_{name} {words}"


def _sample(name: str, labels: dict[str, str], value: float) -> str:
    inside = ",".join(f'{k}="{_escaped(v)}"' for k, v in labels.items())
    return f"{PREFIX}_{name}{{{inside}}} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


FORMATS: dict[str, tuple[str, Write]] = {
    "csv": ("csv", to_csv),
    "parquet": ("parquet", to_parquet),
    "pytest-benchmark": ("json", to_benchmark),
    "openmetrics": ("prom", to_openmetrics),
    "junit": ("xml", junit.write),
}
"""name -> (the file's suffix, what writes it)"""
