"""Which variables a rank on another machine is given, where the launcher does not hand on all of them.

>>> sorted(forwarded({"NCCL_DEBUG": "INFO", "HOME": "/root", "RACKPROOF_KEY": "00"}))
['NCCL_DEBUG', 'RACKPROOF_KEY']
"""

from __future__ import annotations

from collections.abc import Mapping

NAMES = ("PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONWARNINGS", "LD_LIBRARY_PATH", "CONTAINER_DIGEST", "TMPDIR")
PREFIXES = ("RACKPROOF_", "NCCL_", "GLOO_", "TORCH_", "OMP_", "MKL_", "UCX_", "FI_", "CUDA_", "TP_", "TRITON_")


def forwarded(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that belongs to the ranks, not to the machine it came from."""
    return {name: value for name, value in environ.items() if name in NAMES or name.startswith(PREFIXES)}
