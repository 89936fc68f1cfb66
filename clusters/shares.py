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
from collections.abc import Mapping
from fnmatch import fnmatchcase

from clusters.cluster import Cluster
from clusters.limits import Limit, Scalar
from clusters.line_rate import OPS, Fabric, fabric_of, line_rate
from clusters.table import ClusterError, near

COLLECTIVES = tuple(f"collectives.{op}.busbw" for op in OPS)
PINNED = (  # sweeps with NCCL pinned: the name says to which algorithm, or to the network alone
    "collectives.all_reduce.ring.busbw", "collectives.all_gather.ring.busbw", "collectives.all_reduce.tree.busbw",
    "collectives.all_reduce.network.busbw", "collectives.all_to_all.network.busbw",
)  # fmt: skip
LINKS = (
    "links.bandwidth", "links.both_ways.bandwidth", "links.flows.bandwidth", "links.hardware.bandwidth",
    "links.hardware.both_ways.bandwidth",
)  # fmt: skip
METRICS = (*COLLECTIVES, *PINNED, *LINKS, "gemm.flops", "training.flops", "memory.copy.bandwidth")


def resolve(limit: Limit, *, cluster: Cluster, algorithm: str = "") -> tuple[Limit, ...]:
    """A limit whose bound is a share of the hardware, as one plain limit for every metric that its pattern meets.

    A collective's line rate is that of `algorithm` ("any" unless told) among the ranks of the group that the limit's
    `where` names. Raises ClusterError where the cluster file does not say what hardware it is, or where nothing is
    known of the metric, the group or the algorithm.
    """
    where = f"{cluster.path} [limits.{limit.name}]"
    if cluster.gpu is None:
        raise ClusterError(f'{where}: of = "hardware" needs to know it: set gpu and gpus_per_node')
    met = [
        metric for metric in METRICS
        if fnmatchcase(metric, limit.metric) and (metric not in PINNED or limit.metric.count(".") == 3)
    ]  # fmt: skip
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
    whole, unit, what = _capability(metric, cluster, algorithm, limit.where)
    return dataclasses.replace(
        limit,
        name=f"{limit.name}.{metric.split('.', 1)[1].rpartition('.')[0]}" if several else limit.name,
        metric=metric,
        unit=unit,
        of="value",
        where=where,
        source=f"{limit.source}; {limit.value:g} of {whole:.4g} {unit}, {what}",
        **{limit.bound: limit.value * whole},  # type: ignore[arg-type]
    )


def _capability(metric: str, cluster: Cluster, algorithm: str, where: Mapping[str, Scalar]) -> tuple[float, str, str]:
    """(how much, unit, of what) the hardware can do at most."""
    assert cluster.gpu is not None
    if metric in COLLECTIVES:
        group = str(where.get("group", ""))
        rate = line_rate(metric.split(".")[1], fabric=_among(group, cluster), algorithm=algorithm or "any")
        return rate.value, rate.unit, f"line rate of {algorithm or 'any'} in a {group}: {rate.formula}"
    if metric in PINNED:
        return _pinned(metric, cluster, algorithm)
    if metric in ("links.bandwidth", "links.both_ways.bandwidth"):
        rate = line_rate("send_recv", fabric=fabric_of(cluster), algorithm=algorithm or "direct")
        if metric == "links.bandwidth":
            return rate.value, rate.unit, f"line rate of a pair: {rate.formula}"
        return 2 * rate.value, rate.unit, f"line rate of a pair, both ways: 2 {rate.formula}"
    if metric == "links.flows.bandwidth":
        return fabric_of(cluster).bisection, "B/s", "the bisection, one direction"
    if metric.startswith("links.hardware."):
        return _bare(metric, cluster, where)
    if algorithm:
        raise ValueError(f"algorithm goes with collectives and links, not with {metric}: leave it out")
    gpu = cluster.gpu
    if metric == "memory.copy.bandwidth":
        return gpu.memory_bandwidth, "B/s", f"memory of {gpu.sku}"
    return gpu.bf16_flops, "FLOP/s", f"dense bf16 peak of {gpu.sku}"


def _pinned(metric: str, cluster: Cluster, algorithm: str) -> tuple[float, str, str]:
    """Of a sweep whose name says the algorithm, or that every GPU has nothing but its share of the network."""
    _, op, variant, _ = metric.split(".")
    if variant != "network":
        rate = line_rate(op, fabric=fabric_of(cluster), algorithm=variant)
        return rate.value, rate.unit, f"line rate of {variant}: {rate.formula}"
    net, gpus = cluster.network, cluster.gpus_per_node or 1
    alone = Fabric(
        domains=cluster.nodes * gpus, gpus_per_domain=1, network=net.node_rate / gpus, in_network=net.in_network
    )
    rate = line_rate(op, fabric=alone, algorithm=algorithm or "any")
    return rate.value, rate.unit, f"line rate of {algorithm or 'any'} with W = one GPU's NIC: {rate.formula}"


def _bare(metric: str, cluster: Cluster, where: Mapping[str, Scalar]) -> tuple[float, str, str]:
    """Of a link by itself, as the tool that `where` names measures it."""
    assert cluster.gpu is not None
    tool, test = where.get("tool"), str(where.get("test", ""))
    if tool == "ib_write_bw" and cluster.network.nic_rate:
        ways = 2 if "both_ways" in metric else 1
        return ways * cluster.network.nic_rate, "B/s", f"one NIC{', both ways' if ways == 2 else ''}"
    if tool == "nvbandwidth" and test.startswith("device_to_device_memcpy_") and cluster.gpu.nvlink_bandwidth:
        return cluster.gpu.nvlink_bandwidth, "B/s", f"NVLink of {cluster.gpu.sku}, one direction"
    raise ValueError(
        'known is what a NIC and NVLink do: where = { tool = "ib_write_bw" }, or { tool = "nvbandwidth", '
        'test = "device_to_device_memcpy_write_ce" }; for other numbers write of = "value"'
    )


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
