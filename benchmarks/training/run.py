"""Times training steps of the reference model, after proving them.

Order: the proof (proof.py) on a small model with the same layout; then what a step is made of (calibration.py); then
the asked model: warm-up steps, timed ones (timing.py) and observed ones (observation.py). What all that amounts to is
account.py. If the proof fails, no speed is reported: a time of wrong work is not a time.

    torchrun --nproc-per-node=4 -m benchmarks training --layout tp2,pp2,dp1
"""

from __future__ import annotations

import contextlib
import gc
import math
from collections.abc import Iterator

import torch

from benchmarks.measurement import Measurement
from benchmarks.training.account import Account
from benchmarks.training.calibration import calibrate
from benchmarks.training.proof import Proof, prove
from benchmarks.training.spec import Training
from benchmarks.training.timing import time_steps
from benchmarks.world import World
from reference_model.float8 import why_not
from reference_model.job import Job, gate_job
from reference_model.memory import memory_of
from reference_model.packed import PackedTokens
from reference_model.parallel import Grid

DTYPES = {"bf16": torch.bfloat16, "fp8": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64}


def run(spec: Training, world: World) -> Iterator[Measurement]:
    """Prove, then time. Rank 0 yields; every rank takes part."""
    spec.check(world.place)
    with operations(deterministic=spec.deterministic):
        yield from proven_and_timed(spec, world)
    gc.collect()  # pipeline stages hold themselves in cycles: the next benchmark needs their memory
    if world.device.type == "cuda":
        torch.cuda.empty_cache()


@contextlib.contextmanager
def operations(*, deterministic: bool) -> Iterator[None]:
    """Within, torch refuses or replaces operations that would not repeat bit for bit, where that is asked for."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(deterministic)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def proven_and_timed(spec: Training, world: World) -> Iterator[Measurement]:
    """The errors of the step, then its speed."""
    job = spec.job(world.place)
    refuse_what_cannot_fit(job, world)
    refuse_what_cannot_be_read_or_multiplied(job, world)
    grid = Grid.open(job.layout, world.device.type)
    dtype = DTYPES[spec.dtype_at(world.place)]
    proofs = [prove(gate_job(job), grid, world)]
    if dtype == torch.bfloat16:
        proofs.append(prove(gate_job(job), grid, world, dtype=dtype))
    yield from proven(spec, world, proofs)
    yield from timed(spec, world, job, grid, proofs)


def refuse_what_cannot_fit(job: Job, world: World) -> None:
    """Raise ValueError, on every rank alike, where a GPU's memory cannot even hold the weights and their state."""
    if world.device.type != "cuda":
        return
    need = max(m.state + m.gathered for m in (memory_of(job, r, alive=0) for r in range(job.layout.pp)))
    have = min(world.gather(torch.cuda.get_device_properties(world.device).total_memory))
    if need > have:
        raise ValueError(
            f"{job.shape.label} as {job.layout} needs {need / 1e9:.0f} GB a GPU for weights, gradients and optimizer, "
            f"and the smallest has {have / 1e9:.0f} GB: raise tp, pp or dp, drop shard, or use fewer layers; "
            "python -m benchmarks training --dry-run --search says what fits"
        )


def refuse_what_cannot_be_read_or_multiplied(job: Job, world: World) -> None:
    """Raise ValueError, on every rank alike, where one has no float8, or cannot read the same token file as others."""
    reason, print_of_file = why_not(world.device) if job.fp8 else "", ""
    if job.data and not reason:
        try:
            tokens = PackedTokens.open(job.data, vocab=job.shape.vocab, sequence=job.sequence, batch=job.batch)
            print_of_file = tokens.fingerprint()
            tokens.close()
        except ValueError as error:
            reason = str(error)
    prints = world.gather(print_of_file)
    if not reason and print_of_file != prints[0]:
        reason = f"token file {job.data} is another one there than on {world.nodes[0]}: copy it again"
    if bad := [(rank, said) for rank, said in enumerate(world.gather(reason)) if said]:
        raise ValueError(f"rank {bad[0][0]} on {world.nodes[bad[0][0]]}: {bad[0][1]}")


def proven(spec: Training, world: World, proofs: list[Proof]) -> Iterator[Measurement]:
    """The two errors in float64; the notes tell of every proof."""
    if world.is_first:
        metrics, exact = spec.metrics(world.place), proofs[0]
        notes = {"worst": exact.worst, "proofs": list(map(str, proofs))}
        yield metrics["loss_error"].measured(exact.loss_error, subject=world.all(), notes=notes)
        yield metrics["gradient_error"].measured(exact.gradient_error, subject=world.all(), notes=notes)


def timed(spec: Training, world: World, job: Job, grid: Grid, proofs: list[Proof]) -> Iterator[Measurement]:
    """Step time and what follows from it, or the reason why there is none."""
    metrics = {k: m for k, m in spec.metrics(world.place).items() if not k.endswith("_error")}
    reason = next((f"not timed: the step is wrong ({proof})" for proof in proofs if not proof.holds), "")
    if not reason:
        dtype = DTYPES[spec.dtype_at(world.place)]
        figures = calibrate(job, grid, world, dtype=dtype)
        timing = time_steps(job, grid, world, dtype=dtype, warmup=spec.warmup, steps=spec.steps, observed=spec.observed)
        for what, values in (("loss", timing.losses), ("gradient's norm", timing.norms)):
            if not all(map(math.isfinite, values)):
                reason = reason or f"the {what} is not a number: {values}"
    if not world.is_first:
        return
    if reason:
        for metric in metrics.values():
            yield metric.measured(outcome="error", reason=reason, subject=world.all())
        return
    yield from Account(spec, world, timing, figures).measurements(metrics)
