"""The fastest that wires allow: the line-rate limit of every operation, algorithm and size of cluster.

Rates are bus bandwidth as nccl-tests counts it, in B/s, for large messages. A measured value above the limit of the
algorithm in use is `impossible`: the formula, the size or a synchronisation is wrong. Where the algorithm is
unknown, "any" is the highest limit of all. A limit is no forecast: what is usually reached is below it.

Symbols: k domains (nodes, mostly) of g GPUs joined by NVLink, n = k g. One way: v NVLink of a GPU, W network of a
domain, b = W / g. Each formula counts the bytes that must leave or enter a GPU or a domain while an operation of
size S runs, and divides by what the wires there carry.

>>> h100 = Fabric(domains=8, gpus_per_domain=8, nvlink=450e9, network=400e9)
>>> line_rate("all_reduce", fabric=h100, algorithm="ring")
Rate(value=400000000000.0, unit='B/s', formula='min(g/(g-1) v, W)')
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from clusters.cluster import Cluster

OPS = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter", "send_recv",
)  # fmt: skip
Terms = dict[str, float]  # formula -> B/s; the smallest is the limit


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """What connects the GPUs. Rates are B/s in one direction."""

    domains: int = 1  # k: groups of GPUs that NVLink joins: nodes, or racks of an NVL72
    gpus_per_domain: int  # g
    nvlink: float = 0.0  # v, of one GPU; 0 only where a domain has one GPU
    network: float = 0.0  # W, of one domain; 0 only where there is one domain
    nvls: bool = False  # the NVLink switch reduces and multicasts (NVLink 4 and later)
    in_network: bool = False  # the network's switches reduce (SHARP)
    oversubscription: float = 1.0

    def __post_init__(self) -> None:
        k, g = self.domains, self.gpus_per_domain
        if k < 1 or g < 1 or k * g < 2:
            raise ValueError(f"{k} domains of {g} GPUs have no wires: a fabric joins 2 GPUs or more")
        for rate, needed, what in (
            (self.nvlink, g > 1, f"{g} GPUs a domain need an NVLink"),
            (self.network, k > 1, f"{k} domains need a network"),
        ):
            if not (math.isfinite(rate) and (rate > 0 if needed else rate >= 0)):
                raise ValueError(f"{what} rate above zero, not {rate:g} B/s")
        if not self.oversubscription >= 1:
            raise ValueError(f"oversubscription {self.oversubscription:g} must be 1 (none) or more")

    @property
    def ranks(self) -> int:
        """n: all GPUs."""
        return self.domains * self.gpus_per_domain

    @property
    def nic(self) -> float:
        """b: the network's share of one GPU, B/s."""
        return self.network / self.gpus_per_domain

    @property
    def bisection(self) -> float:
        """B/s from one half of the GPUs to the other, one direction, with the network's oversubscription."""
        if self.domains == 1:
            return self.ranks // 2 * self.nvlink
        return self.domains // 2 * self.network / self.oversubscription


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A limit, and the formula it came from."""

    value: float
    unit: str
    formula: str


def bus_factor(op: str, n: int) -> float:
    """Bus bandwidth = size / time x this: the rate of the wires, whatever the number of ranks n.

    all_reduce 2(n-1)/n; all_gather, reduce_scatter, all_to_all, gather, scatter (n-1)/n; broadcast, reduce and
    send_recv 1. Source: nccl-tests, doc/PERFORMANCE.md. ValueError for another operation or n < 2.
    """
    _known(op)
    if n < 2:
        raise ValueError(f"{op} over {n} rank moves nothing: a bus bandwidth needs 2 or more")
    if op == "all_reduce":
        return 2 * (n - 1) / n
    return 1.0 if op in ("broadcast", "reduce", "send_recv") else (n - 1) / n


def fabric_of(cluster: Cluster, *, nodes: int | None = None) -> Fabric:
    """The fabric of `nodes` of a cluster (all of them unless told).

    Raises ValueError where the file does not name the GPU or the network that is needed, or where `nodes` is more
    than there are or no whole number of NVLink domains.
    """
    nodes = cluster.nodes if nodes is None else nodes
    if cluster.gpu is None or cluster.gpus_per_node is None:
        raise ValueError(f"{cluster.path} names no GPU, so its wires are unknown: set gpu and gpus_per_node")
    if not 1 <= nodes <= cluster.nodes:
        raise ValueError(f"{cluster.path} has {cluster.nodes} nodes, not {nodes}")
    joined = min(nodes, cluster.nodes_per_domain)
    if nodes % joined:
        raise ValueError(f"{nodes} nodes are no whole number of NVLink domains of {joined} nodes")
    return Fabric(
        domains=nodes // joined,
        gpus_per_domain=cluster.gpus_per_node * joined,
        nvlink=cluster.gpu.nvlink_bandwidth,
        network=cluster.network.node_rate * joined,
        nvls=cluster.gpu.nvls,
        in_network=cluster.network.in_network,
        oversubscription=cluster.network.oversubscription,
    )


def line_rate(op: str, *, fabric: Fabric, algorithm: str = "any") -> Rate:
    """The highest bus bandwidth of an operation on a fabric by an algorithm, in B/s.

    Algorithms: ring, tree, nvls, nvls_tree, sharp as NCCL names them; direct: every pair by its own wires; gloo: one
    rank a host; cut: whatever does not reduce inside the network; any: the highest. Raises ValueError for an unknown
    operation or algorithm, and for one that cannot run on this fabric.
    """
    _known(op)
    if algorithm == "any":
        able = [a for a in ("cut", "sharp") if (op, a) in LIMITS and not _missing(a, fabric)]
        return max((line_rate(op, fabric=fabric, algorithm=a) for a in able), key=lambda rate: rate.value)
    if (op, algorithm) not in LIMITS:
        known = [a for o, a in LIMITS if o == op]
        raise ValueError(f"no algorithm {algorithm!r} for {op}: there are any, {', '.join(known)}")
    if missing := _missing(algorithm, fabric):
        raise ValueError(f"{algorithm} needs {missing}")
    terms = LIMITS[op, algorithm](fabric)
    shown = ", ".join(terms)
    return Rate(value=min(terms.values()), unit="B/s", formula=f"min({shown})" if len(terms) > 1 else shown)


def _known(op: str) -> None:
    if op not in OPS:
        raise ValueError(f"no operation {op!r}: there are {', '.join(OPS)}")


def _missing(algorithm: str, f: Fabric) -> str:
    """What `algorithm` needs and the fabric has not; "" where it can run."""
    needs = {
        "nvls": ("an NVLink switch that reduces, and one domain", f.nvls and f.domains == 1),
        "nvls_tree": ("an NVLink switch that reduces, and two domains or more", f.nvls and f.domains > 1),
        "sharp": ("network switches that reduce, and two domains or more", f.in_network and f.domains > 1),
        "gloo": ("a network of hosts with one rank each", f.gpus_per_domain == 1),
    }
    what, there = needs.get(algorithm, ("", True))
    return "" if there else what


def _ring(f: Fabric) -> Terms:
    """Every GPU passes the bus traffic on to its neighbour; of g edges in a domain, one leaves it by the network."""
    g = f.gpus_per_domain
    if f.domains == 1:
        return {"v": f.nvlink}
    return ({"g/(g-1) v": g / (g - 1) * f.nvlink} if g > 1 else {}) | {"W": f.network}


def _tree(f: Fabric) -> Terms:
    """NCCL's tree: a chain up and down inside a domain, two complementary binary trees across them.

    The chain sends 2 (g-1) S a domain. The busiest domain of the double tree sends S at k = 2, 3/2 S at k = 3, 2 S
    from k = 4 on: in one tree it has a parent and two children, in the other one neighbour, and each has S/2.
    """
    n, g, k = f.ranks, f.gpus_per_domain, f.domains
    terms = {"(n-1)/n g/(g-1) v": (n - 1) / n * g / (g - 1) * f.nvlink} if g > 1 else {}
    if k > 1:
        load, formula = {2: (1.0, "2(n-1)/n W"), 3: (1.5, "4/3 (n-1)/n W")}.get(k, (2.0, "(n-1)/n W"))
        terms[formula] = 2 * (n - 1) / n * f.network / load
    return terms


def _nvls_inside(f: Fabric) -> Terms:
    """The switch reads S from every GPU, and gets S/g from each to multicast: S (g+1)/g leaves a GPU."""
    n, g = f.ranks, f.gpus_per_domain
    if f.domains == 1:
        return {"2(n-1)/(n+1) v": 2 * (n - 1) / (n + 1) * f.nvlink}
    return {"2(n-1)/n g/(g+1) v": 2 * (n - 1) / n * g / (g + 1) * f.nvlink}


def _nvls_tree(f: Fabric) -> Terms:
    """NVLS inside a domain, the double tree across them."""
    across = Fabric(domains=f.domains, gpus_per_domain=1, network=f.network)
    scale = (f.ranks - 1) / f.ranks * f.domains / (f.domains - 1)  # from k ranks to n ranks of bus bandwidth
    return _nvls_inside(f) | {formula: rate * scale for formula, rate in _tree(across).items()}


def _sharp(f: Fabric) -> Terms:
    """A domain sends S into the network and receives the sum, S; inside it NVLS, or a chain where there is none."""
    n, g = f.ranks, f.gpus_per_domain
    inside: Terms = {}
    if g > 1:
        inside = _nvls_inside(f) if f.nvls else {"(n-1)/n g/(g-1) v": (n - 1) / n * g / (g - 1) * f.nvlink}
    return inside | {"2(n-1)/n W": 2 * (n - 1) / n * f.network}


def _node_cut(f: Fabric) -> Terms:
    """Of S, every domain must take in the (n-g)/n it does not hold; for all_reduce 2 (k-1)/k S, the same busbw."""
    return {"W(n-1)/(n-g)": f.network * (f.ranks - 1) / (f.ranks - f.gpus_per_domain)} if f.domains > 1 else {}


def _gpu_cut(f: Fabric) -> Terms:
    """All bus traffic passes a GPU's own wires: NVLink, and its share of the network where there is one."""
    if f.domains == 1:
        return {"v": f.nvlink}
    return {"v + b": f.nvlink + f.nic} if f.gpus_per_domain > 1 else {"W": f.network}


