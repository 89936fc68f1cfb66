"""The least time a small message can take: hops that no message skips, and NCCL's own estimate beside it.

Two different things. `latency_floor` is physics: a measured time below it is `impossible`. `nccl_estimate` is the
library's tuning model, with its constants: what to expect of a healthy NCCL, no bound on anything.

>>> from clusters.line_rate import Fabric
>>> fabric = Fabric(domains=8, gpus_per_domain=8, nvlink=450e9, network=400e9)
>>> hops("all_reduce", fabric=fabric, algorithm="ring")
(112, 14)
>>> round(nccl_estimate("tree", fabric=fabric) * 1e6, 1)
45.2
"""

from __future__ import annotations

import math

from clusters.line_rate import OPS, Fabric

# Below what any hardware has shown. Source: reasoned; the quickest published are 1.7 us GPU to GPU over NVLink (pointer
# chase, GB200) and 1.8 us over InfiniBand inside a rack.
NVLINK_HOP_S = 0.3e-6
NETWORK_HOP_S = 0.5e-6


def hops(op: str, *, fabric: Fabric, algorithm: str = "any") -> tuple[int, int]:
    """NVLink and network hops one after the other, at least: (inside domains, across domains).

    any: one hop from the farthest GPU. ring: n-1 steps, of which k-1 cross domains; twice that for all_reduce.
    tree (all_reduce): up and down half a chain of g GPUs and a binary tree of k domains.
    Raises ValueError for an unknown operation or a pair of operation and algorithm without formula.
    """
    if op not in OPS:
        raise ValueError(f"no operation {op!r}: there are {', '.join(OPS)}")
    n, g, k = fabric.ranks, fabric.gpus_per_domain, fabric.domains
    if algorithm == "any":
        return (1, 0) if k == 1 else (0, 1)
    if algorithm == "ring" and op in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"):
        rounds = 2 if op == "all_reduce" else 1
        return rounds * (n - k), rounds * (k - 1)
    if algorithm == "tree" and op == "all_reduce":
        return 2 * (g // 2), 2 * math.floor(math.log2(k))
    raise ValueError(f"no hops known of {op} by {algorithm!r}: use any; ring; or tree for all_reduce")


def latency_floor(
    op: str,
    *,
    fabric: Fabric,
    algorithm: str = "any",
    nvlink_hop_s: float = NVLINK_HOP_S,
    network_hop_s: float = NETWORK_HOP_S,
) -> float:
    """Seconds that no run of `op` on this fabric goes under: hops x the time of one."""
    if not (nvlink_hop_s > 0 and network_hop_s > 0):
        raise ValueError(f"a hop takes time: {nvlink_hop_s:g} s and {network_hop_s:g} s must be above zero")
    inside, across = hops(op, fabric=fabric, algorithm=algorithm)
    return inside * nvlink_hop_s + across * network_hop_s


def nccl_estimate(algorithm: str, *, fabric: Fabric, vendor: str = "intel", inter_s: float = 0.0) -> float:
    """Seconds of a tiny all_reduce by NCCL's own model (protocol LL), for ring, tree and, on one domain, nvls.

    `vendor` is the host CPU's (intel or amd), `inter_s` the extra latency NCCL found for the network. Tuning constants,
    not limits. Source: NCCL, src/graph/tuning.cc at 5067397c.
    """
    if vendor not in ("intel", "amd"):
        raise ValueError(f"no CPU vendor {vendor!r}: intel or amd")
    g, k = fabric.gpus_per_domain, fabric.domains
    if algorithm == "ring":
        step = max(0.6, 0.0 if k == 1 else {"intel": 1.0, "amd": 2.0}[vendor])
        inside, across = hops("all_reduce", fabric=fabric, algorithm="ring")
        return (6.6 + inside * step + across * 2.7) * 1e-6 + across * inter_s
    if algorithm == "tree":
        return (6.8 + 2 * ((g - 1) * 0.6 + math.log2(k) * 5.0)) * 1e-6 + 2 * math.log2(k) * inter_s
    if algorithm == "nvls" and k == 1:
        return 25e-6
    raise ValueError(f"no model of {algorithm!r} on {k} domains: there are ring, tree, and nvls on one domain")
