"""Proves a layout before it is timed: its loss and every gradient against one process, in float64.

Where the job computes in bfloat16 or float8, that path (mixed precision, its own reductions) is compared too, loosely.
Each rank computes the small model whole, by itself, on the tokens of all ranks, and compares the
gradients of its own stages. A missing gradient is a zero gradient, and a zero gradient where there should
be one is an error of 1; anything that is not a number is an infinite error.

>>> prove(job, grid, world).gradient_error                     # on every rank
3.1e-16
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.world import World
from reference_model.job import Job
from reference_model.model import Transformer, initialise
from reference_model.parallel import Grid
from reference_model.tokens import SyntheticTokens
from reference_model.trainer import Trainer

TOLERANCE = {
    # float64 parity is about 1e-15, bfloat16's rounding about 1e-2, float8's 1e-1; a wrong collective is off by a half
    "float64": 1e-11,
    "bfloat16": 0.1,
    "float8": 0.3,
}
ORACLE_ROWS = 64  # sequences at a time in the single process: a large cluster's batch would not fit at once


@dataclass(frozen=True, kw_only=True)
class Proof:
    """How far a layout is from a single process, as the worst of all ranks."""

    loss_error: float  # relative
    gradient_error: float  # of one parameter's gradient: norm of the difference by norm of the gradient
    worst: str  # that parameter, and the rank that holds it
    dtype: str = "float64"  # of the layout's products; the single process computes in float64

    @property
    def holds(self) -> bool:
        """Whether steps of this layout are worth timing."""
        return max(self.loss_error, self.gradient_error) <= TOLERANCE[self.dtype]

    def __str__(self) -> str:
        return (
            f"in {self.dtype}: loss error {self.loss_error:.2g}, gradient error "
            f"{self.gradient_error:.2g} of {self.worst}, allowed {TOLERANCE[self.dtype]:g}"
        )


def prove(job: Job, grid: Grid, world: World, *, dtype: torch.dtype = torch.float64) -> Proof:
    """Compare one step of `job` (a small one: see gate_job) on the grid with a single process."""
    trainer = Trainer(job, grid, world.device, dtype=dtype)
    name = "float8" if job.fp8 and dtype == torch.bfloat16 else str(dtype).removeprefix("torch.")
    loss = trainer.global_loss(trainer.forward_backward(0))
    gradients = trainer.gradients()
    oracle_loss, oracle = single_process(job, world.device)
    errors = {name: relative(gradient, oracle[name]) for name, gradient in gradients.items()}
    worst = max(errors, key=lambda name: errors[name])
    found = world.gather((finite(abs(loss - oracle_loss) / oracle_loss), errors[worst], worst, sorted(errors)))
    if missed := set(oracle) - {name for *_, names in found for name in names}:
        return Proof(loss_error=found[0][0], gradient_error=math.inf, worst=f"{min(missed)}, on no rank", dtype=name)
    rank = max(range(world.size), key=lambda r: found[r][1])
    worst = f"{found[rank][2]} on rank {rank}"
    return Proof(loss_error=max(f[0] for f in found), gradient_error=found[rank][1], worst=worst, dtype=name)


def single_process(job: Job, device: torch.device) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients of step 0 without any parallelism: plain autograd over the whole batch."""
    model = Transformer(job.shape).to(device, torch.float64)
    initialise(model, seed=job.seed)
    data = SyntheticTokens(vocab=job.shape.vocab, sequence=job.sequence, seed=job.seed)
    tokens, targets = (t.to(device) for t in data.rows(step=0, rows=range(job.batch)))
    total = 0.0
    for part, target in zip(tokens.split(ORACLE_ROWS), targets.split(ORACLE_ROWS), strict=True):
        loss = cross_entropy(model(part).flatten(0, 1), target.flatten(), reduction="sum") / job.tokens
        loss.backward()
        total += loss.item()
    return total, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def relative(got: Tensor, want: Tensor) -> float:
    """Norm of the difference by norm of `want`; infinite where it is no number."""
    difference, size = (got - want).norm().item(), want.norm().item()
    return finite(difference / size if size else (0.0 if difference == 0 else math.inf))


def finite(value: float) -> float:
    """`value`, or infinity where it is no number: a NaN must not pass a comparison."""
    return math.inf if math.isnan(value) else value
