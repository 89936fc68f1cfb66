"""What each kind of NCCL message says, and into which table it goes.

`HANDLERS` maps the first four bytes of a message to a function(facts, gpu, text, place). Messages that are not
in it are noise to this reader. Forms of NCCL 2.4 to 2.29 and of RCCL. A text that does not have the expected
form is left alone: it never raises.

>>> facts = Facts()
>>> gpu = facts.gpu("node1", 7, 0)
>>> network(facts, gpu, "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>", 1)
>>> facts.hosts["node1"].hcas, facts.hosts["node1"].layers["mlx5_1"]
({0: 'mlx5_0', 1: 'mlx5_1'}, 'RoCE')
"""

from __future__ import annotations

import re
from collections.abc import Callable

from reports.nccl_log.advice import advice_for
from reports.nccl_log.facts import MAX_DISTINCT, Algorithm, Facts, Gpu, Seen, tally

Handler = Callable[[Facts, Gpu, str, int], None]

INIT = re.compile(r"comm (0x\w+) rank (\d{1,9}) n[rR]anks (\d{1,9})(.*)", re.DOTALL)
COMM_ID = re.compile(r"commId (0x\w+)")
NODES = re.compile(r"nNodes (\d{1,9}) .*?MNNVL (\d)|nNodes (\d{1,9})")
VERSION = re.compile(r"\bNCCL version (\d+\.\d+[\w.]*\+(?:cuda|hip)[\w.]+)|\bRCCL version : (\S+)")
NETWORK = re.compile(r"Using (?:internal )?[Nn]etwork (.+?)\s*$")
USING = re.compile(r"NET/(\w+) ?: ?Using ((?:\[\d+\]|\{).*?)(?:;|$)")
DEVICE = re.compile(r"\[(\d{1,6})\]\s*([\w.-]+):\d+/(IB|RoCE)")
MERGED = re.compile(r"\[(\d{1,6})\]=?\{([^{}]*)\}")
VIRTUAL = re.compile(r"Made virtual device \[(\d{1,6})\] name=(\S+)")
HCA_GDR = re.compile(r"GPU Direct RDMA (Enabled|Disabled) for .*?HCA (\d{1,6})(?: '([^']*)')?")
PROVIDER = re.compile(r"Selected [Pp]rovider is (\S+?)(?:,|\s|$)")
SETTING = re.compile(r"(NCCL_\w+|RCCL_\w+) set by environment to (.*?)\.?\s*$")
CHANNELS = re.compile(r"(\d{1,6}) coll channels")
PATTERN = re.compile(r"Pattern (\d+), .*?nChannels (\d+), .*?type (\w+)/(\w+)")
TUNING = re.compile(r"(\w+): (\d{1,18}) Bytes -> Algo (\w+) proto (\w+)(?:.*?channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\})?")
RETURNED = re.compile(r"\.(?:cc|h|cu|cpp):\d+ -> ([1-6])\b")
NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")
COLLECTIVES = (
    "AllReduce",
    "AllGather",
    "ReduceScatter",
    "Broadcast",
    "Reduce",
    "AllToAll",
    "AlltoAll",
    "SendRecv",
    "Send",
    "Recv",
)


def set_up(facts: Facts, gpu: Gpu, text: str, place: int) -> None:
    """A communicator starts or finishes its set-up, or says how many nodes it spans."""
    found = INIT.search(text)
    if not found:
        return
    pointer, rank, size, rest = found[1], int(found[2]), int(found[3]), found[4]
    if rank >= size:
        return
    named = COMM_ID.search(rest)
    name = named[1] if named else gpu.pointers.get(pointer) or f"{size} ranks"
    if len(gpu.pointers) < MAX_DISTINCT:
        gpu.pointers[pointer] = name
    communicator = facts.communicator(name, size)
    if communicator is None:
        return
    facts.join(communicator, rank, gpu)
    if "COMPLETE" not in rest:
        communicator.started.setdefault(rank, place)
    elif "Init COMPLETE" in rest:
        communicator.started.setdefault(rank, place)
        communicator.finished.add(rank)
    if nodes := NODES.search(rest):
        communicator.num_nodes = int(nodes[1] or nodes[3])
        communicator.mnnvl = communicator.mnnvl or nodes[2] == "1"


def version(facts: Facts, gpu: Gpu, text: str, place: int) -> None:
    """Which library this is."""
    if found := VERSION.search(text):
        name = found[1] or f"RCCL {found[2]}"
        tally(facts.versions, name, place)
        if gpu.pid:
            tally(gpu.versions, name, place)


def environment(facts: Facts, gpu: Gpu, text: str, place: int) -> None:
    """A setting from the environment, or the version in newer NCCL."""
    if text.startswith("NCCL version"):
        version(facts, gpu, text, place)
    elif found := SETTING.match(text):
        key = (found[1], found[2][:80])
        if key in facts.settings or len(facts.settings) < MAX_DISTINCT:
            facts.settings.setdefault(key, Seen()).add(place)


def using(_: Facts, gpu: Gpu, text: str, place: int) -> None:
    """The network NCCL settled on."""
    if found := NETWORK.match(text):
        tally(gpu.networks, found[1][:60], place)


