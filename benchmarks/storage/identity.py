"""What sort of storage a file system is: parallel, network, local, memory ... and what is wrong with it here.

A checkpoint on NFS, on a volume behind one network link, in memory, or on the root disk because a mount failed is
wrong whatever its speed: a save that passes tonight takes minutes when 64 nodes do it together.

>>> sort_of(FileSystem(kind="lustre", source="10.1.0.2@o2ib:/scratch", mount_point="/scratch"))
'parallel'
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from benchmarks.storage.filesystem import FileSystem

SORTS = {
    "parallel": (
        "lustre", "gpfs", "beegfs", "wekafs", "ceph", "panfs", "pvfs2", "orangefs", "cvfs", "fuse.daos", "fuse.dfuse",
        "fuse.wekafs", "fuse.beegfs", "fuse.ceph",
    ),
    "network": (
        "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "virtiofs", "fuse.sshfs", "fuse.nfs", "fuse.nfs4",
        "fuse.s3fs", "fuse.gcsfuse", "fuse.mountpoint-s3", "fuse.goofys", "fuse.rclone", "fuse.blobfuse2",
        "fuse.juicefs", "fuse.JuiceFS:juicefs", "fuse.glusterfs", "fuse.hdfs",
    ),
    "local": ("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "bcachefs", "apfs", "hfs", "ufs"),
    "memory": ("tmpfs", "ramfs", "devtmpfs", "hugetlbfs"),
    "layered": ("overlay", "aufs", "fuse.overlayfs", "fuse.fuse-overlayfs", "squashfs"),
}  # fmt: skip
NETWORK_BLOCK = "network block device"
NETWORK_DRIVERS = ("nbd", "rbd", "drbd")  # names of block devices whose data is elsewhere
NETWORK_MODELS = ("Amazon Elastic Block Store", "PersistentDisk", "nvme_card-pd")
NETWORK_TRANSPORTS = ("tcp", "rdma", "fc")  # of NVMe; "pcie" and "loop" are not


def sort_of(found: FileSystem, sys: Path = Path("/sys")) -> str:
    """parallel, network, local, memory, layered, "network block device", or "unknown".

    A local file system on a disk that is reached over a network is a network block device.
    """
    for sort, kinds in SORTS.items():
        if found.kind in kinds:
            return NETWORK_BLOCK if sort == "local" and network_disk(found, sys) else sort
    return "unknown"


def network_disk(found: FileSystem, sys: Path = Path("/sys")) -> str:
    """Why the disk under a local file system is not in this machine, or "". Looks through partitions and LVM, RAID."""
    queue = [Path(os.path.realpath(sys / "dev" / "block" / found.device))] if found.device else []
    while queue:
        disk = queue.pop()
        disk = disk.parent if (disk / "partition").exists() else disk
        if reason := _reached_by_network(disk):
            return f"{disk.name}: {reason}"
        queue += [Path(os.path.realpath(p)) for p in (disk / "slaves").glob("*")]
    return ""


def problems(expected: str, places: Sequence[tuple[str, FileSystem, str]]) -> list[str]:
    """What is wrong with where checkpoints go, one sentence each; none is good.

    `expected` lists sorts or kinds ("parallel", "lustre,gpfs"); "" accepts all that survives a restart and needs no
    network. `places` holds (node, its file system, its sort).
    """
    found = []
    accepted = [word.strip() for word in expected.split(",") if word.strip()]
    for node, place, sort in places:
        what = f"{node}: {place.mount_point} is {place.kind} ({sort}, {place.source})"
        if sort == "memory":
            found.append(f"{what}: nothing there survives a restart")
        elif not accepted and sort in ("network", NETWORK_BLOCK):
            found.append(f"{what}: behind a network link that all nodes share; save to a parallel file system")
        elif accepted and place.kind not in accepted and sort not in accepted:
            cure = "is the mount missing?" if place.mount_point == "/" else "mount the right one, or correct the path"
            found.append(f"{what}, the cluster file says {expected}: {cure}")
    return found


def apart(places: Sequence[tuple[str, FileSystem, int]]) -> list[str]:
    """What is wrong where nodes do not have one and the same file system; empty where they have.

    `places` holds (node, its file system, inode of one file there). Identity is the kind and that inode, which is the
    file's own on every client of a shared file system. The source is only a name: clients of one Lustre may reach it
    by other addresses, and every node calls its own disk /dev/nvme0n1.
    """
    if len({(place.kind, inode) for _, place, inode in places}) <= 1:
        return []
    shown = ", ".join(sorted({f"{place.kind} {place.source} on {node}" for node, place, _ in places})[:4])
    return [f"not one file system on all nodes: {shown}"]


def _reached_by_network(disk: Path) -> str:
    if disk.name.startswith(NETWORK_DRIVERS):
        return "its driver reaches it over a network"
    device = disk / "device"
    model = _read(device / "model")
    if any(known in model for known in NETWORK_MODELS):
        return f"{model}, a cloud volume behind the network"
    if (transport := _read(device / "transport")) in NETWORK_TRANSPORTS:
        return f"NVMe over {transport}"
    real = os.path.realpath(device)
    return "an iSCSI session" if "/session" in real else ""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
