"""Does every device reach the bandwidth of its memory, and copy right?"""

from __future__ import annotations

from typing import Any

from benchmarks.memory.spec import Memory
from clusters.cluster import Cluster
from suites.needs import needs


def copy(cluster: Cluster) -> Memory:
    """The copy of [memory] bytes."""
    return Memory(bytes=cluster.setting("memory", "bytes", Memory.bytes))


@needs(copy, suites=("smoke", "acceptance", "nightly", "node"))
def test_every_device_copies_right(verdicts: Any) -> None:
    """No word differs from its source."""
    verdicts("memory.copy.wrong_elements").must_pass()


@needs(copy, suites=("smoke", "acceptance", "nightly", "node"))
def test_every_device_reaches_its_memory_bandwidth(verdicts: Any) -> None:
    """B/s read plus written: against the floor where there is one, and against the other devices."""
    verdicts("memory.copy.bandwidth").must_pass()
