"""Where the bytes of a read came from: this node's disks, its network, or memory.

The page cache is not the only memory in the way. ZFS keeps a cache of its own and still counts every read as one
of storage; a loop device or FUSE reads from a file that is itself cached. So a process' own counter is believed
only as far as the disks (local file systems) gave as much, and where a file system does not count at all (Lustre)
its own remote-call counters or the network interfaces answer. Counters of a node also count what others do there.

>>> came_from("local", process=[100], nodes=[{"disk": 90}])
(90, 'disk')
"""

from __future__ import annotations

import re
from pathlib import Path

SECTOR = 512  # /proc/diskstats counts in these, whatever the disk's own size
WORD = 4  # InfiniBand port counters count in these
NOT_A_DISK = ("loop", "ram", "zram", "dm-", "md", "nbd", "fd", "sr")  # memory, or made of disks that count themselves
ON_DISKS = ("local", "layered", "network block device")
OVER_NETWORK = ("parallel", "network")


def node_counters(root: Path = Path("/")) -> dict[str, int]:
    """Bytes this node has read so far: "disk", "lustre" (remote calls), "network" (received); known ones only."""
    found = {"disk": _disks(root), "lustre": _lustre(root), "network": _network(root)}
    return {name: value for name, value in found.items() if value is not None}


def grown(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """Differences of the counters that both have."""
    return {name: after[name] - before[name] for name in after if name in before}


def came_from(sort: str, *, process: list[int | None], nodes: list[dict[str, int]]) -> tuple[int | None, str]:
    """(bytes that did not come from this cluster's memory, which counter says so) for a read on storage of `sort`.

    `process`: bytes each rank caused to be read (proc(5): read_bytes), None where unknown. `nodes`: what
    `grown` says, once per node. None where nothing tells.
    """
    own = None if None in process else sum(n for n in process if n is not None)
    shared = {
        name: sum(node[name] for node in nodes)
        for name in ("disk", "lustre", "network")
        if nodes and all(name in node for node in nodes)
    }
    if sort in ON_DISKS:
        if own is None or "disk" not in shared:
            return None, ""
        return min((own, "process"), (shared["disk"], "disk"))
    told = {} if own is None else {"process": own}
    if sort in OVER_NETWORK:
        told |= {name: shared[name] for name in ("lustre", "network") if name in shared}
    if not told:
        return None, ""
    best = max(told, key=lambda name: told[name])
    return told[best], best


def _disks(root: Path) -> int | None:
    """Bytes read from all disks of this machine (proc(5), diskstats: the 6th word counts sectors)."""
    lines = _text(root / "proc/diskstats").splitlines()
    disks = [
        int(words[5])
        for words in map(str.split, lines)
        if len(words) > 5
        and not words[2].startswith(NOT_A_DISK)
        and not (root / "sys/class/block" / words[2] / "partition").exists()
    ]
    return sum(disks) * SECTOR if disks else None


def _lustre(root: Path) -> int | None:
    """Bytes that Lustre's clients have received from OSTs: the sums in the osc statistics."""
    paths = [p for where in ("proc/fs/lustre", "sys/kernel/debug/lustre") for p in root.glob(f"{where}/osc/*/stats")]
    pattern = r"^read_bytes\s+\d+ samples \[bytes\] \d+ \d+ (\d+)"
    sums = [re.search(pattern, _text(path), re.MULTILINE) for path in paths]
    return sum(int(match[1]) for match in sums if match) if paths else None


def _network(root: Path) -> int | None:
    """Bytes received by InfiniBand and RoCE ports or by network cards, whichever is more (IPoIB is in both)."""
    ports = [_number(p) * WORD for p in root.glob("sys/class/infiniband/*/ports/*/counters/port_rcv_data")]
    cards = [_number(p / "statistics/rx_bytes") for p in root.glob("sys/class/net/*") if (p / "device").exists()]
    return max(sum(ports), sum(cards)) if ports or cards else None


def _number(path: Path) -> int:
    text = _text(path).strip()
    return int(text) if text.isdigit() else 0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
