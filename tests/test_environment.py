"""The facts of a node are read, complete enough to explain a number, and never invented."""

from __future__ import annotations

import dataclasses
import platform

import pytest
import torch

from benchmarks import inventory
from benchmarks.adapters import adapters
from benchmarks.environment import read_environment
from benchmarks.inventory import InstalledGpu
from benchmarks.measurement import Environment, decode, encode
from benchmarks.spec import Place
from benchmarks.world import World


@pytest.fixture
def world() -> World:
    return World(
        rank=1, size=4, local_rank=1, place=Place(), device=torch.device("cpu"), node="b", nodes=("a", "b", "b", "a")
    )


def test_the_facts_of_this_node(world: World):
    environment = read_environment(world, launch=2)
    assert (environment.node, environment.launch, environment.ranks) == ("b", 2, (1, 2))
    facts = environment.facts
    assert facts["torch"] == torch.__version__
    assert facts["kernel"] == platform.release()
    assert facts["cores"] >= 1
    assert facts["memory_bytes"] > 2**28
    assert decode(Environment, encode(environment)) == environment


def test_gpus_come_with_serials_and_driver(world: World, monkeypatch: pytest.MonkeyPatch):
    gpu = InstalledGpu(index=0, name="NVIDIA H200", serial="165", uuid="GPU-1", memory_bytes=1, driver="550.54.15")
    monkeypatch.setattr(inventory, "gpus", lambda: (gpu,))
    facts = read_environment(world, launch=1).facts
    assert (facts["gpus"], facts["gpu_serials"], facts["driver"]) == (["NVIDIA H200"], ["165"], "550.54.15")


def test_each_rank_has_its_gpu_by_name(world: World):
    """CUDA may count GPUs otherwise than the driver lists them: the name decides."""
    facts = read_environment(dataclasses.replace(world, gpu_uuids=("GPU-x", "GPU-b", "GPU-a", "GPU-y")), launch=1).facts
    assert facts["rank_gpu_uuids"] == ["GPU-b", "GPU-a"]
    assert "rank_gpu_uuids" not in read_environment(world, launch=1).facts


def test_adapters_are_known_by_what_their_maker_wrote(tmp_path):
    for device, vpd, guid in (
        ("mlx5_0", b"\x90\x20\x00PN\x03ABCSN\x06MT1234RV\x01", "1"),
        ("mlx5_1", b"", "0002:c903:0:1"),
    ):
        folder = tmp_path / "sys/class/infiniband" / device
        (folder / "device" / "net" / f"ib{device[-1]}").mkdir(parents=True)
        (folder / "node_guid").write_text(guid + "\n")
        (folder / "device" / "vpd").write_bytes(vpd)
    for port, physical in (("eth0", True), ("ib0", True), ("lo", False)):
        folder = tmp_path / "sys/class/net" / port
        folder.mkdir(parents=True)
        (folder / "address").write_text("02:fc:00:00:00:01\n")
        if physical:
            (folder / "device").mkdir()
    assert adapters(tmp_path) == {"mlx5_0": "MT1234", "mlx5_1": "0002:c903:0:1", "eth0": "02:fc:00:00:00:01"}
    assert adapters(tmp_path / "nothing") == {}


def test_a_broken_driver_is_a_fact(world: World, monkeypatch: pytest.MonkeyPatch):
    def broken() -> None:
        raise inventory.DriverError("nvidia-smi failed (status 9)")

    monkeypatch.setattr(inventory, "gpus", broken)
    assert "status 9" in read_environment(world, launch=1).facts["gpu_error"]


def test_a_container_is_known_by_its_digest(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CONTAINER_DIGEST", "sha256:abc")
    assert read_environment(world, launch=1).facts["container"] == "sha256:abc"
