"""Processes that compute on this node's GPUs and are not ours: what must not be there when a campaign starts.

Asked of the driver (`nvidia-smi`), which sees every user's processes. No driver tool means no GPUs and no strangers; a
driver tool that fails is an error, never an empty list. Only the GPUs that this process may use count.

>>> strangers(ask=lambda _: None)
[]
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks import inventory
from benchmarks.remains import is_ours


@dataclass(frozen=True, kw_only=True)
class Stranger:
    """One process on one GPU."""

    pid: int
    name: str
    gpu: int

    def __str__(self) -> str:
        """process 4242 (python) is on GPU 3."""
        return f"process {self.pid} ({self.name}) is on GPU {self.gpu}"


def strangers(
    *, ask: inventory.Ask = inventory.ask_nvidia_smi, environ: Mapping[str, str] = os.environ
) -> list[Stranger]:
    """Every process on a GPU of ours that no launch of this suite started.

    Raises DriverError as `inventory.gpus` does, and where a line cannot be read.
    """
    mine = {g.uuid: g.index for g in inventory.gpus(ask=ask, environ=environ)}
    said = ask(("--query-compute-apps=gpu_uuid,pid,process_name", "--format=csv,noheader")) if mine else ""
    found = []
    for line in (said or "").splitlines():
        uuid, _, rest = line.partition(",")
        pid, _, name = rest.partition(",")
        if not pid.strip().isdigit():
            raise inventory.DriverError(f"nvidia-smi lists a process that cannot be read: {line.strip()!r}")
        if uuid.strip() in mine and not is_ours(int(pid)):
            found.append(Stranger(pid=int(pid), name=name.strip() or "no name", gpu=mine[uuid.strip()]))
    return found
