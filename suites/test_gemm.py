"""Does every device compute as fast as it should, and right?"""

from __future__ import annotations

from typing import Any

from benchmarks.gemm.spec import Gemm
from clusters.cluster import Cluster
from suites.needs import needs


def products(cluster: Cluster) -> Gemm:
    """The products of [gemm] shapes and dtypes."""
    return Gemm(
        shapes=tuple(map(str, cluster.setting("gemm", "shapes", ()) or ("1024",))),
        dtypes=cluster.setting("gemm", "dtypes", ()),
    )


@needs(products, suites=("smoke", "acceptance", "nightly", "node"))
def test_every_device_multiplies_right(verdicts: Any) -> None:
    """The error of sampled rows stays within the dtype's own rounding."""
    verdicts("gemm.error").must_pass()


@needs(products, suites=("smoke", "acceptance", "nightly", "node"))
def test_every_device_reaches_its_rate(verdicts: Any) -> None:
    """FLOP/s: against the floor where there is one, and against the other devices."""
    verdicts("gemm.flops").must_pass()
