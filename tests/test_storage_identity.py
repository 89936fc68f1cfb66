"""A file system is judged by what it is: parallel, network, local, memory, or a mount that failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.storage.filesystem import FileSystem, filesystem_of, parse_mounts
from benchmarks.storage.identity import NETWORK_BLOCK, SORTS, apart, network_disk, problems, sort_of

LUSTRE = FileSystem(kind="lustre", source="10.1.0.2@o2ib:/scratch", mount_point="/scratch")
NFS = FileSystem(kind="nfs4", source="filer:/export", mount_point="/scratch")
ROOT = FileSystem(kind="ext4", source="/dev/nvme0n1p2", mount_point="/")
MEMORY = FileSystem(kind="tmpfs", source="tmpfs", mount_point="/scratch")


def disk(sys: Path, number: str, where: str, **files: str) -> FileSystem:
    """A disk in a small /sys; `where` is its folder under devices/."""
    folder = sys / "devices" / where
    (sys / "dev/block").mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True)
    (sys / "dev/block" / number).symlink_to(folder)
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return FileSystem(kind="xfs", source="/dev/x", mount_point="/data", device=number)


@pytest.mark.parametrize(
    ("kind", "sort"),
    [
        ("lustre", "parallel"), ("gpfs", "parallel"), ("wekafs", "parallel"), ("beegfs", "parallel"),
        ("nfs4", "network"), ("cifs", "network"), ("fuse.nfs4", "network"), ("fuse.sshfs", "network"),
        ("ext4", "local"), ("xfs", "local"), ("tmpfs", "memory"), ("overlay", "layered"),
        ("fuse", "unknown"), ("fuse.something", "unknown"), ("unknown on darwin", "unknown"),
    ],
)  # fmt: skip
def test_each_kind_has_one_sort(kind: str, sort: str, tmp_path: Path):
    assert sort_of(FileSystem(kind=kind, source="s", mount_point="/m"), tmp_path) == sort
    assert len([k for kinds in SORTS.values() for k in kinds]) == len({k for kinds in SORTS.values() for k in kinds})


@pytest.mark.parametrize(
    ("where", "files", "reason"),
    [
        ("pci0/nvme/nvme0/nvme0n1", {"device__model": "Amazon Elastic Block Store"}, "cloud volume"),
        ("nvme-fabrics/nvme1/nvme1n1", {"device__transport": "tcp"}, "NVMe over tcp"),
        ("virtual/block/nbd0", {}, "over a network"),
        ("virtual/block/rbd0", {}, "over a network"),
    ],
)
def test_a_local_file_system_on_a_distant_disk_is_a_network_block_device(
    tmp_path: Path, where: str, files: dict[str, str], reason: str
):
    found = disk(tmp_path, "259:0", where, **files)
    assert sort_of(found, tmp_path) == NETWORK_BLOCK
    assert reason in network_disk(found, tmp_path)


def test_iscsi_is_told_by_its_session(tmp_path: Path):
    found = disk(tmp_path, "8:16", "platform/host3/session1/target3/sdb/block/sdb")
    (tmp_path / "devices/platform/host3/session1/target3/sdb/block/sdb/device").symlink_to(
        tmp_path / "devices/platform/host3/session1/target3/sdb"
    )
    assert "iSCSI" in network_disk(found, tmp_path)


def test_a_disk_of_this_machine_is_local(tmp_path: Path):
    found = disk(tmp_path, "259:1", "pci0/nvme/nvme0/nvme0n1", device__model="SAMSUNG MZQL2", device__transport="pcie")
    assert sort_of(found, tmp_path) == "local"


def test_partitions_and_volumes_are_looked_through(tmp_path: Path):
    disk(tmp_path, "259:0", "pci0/nvme/nvme0/nvme0n1", device__model="Amazon Elastic Block Store")
    part = disk(tmp_path, "259:1", "pci0/nvme/nvme0/nvme0n1/nvme0n1p1", partition="1")
    assert sort_of(part, tmp_path) == NETWORK_BLOCK
    volume = disk(tmp_path, "253:0", "virtual/block/dm-0")
    (tmp_path / "devices/virtual/block/dm-0/slaves").mkdir()
    (tmp_path / "devices/virtual/block/dm-0/slaves/nvme0n1p1").symlink_to(tmp_path / "dev/block/259:1")
    assert sort_of(volume, tmp_path) == NETWORK_BLOCK


def test_what_the_cluster_file_expects_is_good():
    assert problems("parallel", [("a", LUSTRE, "parallel"), ("b", LUSTRE, "parallel")]) == []
    assert problems("lustre,gpfs", [("a", LUSTRE, "parallel")]) == []
    assert problems("", [("a", ROOT, "local")]) == []


@pytest.mark.parametrize(
    ("expected", "place", "sort", "said"),
    [
        ("parallel", NFS, "network", "a: /scratch is nfs4 (network, filer:/export), the cluster file says parallel"),
        ("parallel", ROOT, "local", "is the mount missing?"),
        ("local", ROOT, NETWORK_BLOCK, "(network block device, /dev/nvme0n1p2), the cluster file says local"),
        ("", NFS, "network", "behind a network link"),
        ("", ROOT, NETWORK_BLOCK, "behind a network link"),
        ("", MEMORY, "memory", "nothing there survives a restart"),
        ("memory", MEMORY, "memory", "nothing there survives a restart"),  # no cluster file can allow that
        ("parallel", FileSystem(kind="fuse", source="x", mount_point="/scratch"), "unknown", "says parallel"),
    ],
)
def test_what_is_wrong_is_said(expected: str, place: FileSystem, sort: str, said: str):
    assert len(found := problems(expected, [("a", place, sort)])) == 1
    assert said in found[0]


def test_one_file_system_is_told_by_a_file_in_it_not_by_its_name():
    other_address = FileSystem(kind="lustre", source="10.9.0.2@tcp:/scratch", mount_point="/scratch")
    assert apart([("a", LUSTRE, 144115), ("b", other_address, 144115)]) == []
    assert apart([("a", ROOT, 12), ("b", ROOT, 13)]) == [
        "not one file system on all nodes: ext4 /dev/nvme0n1p2 on a, ext4 /dev/nvme0n1p2 on b"
    ]
    assert len(apart([("a", LUSTRE, 7), ("b", NFS, 7)])) == 1


def test_a_mount_that_failed_leaves_the_root_disk(tmp_path: Path):
    table = tmp_path / "mountinfo"
    table.write_text("24 1 254:0 / / rw shared:1 - ext4 /dev/vda2 rw\n")
    place = filesystem_of(Path("/scratch/checkpoints"), table)
    assert "is the mount missing?" in problems("parallel", [("a", place, sort_of(place, tmp_path))])[0]


def test_lines_that_are_no_mounts_are_skipped():
    assert parse_mounts("garbage\n\n24 1 254:0 / / rw\n") == []
