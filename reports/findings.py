"""Verdicts in the order in which people need them: what failed worst, what is not proven, what is fine.

Every view (terminal table, page, JUnit) is made from these, so that none tells another story. Nothing is
judged again and nothing is dropped: every verdict lands in exactly one of the lists.

>>> Findings.of([]).counts
{}
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from benchmarks.measurement import STATUSES, Run, Verdict
from clusters.cluster import Cluster
from reports.quantities import param, percent, quantity

SIGNS = {"floor": "≥", "ceiling": "≤", "equal": "="}
UNPROVEN = ("impossible", "error", "missing")
GRAVITY = ("fail", *UNPROVEN, "noisy", "waived", "no_baseline", "not_applicable", "pass")


class Trouble(NamedTuple):
    """Verdicts that share one cause: a rank that died costs many numbers for one reason."""

    status: str
    reason: str
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True, kw_only=True)
class Findings:
    """All verdicts of a run, sorted once."""

    failures: tuple[Verdict, ...]  # mandatory, by size of effect
    troubles: tuple[Trouble, ...]  # impossible, error, missing: grouped by cause
    noisy: tuple[Verdict, ...]  # mandatory; closest to a decision last
    waived: tuple[Verdict, ...]
    advisory: tuple[Verdict, ...]  # advisory limits missed or undecided, by size of effect
    unbased: tuple[Verdict, ...]  # no_baseline
    exempt: tuple[Verdict, ...]  # not_applicable
    passed: tuple[Verdict, ...]

    @classmethod
    def of(cls, verdicts: Iterable[Verdict]) -> Findings:
        """Sort verdicts into their lists."""
        by: dict[str, list[Verdict]] = defaultdict(list)
        for v in verdicts:
            by["advisory" if not v.mandatory and v.status in ("fail", "noisy") else v.status].append(v)
        troubles: dict[tuple[str, str], list[Verdict]] = defaultdict(list)
        for status in UNPROVEN:
            for v in by[status]:
                troubles[status, v.reason].append(v)
        return cls(
            failures=tuple(sorted(by["fail"], key=effect)),
            troubles=tuple(Trouble(status, reason, tuple(vs)) for (status, reason), vs in troubles.items()),
            noisy=tuple(sorted(by["noisy"], key=effect)),
            waived=tuple(sorted(by["waived"], key=effect)),
            advisory=tuple(sorted(by["advisory"], key=effect)),
            unbased=tuple(by["no_baseline"]),
            exempt=tuple(by["not_applicable"]),
            passed=tuple(by["pass"]),
        )

    @property
    def second_try(self) -> tuple[Verdict, ...]:
        """Passed, but not at the first attempt: still in sight."""
        return tuple(v for v in self.passed if any(a["status"] != "pass" for a in v.evidence.get("earlier", ())))

    @property
    def closest(self) -> tuple[Verdict, ...]:
        """What passed, the closest to its limit first; bounds of physics and exact results have no such margin."""
        near = [v for v in self.passed if v.margin is not None and not v.physical]
        return tuple(sorted(near, key=effect))

    @property
    def counts(self) -> dict[str, int]:
        """How many verdicts have which status; advisory fails and noisy ones count as "advisory"."""
        counts = {
            "fail": len(self.failures),
            **Counter(t.status for t in self.troubles for _ in t.verdicts),
            "noisy": len(self.noisy),
            "waived": len(self.waived),
            "advisory": len(self.advisory),
            "no_baseline": len(self.unbased),
            "not_applicable": len(self.exempt),
            "pass": len(self.passed),
        }
        order = (*STATUSES[1:], "advisory", "pass")
        return {status: counts[status] for status in order if counts.get(status)}


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """One limit of the cluster file with everything it judged."""

    limit: str
    metric: str  # the metrics it judged
    bound: str
    source: str
    mandatory: bool
    worst: Verdict
    passed: int
    judged: int


def criteria(verdicts: Iterable[Verdict]) -> list[Criterion]:
    """What the run was held against: each limit once, with its worst verdict; the failed ones first."""
    by: dict[str, list[Verdict]] = defaultdict(list)
    for v in verdicts:
        if v.limit:
            by[v.limit].append(v)
    found = []
    for name, group in by.items():
        worst = min(group, key=lambda v: (GRAVITY.index(v.status), effect(v)))
        found.append(
            Criterion(
                limit=name,
                metric=_pattern({v.metric for v in group})
                + (f" of {worst.evidence['of']}" if "of" in worst.evidence else ""),
                bound=limit_text(worst),
                source=worst.limit_source,
                mandatory=worst.mandatory,
                worst=worst,
                passed=sum(v.status == "pass" for v in group),
                judged=len(group),
            )
        )
    return sorted(found, key=lambda c: (not c.mandatory, GRAVITY.index(c.worst.status), c.limit))


def elsewhere(run: Run, cluster: Cluster) -> list[str]:
    """Names of the cluster file's limits that are not for this run: of other nodes, another GPU or backend."""
    return [*cluster.elsewhere, *(limit.name for limit in cluster.limits if not limit.holds_in(run.scope))]


def _pattern(metrics: set[str]) -> str:
    """One name, or what several have in common at both ends."""
    if len(metrics) == 1:
        return next(iter(metrics))
    begin = _shared(metrics)
    end = _shared({name[len(begin) :][::-1] for name in metrics})[::-1]
    return f"{begin}*{end}"


def _shared(names: set[str]) -> str:
    """The characters with which all names begin."""
    columns = zip(*names, strict=False)
    return "".join(column[0] for column in takewhile(lambda column: len(set(column)) == 1, columns))


def effect(v: Verdict) -> tuple[float, str]:
    """Sort key: the worst first. A broken equality has no margin and comes before everything."""
    return (-float("inf") if v.margin is None else v.margin, v.check)


def family(metric: str) -> str:
    """The first part of a metric's name.

    >>> family("collectives.all_reduce.busbw")
    'collectives'
    """
    return metric.partition(".")[0]


def params_text(v: Verdict) -> str:
    """The params of a verdict as a table shows them: sizes first."""
    ordered = sorted(v.params.items(), key=lambda item: (item[0] != "bytes", item[0]))
    return " · ".join(param(name, value) for name, value in ordered if (name, value) != ("group", "world"))


def limit_text(v: Verdict) -> str:
    """The bound with its sign: ≥ 330 GB/s."""
    if v.limit_value is None:
        return "–"
    return f"{SIGNS.get(v.bound, '')} {quantity(v.limit_value, v.limit_unit)}"


def value_text(v: Verdict) -> str:
    """The measured value, or a dash."""
    return quantity(v.value, v.limit_unit or v.unit)


def noise_text(v: Verdict) -> str:
    """Half width of the interval as a share of the value, or a dash."""
    return "–" if v.noise is None else f"±{percent(v.noise).lstrip('+')}"