def _all_reduce_cut(f: Fabric) -> Terms:
    """GPUs that reduce send 2 (n-1) S in all, v + b each; an NVLink switch that reduces may do better."""
    inside = _gpu_cut(f)
    if f.nvls and f.gpus_per_domain > 1:
        inside = max(inside, _nvls_inside(f), key=lambda terms: next(iter(terms.values())))
    return inside | _node_cut(f)


def _gather_cut(f: Fabric) -> Terms:
    return _gpu_cut(f) | _node_cut(f)


def _root_cut(f: Fabric) -> Terms:
    """broadcast and reduce: S enters or leaves every GPU, and every domain but the root's."""
    return _gpu_cut(f) | ({"W": f.network} if f.domains > 1 else {})


def _all_to_all_cut(f: Fabric) -> Terms:
    """(n-g)/n of every GPU's S leaves its domain."""
    n, g = f.ranks, f.gpus_per_domain
    return _gpu_cut(f) | ({"b(n-1)/(n-g)": f.nic * (n - 1) / (n - g)} if f.domains > 1 else {})


def _all_to_all_direct(f: Fabric) -> Terms:
    """As the cut, and what stays in the domain goes by NVLink alone."""
    n, g = f.ranks, f.gpus_per_domain
    local = {"v(n-1)/(g-1)": f.nvlink * (n - 1) / (g - 1)} if g > 1 else {}
    return local | ({"b(n-1)/(n-g)": f.nic * (n - 1) / (n - g)} if f.domains > 1 else {})


