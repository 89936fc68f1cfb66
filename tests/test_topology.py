"""Topology files: three forms, one meaning. Fixtures are retyped from public documentation, names changed."""

from pathlib import Path

import numpy as np
import pytest

from reports.localise import topology
from reports.localise.topology import Cable, expand, miscabled

FIXTURES = Path(__file__).parent / "fixtures" / "topology"


def read(name):
    return topology.read((FIXTURES / name).read_text(), source=name)


def test_a_host_list_expands_as_slurm_does():
    assert expand("n[08-10,12],login") == ["n08", "n09", "n10", "n12", "login"]
    assert expand("r[1-2]n[1-2]") == ["r1n1", "r1n2", "r2n1", "r2n2"]
    assert expand("") == []


@pytest.mark.parametrize("wrong", ["n[1-2", "n[2-1]", "n[a-b]", "n[]"])
def test_a_broken_host_list_is_an_error(wrong):
    with pytest.raises(ValueError, match="host list"):
        expand(wrong)


def test_a_slurm_tree_gives_leaves_and_pods():
    tree = read("tree.conf")
    assert tree.leaf["gpu003"] == ("leaf1",)
    assert tree.leaf["login"] == ("leaf2",)
    assert tree.leaf["gpu006"] == ("leaf3",)
    assert tree.pod == {
        **dict.fromkeys(["gpu001", "gpu002", "gpu003", "gpu004", "gpu005", "login"], "pod1"),
        "gpu006": "pod2",
    }
    assert tree.source == "tree.conf"


def test_slurm_blocks_are_leaves():
    blocks = read("block.conf")
    assert blocks.leaf["gpu18"] == ("rack1",) and blocks.leaf["gpu19"] == ("rack2",)
    assert len(blocks.leaf) == 36


def test_ibnetdiscover_gives_a_leaf_per_rail_in_hca_order():
    fabric = read("fabric.ibnetdiscover")
    leaf1, leaf2 = "MF0;leaf1:MQM9700/U1", "MF0;leaf2:MQM9700/U1"
    assert fabric.leaf == {"gpu001": (leaf1, leaf2, leaf1), "gpu002": (leaf1, leaf2)}
    assert Cable.between(("gpu001", "mlx5_3"), (leaf2, "1")) in fabric.cables
    assert Cable.between((leaf1, "33"), ("MF0;spine1:MQM9700/U1", "1")) in fabric.cables
    assert len(fabric.cables) == 7, "each cable once, though both of its ends list it"


def test_toml_gives_places_and_attributes():
    plan = read("plan.toml")
    assert plan.leaf["gpu002"] == ("leaf1", "leaf2")
    assert plan.rack == {"gpu001": "r1", "gpu002": "r1", "gpu003": "r2"}
    assert plan.groups(["gpu001", "gpu003", "gpu9"])["firmware"] == ["28.39.1002", "28.37.1014", ""]


def test_leaves_are_codes_per_node_and_rail():
    at, names = read("plan.toml").leaves(["gpu003", "gpu001", "stranger"], 2)
    assert names == ("leaf3", "leaf1", "leaf2")
    assert np.array_equal(at, [[0, 0], [1, 2], [-1, -1]])


def test_a_swapped_cable_is_named_with_what_is_there_instead():
    said = miscabled(plan=read("plan.toml"), found=read("fabric.ibnetdiscover"))
    assert any(line.startswith("MF0;leaf2:MQM9700/U1:2 -- gpu002:mlx5_0: planned, found") for line in said)
    assert not any(line.startswith("MF0;leaf1:MQM9700/U1:1 -- gpu001:mlx5_0: planned") for line in said)
    assert miscabled(plan=read("tree.conf"), found=read("fabric.ibnetdiscover")) == []


@pytest.mark.parametrize(
    "text", ["hello", "", "SwitchName=core Switches=a,b", '[nodes.a]\nleaf = "x', "[nodes]\na = 1"]
)
def test_what_is_no_topology_is_an_error_with_its_source(text):
    with pytest.raises(ValueError, match=r"^here\.txt"):
        topology.read(text, source="here.txt")
