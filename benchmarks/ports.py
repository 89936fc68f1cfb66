"""The network ports of this node, and whether each has a link: what a cable that is out looks like from inside.

Asked of the kernel by ioctl in the network namespace of this process, and of InfiniBand's files. A port that was never
configured counts as absent, not as down. Standard library only; Linux (elsewhere there are no ports to see).

>>> isinstance(ports(), dict)
True
"""

from __future__ import annotations

import socket
import struct
import sys
from pathlib import Path

SIOCGIFFLAGS = 0x8913  # netdevice(7)
IFF_UP, IFF_LOOPBACK, IFF_RUNNING = 0x1, 0x8, 0x40
ACTIVE = "4: ACTIVE"  # /sys/class/infiniband/DEVICE/ports/N/state


def ports(root: Path = Path("/")) -> dict[str, str]:
    """Port -> "up" (has a link) or "down", for every port that is switched on."""
    found = _interfaces() if sys.platform == "linux" else {}
    for state in sorted(root.glob("sys/class/infiniband/*/ports/*/state")):
        device, number = state.parts[-4], state.parts[-2]
        found[f"{device}/{number}"] = "up" if state.read_text().strip() == ACTIVE else "down"
    return found


def _interfaces() -> dict[str, str]:
    import fcntl

    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asking, SIOCGIFFLAGS, struct.pack("16sH14x", name.encode(), 0))
            except OSError:
                continue  # gone between the two questions
            (flags,) = struct.unpack_from("H", answer, 16)
            if flags & IFF_UP and not flags & IFF_LOOPBACK:
                found[name] = "up" if flags & IFF_RUNNING else "down"
    return found
