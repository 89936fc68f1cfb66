"""Spreads the reference model over ranks with torch's own parts: DeviceMesh, DTensor, FSDP2, DDP, pipelining.

`Grid` is the mesh of one layout; `build_stages` gives this rank its stages, already cut, initialised and
sharded; `build_schedule` runs them as a pipeline. Losses are sums over global valid tokens, and gradients
are summed, never averaged: so every layout computes the same numbers.

>>> grid = Grid.open(Layout.parse("tp2,pp2,dp1"), "cpu")      # on each of four ranks
>>> stages = build_stages(job, grid, torch.device("cpu"), dtype=torch.float32)
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining import schedules as torch_schedules
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from reference_model.context import Context
from reference_model.float8 import use_float8
from reference_model.job import SINGLE, Job
from reference_model.layout import Layout
from reference_model.ledger import Ledger
from reference_model.model import Transformer, initialise


class UnpairedDualPipeV(torch_schedules.ScheduleDualPipeV):
    """torch's DualPipeV, whose pairs of a forward and a backward are two actions.

    Without a function of its own for pairs torch does one half after the other, but sends the first half's result
    only after the second. The next rank then waits a whole backward longer: the bubble is about twice the plan's.
    """

    def _calculate_single_rank_operations(self, rank: int) -> list[torch_schedules._Action | None]:
        planned = super()._calculate_single_rank_operations(rank)
        return [part for action in planned for part in (getattr(action, "sub_actions", None) or (action,))]


SCHEDULE_CLASSES = {
    "gpipe": torch_schedules.ScheduleGPipe,
    "1f1b": torch_schedules.Schedule1F1B,
    "interleaved": torch_schedules.ScheduleInterleaved1F1B,
    "looped-bfs": torch_schedules.ScheduleLoopedBFS,
    "zero-bubble": torch_schedules.ScheduleInterleavedZeroBubble,
    "zbv": torch_schedules.ScheduleZBVZeroBubble,
    "dualpipev": UnpairedDualPipeV,
}
AXES = ("pp", "copies", "shard", "tp")  # of the mesh: "shard" holds cp too, whose ranks share the state
CONTEXT_AXES = ("rest", "cp", "tp")


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The process groups of one layout, and where this rank stands in it."""

    layout: Layout
    mesh: DeviceMesh
    context: Context | None

    @classmethod
    @functools.cache
    def open(cls, layout: Layout, device_type: str) -> Self:
        """The groups of a layout, made once. Every rank of the default group calls it; `layout.ranks` must be there.

        They live as long as the process: DTensor keeps plans by the mesh's shape, and a second mesh of the
        same shape would be answered with the first one's groups.
        """
        sizes = (layout.pp, layout.copies, layout.copies_over * layout.cp, layout.tp)
        mesh, context = init_device_mesh(device_type, sizes, mesh_dim_names=AXES), None
        if layout.cp > 1:
            lines = (layout.pp * layout.dp, layout.cp, layout.tp)
            line = init_device_mesh(device_type, lines, mesh_dim_names=CONTEXT_AXES)["cp"]
            context = Context(size=layout.cp, index=line.get_local_rank(), group=line.get_group())
        return cls(layout=layout, mesh=mesh, context=context)

    def index(self, axis: str) -> int:
        """This rank's place along an axis."""
        return int(self.mesh.get_local_rank(axis))

    @property
    def dp_index(self) -> int:
        """Which share of the batch this rank sees."""
        return self.index("copies") * self.layout.copies_over + self.index("shard") // self.layout.cp

    def group(self, axis: str) -> dist.ProcessGroup:
        """The ranks that differ from this one along `axis` only."""
        return self.mesh.get_group(axis)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One pipeline stage on this rank."""

    index: int
    module: nn.Module  # a Transformer, within DDP where the layout says so
    first: bool
    last: bool


def build_stages(job: Job, grid: Grid, device: torch.device, *, dtype: torch.dtype) -> list[Stage]:
    """This rank's stages, with the weights of `job.seed`.

    `dtype` is the type of the products. bfloat16 keeps float32 master weights and reduces gradients in
    float32 (FSDP2's mixed precision); other types are used throughout. On the "meta" device everything is
    cut and sharded as it would be, and nothing holds a value.
    """
    stages = []
    for index in job.stages_of(grid.index("pp")):
        first, last = index == 0, index == job.stages - 1
        with torch.device("meta"):
            model = Transformer(job.shape, layers=job.layers_of(index), first=first, last=last)
        model.to(torch.float32 if dtype == torch.bfloat16 else dtype)
        if job.fp8 and dtype == torch.bfloat16:  # proofs of the same job run in float64, too
            use_float8(model)
        if grid.layout.tp > 1:
            cut_tensors(model, grid.mesh["tp"])
        model.context = grid.context
        for block in model.layers.values():
            block.attention.context = grid.context
        sharded = dtype == torch.bfloat16 or grid.layout.copies_over * grid.layout.cp > 1
        materialise(model, job, grid, device, dtype=dtype, sharded=sharded)
        module: nn.Module = model
        if not sharded and grid.layout.copies > 1:
            ddp = nn.parallel.DistributedDataParallel(
                model, process_group=grid.group("copies"), gradient_as_bucket_view=True
            )
            ddp.register_comm_hook(grid.group("copies"), sum_bucket)
            module = ddp
        stages.append(Stage(index=index, module=module, first=first, last=last))
    return stages


def sum_bucket(group: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """DDP's reduction as a sum (its own is a mean). DDP reads the annotations: they must be types, not text."""
    work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


def cut_tensors(model: Transformer, mesh: DeviceMesh) -> None:
    """Tensor parallelism with sequence parallelism between the products, in place.

    Between blocks every rank holds sequence / tp positions. Logits stay cut over the vocabulary, for
    torch's loss_parallel.
    """
    by_sequence, whole = Shard(1), Replicate()
    plan = {
        "embedding": RowwiseParallel(input_layouts=whole, output_layouts=by_sequence),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=by_sequence, use_local_output=False),
    }
    parallelize_module(model, mesh, {k: v for k, v in plan.items() if getattr(model, k) is not None})
    for block in model.layers.values():
        gather = {"input_layouts": (by_sequence, None), "desired_input_layouts": (whole, None)}
        parallelize_module(
            block,
            mesh,
            {
                "attention_norm": SequenceParallel(),
                "attention": PrepareModuleInput(**gather),
                "attention.wq": ColwiseParallel(),
                "attention.wk": ColwiseParallel(),
                "attention.wv": ColwiseParallel(),
                "attention.wo": RowwiseParallel(output_layouts=by_sequence),
                "ffn_norm": SequenceParallel(),
                "ffn": PrepareModuleInput(input_layouts=(by_sequence,), desired_input_layouts=(whole,)),
                "ffn.w1": ColwiseParallel(),
                "ffn.w2": RowwiseParallel(output_layouts=by_sequence),
                "ffn.w3": ColwiseParallel(),
            },
        )
    model.sequence_shards = mesh.size()


