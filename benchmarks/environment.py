"""The facts of one node during one launch: what changes overnight and explains a number.

Read once per launch by one rank of each node. A fact that cannot be read is absent; none is guessed.
Facts are shown and compared between runs; no limit judges them here.

    read_environment(world, launch=1).facts["torch"]  # 2.13.0
"""

from __future__ import annotations

import os
import platform
import re
import socket
from pathlib import Path
from typing import Any

import numpy
import torch

from benchmarks import inventory
from benchmarks.adapters import adapters
from benchmarks.measurement import Environment
from benchmarks.world import World

CONTAINER_VARIABLES = ("CONTAINER_DIGEST", "IMAGE_DIGEST", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER")


def read_environment(world: World, launch: int) -> Environment:
    """The environment of this rank's node. Never fails for a fact: a broken driver is one ("gpu_error")."""
    return Environment(node=world.node, launch=launch, ranks=world.local_ranks, facts=_facts() | _parts(world))


def _parts(world: World) -> dict[str, Any]:
    """The node's parts by serial: which GPU each of its ranks has, and its network adapters."""
    uuids = [world.gpu_uuids[rank] for rank in world.local_ranks] if world.gpu_uuids else []
    found: dict[str, Any] = {"rank_gpu_uuids": uuids if any(uuids) else [], "nics": adapters()}
    return {name: value for name, value in found.items() if value}


def _facts() -> dict[str, Any]:
    facts: dict[str, Any] = {
        "hostname": socket.gethostname(),
        "kernel": platform.release(),
        "os": _os_name(),
        "machine": platform.machine(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": _usable_cores(),
        "memory_bytes": _memory_bytes(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "cuda": torch.version.cuda,
        "nccl": _nccl_version(),
        "omp_threads": os.environ.get("OMP_NUM_THREADS"),
        "torch_threads": torch.get_num_threads(),
        "container": _container(),
        "env": {k: v for k, v in sorted(os.environ.items()) if k.startswith(("NCCL_", "GLOO_", "TORCH_NCCL_"))},
        **_gpu_facts(),
    }
    return {k: v for k, v in facts.items() if v is not None}


def _gpu_facts() -> dict[str, Any]:
    try:
        found = inventory.gpus()
    except inventory.DriverError as error:
        return {"gpu_error": str(error)}
    if not found:
        return {}
    return {
        "gpus": [g.name for g in found],
        "gpu_serials": [g.serial for g in found],
        "gpu_uuids": [g.uuid for g in found],
        "driver": found[0].driver,
    }


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return f"{platform.system()} {platform.release()}"


def _cpu_model() -> str | None:
    for line in (_read("/proc/cpuinfo") or "").splitlines():
        if line.startswith(("model name", "Hardware")):
            return line.partition(":")[2].strip()
    return platform.processor() or None


def _usable_cores() -> int | None:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _nccl_version() -> str | None:
    if not torch.cuda.is_available():
        return None
    return ".".join(map(str, torch.cuda.nccl.version()))


def _container() -> str | None:
    """The container's digest where its launcher tells it, else its kind; None outside of one."""
    for name in CONTAINER_VARIABLES:
        if os.environ.get(name):
            return os.environ[name]
    for marker, kind in (("/.dockerenv", "docker"), ("/run/.containerenv", "podman"), ("/.singularity.d", "apptainer")):
        if Path(marker).exists():
            image = re.search(r'^imageid="?([^"\n]+)', _read(marker) or "", re.MULTILINE)
            return f"{kind} {image[1]}" if image else kind
    return None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
