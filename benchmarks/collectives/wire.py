"""What a node's own counters say of the wire: bytes sent, and signs of loss.

Ethernet-like interfaces from /proc/net, InfiniBand ports from /sys.

    before = sent_bytes()
    ...
    moved = sent_bytes() - before

The counters are the node's, so another job's traffic is in them, and so is ours beside the measured calls: what
they show is an upper bound of what was sent. Traffic over NVLink, PCIe or shared memory is not in them.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

IB_LOSSES = (
    "counters/symbol_error", "counters/link_error_recovery", "counters/link_downed", "counters/port_rcv_errors",
    "counters/port_xmit_discards", "counters/local_link_integrity_errors", "hw_counters/out_of_sequence",
    "hw_counters/packet_seq_err", "hw_counters/local_ack_timeout_err", "hw_counters/rnr_nak_retry_err",
)  # fmt: skip
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


def losses(root: Path = Path("/")) -> dict[str, int]:
    """Counts since boot that move only when something was lost or damaged: TCP retransmits, InfiniBand errors.

    The ports' counters are summed by name. A counter that the machine lacks is absent.
    """
    found: Counter[str] = Counter()
    ports = root.glob("sys/class/infiniband/*/ports/*")
    for port in ports:
        for name in IB_LOSSES:
            if (counter := port / name).is_file():
                found[counter.name] += int(counter.read_text(encoding="ascii"))
    snmp = root / "proc/net/snmp"
    lines = snmp.read_text(encoding="ascii").splitlines() if snmp.is_file() else []
    tcp = [line.split() for line in lines if line.startswith("Tcp:")]
    if len(tcp) == 2:  # a line of names and a line of numbers (proc(5), RFC 1213)
        found["tcp_retransmits"] = int(dict(zip(*tcp, strict=True))["RetransSegs"])
    return dict(found)


def lost_between(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """The counters that moved, and by how much.

    >>> lost_between({"tcp_retransmits": 4, "symbol_error": 1}, {"tcp_retransmits": 9, "symbol_error": 1})
    {'tcp_retransmits': 5}
    """
    return {name: count - before.get(name, 0) for name, count in after.items() if count != before.get(name, 0)}
