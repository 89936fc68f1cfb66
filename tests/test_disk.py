"""A save that claims to be durable is held against what the disk under it was really given."""

from __future__ import annotations

from pathlib import Path

from benchmarks.storage.disk import Given, given, lie, total
from benchmarks.storage.filesystem import FileSystem

STAT = "38 3 457 98 {writes} 905 {sectors} 302 0 21 411 50 17 280 95 {flushes} 12\n"  # as in /sys/block/vda/stat
LOCAL = FileSystem(kind="ext4", source="/dev/x", mount_point="/data", device="254:1")
LUSTRE = FileSystem(kind="lustre", source="10.1.0.2@o2ib:/scratch", mount_point="/scratch")


def system(root: Path, *, sectors: int, flushes: int, cache: str = "write back") -> Path:
    """A small /sys with one disk and one partition of it."""
    disk = root / "sys/devices/vda"
    (disk / "vda1").mkdir(parents=True, exist_ok=True)
    (disk / "queue").mkdir(exist_ok=True)
    (disk / "vda1" / "partition").write_text("1\n")
    (disk / "queue" / "write_cache").write_text(cache + "\n")
    (disk / "stat").write_text(STAT.format(writes=9, sectors=sectors, flushes=flushes))
    link = root / "sys/dev/block/254:1"
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.exists():
        link.symlink_to(disk / "vda1")
    return root


def test_a_partition_is_asked_through_its_disk(tmp_path: Path):
    assert given(LOCAL, system(tmp_path, sectors=100, flushes=7)) == Given(written_bytes=51200, flushes=7)


def test_a_disk_without_a_cache_or_that_never_counted_a_flush_has_none_to_miss(tmp_path: Path):
    assert given(LOCAL, system(tmp_path, sectors=1, flushes=7, cache="write through")).flushes is None
    assert given(LOCAL, system(tmp_path, sectors=1, flushes=0)).flushes is None


def test_what_nothing_counts_is_unknown_and_contradicts_nothing(tmp_path: Path):
    fuse = FileSystem(kind="fuse.nfs4", source="x", mount_point="/x", device="0:61")
    assert given(fuse, tmp_path) is given(LUSTRE, tmp_path) is None
    assert lie(None, Given(written_bytes=0), expected_bytes=9) == ""
    assert total([Given(written_bytes=1), None]) is total([]) is None


def test_a_disk_that_is_told_not_to_count_contradicts_nothing(tmp_path: Path):
    root = system(tmp_path, sectors=100, flushes=7)
    (root / "sys/devices/vda/queue/iostats").write_text("0\n")
    assert given(LOCAL, root) is None


def test_lustre_clients_are_summed(tmp_path: Path):
    for index, size in enumerate((1000, 234)):
        stats = tmp_path / f"proc/fs/lustre/osc/scratch-OST000{index}-osc-ffff/stats"
        stats.parent.mkdir(parents=True)
        stats.write_text(f"snapshot_time 1 secs.nsecs\nwrite_bytes 3 samples [bytes] 1 500 {size}\n")
    assert given(LUSTRE, tmp_path) == Given(written_bytes=1234)


def test_too_few_bytes_or_no_flush_is_a_lie():
    before, honest = Given(written_bytes=0, flushes=3), Given(written_bytes=100, flushes=4)
    assert lie(before, honest, expected_bytes=100) == ""
    assert "given 94 of 100 bytes" in lie(before, Given(written_bytes=94, flushes=4), expected_bytes=100)
    assert "never asked to flush" in lie(before, Given(written_bytes=100, flushes=3), expected_bytes=100)
    assert total([honest, Given(written_bytes=1, flushes=2)]) == Given(written_bytes=101, flushes=6)
    assert total([honest, Given(written_bytes=1)]) == Given(written_bytes=101)
