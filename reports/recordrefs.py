"""From a verdict back to the lines of the run folder that it rests on, with their samples.

    refs = RecordRefs(stored)
    refs.of(verdict).line          # of measurements.jsonl, counted from 1

A page shows where each number comes from, so that nobody has to believe it: `sed -n 57p measurements.jsonl`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from benchmarks.measurement import Expected, Measurement, Verdict, params_key
from reports.quantities import quantity
from reports.runs import MEASUREMENTS, StoredRun

SAMPLES = 24  # that are shown of one unit


@dataclass(frozen=True, kw_only=True)
class RecordRef:
    """One line of the run's measurements."""

    line: int
    more: int  # further lines of the same number and attempt
    started_at: str
    samples: tuple[float, ...]  # of the unit that the verdict names, in the record's unit
    unit: str

    @property
    def where(self) -> str:
        """measurements.jsonl:57"""
        return f"{MEASUREMENTS}:{self.line}"

    @property
    def link(self) -> str:
        """Relative to the run folder; the fragment is RFC 5147's, for who understands it."""
        return f"{MEASUREMENTS}#line={self.line - 1},{self.line}"

    @property
    def shown(self) -> str:
        """The samples in words."""
        text = ", ".join(quantity(value, self.unit) for value in self.samples[:SAMPLES])
        rest = len(self.samples) - SAMPLES
        return f"{text} and {rest:,} more" if rest > 0 else text


class RecordRefs:
    """The lines of a run, by what they measured."""

    def __init__(self, stored: StoredRun) -> None:
        self.lines: dict[tuple[str, tuple[str, str]], list[int]] = defaultdict(list)
        self.measurements = stored.measurements
        for line, m in enumerate(stored.measurements, 1):
            self.lines[m.config, m.key].append(line)

    def of(self, v: Verdict) -> RecordRef | None:
        """The record of the unit that a verdict names, of the latest attempt; None where nothing was recorded."""
        return self._find((v.config, (v.metric, params_key(v.params))), v.subject)

    def number(self, e: Expected) -> RecordRef | None:
        """The first record of an expected number, of the latest attempt."""
        return self._find((e.config, e.key), "")

    def line(self, m: Measurement) -> RecordRef:
        """The line of one record."""
        line = next(line for line in reversed(self.lines[m.config, m.key]) if self.measurements[line - 1] is m)
        return RecordRef(line=line, more=0, started_at=m.started_at, samples=_samples(m, ""), unit=m.unit)

    def of_config(self, config: str, metrics: Collection[str], attempt: int = 0) -> list[RecordRef]:
        """The first record of each number of a config, of one attempt or the latest."""
        keys = [key for key in self.lines if key[0] == config and key[1][0] in metrics]
        found = [ref for key in keys if (ref := self._find(key, "", attempt))]
        return sorted(found, key=lambda ref: ref.line)

    def _find(self, number: tuple[str, tuple[str, str]], label: str, attempt: int = 0) -> RecordRef | None:
        lines = self.lines.get(number)
        if not lines:
            return None
        chosen = attempt or max(self.measurements[line - 1].attempt for line in lines)
        mine = [line for line in lines if self.measurements[line - 1].attempt == chosen]
        if not mine:
            return None
        named = [line for line in mine if label and self.measurements[line - 1].subject.label == label]
        line = (named or mine)[0]
        m = self.measurements[line - 1]
        return RecordRef(
            line=line, more=len(mine) - 1, started_at=m.started_at, samples=_samples(m, label), unit=m.unit
        )


def _samples(m: Measurement, label: str) -> tuple[float, ...]:
    """The samples of one unit: a record's own, or a row of its table."""
    if m.samples or "samples" not in m.columns:
        return _numbers(m.samples)
    rows = m.columns["samples"]
    place = _place(m, label)
    return _numbers(rows[place]) if place is not None and place < len(rows) else ()


def _place(m: Measurement, label: str) -> int | None:
    """Where a table has the row of the unit with this label."""
    columns = m.columns
    if "a" in columns and "b" in columns:
        pairs = zip(columns["a"], columns["b"], strict=False)
        return next((i for i, (a, b) in enumerate(pairs) if f"{a}->{b}" == label), None)
    for name, begin in (("rank", "rank "), ("node", "")):
        if name in columns:
            return next((i for i, value in enumerate(columns[name]) if f"{begin}{value}" == label), None)
    return None


def _numbers(samples: object) -> tuple[float, ...]:
    """What is a number of samples that nobody has checked."""
    values = samples if isinstance(samples, list | tuple) else ()
    return tuple(float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool))
