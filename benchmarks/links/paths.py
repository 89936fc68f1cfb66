"""What lies between two ranks: the network, the host's own memory or loopback, NVLink, or PCIe.

Between GPUs of one node it is read from the driver's own map (`nvidia-smi topo -m`). A machine without that tool
says "unknown" rather than a guess. Which path the library then really takes, its log says; this is what there is.
"""

from __future__ import annotations

import re

import torch

from benchmarks.inventory import Ask, ask_nvidia_smi, gpus
from benchmarks.world import World

UNDERLINE = re.compile(r"\x1b\[\d*m")  # the tool underlines its head line, on a terminal or not
PCIE = ("PIX", "PXB", "PHB", "NODE", "SYS")  # ever farther apart on PCIe; SYS crosses the sockets' link


def topology(text: str) -> dict[tuple[int, int], str]:
    """The map that `nvidia-smi topo -m` prints: (GPU, GPU) -> its word, such as NV18 or PHB.

    >>> topology("\\tGPU0\\tGPU1\\tCPU Affinity\\nGPU0\\t X \\tNV18\\t0-47\\nGPU1\\tNV18\\t X \\t0-47\\n")
    {(0, 1): 'NV18', (1, 0): 'NV18'}
    """
    rows = [[word.strip() for word in line.split("\t")] for line in UNDERLINE.sub("", text).splitlines()]
    head = next((row for row in rows if "GPU0" in row), [])
    found = {}
    for row in rows:
        if row is head or not row[0].startswith("GPU") or not row[0][3:].isdigit():
            continue
        for name, word in zip(head, row, strict=False):
            if name.startswith("GPU") and name[3:].isdigit() and word not in ("", "X"):
                found[int(row[0][3:]), int(name[3:])] = word
    return found


def named(word: str) -> str:
    """A word of the map in the terms of the reports: nvlink (NV18), pcie (PHB), unknown.

    >>> named("NV18"), named("SYS"), named("?")
    ('nvlink', 'pcie', 'unknown')
    """
    if word.startswith("NV") and word[2:].isdigit():
        return "nvlink"
    return "pcie" if word in PCIE else "unknown"


def paths_from(world: World, *, ask: Ask = ask_nvidia_smi) -> list[str]:
    """What lies between this rank and every rank; "self" for itself. Every rank must call it."""
    me = _driver_index(world, ask)
    everyone = world.gather(me)
    known = topology(ask(("topo", "-m")) or "") if me is not None else {}
    found = []
    for rank, (node, other) in enumerate(zip(world.nodes, everyone, strict=True)):
        if rank == world.rank:
            found.append("self")
        elif node != world.node:
            found.append("network")
        elif world.device.type == "cpu":
            found.append("loopback")
        else:
            found.append(named(known.get((me, other), "")) if me is not None and other is not None else "unknown")
    return found


def _driver_index(world: World, ask: Ask) -> int | None:
    """This rank's GPU as the driver counts; None without one, or where the driver does not know it."""
    if world.device.type != "cuda":
        return None
    uuid = str(torch.cuda.get_device_properties(world.device).uuid).removeprefix("GPU-")
    return next((gpu.index for gpu in gpus(ask=ask) if gpu.uuid.removeprefix("GPU-") == uuid), None)
