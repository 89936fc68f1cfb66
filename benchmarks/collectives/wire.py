"""Bytes that left a node, by its interface counters: Ethernet-like ones from /proc/net/dev, InfiniBand ports from /sys.

    before = sent_bytes()
    ...
    moved = sent_bytes() - before

The counters are the node's, so another job's traffic is in them, and so is ours beside the measured calls: what
they show is an upper bound of what was sent. Traffic over NVLink, PCIe or shared memory is not in them.
"""

from __future__ import annotations

from pathlib import Path

IB_WORD = 4  # port_xmit_data counts 32-bit words (linux/Documentation/ABI/stable/sysfs-class-infiniband)


def sent_bytes(root: Path = Path("/")) -> int | None:
    """Bytes sent by all interfaces of this node since boot, loopback included; None where nobody counts."""
    found = []
    try:
        lines = (root / "proc/net/dev").read_text(encoding="ascii").splitlines()[2:]
        found = [int(line.partition(":")[2].split()[8]) for line in lines]
    except FileNotFoundError:
        lines = []
    ports = root.glob("sys/class/infiniband/*/ports/*/counters/port_xmit_data")
    found += [int(port.read_text(encoding="ascii")) * IB_WORD for port in ports]
    return sum(found) if found else None
