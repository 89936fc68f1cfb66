"""Do the links themselves do what they should, without a communication library? NVLink, and every NIC.

Asked of clusters whose file has such links: GPUs of NVIDIA on NVLink, and InfiniBand or RoCE between nodes. A tool that
a node lacks makes its numbers `missing`, with what to install. [hardware] of the cluster file may set any field of
the spec (benchmarks/hardware/spec.py) but the tool.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from benchmarks.hardware.spec import Hardware
from clusters.cluster import Cluster
from suites.needs import needs
from suites.test_links import tournament

TOOL_S = 5.0  # one run of ib_write_* beside what it measures: two processes start, memory is registered
NVBANDWIDTH_S = 60.0  # one run
WHERE = "of NVIDIA GPUs on NVLink, or of nodes on InfiniBand or RoCE"


def tools(cluster: Cluster) -> list[Hardware]:
    """One config a tool, of those that this cluster has links for."""
    if cluster.gpu is None or not cluster.gpus_per_node:
        return []
    found = []
    if cluster.gpu.names[0].startswith("NVIDIA") and cluster.gpu.nvlink_bandwidth:
        if cluster.gpus_per_node * cluster.nodes_per_domain > 1:
            found.append("symmetric_memory")
        if cluster.gpus_per_node > 1:
            found.append("nvbandwidth")
    if cluster.nodes > 1 and cluster.network.kind in ("infiniband", "roce"):
        found += ["ib_write_lat", "ib_write_bw"]
    return [tool(cluster, name) for name in found]


def tool(cluster: Cluster, name: str) -> Hardware:
    """The config of one tool, with what the cluster file sets, and time enough."""
    chosen: dict[str, Any] = {"tool": name}
    default = {"domain_nodes": cluster.nodes_per_domain, "nics": cluster.network.nics_per_node or 1}
    for field in dataclasses.fields(Hardware):
        if field.name not in chosen:
            chosen[field.name] = cluster.setting("hardware", field.name, default.get(field.name, field.default))
    if "limit_s" not in cluster.settings.get("hardware", {}):
        runs = chosen["repetitions"]
        seconds = {
            "nvbandwidth": runs * NVBANDWIDTH_S,
            "ib_write_lat": 3 * runs * TOOL_S,
            "ib_write_bw": 6 * runs * (TOOL_S + chosen["duration_s"]),
        }
        chosen["limit_s"] = 60.0 + seconds.get(name, 240.0)
    return Hardware(**chosen)


def asked(cluster: Cluster) -> list[Any]:
    """The tools; where none has anything to measure, the pairs that are measured anyway."""
    return tools(cluster) or [tournament(cluster)]


@needs(asked, suites=("acceptance", "nightly", "fabric"))
def test_no_link_is_slow_to_answer(verdicts: Any) -> None:
    """A word from GPU to GPU, a load from another GPU, and a small write from NIC to NIC: its 99th percentile too."""
    verdicts("links.hardware.latency*").must_pass(only=WHERE)


@needs(asked, suites=("acceptance", "nightly", "fabric"))
def test_no_link_is_narrow(verdicts: Any) -> None:
    """Copies between GPUs, and writes from every NIC to the next node, one way and both."""
    verdicts("links.hardware.*bandwidth").must_pass(only=WHERE)


@needs(asked, suites=("acceptance", "nightly", "fabric"))
def test_every_word_arrives_unchanged(verdicts: Any) -> None:
    """Every word of every trip between two GPUs."""
    verdicts("links.hardware.wrong_elements").must_pass(only=WHERE)