def network(facts: Facts, gpu: Gpu, text: str, place: int) -> None:
    """Network devices, GPUDirect RDMA per device, and what libfabric runs on."""
    host = facts.host(gpu.host)
    if found := HCA_GDR.search(text):
        _hca_gdr(host.hca_gdr, host.device(int(found[2])) if not found[3] else found[3], found[1] == "Enabled")
    elif found := PROVIDER.search(text):
        host.providers.setdefault(found[1][:40], place)
    elif found := VIRTUAL.search(text):
        if len(host.virtual) < 256:
            host.virtual[int(found[1])] = found[2][:120]
    elif found := USING.match(text):
        tally(gpu.networks, found[1], place)
        for merged in MERGED.finditer(found[2]):
            names = [d[2] for d in DEVICE.finditer(merged[2])]
            if names and len(host.virtual) < 256:
                host.virtual[int(merged[1])] = "+".join(names)[:120]
        if "/SHARP" in found[2]:
            tally(facts.sharp, "offered", place)
        for device in DEVICE.finditer(found[2]):
            if len(host.hcas) < 256:
                host.hcas[int(device[1])] = device[2][:60]
                host.layers[device[2][:60]] = device[3]
    else:
        remark(facts, gpu, text, place)


def _hca_gdr(table: dict[str, bool], name: str, enabled: bool) -> None:
    if name in table or len(table) < 256:
        table[name] = table.get(name, True) and enabled


def multicast(_: Facts, gpu: Gpu, text: str, _place: int) -> None:
    """NVLink SHARP: can this GPU take part?"""
    if text.startswith("NVLS multicast support is "):
        gpu.nvls = "not available" not in text
    elif text.startswith("NVLS comm "):
        gpu.nvls = True
    if gpu.nvls:
        gpu.links.add("NVL")


def channels(_: Facts, gpu: Gpu, text: str, _place: int) -> None:
    """How many channels a communicator has."""
    if found := CHANNELS.match(text):
        gpu.channels = max(gpu.channels or 0, int(found[1]))


def pattern(_: Facts, gpu: Gpu, text: str, _place: int) -> None:
    """What kind of path the graph search found between the GPUs of a node (ring and tree patterns)."""
    found = PATTERN.search(text)
    if found and found[1] != "5" and int(found[2]) > 0 and len(gpu.links) < 16:
        gpu.links.add(found[3])


def topology(_: Facts, gpu: Gpu, text: str, _place: int) -> None:
    """A line of the machine's tree that shows NVLink (or XGMI) at a GPU."""
    for name in ("NVL", "XGMI"):
        if f"{name}[" in text:
            gpu.links.add(name)


def tree(facts: Facts, _: Gpu, text: str, place: int) -> None:
    """The trees around one rank."""
    if len(facts.trees) < 64:
        facts.trees.setdefault(" ".join(text.split())[:400], place)


def connected(_: Facts, gpu: Gpu, text: str, _place: int) -> None:
    """Rings are up; newer NCCL adds whether they use GPUDirect RDMA."""
    if found := re.match(r"Connected all rings, use ring PXN \d GDR (\d)", text):
        gpu.ring_gdr = found[1] == "1"


def collnet(facts: Facts, _: Gpu, text: str, place: int) -> None:
    """A channel of in-network reduction."""
    if found := re.search(r"via COLLNET/([^/]+)/", text):
        tally(facts.sharp, found[1][:40], place)


def tuning(facts: Facts, _: Gpu, text: str, place: int, count: int = 1) -> None:
    """Which algorithm and protocol one operation used."""
    found = TUNING.match(text)
    if not found:
        return
    key, size = (found[1], found[3], found[4]), int(found[2])
    entry = facts.algorithms.get(key)
    if entry is None:
        if len(facts.algorithms) >= MAX_DISTINCT:
            return
        entry = facts.algorithms[key] = Algorithm(size, size, 0)
    entry.smallest, entry.largest = min(entry.smallest, size), max(entry.largest, size)
    if found[6]:
        entry.channels = max(entry.channels, int(found[6][:9]) + 1)
    entry.seen.add(place, count)


def returned(facts: Facts, gpu: Gpu, text: str, place: int) -> None:
    """A source line through which an error passed; progress (7) is no error."""
    if found := RETURNED.search(text):
        facts.remark(f"returned {found[1]}", f"NCCL returned error {found[1]}: {text}", "INFO", gpu.host, place)


def remark(facts: Facts, gpu: Gpu, text: str, place: int) -> None:
    """An INFO line that means trouble, if the advice knows it."""
    if advice_for(text, "INFO"):
        facts.remark(NUMBERS.sub("#", text[:400]), text, "INFO", gpu.host, place)


def warning(facts: Facts, gpu: Gpu, text: str, place: int) -> None:
    """A warning: always kept."""
    facts.remark(NUMBERS.sub("#", text[:400]), text, "WARN", gpu.host, place)


HANDLERS: dict[bytes, Handler] = {
    b"comm": set_up, b"nccl": set_up, b"NCCL": environment, b"RCCL": version, b"Usin": using, b"NET/": network,
    b"GPU ": network, b"NVLS": multicast, b"Patt": pattern, b"+ NV": topology, b"+ XG": topology, b"    ": topology,
    b"Tree": tree, b"Conn": connected, b"Coll": collnet, b"Fail": remark, b"Coul": remark, b"P2P ": remark,
    b"Call": remark, b"sock": remark, b"Boot": remark, b"Got ": remark, b"Dupl": remark,
    **{bytes([digit]): channels for digit in b"123456789"},
    **{name.encode()[:4]: tuning for name in COLLECTIVES},
    **dict.fromkeys((
        b"misc", b"tran", b"init", b"boot", b"prox", b"grou", b"enqu", b"grap", b"plug", b"regi", b"memm",
        b"chan", b"coll", b"incl", b"rma/", b"gin/", b"ras/", b"[Asy",
    ), returned),
}  # fmt: skip
"""first bytes of a message -> who reads it; a digit stands for every message that starts with it"""
