"""What was really measured of one expected number: its units, attempt by attempt, or why it cannot count.

Here a run fails closed. A record that is absent, an error, cut short, doubled, not finite, of another
unit or taken under disqualifying conditions becomes a Problem; only what passes all of that is handed to
the limits (reports/judge.py). No limit is looked at here.

>>> e = Expected(metric="gemm.flops", unit="FLOP/s", better="higher", config="c", test="t")
>>> Evidence([]).attempts(e)
[]
"""

from __future__ import annotations

import functools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from benchmarks.measurement import Event, Expected, Measurement
from clusters.limits import POSITIVE
from reports.statistics import Estimates, estimates
from reports.units import IDENTITY, NUMBERS, Unit, distinct, identities, label, samples_of, units_of

CONDITIONS = "conditions"  # metric of the per-node records that hold nothing but conditions
NAMES, ROWS = {int, str}, {list, tuple}  # what a table's columns may hold
COUNTED = ("world", "node", "neighbour", "nic")  # units that are told by their number: nobody knows their names before
SHOWN = 8  # so many units are named in a reason; the rest is counted


class Problem(NamedTuple):
    """Why an attempt cannot be judged."""

    status: str  # missing | error | impossible
    reason: str


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One try at an expected number; more repetitions of a noisy check count as the same try."""

    numbers: tuple[int, ...]
    units: Sequence[Unit] = ()
    problem: Problem | None = None
    says: str = ""  # who or what it was, in the benchmark's own words (notes["says"]): shown where it does not pass

    @functools.cached_property
    def estimates(self) -> Estimates:
        """Median and interval of every unit, in the order of `units`."""
        return estimates(samples_of(self.units))

    @property
    def lowest(self) -> float:
        """The smallest sample of all units."""
        samples = samples_of(self.units)
        return float(samples.min()) if isinstance(samples, np.ndarray) else min(map(min, samples))

    @property
    def number(self) -> int:
        """The attempt it began as."""
        return self.numbers[0]


class Evidence:
    """The measurements and errors of a run, found again by what was expected."""

    def __init__(self, measurements: Iterable[Measurement], errors: Iterable[Event] = ()) -> None:
        self.by_key: dict[tuple[str, tuple[str, str]], list[Measurement]] = defaultdict(list)
        self.disqualified: dict[tuple[str, int], list[str]] = defaultdict(list)
        self.errors: dict[str, dict[int, str]] = defaultdict(dict)
        self._found: dict[tuple[str, tuple[str, str]], list[Attempt]] = {}  # of each config and key, read once
        for m in measurements:
            self.by_key[m.config, m.key].append(m)
            if found := m.conditions.get("disqualified"):
                where = m.subject.node or m.subject.label
                causes = found if isinstance(found, list | tuple) else [found]
                self.disqualified[m.config, m.attempt] += [f"{cause} on {where}" for cause in causes]
        for event in errors:
            config, number = event.detail.get("config"), event.detail.get("attempt", 1)
            self.errors[str(config)].setdefault(number, str(event.detail.get("reason") or "no reason recorded"))

    def attempts(self, expected: Expected) -> list[Attempt]:
        """Every attempt at `expected`, oldest first; the last one decides. None: it was never tried.

        An error of its config at that attempt counts for every number of it, also for those that came before the
        error: a rank that dies or raises at the end may have been about to say that they are wrong.
        """
        asked = expected.config, expected.key
        if asked not in self._found:
            self._found[asked] = self._attempts(expected)
        return self._found[asked]

    def _attempts(self, expected: Expected) -> list[Attempt]:
        records: dict[int, list[Measurement]] = defaultdict(list)
        for m in self.by_key.get((expected.config, expected.key), ()):
            records[m.attempt].append(m)
        errors = self.errors.get(expected.config, {})
        if not records:
            return [Attempt(numbers=(n,), problem=Problem("error", errors[n])) for n in sorted(errors)]
        groups: list[list[int]] = []
        for number in sorted(records):
            pooled = all(m.notes.get("pool") is True for m in records[number])
            if pooled and groups:
                groups[-1].append(number)
            else:
                groups.append([number])
        return [self._attempt(expected, tuple(group), records, errors) for group in groups]

    def _attempt(
        self,
        expected: Expected,
        numbers: tuple[int, ...],
        records: dict[int, list[Measurement]],
        errors: dict[int, str],
    ) -> Attempt:
        found = [records[number] for number in numbers]
        causes = [cause for number in numbers for cause in self.disqualified.get((expected.config, number), ())]
        if causes:
            named = f"disqualified: {listed(list(dict.fromkeys(causes)))}"
            return Attempt(numbers=numbers, problem=Problem("error", named))
        problem = next((p for ms in found for m in ms if (p := _record_problem(expected, m))), None)
        if problem:
            return Attempt(numbers=numbers, problem=problem)
        batches = [_batch(expected.per, ms) for ms in found]
        problem = next((p for units in batches if (p := _double(units))), None)
        units = batches[0] if len(batches) == 1 else _pooled(batches)
        problem = problem or _absent(expected, units) or _sample_problem(expected, units)
        if failed := [errors[number] for number in numbers if number in errors]:
            absent = f" ({problem.reason})" if problem and problem.status == "missing" else ""
            problem = Problem("error", failed[-1] + absent)
        said = dict.fromkeys(str(m.notes["says"]) for ms in found for m in ms if m.notes.get("says"))
        return Attempt(numbers=numbers, units=units, problem=problem, says=listed(list(said)))


def listed(names: Sequence[object]) -> str:
    """Names in one line, at most SHOWN of them.

    >>> listed([1, 2, 3])
    '1, 2, 3'
    """
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(str(name) for name in names[:SHOWN]) + more


def _record_problem(expected: Expected, m: Measurement) -> Problem | None:
    """What is wrong with the record itself, before its samples are read."""
    who = m.subject.label
    if m.outcome != "ok":
        said = m.reason or f"outcome {m.outcome!r} without a reason"
        status = "missing" if m.outcome == "missing" else "error"
        return Problem(status, said if m.subject.group == "world" else f"{who}: {said}")
    if m.unit != expected.unit:
        return Problem("error", f"{who}: measured in {m.unit!r}, expected in {expected.unit!r}")
    if m.better != expected.better:
        return Problem("error", f"{who}: measured as {m.better!r} is better, expected as {expected.better!r}")
    if "samples" not in m.columns:
        return None
    if m.samples:
        return Problem("error", f"{who}: samples both as a list and as a table: which one counts is not said")
    if expected.per not in IDENTITY:
        return Problem("error", f"{who}: a table of samples where one {expected.per} was expected")
    rows = len(m.columns["samples"])
    for name in IDENTITY[expected.per]:
        if len(m.columns.get(name, ())) != rows:
            return Problem("error", f"table column {name!r} has {len(m.columns.get(name, ()))} rows of {rows}")
        if not NAMES.issuperset(map(type, m.columns[name])):
            return Problem("error", f"table column {name!r} holds something that names no {expected.per}")
    if not ROWS.issuperset(map(type, m.columns["samples"])):
        return Problem("error", "a row of the table's samples is no list")
    return None


def _batch(per: str, records: Sequence[Measurement]) -> Sequence[Unit]:
    """The units of one attempt's records; of a single table, the table."""
    if len(records) == 1:
        return units_of(per, records[0])
    return [unit for m in records for unit in units_of(per, m)]


