"""Do the collectives give the right result, and how fast? Every operation, over all ranks and in groups.

[collectives] of the cluster file may set any field of the spec (benchmarks/collectives/spec.py) for all sweeps.
Between nodes, each node alone (its GPUs' own links) and the rails (NIC i of every node: one after the other, and
all at once) are swept too, and with NCCL pinned: over all ranks, the algorithm can hide a weak NIC.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from benchmarks.collectives.spec import OPS, Collective
from clusters.cluster import Cluster
from suites.needs import needs

CORE = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce")
GPU_SIZES = (8, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20, 1 << 30, 8 << 30)
OTHER_WAYS = (("all_gather", "in_place"), ("reduce_scatter", "in_place"), ("all_reduce", "deferred"))
PINNED = (("all_reduce", "ring"), ("all_gather", "ring"), ("all_reduce", "tree"))
SLOWEST = 1e9  # B/s: a collective slower than this runs into its time-out


def sweeps(cluster: Cluster) -> list[Collective]:
    """One sweep per operation over all ranks; between nodes also within every node, and along every rail.

    On GPUs also the other way to call what has two: in place, and started first, then waited for.
    """
    large = cluster.nodes > 1 or cluster.gpu is not None
    found = [sweep(cluster, op=op) for op in (OPS if large else CORE)]
    if cluster.gpu is not None:
        found += [sweep(cluster, op=op, way=way) for op, way in OTHER_WAYS]
    if cluster.nodes > 1 and ranks_per_node(cluster) > 1:
        found += [sweep(cluster, op=op, group="node") for op in CORE]
        for op in ("all_reduce", "send_recv"):
            found += [sweep(cluster, op=op, group="rail", together=together) for together in (True, False)]
    return found


def sweep(
    cluster: Cluster, *, op: str, group: str = "world", together: bool = True, variant: str = "", way: str = ""
) -> Collective:
    """One sweep, with what the cluster file sets, else the default; groups and variants at the two largest sizes."""
    default = {"sizes": GPU_SIZES, "dtype": "bf16", "budget_s": 1.0} if cluster.gpu else {}
    chosen: dict[str, Any] = {"op": op, "group": group, "together": together, "variant": variant}
    chosen |= {way: True} if way else {}
    for field in dataclasses.fields(Collective):
        if field.name not in chosen:
            chosen[field.name] = cluster.setting("collectives", field.name, default.get(field.name, field.default))
    if group != "world" or variant:
        chosen["sizes"], chosen["factor"] = tuple(Collective(**chosen).sweep()[-2:]), 0
    if "limit_s" not in cluster.settings.get("collectives", {}):
        turns = 1 if together else ranks_per_node(cluster)
        repetitions = chosen["min_repetitions"] + 3
        sizes = Collective(**chosen).sweep()
        worst = [max(3 * chosen["budget_s"], repetitions * size / SLOWEST) + 2.0 for size in sizes]
        chosen["limit_s"] = max(chosen["limit_s"], 30.0 + turns * sum(worst))
    return Collective(**chosen)


def pinned(cluster: Cluster) -> list[Collective]:
    """Between nodes of GPUs: NCCL pinned to its ring, to its tree, and to the network alone; each a launch of its own.

    The network alone only where every GPU has a NIC: ranks that share one reach each other without the wire.
    """
    if cluster.gpu is None or cluster.nodes < 2:
        return []
    found = [sweep(cluster, op=op, variant=variant) for op, variant in PINNED]
    if cluster.network.kind in ("infiniband", "roce") and cluster.network.nics_per_node == cluster.gpus_per_node:
        found += [sweep(cluster, op=op, variant="network") for op in ("all_reduce", "all_to_all")]
    return found


def ranks_per_node(cluster: Cluster) -> int:
    """Of a cluster file: one per GPU where it names GPUs."""
    return cluster.gpus_per_node or cluster.ranks_per_node


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


@needs(lambda cluster: pinned(cluster) or sweeps(cluster), suites=("acceptance", "nightly"))
def test_ring_tree_and_network_alone_reach_the_wire(verdicts: Any) -> None:
    """With NCCL's choice pinned, and with no NVLink to hide a weak NIC behind: exact, and as fast as the wire."""
    verdicts("collectives.*.*.*").must_pass(only="between nodes of GPUs")
