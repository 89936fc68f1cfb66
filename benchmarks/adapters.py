"""The network adapters of this node by what their maker wrote into them: a part that is followed when it moves.

An InfiniBand or RoCE adapter is named by its serial number where this process may read it (the VPD is root's), else by
its node GUID; an Ethernet port without RDMA by its permanent address. Standard library only; Linux.

>>> isinstance(adapters(), dict)
True
"""

from __future__ import annotations

import re
from pathlib import Path

SERIAL = re.compile(rb"SN(.)([\x20-\x7e]+)", re.DOTALL)  # PCI local bus specification, appendix I: tag, length, text


def adapters(root: Path = Path("/")) -> dict[str, str]:
    """Device -> serial, GUID or address, for every physical adapter."""
    found = {}
    for device in sorted(root.glob("sys/class/infiniband/*")):
        if name := _serial(device / "device" / "vpd") or _line(device / "node_guid"):
            found[device.name] = name
    rdma = {port.name for port in root.glob("sys/class/infiniband/*/device/net/*")}
    for port in sorted(root.glob("sys/class/net/*")):
        if (port / "device").exists() and port.name not in rdma and (address := _line(port / "address")):
            found[port.name] = address
    return found


def _serial(vpd: Path) -> str:
    """The serial number in an adapter's vital product data; "" where it is not readable."""
    try:
        data = vpd.read_bytes()
    except OSError:
        return ""
    for match in SERIAL.finditer(data):
        length = match[1][0]
        if 0 < length <= len(match[2]):
            return match[2][:length].decode("ascii").strip()
    return ""


def _line(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
