"""Is every link as good as the others, both ways? Latency and bandwidth of every ordered pair of ranks.

[links] of the cluster file may set any field of the spec (benchmarks/links/spec.py). Between nodes, both
directions at once, simultaneous flows up to the bisection, and latency under load are measured too.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from benchmarks.links.schedule import num_rounds
from benchmarks.links.spec import Links
from clusters.cluster import Cluster
from reports.culprits import LEAST_NODES
from suites import searchplan
from suites.needs import needs

GPU_SIZES = {"latency_sizes": (8, 1 << 10, 64 << 10), "bandwidth_sizes": (1 << 20, 64 << 20)}
MANY = 64  # ranks; from here on a pair's samples are few, for there are thousands of pairs


def tournament(cluster: Cluster) -> Links:
    """Every pair of the cluster, and between nodes everything that crosses the fabric.

    Nodes of several ranks meet as nodes, all rails at once. Of more than 128, or within a budget that is shorter, they
    meet in a few rounds of random pairs, partners chosen by the leaves that are known.
    """
    per_node = cluster.gpus_per_node or cluster.ranks_per_node
    ranks = cluster.nodes * per_node
    chosen: dict[str, Any] = dict(GPU_SIZES) if cluster.gpu else {}
    if cluster.nodes > 1:
        chosen |= {"both_ways": True, "flows": tuple(sorted({1, max(1, ranks // 4), ranks // 2}))}
        chosen |= {"congestion": ranks >= 4, "max_repetitions": 4 if ranks > MANY else 64}
    asked = {f.name: cluster.setting("links", f.name, chosen.get(f.name, f.default)) for f in dataclasses.fields(Links)}
    places = {name: asked.pop(name) for name in ("leaves", "pods")}
    own = cluster.settings.get("links", {})
    if cluster.nodes >= LEAST_NODES and "meet" not in own:
        budget_s = float(cluster.setting("campaign", "budget_s", 0.0)) or None
        plan = searchplan.campaign(Links(**asked), nodes=cluster.nodes, per_node=per_node, budget_s=budget_s)
        if not plan.full:
            asked |= {"meet": "nodes", "screening": plan.stages[2].num_rounds}
        elif per_node > 1:
            asked |= {"meet": "nodes"}
    if asked["screening"]:
        asked |= places
    if "limit_s" not in own:
        rounds = num_rounds(Links(**asked), nodes=cluster.nodes, per_node=per_node)
        asked["limit_s"] = 120.0 + rounds * 2 * len(list(Links(**asked).kinds())) * 0.15  # of both ends
    return Links(**asked)


@needs(tournament, suites=("smoke", "acceptance", "nightly", "fabric"))
def test_every_message_arrives_unchanged(verdicts: Any) -> None:
    """Every byte of every timed message, at its receiver."""
    verdicts("links.wrong_elements").must_pass()


@needs(tournament, suites=("acceptance", "nightly", "fabric"))
def test_every_link_is_quick(verdicts: Any) -> None:
    """Half the round trip of every pair; between nodes also what load adds to it (links.congestion.*)."""
    verdicts("links.[lc]*").must_pass()


@needs(tournament, suites=("acceptance", "nightly", "fabric"))
def test_every_link_is_wide(verdicts: Any) -> None:
    """Bandwidth of every ordered pair one way; between nodes also both ways, and of simultaneous flows."""
    verdicts("links.*bandwidth").must_pass()


@needs(tournament, suites=("acceptance", "nightly", "fabric"))
def test_many_flows_are_as_wide_as_one(verdicts: Any) -> None:
    """Between nodes: what k flows carry at once, over k times what one carries alone."""
    verdicts("links.flows.scaling").must_pass(only="between nodes")


@needs(tournament, suites=("acceptance", "nightly", "fabric"))
def test_no_node_is_slower_than_its_peers(verdicts: Any) -> None:
    """Between nodes: whoever looks slow is measured again with other partners; what is borne out is accused."""
    verdicts("links.suspects").must_pass(only="between three or more nodes")
