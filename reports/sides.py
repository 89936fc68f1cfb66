"""The two sides of a comparison: their runs, and whether they are the same experiment at all.

A side keeps what is compared and nothing else, so that two large runs never lie in memory together.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from reports import index, runs
from reports.bootstrap import FEW
from reports.campaign import flat
from reports.evidence import listed
from reports.numbers import Number, numbers
from reports.runs import RunError, StoredRun
from reports.units import without_samples


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of a comparison: repetitions of the same campaign on the same machine."""

    name: str
    runs: tuple[StoredRun, ...]
    numbers: tuple[tuple[Number, ...], ...]  # of each run

    @classmethod
    def of(cls, name: str, *stored: StoredRun) -> Side:
        """A side without what a comparison does not look at: records, and the samples of many units."""
        kept = tuple(dataclasses.replace(each, measurements=()) for each in stored)
        return cls(name=name, runs=kept, numbers=tuple(tuple(map(_light, numbers(each))) for each in stored))


def load_side(name: str) -> Side:
    """The runs of one side. RunError where one cannot be read or two have one id."""
    parts = name.split("+")
    stored = [runs.load(part, measurements=False) for part in parts]
    ids = [each.run.id for each in stored]
    if len(set(ids)) < len(ids):
        raise RunError(f"{name}: the same run twice ({listed(sorted(ids))}); repetitions are runs of their own")
    return Side(
        name=ids[0] if len(ids) == 1 else f"{ids[0]} and {len(ids) - 1} more",
        runs=tuple(stored),
        numbers=tuple(tuple(map(_light, index.numbers_of(Path(part)))) for part in parts),
    )


def _light(number: Number) -> Number:
    """A number without its samples, where there are so many units that their medians say all."""
    if len(number.units) <= FEW:
        return number
    return dataclasses.replace(number, units=without_samples(number.units))


def refuse_changed_units(before: Side, after: Side) -> None:
    """RunError for a metric whose unit or direction changed: nobody can compare it."""
    seen = {e.metric: e for stored in before.runs for e in stored.run.expected}
    for e in (e for stored in after.runs for e in stored.run.expected):
        old = seen.get(e.metric)
        if old and (old.unit, old.better) != (e.unit, e.better):
            raise RunError(
                f"{e.metric} changed its unit: {old.unit} ({old.better} is better) in {before.name}, "
                f"{e.unit} ({e.better} is better) in {after.name}; measure both with one version"
            )


def differences(before: Side, after: Side) -> list[str]:
    """Differences that make two sides two experiments."""
    strange = []
    a, b = before.runs[0].run, after.runs[0].run
    facts = [("suite", a.suite, b.suite), ("nodes", a.nodes, b.nodes)]
    facts += [(name, a.scope.get(name), b.scope.get(name)) for name in ("sku", "backend")]
    strange += [f"{name} {x} against {y}" for name, x, y in facts if x != y]
    only_a, only_b = ({e.key for e in x.expected} - {e.key for e in y.expected} for x, y in ((a, b), (b, a)))
    shared = {e.metric for e in a.expected} & {e.metric for e in b.expected}
    for metric in sorted(shared):
        sets = [sorted(params for name, params in only if name == metric) for only in (only_a, only_b)]
        if any(sets):
            sides = [
                f"{listed(found)} only in {side.name}"
                for found, side in zip(sets, (before, after), strict=True)
                if found
            ]
            strange.append(f"{metric}: {', '.join(sides)}")
    return strange


def environment(before: Side, after: Side) -> list[tuple[str, str, str]]:
    """Facts that differ: versions, drivers, the cluster file."""
    a, b = (facts(side.runs) for side in (before, after))
    return [
        (name, a.get(name, "not known"), b.get(name, "not known")) for name in {**a, **b} if a.get(name) != b.get(name)
    ]


def facts(stored: Iterable[StoredRun]) -> dict[str, str]:
    """Facts of some runs and their nodes, by name; where they differ, all values in one line."""
    values: dict[str, set[str]] = defaultdict(set)
    for each in stored:
        values["cluster file"].add(each.run.cluster_sha256[:12])
        values["revision"].add(each.run.revision or "unknown")
        for environment in each.latest_environments.values():
            for name, value in flat(environment.facts):
                if name != "hostname":
                    values[name].add(value)
    return {name: listed(sorted(found)) for name, found in values.items()}
