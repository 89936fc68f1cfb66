"""What a ratio is a ratio to: another metric of the same run, or the same number of a baseline run.

>>> limit = Limit(name="l", metric="m", unit="1", source="x", floor=0.9, of="baseline")
>>> run = Run(id="r", suite="s", cluster="c", cluster_sha256="", started_at="")
>>> e = Expected(metric="m", unit="s", better="lower", config="c", test="t")
>>> References(run, Evidence([]), baseline=None).of(e, limit).status
'no_baseline'
"""

from __future__ import annotations

import math
from collections import defaultdict

from benchmarks.measurement import Expected, Run
from clusters.limits import Limit
from reports.comparison import Baseline, comparison_key, typical
from reports.evidence import Evidence, Problem
from reports.statistics import Estimate


class References:
    """Looks up the other side of a ratio, once each."""

    def __init__(self, run: Run, evidence: Evidence, *, baseline: Baseline | None) -> None:
        self.run, self.evidence, self.baseline = run, evidence, baseline or {}
        self.configs = {config.id: config for config in run.configs}
        self.by_metric: dict[str, list[Expected]] = defaultdict(list)
        self.by_config: dict[tuple[str, str], list[Expected]] = defaultdict(list)
        for e in run.expected:
            self.by_metric[e.metric].append(e)
            self.by_config[e.metric, e.config].append(e)
        self.found: dict[tuple[str, str, tuple[str, str]], Estimate | Problem] = {}

    def of(self, e: Expected, limit: Limit) -> Estimate | Problem:
        """What `limit`'s ratio divides `e` by: a positive finite Estimate, or why there is none."""
        if limit.of == "baseline":
            key = comparison_key(e, configs=self.configs, scope=self.run.scope)
            found = self.baseline.get(key)
            if found is None:
                return Problem("no_baseline", "no comparable earlier run: the absolute limits still judge")
            return _positive(found, "the baseline")
        wanted = self._wanted(e, limit)
        where = "".join(f" {k}={v}" for k, v in limit.ratio_where.items())
        if not wanted:
            return Problem("missing", f"the reference {limit.ratio_to}{where} is not among what this run expects")
        if len(wanted) > 1:
            said = f"{len(wanted)} numbers are {limit.ratio_to}{where}: say in ratio_where which one is meant"
            return Problem("error", said)
        if wanted[0] is e:
            return Problem("error", f"a ratio of {e.metric} to itself is always 1: it says nothing")
        key_of = limit.name, wanted[0].config, wanted[0].key
        if key_of not in self.found:
            self.found[key_of] = self._measured(wanted[0], limit)
        return self.found[key_of]

    def _wanted(self, e: Expected, limit: Limit) -> list[Expected]:
        """The expected numbers that may be meant: of the same config or device, with the same params if any."""
        name = limit.ratio_to or ""
        device = self._device(e)
        here = [o for o in self.by_metric[name] if self._device(o) == device]
        for others in (self.by_config[name, e.config], here):
            meant = [o for o in others if all(o.params.get(k) == v for k, v in limit.ratio_where.items())]
            if meant:
                shared = e.params.keys() - limit.ratio_where.keys()
                alike = [o for o in meant if all(o.params[k] == e.params[k] for k in shared & o.params.keys())]
                return alike or meant
        return []

    def _device(self, e: Expected) -> str:
        """cpu or cuda: a ratio of two devices' numbers would mean nothing."""
        return str(self.configs[e.config].place.get("device", "")) if e.config in self.configs else ""

    def _measured(self, other: Expected, limit: Limit) -> Estimate | Problem:
        attempts = self.evidence.attempts(other)
        if not attempts:
            return Problem("missing", f"the reference {limit.ratio_to} was never measured")
        if problem := attempts[-1].problem:
            return Problem("missing", f"the reference {limit.ratio_to} cannot count: {problem.reason}")
        value = typical(attempts[-1].estimates)
        scaled = Estimate(value.median * limit.scale, value.low * limit.scale, value.high * limit.scale, value.n)
        return _positive(scaled, f"the reference {limit.ratio_to}")


def _positive(reference: Estimate, what: str) -> Estimate | Problem:
    """A reference that can divide, or why it cannot."""
    if all(0 < value < math.inf for value in reference[:3]):
        return reference
    return Problem("error", f"{what} is not positive and finite: no ratio to it has a meaning")
