"""Limits that are a share of what the hardware can do, turned into plain limits of this cluster.

`of = "hardware"` in a cluster file: the bound is a share of the line rate (collectives, links) or of the data
sheet's peak (FLOP/s, memory). So one file serves any number of nodes, and a copy of it for other GPUs stays right.
The result is a plain Limit in the metric's own unit, whose source says how it came about.

>>> from clusters.loader import load
>>> h100 = load("h100-sxm-ndr400")
>>> next(limit.value for limit in h100.limits if limit.name == "gemm_possible")
989000000000000.0
"""

from __future__ import annotations

import dataclasses
from fnmatch import fnmatchcase

from clusters.cluster import Cluster
from clusters.limits import Limit
from clusters.line_rate import OPS, Fabric, fabric_of, line_rate
from clusters.table import ClusterError, near

COLLECTIVES = tuple(f"collectives.{op}.busbw" for op in OPS)
METRICS = (
    *COLLECTIVES, "links.bandwidth", "links.flows.bandwidth", "gemm.flops", "training.flops", "memory.copy.bandwidth",
)  # fmt: skip


def resolve(limit: Limit, *, cluster: Cluster, algorithm: str = "") -> tuple[Limit, ...]:
    """A limit whose bound is a share of the hardware, as one plain limit for every metric that its pattern meets.

    A collective's line rate is that of `algorithm` ("any" unless told) among the ranks of the group that the limit's
    `where` names. Raises ClusterError where the cluster file does not say what hardware it is, or where nothing is
    known of the metric, the group or the algorithm.
    """
    where = f"{cluster.path} [limits.{limit.name}]"
    if cluster.gpu is None:
        raise ClusterError(f'{where}: of = "hardware" needs to know it: set gpu and gpus_per_node')
    met = [metric for metric in METRICS if fnmatchcase(metric, limit.metric)]
    if not met:
        raise ClusterError(
            f'{where}: of = "hardware" knows nothing of {limit.metric!r}{near(limit.metric, METRICS)}; '
            f"it knows {', '.join(METRICS)}"
        )
    try:
        return tuple(_plain(limit, metric, cluster, algorithm, several=len(met) > 1) for metric in met)
    except ValueError as error:
        raise ClusterError(f"{where}: {error}") from None


def _plain(limit: Limit, metric: str, cluster: Cluster, algorithm: str, *, several: bool) -> Limit:
    where = limit.where
    if metric == "links.flows.bandwidth":  # of as many flows as make the bisection: one from every other rank
        where = {**where, "flows": cluster.nodes * cluster.ranks_per_node // 2}
    whole, unit, what = _capability(metric, cluster, algorithm, group=str(limit.where.get("group", "")))
    return dataclasses.replace(
        limit,
        name=f"{limit.name}.{metric.split('.')[1]}" if several else limit.name,
        metric=metric,
        unit=unit,
        of="value",
        where=where,
        source=f"{limit.source}; {limit.value:g} of {whole:.4g} {unit}, {what}",
        **{limit.bound: limit.value * whole},  # type: ignore[arg-type]
    )


def _capability(metric: str, cluster: Cluster, algorithm: str, *, group: str) -> tuple[float, str, str]:
    """(how much, unit, of what) the hardware can do at most."""
    assert cluster.gpu is not None
    if metric in COLLECTIVES:
        rate = line_rate(metric.split(".")[1], fabric=_among(group, cluster), algorithm=algorithm or "any")
        return rate.value, rate.unit, f"line rate of {algorithm or 'any'} in a {group}: {rate.formula}"
    if metric == "links.bandwidth":
        rate = line_rate("send_recv", fabric=fabric_of(cluster), algorithm=algorithm or "direct")
        return rate.value, rate.unit, f"line rate of a pair: {rate.formula}"
    if metric == "links.flows.bandwidth":
        return fabric_of(cluster).bisection, "B/s", "the bisection, one direction"
    if algorithm:
        raise ValueError(f"algorithm goes with collectives and links, not with {metric}: leave it out")
    gpu = cluster.gpu
    if metric == "memory.copy.bandwidth":
        return gpu.memory_bandwidth, "B/s", f"memory of {gpu.sku}"
    return gpu.bf16_flops, "FLOP/s", f"dense bf16 peak of {gpu.sku}"


def _among(group: str, cluster: Cluster) -> Fabric:
    """The fabric that the ranks of a group have to themselves."""
    if group == "world":
        return fabric_of(cluster)
    if group == "node":
        return fabric_of(cluster, nodes=1)
    if group == "rail" and cluster.gpus_per_node and cluster.nodes_per_domain == 1:
        return Fabric(
            domains=cluster.nodes, gpus_per_domain=1, network=cluster.network.node_rate / cluster.gpus_per_node,
            in_network=cluster.network.in_network,
        )  # fmt: skip
    raise ValueError(
        f'the line rate depends on the group: where = {{ group = "world" }}, "node" or "rail", not "{group}"'
    )
