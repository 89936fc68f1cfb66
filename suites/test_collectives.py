"""Do the collectives give the right result, and how fast? Every operation, over all ranks and in groups.

[collectives] of the cluster file may set any field of the spec (benchmarks/collectives/spec.py) for all sweeps.
Between nodes, each node alone (its GPUs' own links) and the rails (NIC i of every node: one after the other, and
all at once) are swept too: over all ranks, the algorithm can hide a weak NIC.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from benchmarks.collectives.spec import OPS, Collective
from clusters.cluster import Cluster
from suites.needs import needs

CORE = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce")
GPU_SIZES = (8, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20, 1 << 30, 8 << 30)
SLOWEST = 1e9  # B/s: a collective slower than this runs into its time-out


def sweeps(cluster: Cluster) -> list[Collective]:
    """One sweep per operation over all ranks; between nodes also within every node, and along every rail."""
    large = cluster.nodes > 1 or cluster.gpu is not None
    found = [sweep(cluster, op=op) for op in (OPS if large else CORE)]
    if cluster.nodes > 1 and ranks_per_node(cluster) > 1:
        found += [sweep(cluster, op=op, group="node") for op in CORE]
        for op in ("all_reduce", "send_recv"):
            found += [sweep(cluster, op=op, group="rail", together=together) for together in (True, False)]
    return found


def sweep(cluster: Cluster, *, op: str, group: str = "world", together: bool = True) -> Collective:
    """One sweep, with what the cluster file sets, else the default; groups at the two largest sizes only."""
    default = {"sizes": GPU_SIZES, "dtype": "bf16", "budget_s": 1.0} if cluster.gpu else {}
    chosen: dict[str, Any] = {"op": op, "group": group, "together": together}
    for field in dataclasses.fields(Collective):
        if field.name not in chosen:
            chosen[field.name] = cluster.setting("collectives", field.name, default.get(field.name, field.default))
    if group != "world":
        chosen["sizes"] = tuple(sorted(chosen["sizes"])[-2:])
    if "limit_s" not in cluster.settings.get("collectives", {}):
        turns = 1 if together else ranks_per_node(cluster)
        repetitions = chosen["min_repetitions"] + 3
        worst = [max(3 * chosen["budget_s"], repetitions * size / SLOWEST) + 2.0 for size in chosen["sizes"]]
        chosen["limit_s"] = max(chosen["limit_s"], 30.0 + turns * sum(worst))
    return Collective(**chosen)


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
