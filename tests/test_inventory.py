"""GPUs are what the driver says; a driver that fails is an error, never "no GPUs"."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import inventory
from benchmarks.inventory import DriverError, gpus

# Product names and sizes as public reports of these machines show them.
H100 = "{i}, NVIDIA H100 80GB HBM3, 16530231{i:05d}, GPU-0b1f7e1c-51f5-3c8a-9d2e-0000000000{i:02d}, 81559, 550.54.15\n"
LAPTOP = "0, NVIDIA GeForce RTX 4070 Laptop GPU, [N/A], GPU-529b3263-c96d-b557-bc75-697f04917eda, 8188, 575.51.02\n"
EIGHT = "".join(H100.format(i=i) for i in range(8))


def listed(text: str | None, environ: dict[str, str] | None = None) -> tuple[inventory.InstalledGpu, ...]:
    return gpus(ask=lambda _: text, environ=environ or {})


@pytest.fixture
def driver_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts a program named nvidia-smi first on PATH."""

    def install(script: str) -> None:
        tool = tmp_path / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return install


def test_eight_gpus_are_read_whole():
    found = listed(EIGHT)
    assert [g.index for g in found] == list(range(8))
    assert found[3].name == "NVIDIA H100 80GB HBM3"
    assert found[3].serial == "1653023100003"
    assert found[3].memory_bytes == 81559 * 2**20
    assert found[3].driver == "550.54.15"


def test_a_board_without_serial_has_none():
    assert listed(LAPTOP)[0].serial == ""


def test_no_driver_tool_means_no_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus(environ={}) == ()


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."),
        (18, "Failed to initialize NVML: Driver/library version mismatch"),
        (15, "Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost. Reboot the system to recover"),
        (6, "No devices were found"),
    ],
)
def test_a_failing_driver_is_an_error_that_says_so(driver_tool, status: int, message: str):
    driver_tool(f'echo "{message}"; exit {status}')
    with pytest.raises(DriverError, match=r"CUDA_VISIBLE_DEVICES=") as caught:
        gpus(environ={})
    assert message in str(caught.value)
    assert f"status {status}" in str(caught.value)


def test_a_hanging_driver_is_an_error(driver_tool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(inventory, "TIMEOUT_S", 0.2)
    driver_tool("exec sleep 5")
    with pytest.raises(DriverError, match="did not answer"):
        gpus(environ={})


def test_a_tool_that_cannot_start_is_an_error(driver_tool, tmp_path: Path):
    driver_tool("")
    (tmp_path / "nvidia-smi").write_bytes(b"\x7fELF nonsense")
    with pytest.raises(DriverError, match="does not start"):
        gpus(environ={})


@pytest.mark.parametrize(
    "text",
    ["", EIGHT + "8, [Unknown Error], [Unknown Error], [Unknown Error], [Unknown Error], 550.54.15\n", "ERR!\n"],
)
def test_an_unreadable_list_is_an_error(text: str):
    with pytest.raises(DriverError):
        listed(text)


@pytest.mark.parametrize(
    ("visible", "indices"),
    [
        ("", []),
        ("-1", []),
        ("2,0", [2, 0]),
        ("GPU-0b1f7e1c-51f5-3c8a-9d2e-000000000005", [5]),
        ("1,9,2", [1]),  # as in CUDA: the first unknown name ends the list
        ("GPU-0b1f7e1c", []),  # names eight GPUs, so none
    ],
)
def test_only_visible_gpus_count(visible: str, indices: list[int]):
    assert [g.index for g in listed(EIGHT, {"CUDA_VISIBLE_DEVICES": visible})] == indices


def test_hiding_all_gpus_does_not_ask_a_broken_driver(driver_tool):
    driver_tool("exit 9")
    assert gpus(environ={"CUDA_VISIBLE_DEVICES": ""}) == ()
