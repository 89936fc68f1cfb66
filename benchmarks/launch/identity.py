"""Who a rank is: its number, the world's size and its place on the node, from whatever launcher started it.

Asked in this order, because one launcher may run inside another: torchrun (and everything that speaks its
variables), Open MPI, MPICH's PMI, and Slurm, but that only inside a step: a batch script has SLURM_PROCID and
SLURM_NTASKS too, and they say nothing of the processes it starts. SLURM_NTASKS is the number of all tasks: it
is never multiplied by the number of nodes.

>>> identify({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}).rank
3
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# launcher -> (must be set, rank, world, local rank, ranks on this node)
VARIABLES = {
    "torchrun": ("RANK", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    "Open MPI": (
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    "PMI": ("PMI_RANK", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    "Slurm step": (
        "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE",
    ),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Identity:
    """One rank of a launch."""

    rank: int
    world: int
    local_rank: int
    local_world: int
    launcher: str

    def variables(self) -> dict[str, str]:
        """The same, as torch.distributed reads it."""
        return {
            "RANK": str(self.rank), "WORLD_SIZE": str(self.world), "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(self.local_world),
        }  # fmt: skip


def identify(environ: Mapping[str, str]) -> Identity:
    """The identity that the environment tells.

    Raises ValueError where no launcher left its variables, or they contradict each other.
    """
    for launcher, (mark, rank, world, local_rank, local_world) in VARIABLES.items():
        if mark not in environ:
            continue
        try:
            found = Identity(
                rank=int(environ[rank]), world=int(environ[world]), local_rank=int(environ[local_rank]),
                local_world=_of_node(environ.get(local_world, environ[world])), launcher=launcher,
            )  # fmt: skip
        except (KeyError, ValueError) as error:
            raise ValueError(f"{launcher} started this rank, but its variables are not whole: {error}") from None
        if not (0 <= found.rank < found.world and 0 <= found.local_rank < found.world):
            raise ValueError(
                f"{launcher} says rank {found.rank} of {found.world}, local {found.local_rank}: impossible"
            )
        return found
    raise ValueError(
        "no launcher started this rank: start it with torchrun, srun, mpirun or python -m benchmarks.launch "
        "(a batch script's own SLURM_* variables do not count: use srun in it)"
    )


def _of_node(text: str) -> int:
    """Ranks on this node; Slurm writes 8(x4) for four nodes of eight, and 8,7 where they differ (the most)."""
    return max(int(part.partition("(")[0]) for part in text.split(","))