def _pooled(batches: list[Sequence[Unit]]) -> list[Unit]:
    """The units of several batches of repetitions, each with all its samples."""
    merged: dict[tuple[Any, ...], Unit] = {}
    for unit in (unit for batch in batches for unit in batch):
        first = merged.get(unit.identity)
        merged[unit.identity] = first._replace(samples=first.samples + unit.samples) if first else unit
    return list(merged.values())


def _double(units: Sequence[Unit]) -> Problem | None:
    if len(distinct(tuple(identities(units)))) == len(units):
        return None
    counts = Counter(identities(units))
    twice = [unit.label for unit in units if counts[unit.identity] > 1]
    return Problem("missing", f"reported more than once, so one stands for another: {listed(sorted(set(twice)))}")


def _absent(expected: Expected, units: Sequence[Unit]) -> Problem | None:
    """Units that should be there and are not, or are there and cannot be."""
    if expected.units < 1:
        return Problem("missing", "expected of no unit at all: a check of nothing proves nothing")
    there = distinct(tuple(identities(units)))
    if expected.per == "node" and "" not in {identity[0] for identity in there} and len(there) == expected.units:
        return None
    if expected.per in COUNTED:
        return None if expected.per != "node" and len(there) == expected.units else _counted(expected, units)
    if expected.per == "meeting":
        return _alone(expected, there)
    wanted = _wanted(expected.per, expected.units)
    if wanted is None:
        return Problem("missing", f"{expected.units} pairs are no whole set of pairs n(n-1)")
    if there == wanted:
        return None
    said = []
    if lost := sorted(wanted - there):
        said.append(f"{len(lost)} of {len(wanted)} missing: {listed([label(expected.per, i) for i in lost])}")
    if strange := [unit.label for unit in units if unit.identity not in wanted]:
        said.append(f"not one of the {len(wanted)}: {listed(strange)}")
    return Problem("missing", "; ".join(said))


