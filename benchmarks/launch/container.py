"""Containers: the words that put a rank into an image, and the image's digest for the record.

Two kinds, told apart by the image: a `.sif` file or a sandbox folder runs by Apptainer, which wraps each rank's own
command; anything else is a reference that Slurm's Pyxis plugin pulls with enroot, asked for by srun's options. The
checkout is mounted at its own path, so the same paths hold inside and outside; ranks run the image's own `python3`, for
its torch is why the image was asked for. A GPU needs `--nv` only with
Apptainer; Pyxis finds it by itself.

>>> inside("images/torch.sif", ["python", "-m", "benchmarks.worker"], mount="/home/me/rackproof")[:3]
['apptainer', 'exec', '--nv']
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

PYTHON = "python3"  # of the image
DIGEST = "CONTAINER_DIGEST"  # the variable by which the ranks' environment records it
IN_REFERENCE = re.compile(r"@(sha256:[0-9a-f]{64})$")


def is_apptainer(image: str) -> bool:
    """Whether an image is a file or folder for Apptainer, not a reference to a registry."""
    return image.endswith(".sif") or Path(image).is_dir()


def inside(image: str, command: list[str], *, mount: str, also: str = "") -> list[str]:
    """A rank's command as it is run in an Apptainer image; unchanged where Pyxis or nobody wraps it.

    The folders `mount` and `also` are seen inside, at the same paths.
    """
    if not image or not is_apptainer(image):
        return command
    binds = ",".join(f"{path}:{path}" for path in (mount, also) if path)
    return ["apptainer", "exec", "--nv", "--bind", binds, image, *command]


def without_pyxis(image: str) -> None:
    """Refuse an image that only Slurm's Pyxis could start, for launchers that have none.

    Raises ValueError: a rank must never run outside of the image that was asked for.
    """
    if image and not is_apptainer(image):
        raise ValueError(f"{image} is a reference for Pyxis, which needs --launcher srun; here name a .sif file")


def srun_options(image: str, *, mount: str) -> list[str]:
    """What srun is told for Pyxis; nothing where there is no image, or Apptainer runs it."""
    if not image or is_apptainer(image):
        return []
    return [f"--container-image={image}", f"--container-mounts={mount}:{mount}"]


def digest(image: str) -> str:
    """The digest that pins an image: of a reference what it names, of a `.sif` the hash of the file.

    A reference without a digest may be another image tomorrow: it is recorded as it is, and says so. Raises
    ValueError where the file is not there.
    """
    if found := IN_REFERENCE.search(image):
        return found[1]
    if not is_apptainer(image):
        return f"{image} (no digest: pin it as {image.partition('@')[0]}@sha256:...)"
    if Path(image).is_dir():
        return f"{image} (a sandbox folder has no digest)"
    try:
        with Path(image).open("rb") as file:
            return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ValueError(f"no container image {image}: {error.strerror}") from None
