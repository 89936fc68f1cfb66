"""Memory of this node's GPUs that is taken though no process claims it: what only a reset gives back.

Asked of the driver (`nvidia-smi`) after a launch has ended. A process that still holds memory is `remains`' and
`strangers`' business; here it is what the driver counts as used beyond what all processes hold. A driver that does not
say which process holds how much (in some containers, and with MIG) leaves nothing to claim, and nothing is claimed.

>>> unclaimed(ask=lambda _: None)
[]
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping

from benchmarks import inventory

OWN_MIB = 1024  # what a driver takes for itself on an idle GPU, amply


def unclaimed(
    *, ask: inventory.Ask = inventory.ask_nvidia_smi, environ: Mapping[str, str] = os.environ, patience_s: float = 0.0
) -> list[str]:
    """One line for each GPU of ours with more than a GiB that no process holds; memory takes a moment to come back."""
    end = time.monotonic() + patience_s
    while True:
        try:
            found = _look(ask, environ)
        except inventory.DriverError as error:
            return [f"GPU memory unknown: {error}"]
        if not found or time.monotonic() >= end:
            return found
        time.sleep(0.2)


def _look(ask: inventory.Ask, environ: Mapping[str, str]) -> list[str]:
    mine = {g.uuid: g.index for g in inventory.gpus(ask=ask, environ=environ)}
    if not mine:
        return []
    held: Counter[str] = Counter()
    for uuid, used in _rows(ask, "--query-compute-apps=gpu_uuid,used_memory"):
        if not used.isdigit():
            return []
        held[uuid] += int(used)
    return [
        f"GPU {mine[uuid]}: {(int(used) - held[uuid]) / 1024:.1f} GiB of its memory in use by no process "
        "(nvidia-smi --gpu-reset, or reboot the node)"
        for uuid, used in _rows(ask, "--query-gpu=uuid,memory.used")
        if uuid in mine and used.isdigit() and int(used) - held[uuid] > OWN_MIB
    ]  # fmt: skip


def _rows(ask: inventory.Ask, query: str) -> list[tuple[str, str]]:
    """(GPU, MiB as text) of each line."""
    said = ask((query, "--format=csv,noheader,nounits")) or ""
    cut = [line.partition(",") for line in said.splitlines() if line.strip()]
    return [(uuid.strip(), used.strip()) for uuid, _, used in cut]
