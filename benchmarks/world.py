"""The ranks a benchmark runs on: who am I, where are the others, one clock and two groups.

Every rank builds one World after the process group is up and hands it to each benchmark. Exchange of
results goes over `control`, a gloo group apart from the measured one: an operation that failed in the
measured group can resurface there later. World does not start ranks and does not know the controller.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from benchmarks import devices
from benchmarks.measurement import Subject
from benchmarks.spec import Place


@dataclass(frozen=True, kw_only=True)
class World:
    """One rank's view of all ranks."""

    rank: int
    size: int
    local_rank: int
    place: Place
    device: torch.device
    node: str  # this rank's host name
    nodes: tuple[str, ...]  # host name of every rank
    control: Any = None  # gloo group of all ranks for barriers and gathers outside the measured group
    scratch: str = ""  # a folder for temporary files of this rank's node
    gpu_serial: str = ""
    gpu_uuids: tuple[str, ...] = ()  # of every rank's GPU, as the driver names it; "" on a CPU

    @property
    def is_first(self) -> bool:
        """Rank 0: the one that yields what belongs to the whole world."""
        return self.rank == 0

    @property
    def local_ranks(self) -> tuple[int, ...]:
        """Ranks on this rank's node."""
        return tuple(r for r, node in enumerate(self.nodes) if node == self.node)

    def synchronize(self) -> None:
        """Wait until the device has done all work queued so far (nothing to wait for on a CPU)."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def barrier(self) -> None:
        """All ranks arrive, on the control group; device work is finished first."""
        self.synchronize()
        if self.size > 1:
            dist.barrier(group=self.control)

    def gather(self, value: Any) -> list[Any]:
        """`value` of every rank, in rank order, on every rank (control group; picklable)."""
        if self.size == 1:
            return [value]
        got: list[Any] = [None] * self.size
        dist.all_gather_object(got, value, group=self.control)
        return got

    def timed(self, work: Callable[[], Any]) -> float:
        """Seconds that `work` takes on this rank: device events on a GPU, the monotonic clock on a CPU."""
        if self.device.type == "cuda":
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            work()
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end)) / 1e3
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin

    def me(self) -> Subject:
        """This rank's device as the subject of a measurement."""
        group = "gpu" if self.device.type == "cuda" else "rank"
        gpu = self.local_rank if self.device.type == "cuda" else None  # also where a rank sees only its own, as 0
        return Subject(group=group, node=self.node, rank=self.rank, gpu=gpu, gpu_serial=self.gpu_serial)

    def all(self) -> Subject:
        """The whole world as the subject of a measurement."""
        return Subject(group="world", ranks=self.size)


def open_world(place: Place, *, timeout_s: float, scratch: str = "") -> World:
    """Join the process group from RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT.

    The measured group's backend is `place.backend`; the control group is always gloo. `timeout_s` is the
    groups' own time-out: a safety net behind the controller's, which diagnoses before anyone is ended.
    Raises ValueError where there is no GPU for this rank, RuntimeError where two ranks have the same one.
    """
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cpu")
    if place.device == "cuda":
        device = torch.device("cuda", devices.index_of(local_rank=local_rank, visible=torch.cuda.device_count()))
        torch.cuda.set_device(device)
    limit = timedelta(seconds=timeout_s)
    if not dist.is_initialized():
        dist.init_process_group(place.backend, timeout=limit)
    size = dist.get_world_size()
    control = dist.new_group(backend="gloo", timeout=limit) if size > 1 else None
    node = socket.gethostname()
    uuid = str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else ""
    name = f"GPU-{uuid.removeprefix('GPU-')}" if uuid else ""  # torch leaves the driver's prefix away
    told: list[Any] = [(node, name)] * size
    if size > 1:
        dist.all_gather_object(told, (node, name), group=control)
        if problem := devices.shared(told):
            raise RuntimeError(problem)
    return World(
        rank=dist.get_rank(), size=size, local_rank=local_rank, place=place, device=device, node=node,
        nodes=tuple(node for node, _ in told), control=control, scratch=scratch,
        gpu_uuids=tuple(uuid for _, uuid in told),
    )  # fmt: skip
