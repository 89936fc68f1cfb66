"""Do the collectives give the right result, and how fast? Six operations over all ranks, swept over sizes.

[collectives] of the cluster file may set `sizes` (bytes), `dtype` and `budget_s` (seconds per size).
"""

from __future__ import annotations

from typing import Any

from benchmarks.collectives.spec import OPS, Collective
from clusters.cluster import Cluster
from suites.needs import needs

SIZES = (8, 64 << 10, 4 << 20)


def sweeps(cluster: Cluster) -> list[Collective]:
    """One sweep per operation."""

    def setting(key: str, default: Any) -> Any:
        return cluster.setting("collectives", key, default)

    return [
        Collective(
            op=op, sizes=setting("sizes", SIZES), dtype=setting("dtype", "fp32"), budget_s=setting("budget_s", 0.3)
        )
        for op in OPS
    ]


@needs(sweeps, suites=("smoke", "acceptance", "nightly"))
def test_every_result_is_exact(verdicts: Any) -> None:
    """Every element of every result of every timed call, on every rank."""
    verdicts("collectives.*.wrong_elements").must_pass()


@needs(sweeps, suites=("acceptance", "nightly"))
def test_collectives_reach_the_wire(verdicts: Any) -> None:
    """Bus bandwidth at every size."""
    verdicts("collectives.*.busbw").must_pass()


@needs(sweeps, suites=("acceptance", "nightly"))
def test_small_collectives_are_quick(verdicts: Any) -> None:
    """Latency at the small sizes."""
    verdicts("collectives.*.latency").must_pass()
