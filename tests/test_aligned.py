"""The fast writer writes exactly the bytes it is given, whatever their sizes and whatever the folder allows."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.storage import aligned, cache
from benchmarks.storage.aligned import ALIGNMENT, Staging, gather, write_all
from benchmarks.storage.filesystem import filesystem_of


def random_parts(*sizes: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(sum(sizes))
    return [torch.randint(0, 256, (n,), dtype=torch.uint8, generator=generator) for n in sizes]


def together(parts: list[torch.Tensor]) -> bytes:
    return b"".join(bytes(part.numpy()) for part in parts)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aligned, "CHUNK", 4 * ALIGNMENT)


@pytest.fixture(params=aligned.MODES)
def staging(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Staging:
    monkeypatch.setattr(aligned, "MODES", (request.param, "buffered", "buffered"))
    staging = Staging(tmp_path, threads=3)
    if staging.mode != request.param:
        pytest.skip(f"{filesystem_of(tmp_path).kind} here refuses {request.param} writes")
    return staging


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(0, 20_000), max_size=8))
def test_what_is_written_is_what_was_given(staging: Staging, tmp_path: Path, sizes: list[int]):
    parts, path = random_parts(*sizes), tmp_path / "file"
    path.unlink(missing_ok=True)
    assert staging.write(path, parts) == sum(sizes)
    assert path.read_bytes() == together(parts)


def test_nothing_is_left_in_memory_that_is_not_on_the_device(staging: Staging, tmp_path: Path):
    staging.write(tmp_path / "file", random_parts(100_001))
    assert cache.unwritten_bytes(tmp_path / "file") == 0
    if staging.mode != "buffered":
        assert cache.resident_bytes(tmp_path / "file") <= ALIGNMENT  # ftruncate may touch the last page
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_an_existing_file_is_never_written_over(staging: Staging, tmp_path: Path):
    (tmp_path / "file").write_bytes(b"precious")
    with pytest.raises(FileExistsError):
        staging.write(tmp_path / "file", random_parts(10))
    assert (tmp_path / "file").read_bytes() == b"precious"


@settings(max_examples=50)
@given(sizes=st.lists(st.integers(0, 30), min_size=1, max_size=8), data=st.data())
def test_gather_is_a_slice_of_the_whole(sizes: list[int], data: st.DataObject):
    parts = random_parts(*sizes)
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    start = data.draw(st.integers(0, ends[-1]))
    length = data.draw(st.integers(0, ends[-1] - start))
    buffer = torch.zeros(length, dtype=torch.uint8)
    gather(parts, ends, start, buffer)
    assert bytes(buffer.numpy()) == together(parts)[start : start + length]


def test_a_short_write_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    whole = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda d, views, offset, flags: whole(d, [views[0][:7]], offset, flags))
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    write_all(descriptor, memoryview(b"0123456789" * 3), 5)
    os.close(descriptor)
    assert (tmp_path / "file").read_bytes() == b"\0" * 5 + b"0123456789" * 3


def test_a_folder_that_refuses_falls_back_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    real_open, real_write = os.open, os.pwritev

    def no_direct(path: object, flags: int, *rest: object) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "no O_DIRECT")
        return real_open(path, flags, *rest)

    def no_flags(descriptor: int, views: list, offset: int, flags: int = 0) -> int:
        if flags:
            raise OSError(errno.EOPNOTSUPP, "no RWF_DONTCACHE")
        return real_write(descriptor, views, offset)

    monkeypatch.setattr(os, "open", no_direct)
    monkeypatch.setattr(os, "pwritev", no_flags)
    assert Staging(tmp_path).mode == "buffered"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_an_error_not_a_fallback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def read_only(*_: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(OSError, match="Read-only"):
        Staging(tmp_path)


def test_memory_is_written_too():
    shared = Path("/dev/shm") / f"rackproof-test-{os.getpid()}"
    shared.mkdir()
    try:
        parts = random_parts(5000, 70_000)
        Staging(shared).write(shared / "file", parts)
        assert (shared / "file").read_bytes() == together(parts)
    finally:
        for path in shared.iterdir():
            path.unlink()
        shared.rmdir()
