"""What is in the page cache is told from what is on the device, and a file system by what it is, not its name."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from benchmarks.storage import cache
from benchmarks.storage.filesystem import filesystem_of, parse_mounts

SIZE = 4 * 2**20

MOUNTINFO = r"""
24 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda2 rw,errors=remount-ro
25 24 0:22 / /dev/shm rw,nosuid shared:4 - tmpfs tmpfs rw,size=98304k
60 24 0:51 / /lustre rw,relatime shared:30 - lustre 10.1.0.2@o2ib:10.1.0.3@o2ib:/scratch rw,flock,lazystatfs
61 60 0:52 / /lustre/home rw,relatime shared:31 - nfs4 filer:/home rw,vers=4.2,rsize=1048576
62 24 0:53 / /mnt/with\040space rw - fuse.nfs4 \134\134host\134share rw
63 24 254:1 / /data rw - xfs /dev/nvme0n1 rw
64 63 0:60 / /data rw - gpfs gpfs0 rw
65 24 0:61 / /var/lib/containers rw - overlay overlay rw,lowerdir=/l,upperdir=/u
"""


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with path.open("wb") as file:
        file.write(os.urandom(SIZE))
        file.flush()
        os.fsync(file.fileno())
    if filesystem_of(path).kind in ("tmpfs", "ramfs"):
        pytest.fail("the tests' temporary folder is memory: set TMPDIR to a folder on a disk")
    return path


def test_a_written_file_is_resident_until_evicted(written: Path):
    assert cache.resident_bytes(written) == SIZE
    cache.evict(written)
    assert cache.resident_bytes(written) == 0


def test_a_cold_read_comes_from_the_device_and_a_warm_one_does_not(written: Path):
    cache.evict(written)
    before = cache.device_bytes_read()
    written.read_bytes()
    after_cold = cache.device_bytes_read()
    written.read_bytes()
    assert after_cold - before >= 0.95 * SIZE
    assert cache.device_bytes_read() - after_cold < 0.05 * SIZE


def test_eviction_does_nothing_while_somebody_maps_the_file_and_that_is_seen(written: Path):
    with written.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        sum(mapped[i] for i in range(0, SIZE, 4096))
        cache.evict(written)
        assert cache.resident_bytes(written) > 0.9 * SIZE


def test_what_is_not_synced_is_not_on_the_device(tmp_path: Path):
    path = tmp_path / "dirty"
    path.write_bytes(os.urandom(SIZE))
    assert cache.unwritten_bytes(path) > 0
    with path.open("rb") as file:
        os.fsync(file.fileno())
    assert cache.unwritten_bytes(path) == 0


def test_the_older_way_counts_the_same(written: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cache, "_cachestat", lambda _: None)
    assert cache.resident_bytes(written) == SIZE
    cache.evict(written)
    assert cache.resident_bytes(written) == 0
    assert cache.unwritten_bytes(written) is None  # mincore does not know: unknown, not zero


def test_an_unreadable_counter_is_unknown_not_zero(tmp_path: Path):
    assert cache.device_bytes_read(tmp_path / "io") is None
    (tmp_path / "io").write_text("rchar: 12\n")
    assert cache.device_bytes_read(tmp_path / "io") is None


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/me", "ext4"),
        ("/lustre/run", "lustre"),
        ("/lustre/home/me", "nfs4"),
        ("/lustrefoo", "ext4"),  # a longer name is another folder
        ("/mnt/with space/x", "fuse.nfs4"),
        ("/data/x", "gpfs"),  # mounted over the xfs
        ("/dev/shm", "tmpfs"),
        ("/var/lib/containers/c", "overlay"),
    ],
)
def test_the_longest_mount_holds_a_path(tmp_path: Path, path: str, kind: str):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTINFO)
    assert filesystem_of(Path(path), mounts).kind == kind


def test_a_source_is_unescaped():
    found = {m.mount_point: m for m in parse_mounts(MOUNTINFO)}
    assert found["/mnt/with space"].source == r"\\host\share"
    assert found["/lustre"].source == "10.1.0.2@o2ib:10.1.0.3@o2ib:/scratch"


def test_a_symlink_into_memory_is_memory(tmp_path: Path):
    (tmp_path / "looks-like-a-disk").symlink_to("/dev/shm")
    assert filesystem_of(tmp_path / "looks-like-a-disk").kind == "tmpfs"
