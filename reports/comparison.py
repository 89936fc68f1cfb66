"""When two numbers of two runs may be compared: the comparison key.

The key is metric, params, SKU, ranks and backend, and for what spans nodes the node count. Driver, NCCL,
torch and firmware are not in it: they are what changes overnight, and the comparison is there to show
what that did.

>>> len(baseline_of([], Evidence([]), configs={}, scope={}))
0
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.measurement import Config, Expected, Scalar, params_key
from reports.evidence import Evidence
from reports.statistics import Estimate, Estimates

Key = tuple[str, ...]
Baseline = Mapping[Key, Estimate]
NODE_LOCAL = ("rank", "node", "nic")  # metrics of one device or node: how many others there are does not matter


def comparison_key(expected: Expected, *, configs: Mapping[str, Config], scope: Mapping[str, Scalar]) -> Key:
    """What must agree before two values of one metric are compared."""
    place = configs[expected.config].place if expected.config in configs else {}
    across = () if expected.per in NODE_LOCAL else (str(place.get("nodes", "")), str(expected.units))
    return (
        expected.metric, params_key(expected.params), expected.unit, expected.better, str(scope.get("sku", "")),
        str(place.get("backend", "")), str(place.get("device", "")), str(place.get("ranks_per_node", "")), *across,
    )  # fmt: skip


def baseline_of(
    expected: Iterable[Expected], evidence: Evidence, *,
    configs: Mapping[str, Config], scope: Mapping[str, Scalar],
) -> dict[Key, Estimate]:  # fmt: skip
    """What a run gives later runs to be held against: per key the median over its units.

    Its interval is the median over the units' intervals. What was not soundly measured is left out.
    """
    found = {}
    for e in expected:
        attempts = evidence.attempts(e)
        if attempts and not attempts[-1].problem:
            found[comparison_key(e, configs=configs, scope=scope)] = typical(attempts[-1].estimates)
    return found


def typical(units: Estimates) -> Estimate:
    """The median unit: median of the medians and of both ends of their intervals."""
    median, low, high = (float(np.median(column)) for column in (units.median, units.low, units.high))
    return Estimate(median, low, high, int(units.n.min()))


def pack(baseline: Baseline) -> list[list[Any]]:
    """A baseline as plain rows, so that a run keeps what it was held against."""
    return [[list(key), list(value)] for key, value in baseline.items()]


def unpack(rows: Iterable[Sequence[Any]]) -> dict[Key, Estimate]:
    """The baseline that `pack` made rows of."""
    return {tuple(key): Estimate(*value) for key, value in rows}