def _alone(expected: Expected, there: Set[tuple[Any, ...]]) -> Problem | None:
    """Ranks that met nobody as sender or as receiver, and pairs that cannot be."""
    if strange := [i for i in there if len(i) != 2 or i[0] == i[1] or not set(i) <= set(range(expected.units))]:
        return Problem("missing", f"not pairs of {expected.units} ranks: {listed(sorted(map(str, strange)))}")
    alone = [rank for end in (0, 1) for rank in sorted(set(range(expected.units)) - {i[end] for i in there})]
    if not alone:
        return None
    return Problem("missing", f"met nobody, as sender or as receiver: rank {listed(list(dict.fromkeys(alone)))}")


def _counted(expected: Expected, units: Sequence[Unit]) -> Problem:
    there = listed(sorted({unit.label or "a node without a name" for unit in units}))
    noun = expected.per if expected.units == 1 else f"{expected.per}s"
    return Problem("missing", f"expected {expected.units} {noun}, got {len(units)}: {there}")


@functools.lru_cache(maxsize=4)
def _wanted(per: str, units: int) -> frozenset[tuple[Any, ...]] | None:
    if per == "rank":
        return frozenset((rank,) for rank in range(units))
    n = (1 + math.isqrt(1 + 4 * units)) // 2
    if n * (n - 1) != units:
        return None
    return frozenset((a, b) for a in range(n) for b in range(n) if a != b)


def _sample_problem(expected: Expected, units: Sequence[Unit]) -> Problem | None:
    """Samples that no sound measurement has; the first kind found is told with every unit that has it."""
    positive = expected.unit in POSITIVE
    samples = samples_of(units)
    if isinstance(samples, np.ndarray) and np.isfinite(samples).all() and (samples.min() > 0 or not positive):
        return None  # the usual case of a large table, quickly
    bad: dict[tuple[str, str], list[str]] = defaultdict(list)
    for unit in units:
        if kind := _bad_samples(unit.samples, positive):
            bad[kind].append(unit.label)
    if not bad:
        return None
    (status, what), labels = min(bad.items(), key=lambda item: item[0][0])
    return Problem(status, f"{what}: {listed(labels)}")


def _bad_samples(samples: tuple[Any, ...], positive: bool) -> tuple[str, str] | None:
    if not samples:
        return "error", "no samples"
    if not NUMBERS.issuperset(map(type, samples)):
        odd = next(value for value in samples if type(value) not in NUMBERS)
        return "error", f"a sample that is no number ({odd!r:.20})"
    low, high = min(samples), max(samples)
    try:
        finite = math.isfinite(sum(samples))
    except OverflowError:  # a whole number that no float holds
        return "error", "a sample too large to be a number"
    if finite and (low > 0 or not positive):
        return None  # the usual case, quickly; a sum may overflow, so the rest decides
    if any(value != value for value in samples):
        return "error", "a sample is NaN"
    if low == -math.inf or high == math.inf:
        return "error", "a sample is infinite"
    if positive and low <= 0:
        return "impossible", "a time or rate of zero or less"
    return None
