"""Every verdict of a run as CSV beside its page: what the page cuts, and where each number comes from.

    write(verdicts, refs, path)      # RUN/verdicts.csv

Values in SI units. No cell begins like a formula, whatever a host is called.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measurement import Verdict, params_key
from reports.recordrefs import RecordRef, RecordRefs

FILE = "verdicts.csv"
COLUMNS = (
    "status", "mandatory", "metric", "params", "worst", "node", "value", "low", "high", "unit", "bound", "limit_value",
    "limit", "limit_source", "margin", "noise", "n", "units", "attempts", "config", "record", "reason", "again",
)  # fmt: skip
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write(verdicts: Sequence[Verdict], refs: RecordRefs, path: Path) -> Path:
    """Write all verdicts, in the order of the judge. OSError where it cannot be."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(COLUMNS)
        rows.writerows(_row(v, refs.of(v)) for v in verdicts)
    return path


def _row(v: Verdict, ref: RecordRef | None) -> list[object]:
    cells = (
        v.status, v.mandatory, v.metric, params_key(v.params), v.subject, v.evidence.get("node", ""), v.value, v.low,
        v.high, v.limit_unit or v.unit, v.bound, v.limit_value, v.limit, v.limit_source, v.margin, v.noise, v.n,
        v.units, v.attempts, v.config, ref.where if ref else "", v.reason, v.again,
    )  # fmt: skip
    return [_safe(cell) for cell in cells]


def _safe(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell
