"""Channel lines: between which ranks, over which transport, with GPUDirect RDMA or without.

The text after "Channel 00/0" in all its forms from NCCL 2.4 to 2.29 and RCCL. Distinct texts are counted
while a log streams by and parsed here once each.

>>> parse(b": 0[0] -> 8[0] [send] via NET/IB/3/GDRDMA").path
NetPath(network='IB', device=3, direction='send', gdr=True)
>>> parse(b": 0[1a000] -> 1[3d000] via direct shared memory").transport
'SHM'
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from reports.nccl_log.facts import MAX_PEERS, Facts, Gpu, NetPath, Seen, tally

PAIR = re.compile(rb"(?:[\s\d/]*:)?\s*(\d{1,9})(?:\[\w*\])? -> (\d{1,9})(?:\[\w*\])?(?: \[(send|receive)\])?$")
NET = re.compile(r"NET/([^/]+)/(\d{1,9})(?:\((\d+)\))?((?:/[\w()]+)*)$")
ORDER = re.compile(rb"(?:[\s\d/]*:)?\s*(\d+(?:\s+\d+)*)\s*$")  # the ring as a list of ranks
NEIGHBOURS = re.compile(rb"(?:[\s\d/]*: *)?-?\d+ -> -?\d+ -> -?\d+(?:/-?\d+)*\s*$")  # the ring or tree around one rank


@dataclass(frozen=True, slots=True)
class Connection:
    """One channel from rank `source` to rank `target`."""

    source: int
    target: int
    transport: str  # P2P/CUMEM, P2P/IPC, P2P/direct, P2P/MNNVL, P2P/indirect, SHM, NET/IB ...
    path: NetPath | None = None  # of a network channel


def parse(tail: bytes) -> Connection | None:
    """The connection a channel line's text describes, or None where it describes none."""
    pair, mark, via = tail.partition(b" via ")
    found = PAIR.match(pair) if mark else None
    if not found:
        return None
    transport, path = _transport(via, found[3] or b"")
    return Connection(int(found[1]), int(found[2]), transport, path)


@lru_cache(maxsize=4096)
def _transport(via: bytes, direction: bytes) -> tuple[str, NetPath | None]:
    text = via.decode("utf-8", "replace").partition(" comm 0x")[0].strip()  # RCCL names the communicator
    if net := NET.match(text):
        path = NetPath(network=net[1], device=int(net[2]), direction=direction.decode(), gdr="/GDRDMA" in net[4])
        return f"NET/{net[1]}", path
    if text.startswith("SHM") or "shared memory" in text:
        return "SHM", None
    return "/".join(part.removesuffix(" pointer") for part in text.split("/")[:2])[:40], None


def fold(facts: Facts) -> None:
    """Parse every distinct channel text seen since the last time into the tables of its GPU."""
    for gpu in facts.gpus.values():
        for tail, (count, place) in gpu.tails.items():
            _fold(facts, gpu, tail, count, place)
        gpu.tails.clear()


def _fold(facts: Facts, gpu: Gpu, tail: bytes, count: int, place: int) -> None:
    connection = parse(tail)
    if connection is None:
        if order := ORDER.match(tail):
            if len(facts.rings) < 64:
                facts.rings.setdefault(" ".join(order[1].decode().split()), place)
        elif not NEIGHBOURS.match(tail):
            facts.unread.add(place, count)
        return
    tally(gpu.transports, connection.transport, place, count)
    if connection.path is None:
        return
    seen = gpu.paths.get(connection.path)
    if seen is None:
        if len(gpu.paths) >= 256:
            return
        seen = gpu.paths[connection.path] = Seen()
    seen.add(place, count)
    own, peer = connection.source, connection.target
    if connection.path.direction == "receive":
        own, peer = peer, own
    if (own, peer) not in gpu.peers and facts.num_peers < MAX_PEERS:
        gpu.peers[own, peer] = place
        facts.num_peers += 1
