"""The checks between nodes: the network used, GPUDirect RDMA, and whether all network devices carry channels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from reports.nccl_log.checks import MORE_LOG, Scene, some
from reports.nccl_log.facts import Host, NetPath, Seen
from reports.nccl_log.report import Finding

IB_PLUGINS = ("IB", "IBEXT", "GIB", "IBV")
OFI_PLUGINS = ("AWS LIBFABRIC", "LIBFABRIC", "OFI")
NO_GDR = (
    "lsmod | grep nvidia_peermem (or a driver with DMA-BUF) on every node",
    "check NCCL_NET_GDR_LEVEL and that GPU and NIC share a PCIe switch: nvidia-smi topo -m",
    "turn off ACS; containers need the same driver modules on the host",
)


def family(network: str, hosts: dict[str, Host]) -> str:
    """ib, roce, efa, tcp (sockets, or libfabric over TCP), or "" for a plugin this reader cannot place."""
    name = network.upper().split("_")[0]
    if name in ("SOCKET", "FASTSOCKET"):
        return "tcp"
    if name in IB_PLUGINS:
        layers = Counter(layer for host in hosts.values() for layer in host.layers.values())
        return "roce" if layers and layers.most_common(1)[0][0] == "RoCE" else "ib"
    if name in OFI_PLUGINS:
        providers = {p for host in hosts.values() for p in host.providers}
        if providers and not any("efa" in p or "cxi" in p or "verbs" in p for p in providers):
            return "tcp"
        return "efa"
    return ""


def paths(scene: Scene) -> dict[NetPath, Seen]:
    """All network channels of all GPUs."""
    total: dict[NetPath, Seen] = {}
    for gpu in scene.facts.gpus.values():
        for path, seen in gpu.paths.items():
            total.setdefault(path, Seen()).merge(seen)
    return total


def announced(scene: Scene) -> dict[str, Seen]:
    """Networks as "Using network ..." names them."""
    total: dict[str, Seen] = {}
    for gpu in scene.facts.gpus.values():
        for name, seen in gpu.networks.items():
            total.setdefault(name, Seen()).merge(seen)
    return total


def between_nodes(scene: Scene) -> Iterator[Finding]:
    """Which network, with GPUDirect RDMA or not, over which devices."""
    world = scene.world
    if world is None:
        return
    used: dict[str, Seen] = {}
    for path, seen in paths(scene).items():
        used.setdefault(path.network, Seen()).merge(seen)
    if scene.num_nodes == 1:
        over = "one NVLink domain" if world.mnnvl else "one node"
        yield scene.finding("network", "fine", f"The job runs in {over}: nothing to check between nodes.")
        return
    names = used or announced(scene)
    if not names or (scene.num_nodes is None and not used):
        yield scene.finding("network", "unknown", "The log does not show what carries traffic between nodes.", MORE_LOG)
        return
    yield from _network(scene, names, bool(used))
    if scene.expect.network == "socket" or all(family(name, scene.facts.hosts) == "tcp" for name in names):
        return
    yield from gpudirect(scene)
    yield from hcas(scene)


def _network(scene: Scene, names: dict[str, Seen], used: bool) -> Iterator[Finding]:
    expected = scene.expect.network
    kinds = {name: family(name, scene.facts.hosts) for name in names}
    words = {"ib": "InfiniBand", "roce": "RoCE", "efa": "EFA (libfabric)", "tcp": "TCP sockets", "": "a plugin"}
    seen = Seen()
    for one in names.values():
        seen.merge(one)
    shown = ", ".join(f"{name} ({words[kinds[name]]})" for name in sorted(names))
    fits = {
        "rdma": lambda kind: kind in ("ib", "roce", "efa"), "socket": lambda kind: kind == "tcp", "any": lambda _: True,
    }.get(expected, lambda kind: kind == expected)  # fmt: skip
    if all(fits(kind) for kind in kinds.values()):
        how = "carries" if used else "is announced for"
        yield scene.finding("network", "fine", f"NET/{shown} {how} the traffic between nodes.", seen=seen)
    elif "" in kinds.values() and all(fits(kind) or not kind for kind in kinds.values()):
        yield scene.finding(
            "network", "unknown", f"Traffic between nodes runs over {shown}, which this reader cannot place.",
            "--network any accepts it", seen=seen,
        )  # fmt: skip
    else:
        part = "Some traffic" if any(fits(kind) for kind in kinds.values()) else "Traffic"
        asked = "RDMA" if expected == "rdma" else words.get(expected, "TCP sockets")
        words_wrong = f"{part} between nodes runs over {shown}, not over {asked}."
        yield scene.finding("network", "wrong", words_wrong, *_why_not(scene), seen=seen)


def _why_not(scene: Scene) -> Iterator[str]:
    """What the log itself gives as the cause, then the usual ones."""
    for name, value in scene.facts.settings:
        if (name, value) in (("NCCL_IB_DISABLE", "1"), ("NCCL_NET", "Socket")):
            yield f"unset {name} (it is {value})"
        elif name == "NCCL_IB_HCA":
            yield f"check NCCL_IB_HCA={value}: it must name devices that exist and are active"
    texts = " ".join(remark.text for remark in scene.facts.remarks.values())
    if "libibverbs" in texts:
        yield "install rdma-core (libibverbs1) in the image: NCCL could not load it"
    yield "ibv_devinfo on every node must list active ports, also inside the container (pass /dev/infiniband in)"
    if any(host.providers for host in scene.facts.hosts.values()):
        yield "fi_info -p efa must list the devices inside the container"


def gpudirect(scene: Scene) -> Iterator[Finding]:
    """GPUDirect RDMA on every network channel that is not TCP."""
    with_gdr, without, silent = Counter[str](), Seen(), Seen()
    lacking: set[str] = set()
    sends_only = True
    for host, path, seen in _channels(scene):
        kind = family(path.network, scene.facts.hosts)
        name = f"{scene.facts.host(host).device(path.device)} on {host}"
        if kind == "" and not path.gdr:
            silent.merge(seen)
        elif kind != "tcp" and path.gdr:
            with_gdr[name] += seen.count
        elif kind != "tcp":
            without.merge(seen)
            lacking.add(name)
            sends_only = sends_only and path.direction == "send"
    on = sum(with_gdr.values())
    if silent.count:
        severity = "note" if scene.expect.network == "any" else "unknown"
        words = "The network plugin does not say whether it reaches GPU memory directly."
        yield scene.finding("gpudirect", severity, words, "see the plugin's own log", seen=silent)
    elif not on and not without.count:
        yield from _gpudirect_announced(scene)
    if without.count and on and sends_only:
        words = "Receives use GPUDirect RDMA, sends go through host memory."
        yield scene.finding("gpudirect", "note", words, "NCCL_NET_GDR_READ=1 tries it for sends too", seen=without)
    elif without.count:
        words = f"off on {without.count} of {without.count + on} network channels: {some(sorted(lacking))}"
        yield scene.finding("gpudirect", "wrong", f"GPUDirect RDMA is {words}.", *NO_GDR, seen=without)
    elif on:
        words = f"All {on} network channels use GPUDirect RDMA, on {len(with_gdr)} devices."
        yield scene.finding("gpudirect", "fine", words)


def _gpudirect_announced(scene: Scene) -> Iterator[Finding]:
    off = sorted(
        f"{hca} on {name}" for name, host in scene.facts.hosts.items() for hca, on in host.hca_gdr.items() if not on
    )
    rings = {gpu.ring_gdr for gpu in scene.facts.gpus.values()} - {None}
    if off or False in rings:
        yield scene.finding(
            "gpudirect", "wrong", f"GPUDirect RDMA is off: {some(off) or 'NCCL says so for its rings'}.", *NO_GDR
        )
    elif rings == {True} or any(host.hca_gdr for host in scene.facts.hosts.values()):
        yield scene.finding("gpudirect", "fine", "NCCL announces GPUDirect RDMA; the log shows no single channel.")
    else:
        yield scene.finding("gpudirect", "unknown", "The log does not show whether GPUDirect RDMA is used.", MORE_LOG)


def _channels(scene: Scene) -> Iterator[tuple[str, NetPath, Seen]]:
    for gpu in scene.facts.gpus.values():
        for path, seen in gpu.paths.items():
            yield gpu.host, path, seen


def hcas(scene: Scene) -> Iterator[Finding]:
    """Does every node use the network devices it should, and do all nodes have as many?

    A node should use as many as `--hcas` says; else all that it lists of the kind it uses, but no more than it has
    GPUs in the job.
    """
    used: dict[str, set[str]] = {}
    for host, path, _ in _channels(scene):
        if family(path.network, scene.facts.hosts) != "tcp":
            used.setdefault(host, set()).update(scene.facts.host(host).device(path.device).split("+"))
    if not used:
        yield scene.finding("hcas", "unknown", "The log does not show which network devices carry channels.", MORE_LOG)
        return
    severity, but = ("wrong", "") if scene.settled else ("unknown", ", as far as the log goes")
    short, spare = _grouped(scene, used)
    for what, which in short.items():
        yield scene.finding(
            "hcas", severity, f"{some(which)}: only {what} carry channels{but}.",
            "ibstat: are all ports active and of one rate?", "check NCCL_IB_HCA, NCCL_CROSS_NIC and the topology file",
            "--hcas N says how many are right",
        )  # fmt: skip
    yield from _uneven(scene, used)
    if not short:
        counts = " or ".join(map(str, sorted({len(names) for names in used.values()})))
        yield scene.finding("hcas", "fine", f"Every node uses {counts} network devices, all that it should.")
    for names, which in spare.items():
        yield scene.finding("hcas", "note", f"{some(which)}: {names} of the same kind carry no channel.")


def _grouped(scene: Scene, used: dict[str, set[str]]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Hosts with too few devices in use, by what is short, and hosts with some to spare, by their names."""
    short: dict[str, list[str]] = {}
    spare: dict[str, list[str]] = {}
    for host, names in sorted(used.items()):
        listed = _listed(scene, host, names)
        idle = sorted(listed - names)
        gpus = sum(1 for gpu in scene.facts.gpus.values() if gpu.host == host and gpu.ranks)
        due = scene.expect.hcas if scene.expect.hcas is not None else min(len(listed), max(gpus, 1))
        if len(names) < due:
            which = f" (idle: {some(idle)})" if idle else ""
            short.setdefault(f"{len(names)} of {due} devices{which}", []).append(host)
        elif idle and scene.expect.hcas is None:
            spare.setdefault(some(idle), []).append(host)
    return short, spare


def _listed(scene: Scene, host: str, used: set[str]) -> set[str]:
    """Devices that NCCL lists on a host, of the kind that it uses there (InfiniBand or RoCE)."""
    facts = scene.facts.host(host)
    kinds = {facts.layers.get(name, "") for name in used}
    return {name for name in facts.hcas.values() if facts.layers.get(name, "") in kinds}


def _uneven(scene: Scene, used: dict[str, set[str]]) -> Iterator[Finding]:
    counts = {host: len(_listed(scene, host, names)) for host, names in used.items()}
    most = max(counts.values())
    fewer = sorted(host for host, count in counts.items() if count < most)
    if fewer:
        yield scene.finding(
            "hcas", "wrong", f"{some(fewer)}: NCCL lists fewer network devices there than the {most} of other nodes.",
            "lspci and ibstat there: is a card gone, or a port down?",
        )  # fmt: skip
