"""What a run soundly measured, number by number, ready to be compared with other runs.

A number is one metric with its params: its units (ranks, pairs, nodes), each with samples and an estimate.
What was not soundly measured is not among them; `reports.judge` says why.

>>> numbers.__name__
'numbers'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.measurement import Expected, params_key
from reports.comparison import Key, comparison_key, typical
from reports.quantities import param
from reports.runs import StoredRun
from reports.statistics import Estimate, Estimates
from reports.units import Unit


@dataclass(frozen=True, kw_only=True)
class Number:
    """One measured number of one run."""

    expected: Expected
    key: Key
    units: Sequence[Unit]
    estimates: Estimates  # of every unit, in the order of `units`

    @property
    def typical(self) -> Estimate:
        """The median unit."""
        return typical(self.estimates)

    @property
    def name(self) -> tuple[str, str]:
        """Metric and params, whatever it was measured on."""
        return self.expected.metric, params_key(self.expected.params)


def numbers(stored: StoredRun) -> list[Number]:
    """The sound numbers of a run, in the order in which they were expected; of each the latest attempt."""
    configs = {config.id: config for config in stored.run.configs}
    found = []
    for e in stored.run.expected:
        attempts = stored.evidence.attempts(e)
        if attempts and not attempts[-1].problem:
            key = comparison_key(e, configs=configs, scope=stored.run.scope)
            found.append(Number(expected=e, key=key, units=attempts[-1].units, estimates=attempts[-1].estimates))
    return found


def title(e: Expected) -> str:
    """Metric and params in one line: links.bandwidth 256 MiB."""
    shown = sorted(e.params.items(), key=lambda item: (item[0] != "bytes", item[0]))
    return " ".join([e.metric, *(param(k, v) for k, v in shown if (k, v) != ("group", "world"))])