def materialise(
    model: Transformer, job: Job, grid: Grid, device: torch.device, *, dtype: torch.dtype, sharded: bool
) -> None:
    """Give a meta model its weights and shard it, part by part: at no time is more than one part whole."""
    for name in ("embedding", "norm", "head"):
        if (part := getattr(model, name)) is not None:
            initialise(part.to_empty(device=device), seed=job.seed, prefix=name)
            if sharded and name != "norm":  # the norm is too small for a collective of its own
                shard(part, job, grid, dtype=dtype, keep=name == "head")
    for name, block in model.layers.items():
        initialise(block.to_empty(device=device), seed=job.seed, prefix=f"layers.{name}")
        model.layers[name] = recomputing(block, job.recompute)
        if job.compile:
            model.layers[name].compile(backend=job.compile)
        if sharded:
            shard(model.layers[name], job, grid, dtype=dtype)
    if sharded:
        shard(model, job, grid, dtype=dtype, keep=True)
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)
                module.set_gradient_divide_factor(1.0)


def recomputing(block: nn.Module, how: str) -> nn.Module:
    """A block that keeps less for its backward pass: its input only ("full"), or its products and attention too."""
    if how == "none":
        return block
    options = {"context_fn": functools.partial(create_selective_checkpoint_contexts, keep_products)}
    return checkpoint_wrapper(block, **(options if how == "selective" else {}))


def keep_products(_context: object, op: object, *_args: object, **_options: object) -> CheckpointPolicy:
    """What selective recomputation keeps: results of matrix products and of attention. The rest is cheap to redo."""
    kept = getattr(op, "_schema", None)
    name = kept.name.partition("::")[2] if kept is not None else ""
    keep = name in ("mm", "bmm", "addmm", "_scaled_mm") or name.startswith("_scaled_dot_product")
    return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE


def shard(module: nn.Module, job: Job, grid: Grid, *, dtype: torch.dtype, keep: bool = False) -> None:
    """FSDP2 (or HSDP, where the layout keeps several copies) over one module, in place.

    In a pipeline, and where asked to `keep` them (the backward pass needs them first), weights stay gathered
    between forward and backward.
    """
    mixed = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    fully_shard(
        module,
        mesh=grid.mesh["copies", "shard"] if grid.layout.copies > 1 else grid.mesh["shard"],
        mp_policy=mixed if dtype == torch.bfloat16 else MixedPrecisionPolicy(),
        reshard_after_forward=job.layout.pp == 1 and not keep,
    )


def build_schedule(
    job: Job, grid: Grid, stages: Sequence[Stage], loss: Callable[..., Tensor], device: torch.device, ledger: Ledger
) -> torch_schedules._PipelineSchedule:
    """torch's pipeline schedule over this rank's stages; its first step also runs one forward pass for shapes."""
    parts = [PipelineStage(s.module, s.index, job.stages, device, group=grid.group("pp")) for s in stages]
    for part in parts:
        ledger.watch(part)
    return SCHEDULE_CLASSES[job.schedule](
        parts[0] if job.schedule in SINGLE else parts,
        n_microbatches=job.micro_batches,
        loss_fn=loss,
        scale_grads=False,
    )
