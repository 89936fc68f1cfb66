"""A storage for torch.distributed.checkpoint that writes as the hardware likes it.

One file per rank: the bytes of its tensors one after another, without archive, pickle or checksum around each,
written by `benchmarks.storage.aligned`. The `.metadata` file says where each tensor lies; it is synced after it
is written (torch 2.13 syncs its own before it is flushed). Any DCP planner works with it, resharding included.

    dcp.save(state, storage_writer=AlignedWriter(folder, staging), process_group=world.control)
    dcp.load(state, storage_reader=AlignedReader(folder), process_group=world.control)
"""

from __future__ import annotations

import dataclasses
import errno
import io
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint import (
    LoadPlan,
    LoadPlanner,
    Metadata,
    SavePlan,
    SavePlanner,
    StorageReader,
    StorageWriter,
)
from torch.distributed.checkpoint.planner import LoadItemType, ReadItem, WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from benchmarks.storage.aligned import Staging

METADATA = ".metadata"
READ_CHUNK = 8 * 2**20


@dataclass(frozen=True, kw_only=True)
class Location:
    """Where one item lies. `dtype` and `shape` are None for bytes that are no tensor."""

    file: str
    offset: int
    length: int
    dtype: torch.dtype | None = None
    shape: tuple[int, ...] | None = None


class AlignedWriter(StorageWriter):  # type: ignore[misc]
    """Writes this rank's items into one new file; `files` says which, and their sizes."""

    def __init__(self, folder: Path, staging: Staging) -> None:
        super().__init__()
        self.folder, self.staging = folder, staging
        self.files: dict[str, int] = {}

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Start anew, in another folder where one is given."""
        self.folder = Path(checkpoint_id) if checkpoint_id else self.folder
        self.files = {}

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Nothing to set up: the folder is made by who measures."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """As it is."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Tell each rank the name of its file."""
        return [dataclasses.replace(plan, storage_data=f"rank{rank}.bin") for rank, plan in enumerate(plans)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write and sync this rank's file."""
        items = [(item, _item_bytes(item, planner)) for item in plan.items]
        done: Future[list[WriteResult]] = Future()
        results, offset = [], 0
        for item, data in items:
            where = Location(
                file=plan.storage_data, offset=offset, length=data.numel(),
                dtype=item.tensor_data.properties.dtype if item.tensor_data else None,
                shape=tuple(item.tensor_data.chunk.sizes) if item.tensor_data else None,
            )  # fmt: skip
            results.append(WriteResult(index=item.index, size_in_bytes=data.numel(), storage_data=where))
            offset += data.numel()
        if items:
            size = self.staging.write(self.folder / plan.storage_data, [data for _, data in items])
            self.files[plan.storage_data] = size
        done.set_result(results)
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write and sync `.metadata` (the first rank)."""
        metadata.storage_data = {result.index: result.storage_data for rank in results for result in rank}
        path = self.folder / METADATA
        with path.open("xb") as file:
            pickle.dump(metadata, file)
            file.flush()
            os.fsync(file.fileno())
        self.files[METADATA] = path.stat().st_size

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether this is a folder of files, not an address."""
        return "://" not in str(checkpoint_id)


class AlignedReader(StorageReader):  # type: ignore[misc]
    """Reads what AlignedWriter wrote, straight into the tensors' memory where that is possible."""

    def __init__(self, folder: Path, *, threads: int = 2) -> None:
        super().__init__()
        self.folder, self.threads = folder, threads
        self._locations: dict[Any, Location] = {}

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Start anew, in another folder where one is given."""
        self.folder = Path(checkpoint_id) if checkpoint_id else self.folder

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:  # noqa: ARG002 - DCP's contract
        """The `.metadata` file, which is a pickle: load only checkpoints that you wrote."""
        with (self.folder / METADATA).open("rb") as file:
            return pickle.load(file)

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Learn where everything lies."""
        self._locations = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """As it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """As they are."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read every item of the plan, a few at a time, in file order."""
        items = sorted(plan.items, key=lambda item: self._order(item))
        targets = [None if i.type == LoadItemType.BYTE_IO else planner.resolve_tensor(i).detach() for i in items]
        with ThreadPoolExecutor(self.threads) as pool:
            read = list(pool.map(self._read, items, targets))
        for item, target, data in zip(items, targets, read, strict=True):
            if target is None:
                planner.load_bytes(item, io.BytesIO(bytes(data.numpy())))
            else:
                planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _order(self, item: ReadItem) -> tuple[str, int]:
        where = self._locations[item.storage_index]
        return where.file, where.offset

    def _read(self, item: ReadItem, target: Tensor | None) -> Tensor:
        where = self._locations[item.storage_index]
        if target is not None and tuple(item.lengths) == where.shape and target.is_cpu and target.is_contiguous():
            return read_into(self.folder / where.file, where.offset, _flat(target))
        data = torch.empty(where.length, dtype=torch.uint8)
        read_into(self.folder / where.file, where.offset, data)
        if target is not None:
            found = data.view(where.dtype).view(where.shape)
            for dimension, (start, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
                found = found.narrow(dimension, start, length)
            target.copy_(found)
        return data

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether this is a folder of files, not an address."""
        return "://" not in str(checkpoint_id)


def read_into(path: Path, offset: int, flat: Tensor) -> Tensor:
    """Fill a flat uint8 CPU tensor from a file; returns it. OSError where the file ends before it is full."""
    view, done = memoryview(flat.numpy()), 0
    descriptor = os.open(path, os.O_RDONLY)
    try:
        while done < len(view):
            step = os.preadv(descriptor, [view[done : done + READ_CHUNK]], offset + done)
            if step == 0:
                raise OSError(errno.EIO, f"the file ends {len(view) - done} bytes too early", str(path))
            done += step
    finally:
        os.close(descriptor)
    return flat


def _item_bytes(item: WriteItem, planner: SavePlanner) -> Tensor:
    data = planner.resolve_data(item)
    if item.type == WriteItemType.BYTE_IO:
        return torch.frombuffer(bytearray(data.getbuffer()), dtype=torch.uint8)
    return _flat(data.detach().contiguous())


def _flat(tensor: Tensor) -> Tensor:
    return tensor.view(-1).view(torch.uint8)
