"""The page cache: put a file out of it, see what of it is in, and count the bytes the device really gave.

A read after a write comes from memory unless someone makes sure and proves it. Eviction alone is no proof: it
silently does nothing while another process maps the file. So: evict, see that nothing is resident, and compare
the bytes this process caused the device to read. Linux; elsewhere everything here answers "unknown" (None).

    evict(path)
    resident_bytes(path)  # 0: the next read comes from the device
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CACHESTAT = 451  # system call number, the same on every architecture torch runs on; Linux 6.5 and later
LINUX = sys.platform == "linux"


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _CacheStat(ctypes.Structure):
    """Counts of pages, as in linux/mman.h."""

    _fields_ = tuple((n, ctypes.c_uint64) for n in ("cached", "dirty", "writeback", "evicted", "recently_evicted"))


def evict(path: Path) -> None:
    """Ask the kernel to drop the clean pages of a file. Dirty pages stay: fsync first."""
    if hasattr(os, "posix_fadvise"):
        with _opened(path) as descriptor:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def resident_bytes(path: Path) -> int | None:
    """Bytes of a file in the page cache, in whole pages; None where the kernel does not tell."""
    if not LINUX:
        return None
    with _opened(path) as descriptor:
        stat = _cachestat(descriptor)
        return stat.cached * mmap.PAGESIZE if stat else _mincore(descriptor)


def unwritten_bytes(path: Path) -> int | None:
    """Bytes of a file that are in memory and not yet on the device: above zero after an fsync, it lied."""
    if not LINUX:
        return None
    with _opened(path) as descriptor:
        stat = _cachestat(descriptor)
        return (stat.dirty + stat.writeback) * mmap.PAGESIZE if stat else None


def device_bytes_read(io: Path = Path("/proc/self/io")) -> int | None:
    """Bytes this process has caused to be read from storage so far (proc(5): read_bytes); None where unknown."""
    try:
        match = re.search(r"^read_bytes: (\d+)", io.read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) if match else None


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _cachestat(descriptor: int) -> _CacheStat | None:
    """What cachestat(2) says of a whole file; None before Linux 6.5."""
    whole, stat = _Range(0, 0), _CacheStat()
    libc = ctypes.CDLL(None, use_errno=True)
    failed = libc.syscall(CACHESTAT, descriptor, ctypes.byref(whole), ctypes.byref(stat), 0)
    return None if failed else stat


def _mincore(descriptor: int) -> int | None:
    """Resident bytes by mincore(2), for kernels without cachestat."""
    size = os.fstat(descriptor).st_size
    if size == 0:
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_int64)
    address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        return None
    pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    try:
        failed = libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), pages)
    finally:
        libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(size))
    return None if failed else sum(page & 1 for page in pages) * mmap.PAGESIZE
