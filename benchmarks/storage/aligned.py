"""One file written as fast as its storage takes it: past the page cache, from huge pages, by a few threads.

Each thread gathers its next 8 MiB of the file into its own aligned buffer and writes it with O_DIRECT; while one
copies, another writes. Huge pages matter: the kernel pins 4 pages instead of 2048 per write. Where O_DIRECT is
refused the file is written uncached (RWF_DONTCACHE), else buffered; `Staging.mode` says which. Always synced.

    staging = Staging(folder, threads=2, pinned=False)     # outside the clock: probes, allocates, touches
    size = staging.write(folder / "rank0.raw", parts)      # inside the clock
"""

from __future__ import annotations

import bisect
import ctypes
import errno
import itertools
import mmap
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

CHUNK = 8 * 2**20  # below 4 MiB a write costs more than it carries; above 8 MiB nothing is won
HUGE_PAGE = 2 * 2**20
ALIGNMENT = 4096  # of offsets, sizes and memory, for O_DIRECT on any common device
RWF_DONTCACHE = 0x80  # pwritev2(2): drop the pages once they are written; Linux 6.14 and later
REFUSED = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP)
MODES = ("direct", "uncached", "buffered")


class Staging:
    """The buffers of one rank, one per thread, and how its folder wants to be written."""

    def __init__(self, folder: Path, *, threads: int = 2, pinned: bool = False) -> None:
        """Probe `folder` for the fastest way that works, and allocate. `pinned`: for copies from a GPU."""
        self.threads = threads
        self._buffers = [_pinned_buffer() if pinned else _huge_buffer() for _ in range(threads)]
        self.mode = _probe(folder, self._buffers[0])

    def __getstate__(self) -> dict[str, object]:
        """Buffers stay here: a process that this travels to makes its own."""
        return {"threads": self.threads, "mode": self.mode}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.threads, self.mode = state["threads"], state["mode"]
        self._buffers = [_huge_buffer() for _ in range(self.threads)]

    def write(self, path: Path, parts: Sequence[Tensor]) -> int:
        """Write the flat uint8 tensors one after another into the new file `path` and sync it; its size in bytes.

        Raises OSError as the file system does, FileExistsError too.
        """
        ends = list(itertools.accumulate(part.numel() for part in parts))
        size = ends[-1] if ends else 0
        descriptor = os.open(path, _flags(self.mode), 0o644)
        try:
            _allocate(descriptor, size)
            self._write_chunks(descriptor, parts, ends, size)
            os.ftruncate(descriptor, size)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return size

    def _write_chunks(self, descriptor: int, parts: Sequence[Tensor], ends: list[int], size: int) -> None:
        starts = iter(range(0, size, CHUNK))
        turn = threading.Lock()

        def work(buffer: Tensor) -> None:
            view = memoryview(buffer.numpy())
            while True:
                with turn:
                    start = next(starts, None)
                if start is None:
                    return
                length = min(CHUNK, size - start)
                gather(parts, ends, start, buffer[:length])
                padded = -(-length // ALIGNMENT) * ALIGNMENT if self.mode == "direct" else length
                write_all(descriptor, view[:padded], start, RWF_DONTCACHE if self.mode == "uncached" else 0)

        if size <= CHUNK or self.threads == 1:
            work(self._buffers[0])
            return
        with ThreadPoolExecutor(self.threads) as pool:
            for done in [pool.submit(work, buffer) for buffer in self._buffers]:
                done.result()


def gather(parts: Sequence[Tensor], ends: Sequence[int], start: int, buffer: Tensor) -> None:
    """Fill `buffer` with the bytes from `start` on of all parts in a row. `ends[i]` is where part i ends."""
    index, filled = bisect.bisect_right(ends, start), 0
    while filled < buffer.numel():
        part = parts[index]
        first = start + filled - (ends[index] - part.numel())
        step = min(part.numel() - first, buffer.numel() - filled)
        buffer[filled : filled + step].copy_(part[first : first + step])
        filled, index = filled + step, index + 1


def write_all(descriptor: int, view: memoryview, offset: int, flags: int = 0) -> None:
    """pwrite until everything is written; a short write goes on where it stopped."""
    done = 0
    while done < len(view):
        done += os.pwritev(descriptor, [view[done:]], offset + done, flags)


def _flags(mode: str) -> int:
    direct = getattr(os, "O_DIRECT", 0) if mode == "direct" else 0
    return os.O_RDWR | os.O_CREAT | os.O_EXCL | direct


def _probe(folder: Path, buffer: Tensor) -> str:
    """The first of MODES that writes one block in `folder`. Other errors than a refusal are raised."""
    for mode in _modes_here():
        path = folder / f"probe-{os.getpid()}-{threading.get_ident()}"
        try:
            descriptor = os.open(path, _flags(mode), 0o600)
        except OSError as error:
            if error.errno in REFUSED:
                continue
            raise
        try:
            write_all(descriptor, memoryview(buffer.numpy())[:ALIGNMENT], 0, RWF_DONTCACHE if mode == "uncached" else 0)
        except OSError as error:
            if error.errno not in REFUSED or mode == "buffered":
                raise
        else:
            return mode
        finally:
            os.close(descriptor)
            path.unlink()
    raise AssertionError("the last mode either works or raises")


def _modes_here() -> Iterator[str]:
    """Only Linux has the first two."""
    yield from (MODES if hasattr(os, "O_DIRECT") else MODES[2:])


def _allocate(descriptor: int, size: int) -> None:
    """Reserve the file's blocks at once. Not by posix_fallocate, which writes them where this is not supported."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not size or not hasattr(libc, "fallocate"):
        return
    libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    if libc.fallocate(descriptor, 0, 0, size) and (code := ctypes.get_errno()) not in (*REFUSED, errno.ENOSYS):
        raise OSError(code, os.strerror(code))


def _huge_buffer() -> Tensor:
    """CHUNK bytes that start on a huge page, already touched."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, CHUNK + HUGE_PAGE, flags=flags)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    whole = torch.frombuffer(memory, dtype=torch.uint8)
    skipped = -whole.data_ptr() % HUGE_PAGE
    return whole[skipped : skipped + CHUNK].fill_(1)


def _pinned_buffer() -> Tensor:
    whole = torch.empty(CHUNK + ALIGNMENT, dtype=torch.uint8, pin_memory=True)
    skipped = -whole.data_ptr() % ALIGNMENT
    return whole[skipped : skipped + CHUNK].fill_(1)
