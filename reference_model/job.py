"""One training job: a shape on a layout with a schedule, and whether that can work at all.

`Job.check` is the capability matrix: it refuses what is known to hang, to be wrong or to be needlessly
slow, each with the reason and the cure, before a rank starts. What it accepts is held against a single
process by the tests. It knows neither torch nor devices, so that a plan costs nothing.

>>> Job(shape=SHAPES["tiny"], layout=Layout.parse("tp2,pp2,dp1"), sequence=128).batch
8
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from reference_model.layout import Layout
from reference_model.shape import Shape

SCHEDULES = ("gpipe", "1f1b", "interleaved", "looped-bfs", "zero-bubble", "zbv", "dualpipev")
SINGLE = ("gpipe", "1f1b")  # one stage a rank
V_SHAPED = ("zbv", "dualpipev")  # rank r holds stages r and 2 pp - 1 - r
SPLIT_BACKWARD = ("zero-bubble", "zbv", "dualpipev")  # gradients of inputs and of weights in separate actions
RECOMPUTE = ("none", "selective", "full")


@dataclass(frozen=True, kw_only=True)
class Job:
    """Everything that decides what one step computes, and where."""

    shape: Shape
    layout: Layout
    sequence: int
    micro_batch: int = 2  # sequences in one micro-batch
    micro_batches: int = 4  # micro-batches that each data parallel rank works through in one step
    schedule: str = "1f1b"
    stages_per_rank: int = 1
    recompute: str = "none"  # going backward; "full": whole blocks; "selective": all but products and attention
    compile: str = ""  # backend of torch.compile for every block; "" leaves them eager
    fp8: bool = False  # the blocks' products in float8, with scales of their own
    data: str = ""  # a packed token file; "": synthetic tokens
    seed: int = 0

    @property
    def batch(self) -> int:
        """Sequences of one step, over all ranks."""
        return self.micro_batch * self.micro_batches * self.layout.dp

    @property
    def tokens(self) -> int:
        """Tokens of one step, over all ranks."""
        return self.batch * self.sequence

    @property
    def stages(self) -> int:
        """Pipeline stages in all."""
        return self.layout.pp * self.stages_per_rank

    def stages_of(self, pp_rank: int) -> tuple[int, ...]:
        """The stages that pipeline rank `pp_rank` holds, in the order of its forward pass."""
        if self.schedule in V_SHAPED:
            return pp_rank, self.stages - 1 - pp_rank
        return tuple(range(pp_rank, self.stages, self.layout.pp))

    def layers_of(self, stage: int) -> range:
        """The layers of a stage: even shares, and what is left over to the first stages (the last has the head)."""
        share, left = divmod(self.shape.layers, self.stages)
        first = stage * share + min(stage, left)
        return range(first, first + share + (stage < left))

    def check(self) -> None:
        """Raise ValueError with every reason why this job cannot run, and what would."""
        problems = [*self._unknown()] or [*self._sizes(), *self._pipeline()]
        if problems:
            raise ValueError(f"{self.shape.label} as {self.layout}: " + "; ".join(problems))

    def _unknown(self) -> Iterator[str]:
        for what, value, known in (
            ("schedule", self.schedule, SCHEDULES),
            ("recompute", self.recompute, RECOMPUTE),
        ):
            if value not in known:
                yield f"no {what} {value!r}: there are {', '.join(known)}"
        for what in ("sequence", "micro_batch", "micro_batches", "stages_per_rank"):
            if getattr(self, what) < 1:
                yield f"{what} must be 1 or more, not {getattr(self, what)}"

    def _sizes(self) -> Iterator[str]:
        tp = self.layout.tp
        for what in ("heads", "kv_heads", "ffn", "vocab"):
            if getattr(self.shape, what) % tp:
                yield f"{what} {getattr(self.shape, what)} is not divisible by tp {tp}; use a tp that divides it"
        if self.layout.copies > 1 and self.layout.copies_over == 1:
            cure = "drop shard1 (FSDP2), or shard over several ranks (HSDP)"
            if tp > 1:
                yield f"DDP under tensor parallelism gives no gradients; {cure}"
            if self.layout.cp > 1:
                yield f"DDP with context parallelism has no group that sums the gradients; {cure}"
            if self.layout.pp > 1:
                yield f"DDP in a pipeline keeps the gradients of the pass that infers shapes (torch 2.13); {cure}"
        if self.fp8:
            yield from self._fp8()
        pieces = tp * (2 * self.layout.cp if self.layout.cp > 1 else 1)
        if self.sequence % pieces:
            yield f"sequence {self.sequence} is not divisible by {pieces} (tp, and 2 x cp); use a multiple of it"

    def _fp8(self) -> Iterator[str]:
        kv_dim, tp = self.shape.kv_heads * self.shape.head_dim, self.layout.tp
        for what, size in (("dim", self.shape.dim), ("ffn", self.shape.ffn), ("key and value width", kv_dim)):
            if size // tp % 16:
                yield f"fp8 multiplies in pieces of 16, and {what} {size} by tp {tp} is no multiple; use bf16"
        if self.compile:
            yield "fp8 with compiled blocks is not proven; use bf16, or leave compile out"

    def _pipeline(self) -> Iterator[str]:
        pp, m = self.layout.pp, self.micro_batches
        if pp == 1:
            if self.stages_per_rank != 1:
                yield "stages_per_rank needs a pipeline; use 1 with pp 1"
            return
        if self.stages > self.shape.layers:
            yield (
                f"{self.stages} stages for {self.shape.layers} layers leaves stages without one; "
                f"use at most {self.shape.layers} stages"
            )
        if m < self.stages and self.schedule in ("1f1b", *V_SHAPED):
            yield f"{m} micro-batches cannot fill {self.stages} stages; use {self.stages} or more"
        if self.schedule in SINGLE and self.stages_per_rank != 1:
            yield f"{self.schedule} has one stage a rank; use stages_per_rank 1, or interleaved"
        if self.schedule not in SINGLE and self.stages_per_rank == 1:
            yield f"{self.schedule} needs several stages a rank; use stages_per_rank 2"
        if self.schedule in V_SHAPED and self.stages_per_rank != 2:
            yield f"{self.schedule} has exactly two stages a rank; use stages_per_rank 2"
        if self.schedule in ("interleaved", "zero-bubble") and m % max(1, m // pp):
            yield f"{self.schedule} works through equal rounds of micro-batches; use a multiple of {pp}, not {m}"
        if self.schedule in SPLIT_BACKWARD and self.compile:
            yield f"{self.schedule} splits the backward pass, which compiled blocks forbid; use 1f1b or interleaved"
        if self.schedule in SPLIT_BACKWARD and self.recompute != "none":
            yield (
                f"{self.schedule} would run the recomputation once for the inputs' and again for the weights' "
                "gradients (up to 11 forward passes a layer); use 1f1b or interleaved, or recompute none"
            )


def gate_job(job: Job, *, sequence: int = 32) -> Job:
    """The same layout, schedule and options over a shape small enough to be checked against one process.

    Every axis stays divisible: heads and key/value heads are multiples of tp, and two layers stand in
    each stage where the real one has as many.
    """
    tp = job.layout.tp
    shape = Shape(
        name=f"{job.shape.name} gate", layers=min(job.shape.layers, 2 * job.stages), dim=32 * tp, heads=4 * tp,
        kv_heads=2 * tp, ffn=48 * tp, vocab=128 * tp, rope_theta=job.shape.rope_theta,
    )  # fmt: skip
    return dataclasses.replace(job, shape=shape, sequence=sequence * tp * job.layout.cp, micro_batch=1, data="")
