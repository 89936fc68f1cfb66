"""Limits, waivers and exemptions: what a cluster file says a number must be.

A limit is a number with a unit, a source and a scope; one without them does not load. It judges the
measurements whose metric matches `metric` (a shell pattern) and whose params contain `where`. A share of
what the hardware can do (`of = "hardware"` in a file) has become a plain number by then: `clusters/shares.py`.
Nothing here measures or judges: `reports/judge.py` does, `clusters/loader.py` reads these from TOML.

>>> Limit(name="exact", metric="collectives.*.wrong_elements", unit="1", equal=0.0,
...       source="definition").bound
'equal'
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from fnmatch import fnmatchcase

Scalar = str | int | float | bool
BOUNDS = ("floor", "ceiling", "equal")
REFERENCES = ("value", "metric", "peers", "baseline")
POSITIVE = ("s", "B/s", "FLOP/s", "1/s")  # units of which nothing real is zero or negative


@dataclass(frozen=True, kw_only=True)
class Limit:
    """One bound on one family of metrics. Exactly one of floor, ceiling, equal is set."""

    name: str  # the key of its TOML table: [limits.NAME]
    metric: str  # shell pattern over metric names
    unit: str  # of the bound: the metric's unit, or "1" for a ratio
    source: str  # datasheet, contract, definition, "measured on DATE": who says so
    floor: float | None = None
    ceiling: float | None = None
    equal: float | None = None
    tolerance: float = 0.0  # for equal: allowed absolute difference
    of: str = "value"  # what is bounded: the value itself, or its ratio to a metric | peers | baseline
    ratio_to: str | None = None  # of="metric": the other metric of the same run (exact name)
    ratio_where: dict[str, Scalar] = field(default_factory=dict)  # params that pick the other measurement
    scale: float = 1.0  # of="metric": the other metric's value is multiplied by this
    where: dict[str, Scalar] = field(default_factory=dict)  # params a measurement must have
    scope: dict[str, Scalar] = field(default_factory=dict)  # sku, nodes, backend: of the whole run
    mandatory: bool = True  # False: advisory, shown but never rejects
    physical: bool = False  # beyond it is `impossible`, never merely `fail`
    date: str = ""  # when the source was read or measured, YYYY-MM-DD

    @property
    def bound(self) -> str:
        """Which bound is set: "floor", "ceiling" or "equal"."""
        return next(b for b in BOUNDS if getattr(self, b) is not None)

    @property
    def value(self) -> float:
        """The bound's number, in `unit`."""
        return float(getattr(self, self.bound))

    def holds_in(self, scope: dict[str, Scalar]) -> bool:
        """Whether this limit is for a run of this scope (sku, nodes, backend)."""
        return all(scope.get(k) == v for k, v in self.scope.items())

    def covers(self, metric: str, params: dict[str, Scalar]) -> bool:
        """Whether this limit judges a measurement of `metric` with these params."""
        return fnmatchcase(metric, self.metric) and all(params.get(k) == v for k, v in self.where.items())


@dataclass(frozen=True, kw_only=True)
class Waiver:
    """A known failure that somebody answers for, until a date. Expired, it waives nothing."""

    id: str
    limit: str  # the name of the limit that is waived
    approver: str
    reason: str
    expires: date
    subject: str = "*"  # shell pattern over subject labels

    def waives(self, limit: str, subject: str, today: date) -> bool:
        """Whether a failure of `limit` by `subject` is waived on `today` (the last day included)."""
        return limit == self.limit and fnmatchcase(subject, self.subject) and today <= self.expires


@dataclass(frozen=True, kw_only=True)
class Exemption:
    """A family of metrics that this cluster cannot have (no NVLink, say): not_applicable."""

    metric: str  # shell pattern
    reason: str
