"""A read counts as cold only as far as something other than memory gave the bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.storage.traffic import came_from, grown, node_counters

GB = 10**9
OSC = """\
snapshot_time             1637627183.394337 secs.usecs
req_waittime              393905757 samples [usec] 31 17820911 483362372205 28824671200467887
read_bytes                299768458 samples [bytes] 0 4194304 6895163247966 -3193831078871982772
write_bytes               10208130 samples [bytes] 1 4194304 10917616761706 4366299781827334380
"""
DISKSTATS = """\
   7       0 loop0 50 0 4000 0 0 0 0 0 0 0 0
 259       0 nvme0n1 100 0 2000 9 5 0 40 1 0 9 9 0 0 0 0
 259       1 nvme0n1p1 99 0 1900 9 5 0 40 1 0 9 9 0 0 0 0
 253       0 dm-0 99 0 1900 9 5 0 40 1 0 9 9 0 0 0 0
   8       0 sda 10 0 48 9 5 0 40 1 0 9 9 0 0 0 0
"""


@pytest.fixture
def node(tmp_path: Path) -> Path:
    for name, text in {
        "proc/diskstats": DISKSTATS,
        "sys/class/block/nvme0n1p1/partition": "1\n",
        "proc/fs/lustre/osc/scratch-OST0000-osc-ffff/stats": OSC,
        "sys/kernel/debug/lustre/osc/scratch-OST0001-osc-ffff/stats": OSC,
        "sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data": "1000\n",
        "sys/class/infiniband/mlx5_1/ports/1/counters/port_rcv_data": "500\n",
        "sys/class/net/eth0/statistics/rx_bytes": "700\n",
        "sys/class/net/lo/statistics/rx_bytes": "999999\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "sys/class/net/eth0/device").mkdir()
    return tmp_path


def test_the_counters_of_a_node(node: Path):
    assert node_counters(node) == {
        "disk": 2048 * 512,  # whole disks only: no loop, no partition, no volume made of them
        "lustre": 2 * 6895163247966,
        "network": 6000,  # InfiniBand counts words of four bytes; loopback is no network
    }


def test_what_a_node_does_not_have_is_absent(tmp_path: Path):
    assert node_counters(tmp_path) == {}
    assert grown({"disk": 3}, {"disk": 5, "lustre": 1}) == {"disk": 2}


@pytest.mark.parametrize(
    ("sort", "process", "nodes", "answer"),
    [
        ("local", [GB, GB], [{"disk": 3 * GB}], (2 * GB, "process")),
        ("local", [GB, GB], [{"disk": 0}], (0, "disk")),  # ZFS: counted as read, given by its own cache
        ("layered", [GB], [{"disk": GB // 2}], (GB // 2, "disk")),
        ("local", [GB, None], [{"disk": GB}], (None, "")),
        ("local", [GB], [], (None, "")),
        ("local", [0], [{"disk": GB, "network": GB}], (0, "process")),  # somebody else's traffic is no proof
        ("parallel", [0, 0], [{"lustre": GB, "network": 2}], (GB, "lustre")),
        ("parallel", [0], [{"network": GB}], (GB, "network")),
        ("parallel", [0, 0], [{"lustre": GB}, {"network": GB}], (0, "process")),  # each known on one node only
        ("network", [GB], [], (GB, "process")),
        ("unknown", [0], [{"network": GB, "disk": GB}], (0, "process")),
        ("memory", [None], [], (None, "")),
    ],
)
def test_who_is_believed(sort: str, process: list, nodes: list, answer: tuple):
    assert came_from(sort, process=process, nodes=nodes) == answer


def test_the_nodes_are_added_up():
    nodes = [{"lustre": GB, "disk": 1}, {"lustre": 2 * GB, "disk": 2}]
    assert came_from("parallel", process=[0, 0], nodes=nodes) == (3 * GB, "lustre")
    assert came_from("local", process=[GB, GB], nodes=nodes) == (3, "disk")