def _pair_direct(f: Fabric) -> Terms:
    """One GPU to another, of the next domain where there is one, by its own share of the network."""
    return {"b": f.nic} if f.domains > 1 else {"v": f.nvlink}


def _gloo(f: Fabric) -> Terms:
    """Rings and direct exchanges over one link a host."""
    return {"W": f.network}


def _gloo_reduce_scatter(f: Fabric) -> Terms:
    """An all_reduce, of which every rank keeps its share."""
    return {"W/2": f.network / 2}


def _gloo_broadcast(f: Fabric) -> Terms:
    """A binomial tree: the root sends S in every one of its rounds."""
    return {"W/log2(n)": f.network / math.ceil(math.log2(f.ranks))}


LIMITS: dict[tuple[str, str], Callable[[Fabric], Terms]] = {
    ("all_reduce", "ring"): _ring,
    ("all_reduce", "tree"): _tree,
    ("all_reduce", "nvls"): _nvls_inside,
    ("all_reduce", "nvls_tree"): _nvls_tree,
    ("all_reduce", "sharp"): _sharp,
    ("all_reduce", "cut"): _all_reduce_cut,
    ("all_reduce", "gloo"): _gloo,
    ("all_gather", "ring"): _ring,
    ("all_gather", "cut"): _gather_cut,
    ("all_gather", "gloo"): _gloo,
    ("reduce_scatter", "ring"): _ring,
    ("reduce_scatter", "cut"): _gather_cut,
    ("reduce_scatter", "gloo"): _gloo_reduce_scatter,
    ("all_to_all", "direct"): _all_to_all_direct,
    ("all_to_all", "cut"): _all_to_all_cut,
    ("all_to_all", "gloo"): _gloo,
    ("broadcast", "ring"): _ring,
    ("broadcast", "cut"): _root_cut,
    ("broadcast", "gloo"): _gloo_broadcast,
    ("reduce", "ring"): _ring,
    ("reduce", "cut"): _root_cut,
    ("gather", "cut"): _gather_cut,
    ("scatter", "cut"): _gather_cut,
    ("send_recv", "direct"): _pair_direct,
    ("send_recv", "cut"): _root_cut,
}
