"""Is every link as good as the others, both ways? Latency and bandwidth of every ordered pair of ranks.

[links] of the cluster file may set `latency_bytes`, `bandwidth_bytes`, `latency_budget_s` and
`bandwidth_budget_s` (seconds per ordered pair).
"""

from __future__ import annotations

from typing import Any

from benchmarks.links.spec import Links
from clusters.cluster import Cluster
from suites.needs import needs

SETTINGS = ("latency_bytes", "bandwidth_bytes", "latency_budget_s", "bandwidth_budget_s")


def tournament(cluster: Cluster) -> Links:
    """Every pair of the cluster."""
    default = Links()
    return Links(**{key: cluster.setting("links", key, getattr(default, key)) for key in SETTINGS})


@needs(tournament, suites=("smoke", "acceptance", "nightly"))
def test_every_message_arrives_unchanged(verdicts: Any) -> None:
    """Every byte of every timed message, at its receiver."""
    verdicts("links.wrong_elements").must_pass()


@needs(tournament, suites=("acceptance", "nightly"))
def test_every_link_is_quick(verdicts: Any) -> None:
    """Half the round trip of every pair."""
    verdicts("links.latency").must_pass()


@needs(tournament, suites=("acceptance", "nightly"))
def test_every_link_is_wide(verdicts: Any) -> None:
    """One-way bandwidth of every ordered pair."""
    verdicts("links.bandwidth").must_pass()
