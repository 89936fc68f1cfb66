"""Times training steps of the reference model, after proving them.

Order: the proof (proof.py) on a small model with the same layout; then the asked model: warm-up steps,
then timed ones, each from a barrier to the end of the optimizer step. A step's time is its slowest
rank's; the ranks' own medians travel along. If the proof fails, no speed is reported: a time of wrong
work is not a time.

    torchrun --nproc-per-node=4 -m benchmarks training --layout tp2,pp2,dp1
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

import torch

from benchmarks.measurement import Measurement
from benchmarks.training.proof import TOLERANCE, Proof, prove
from benchmarks.training.spec import Training
from benchmarks.world import World
from reference_model.job import Job, gate_job
from reference_model.parallel import Grid
from reference_model.trainer import Trainer

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64}


def run(spec: Training, world: World) -> Iterator[Measurement]:
    """Prove, then time. Rank 0 yields; every rank takes part."""
    spec.check(world.place)
    job = spec.job(world.place)
    grid = Grid.open(job.layout, world.device.type)
    proof = prove(gate_job(job), grid, world)
    yield from proven(spec, world, proof)
    yield from timed(spec, world, job, grid, proof)


def proven(spec: Training, world: World, proof: Proof) -> Iterator[Measurement]:
    """The proof's two errors."""
    if world.is_first:
        metrics, notes = spec.metrics(world.place), {"worst": proof.worst, "precision": "float64"}
        yield metrics["loss_error"].measured(proof.loss_error, subject=world.all(), notes=notes)
        yield metrics["gradient_error"].measured(proof.gradient_error, subject=world.all(), notes=notes)


def timed(spec: Training, world: World, job: Job, grid: Grid, proof: Proof) -> Iterator[Measurement]:
    """Step time and what follows from it, or the reason why there is none."""
    metrics = spec.metrics(world.place)
    speeds = [metrics[name] for name in ("step.time", "tokens_rate", "flops")]
    reason = "" if proof.holds else (
        f"not timed: the step is wrong (loss error {proof.loss_error:.2g}, gradient error {proof.gradient_error:.2g} "
        f"in {proof.worst}, allowed {TOLERANCE:g})"
    )  # fmt: skip
    if not reason:
        times, losses = time_steps(spec, world, job, grid)
        reason = "" if all(map(math.isfinite, losses)) else f"the loss is not a number: {losses}"
    if not world.is_first:
        return
    if reason:
        for metric in speeds:
            yield metric.measured(outcome="error", reason=reason, subject=world.all())
        return
    slowest = [max(ranks) for ranks in zip(*times, strict=True)]
    flops = job.tokens * job.shape.flops_per_token(job.sequence)
    evidence = {"rank": list(range(world.size)), "median_s": [statistics.median(own) for own in times]}
    everyone = world.all()
    yield metrics["step.time"].measured(*slowest, columns=evidence, subject=everyone, notes={"losses": losses})
    yield metrics["tokens_rate"].measured(*(job.tokens / s for s in slowest), subject=everyone)
    yield metrics["flops"].measured(
        *(flops / s / world.size for s in slowest), subject=everyone,
        notes={"flops_per_step": flops, "convention": "per rank; causal attention; recomputation not counted"},
    )  # fmt: skip


def time_steps(spec: Training, world: World, job: Job, grid: Grid) -> tuple[list[list[float]], list[float]]:
    """Seconds of each timed step on each rank ([rank][step]), and the loss of every step from the first on."""
    dtype = DTYPES[spec.dtype_at(world.place)]
    trainer = Trainer(job, grid, world.device, dtype=dtype)
    losses = [trainer.step(number).loss for number in range(spec.warmup)]
    numbers = iter(range(spec.warmup, spec.warmup + spec.steps))
    own = []
    for _ in range(spec.steps):
        world.barrier()
        own.append(world.timed(lambda: losses.append(trainer.step(next(numbers)).loss)))
    return world.gather(own), losses
