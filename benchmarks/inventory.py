"""The GPUs of this machine, as its driver names them.

Asks `nvidia-smi` only: standard library, instant, no CUDA context. No driver tool means no GPUs. A driver
tool that fails, hangs or prints nonsense is an error, never "no GPUs": a node that lost its driver must not
be accepted as a CPU node. `CUDA_VISIBLE_DEVICES` is honoured, so `CUDA_VISIBLE_DEVICES= make accept` runs on
the CPU. Nothing here judges: `clusters/` says what should be there.

>>> gpus(environ={"CUDA_VISIBLE_DEVICES": ""})
()
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

AMD_DRIVER = Path("/dev/kfd")
TIMEOUT_S = 60.0
MIB = 2**20
FIELDS = ("index", "name", "serial", "uuid", "memory.total", "driver_version")
UNSUPPORTED = ("", "N/A", "[N/A]", "[Not Supported]", "Not Supported")

Ask = Callable[[tuple[str, ...]], str | None]
"""Arguments of nvidia-smi -> what it printed; None where there is no nvidia-smi."""


class DriverError(RuntimeError):
    """`nvidia-smi` is there and did not answer as it should."""


@dataclass(frozen=True, kw_only=True)
class InstalledGpu:
    """One GPU. `index` is the driver's (PCI order), which need not be CUDA's; `uuid` is the same in both."""

    index: int
    name: str  # exact product name: NVIDIA H100 80GB HBM3
    serial: str  # "" where the board has none (consumer boards)
    uuid: str
    memory_bytes: int
    driver: str


def ask_nvidia_smi(arguments: tuple[str, ...]) -> str | None:
    """What `nvidia-smi ARGUMENTS` prints; None where it is not installed.

    Raises DriverError where it fails or does not answer within 60 s (a GPU fell off the bus, the kernel
    module does not match the library, ...).
    """
    try:
        done = subprocess.run(
            ["nvidia-smi", *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        return None
    except subprocess.TimeoutExpired:
        raise DriverError(
            f"nvidia-smi did not answer within {TIMEOUT_S:.0f} s: a GPU or the driver hangs; "
            "see `dmesg | grep -i xid`; CUDA_VISIBLE_DEVICES= runs without GPUs"
        ) from None
    except OSError as error:
        raise DriverError(f"nvidia-smi does not start: {error}") from error
    if done.returncode != 0:
        said = " ".join((done.stdout + done.stderr).split())[:300]
        raise DriverError(
            f"nvidia-smi failed (status {done.returncode}): {said or 'no message'}; "
            "repair the driver, or set CUDA_VISIBLE_DEVICES= to run without GPUs"
        )
    return done.stdout


def gpus(*, ask: Ask = ask_nvidia_smi, environ: Mapping[str, str] = os.environ) -> tuple[InstalledGpu, ...]:
    """The GPUs that a program started here may use, in the driver's order.

    Raises DriverError as `ask_nvidia_smi` does, and where the answer cannot be read.
    """
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1", "NoDevFiles"):
        return ()
    answer = ask((f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"))
    if answer is None:
        if AMD_DRIVER.exists():
            raise DriverError(
                "this machine has AMD GPUs, which this suite cannot see yet: they would go untested; "
                "set CUDA_VISIBLE_DEVICES= to test its CPU ranks only"
            )
        return ()
    found = tuple(_gpu(line) for line in answer.splitlines() if line.strip())
    if not found:
        raise DriverError("nvidia-smi lists no GPU although the driver is loaded: see `dmesg | grep -i nvrm`")
    return found if visible is None else _visible(found, visible)


def known(text: str) -> str:
    """A field as nvidia-smi prints it; "" where the GPU does not have it."""
    text = text.strip()
    return "" if text in UNSUPPORTED else text


def _gpu(line: str) -> InstalledGpu:
    values = [known(v) for v in line.split(",")]
    if len(values) != len(FIELDS) or not values[0].isdigit() or not values[3].startswith("GPU-"):
        raise DriverError(
            f"nvidia-smi lists a GPU that cannot be read: {line.strip()!r} (a GPU is lost or needs a reset)"
        )
    index, name, serial, uuid, memory, driver = values
    size = int(memory) * MIB if memory.isdigit() else 0  # boards that share the host's memory have none
    return InstalledGpu(index=int(index), name=name, serial=serial, uuid=uuid, memory_bytes=size, driver=driver)


def _visible(found: tuple[InstalledGpu, ...], visible: str) -> tuple[InstalledGpu, ...]:
    """The GPUs CUDA_VISIBLE_DEVICES names; as in CUDA, the first unknown name ends the list."""
    chosen: list[InstalledGpu] = []
    for word in visible.split(","):
        name = word.strip()
        match = [g for g in found if (str(g.index) == name or (len(name) > 4 and g.uuid.startswith(name)))]
        if len(match) != 1:
            break
        chosen += match
    return tuple(chosen)
