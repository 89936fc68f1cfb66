"""The checks inside a node: peer-to-peer over NVLink rather than PCIe, host memory or the network; SHARP."""

from __future__ import annotations

from collections.abc import Iterator

from reports.nccl_log.checks import MORE_LOG, Scene, some
from reports.nccl_log.facts import Gpu, Seen
from reports.nccl_log.report import Finding


def inside_node(scene: Scene) -> Iterator[Finding]:
    """GPUs of one node: peer-to-peer over NVLink, not PCIe, host memory or the network."""
    world = scene.world
    if world is None:
        return
    total: dict[str, Seen] = {}
    for gpu in scene.facts.gpus.values():
        for name, seen in gpu.transports.items():
            total.setdefault(name, Seen()).merge(seen)
    peer = {name: seen for name, seen in total.items() if name.startswith("P2P")}
    memory = total.get("SHM")
    looped = _looped(scene)
    if looped:
        yield scene.finding(
            "node", "wrong", f"{len(looped)} pairs of GPUs in one node talk over the network.",
            "containers: share /dev/shm and the PID and IPC namespaces", "unset NCCL_P2P_DISABLE and NCCL_SHM_DISABLE",
            places=looped,
        )  # fmt: skip
    if memory:
        severity = "wrong" if scene.expect.nvlink else "note"
        yield scene.finding(
            "node", severity, f"{memory.count} channels between GPUs of a node go through host memory (SHM).",
            "nvidia-smi topo -m and -p2p r: NVLink must be up between all GPUs",
            "unset NCCL_P2P_DISABLE and NCCL_P2P_LEVEL",
            "turn off ACS where GPUs share PCIe only", seen=memory,
        )  # fmt: skip
    if peer:
        yield _peer_to_peer(scene, peer)
    elif not memory and not looped:
        alone = scene.num_nodes is not None and scene.num_nodes >= world.size
        if alone:
            yield scene.finding("node", "fine", "One GPU per node: nothing to check inside a node.")
        else:
            yield scene.finding("node", "unknown", "The log does not show how GPUs of a node talk.", MORE_LOG)


def _peer_to_peer(scene: Scene, peer: dict[str, Seen]) -> Finding:
    seen = Seen()
    for one in peer.values():
        seen.merge(one)
    kinds = ", ".join(sorted(peer))
    links = {link for gpu in scene.facts.gpus.values() for link in gpu.links}
    if not scene.expect.nvlink:
        return scene.finding("node", "fine", f"GPUs of a node talk peer to peer ({kinds}).", seen=seen)
    if links & {"NVL", "XGMI", "NVB"} or "P2P/MNNVL" in peer:
        slow = sorted(links - {"NVL", "XGMI", "NVB", "LOC", "C2C"})
        if slow and "P2P/MNNVL" not in peer:
            return scene.finding(
                "node", "wrong", f"Some paths between GPUs of a node cross {', '.join(slow)}, not NVLink ({kinds}).",
                "nvidia-smi nvlink --status: are all links up?", "nvidia-smi topo -m", seen=seen,
            )  # fmt: skip
        over = "XGMI" if "XGMI" in links else "NVLink"
        return scene.finding("node", "fine", f"GPUs of a node talk peer to peer over {over} ({kinds}).", seen=seen)
    if links:
        return scene.finding(
            "node", "wrong", f"GPUs of a node talk peer to peer over PCIe ({', '.join(sorted(links))}), not NVLink.",
            "nvidia-smi nvlink --status and nvidia-smi topo -m",
            "nvidia-fabricmanager must run where there is an NVSwitch",
            "--no-nvlink where the machine has none", seen=seen,
        )  # fmt: skip
    unseen = f"GPUs of a node talk peer to peer ({kinds}); the log does not show whether over NVLink or PCIe."
    return scene.finding("node", "unknown", unseen, MORE_LOG, "--no-nvlink where the machine has none", seen=seen)


def _looped(scene: Scene) -> list[int]:
    """Places of network channels between two GPUs of one host, where every reading of the ranks agrees."""
    found = []
    for gpu in scene.facts.gpus.values():
        for (own, peer), place in gpu.peers.items():
            hosts = _peer_hosts(scene, gpu, own, peer)
            if hosts == {gpu.host} and gpu.host:
                found.append(place)
    return found


def _peer_hosts(scene: Scene, gpu: Gpu, own: int, peer: int) -> set[str]:
    """Hosts that rank `peer` can be on, over all communicators where this GPU is rank `own`."""
    hosts: set[str] = set()
    for name, rank in gpu.ranks.items():
        communicator = scene.facts.communicators[name]
        if rank != own or peer >= communicator.size:
            continue
        other = communicator.members.get(peer)
        hosts.add(other.host if other and not communicator.ambiguous else "")
    return hosts


def in_switches(scene: Scene) -> Iterator[Finding]:
    """NVLink SHARP and in-network reduction: available, used, or neither."""
    gpus = list(scene.facts.gpus.values())
    have, lack = [g for g in gpus if g.nvls], [g for g in gpus if g.nvls is False]
    if have and lack:
        hosts = some(sorted({g.host for g in lack}))
        yield scene.finding(
            "nvls", "wrong", f"NVLink SHARP is available on {len(have)} GPUs and not on {len(lack)}, on {hosts}.",
            "nvidia-fabricmanager must run and match the driver there", "compare driver versions",
        )  # fmt: skip
    elif have:
        yield scene.finding("nvls", "note", f"NVLink SHARP (NVLS) is available on all {len(have)} GPUs that say.")
    elif lack:
        yield scene.finding(
            "nvls", "note", "NVLink SHARP (NVLS) is not available: normal before Hopper or without NVSwitch."
        )
    for plugin, seen in scene.facts.sharp.items():
        words = "is offered by the network cards" if plugin == "offered" else f"carries channels (COLLNET/{plugin})"
        yield scene.finding("sharp", "note", f"In-network reduction (SHARP) {words}.", seen=seen)
