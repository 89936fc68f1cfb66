"""The RDMA NICs of this node, which of them are measured, and which rank's GPU is nearest to each.

From the kernel's files alone. Near means: the longest common way down the PCIe tree.

>>> nearest(["/pci0/sw0/gpu", "/pci0/sw1/gpu"], ["/pci0/sw1/nic", "/pci0/sw0/nic"])
[1, 0]
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ACTIVE = "4: ACTIVE"  # linux/Documentation/ABI/stable/sysfs-class-infiniband


@dataclass(frozen=True, kw_only=True)
class Nic:
    """One RDMA device."""

    name: str  # mlx5_0
    active: bool  # its first port has a link
    rate: float  # Gb/s
    path: str  # of its PCIe device, as the kernel nests them


def nics(root: Path = Path("/")) -> list[Nic]:
    """All RDMA devices of this node, by name."""
    found = []
    for device in sorted((root / "sys/class/infiniband").glob("*"), key=lambda d: (len(d.name), d.name)):
        port = device / "ports" / "1"
        if (port / "state").is_file():
            rate = (port / "rate").read_text(encoding="ascii").split()[0]
            active = (port / "state").read_text(encoding="ascii").strip() == ACTIVE
            path = str((device / "device").resolve())
            found.append(Nic(name=device.name, active=active, rate=float(rate), path=path))
    return found


def chosen(there: Sequence[Nic], *, count: int, names: Sequence[str] = ()) -> list[Nic]:
    """The NICs that are measured: those named, else the `count` fastest with a link, in the order of their names.

    ValueError where there are not so many.
    """
    active = [nic for nic in there if nic.active]
    if names:
        absent = [name for name in names if name not in {nic.name for nic in active}]
        if absent:
            raise ValueError(f"no RDMA NIC with a link is called {', '.join(absent)}: {_listed(there)}")
        return [nic for nic in active if nic.name in names]
    if len(active) < count:
        raise ValueError(f"{len(active)} RDMA NICs have a link, {count} should: {_listed(there)}")
    fastest = sorted(active, key=lambda nic: -nic.rate)[:count]
    return [nic for nic in active if nic in fastest]


def _listed(there: Sequence[Nic]) -> str:
    shown = ", ".join(f"{nic.name} {'up' if nic.active else 'down'} {nic.rate:g} Gb/s" for nic in there)
    return f"there are {shown}" if shown else "there is none; is the driver loaded (ibv_devinfo, or modprobe mlx5_ib)?"


def nearest(gpus: Sequence[str], devices: Sequence[str]) -> list[int]:
    """For each NIC the place of its GPU, each GPU at most once: PCIe paths of both. Ties go by order."""
    ways = sorted(
        (-_shared(gpu, nic), n, g) for n, nic in enumerate(devices) for g, gpu in enumerate(gpus)
    )  # the closest couples first
    taken: dict[int, int] = {}
    for _, n, g in ways:
        if n not in taken and g not in taken.values():
            taken[n] = g
    return [taken[n] for n in range(len(devices))]


def _shared(a: str, b: str) -> int:
    """How many steps of two paths are common."""
    return len(Path(os.path.commonpath([a, b])).parts) if a and b else 0
