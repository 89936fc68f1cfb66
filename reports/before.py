"""What a run is held against on its page: a baseline run's numbers and facts, and the nights before it.

    before = Before.of(stored, baseline=runs.load("runs/earlier"), nights=archive.nights(Path("runs")))
    before.value(expected)          # the baseline's median unit, or None
    before.changed(stored)          # driver: 580.65 -> 580.95

A campaign that was given a baseline keeps its numbers and facts in the run, so that the page can be made again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.measurement import Config, Expected, Scalar
from reports.archive import Night
from reports.comparison import Baseline, comparison_key, pack
from reports.runs import StoredRun
from reports.sides import facts
from reports.statistics import Estimate

BASELINE = "baseline"  # the event that keeps it: run, values, facts


@dataclass(frozen=True, kw_only=True)
class Before:
    """The other side of a page's comparisons; empty where there is none."""

    name: str = ""  # the baseline run
    values: Baseline = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)  # of its environment
    nights: tuple[Night, ...] = ()  # earlier runs and this one, oldest first
    configs: Mapping[str, Config] = field(default_factory=dict)
    scope: Mapping[str, Scalar] = field(default_factory=dict)

    @classmethod
    def of(cls, stored: StoredRun, *, baseline: StoredRun | None = None, nights: Sequence[Night] = ()) -> Before:
        """`baseline` where one is given, else the one that the campaign kept; nights that began later are left out."""
        kept: Mapping[str, Any] = next((event.detail for event in stored.events if event.kind == BASELINE), {})
        name, known = str(kept.get("run", "")).rstrip("/"), kept.get("facts", {})
        values: Baseline = stored.baseline or {}
        if baseline is not None:
            name, values, known = baseline.run.id, baseline.as_baseline(), facts([baseline])
        own = [night for night in nights if night.run == stored.run.id]
        earlier = [night for night in nights if own and night.started < own[0].started]
        return cls(
            name=name.rpartition("/")[2],
            values=values,
            facts=known,
            nights=(*earlier, *own),
            configs={config.id: config for config in stored.run.configs},
            scope=stored.run.scope,
        )

    def value(self, e: Expected) -> Estimate | None:
        """What the baseline measured of the same number."""
        return self.values.get(comparison_key(e, configs=self.configs, scope=self.scope)) if self.values else None

    def changed(self, stored: StoredRun) -> list[tuple[str, str, str]]:
        """Facts of the environment that differ from the baseline's: name, before, now."""
        if not self.facts:
            return []
        now = facts([stored])
        names = [name for name in {**self.facts, **now} if self.facts.get(name) != now.get(name)]
        return [(name, self.facts.get(name, "not known"), now.get(name, "not known")) for name in names]


def keep(name: str, baseline: StoredRun) -> dict[str, Any]:
    """What a campaign writes into its run of the baseline that it was given."""
    return {"run": name, "values": pack(baseline.as_baseline()), "facts": facts([baseline])}
