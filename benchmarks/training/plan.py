"""Plans a training job without running it: will it fit, what will it send, how fast should it be.

One rank of every class is really cut and sharded, on meta tensors over a fake process group of the whole world, so
that its parameters are torch's and not a formula's: a class is how many layers a rank has, whether it has the embedding
or the head, and whether it has the remainder of an uneven cut. The rest is prediction.py, from the cluster's figures.

    python -m benchmarks training --dry-run --model 70b --layout tp8,pp8,dp8 --cluster h100-512-reference
    python -m benchmarks training --dry-run --model 70b --cluster h100-512-reference --search
"""

from __future__ import annotations

import argparse
import dataclasses
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from benchmarks.training.prediction import Machine, Prediction, predict
from clusters.loader import load
from clusters.physics import checkpoint_bytes
from clusters.table import ClusterError
from reference_model.job import RECOMPUTE, SCHEDULES, Job
from reference_model.layout import Layout
from reference_model.memory import Memory, memory_of, tensors
from reference_model.shape import SHAPES, shape_of

FULL = 0.95  # share of a GPU's memory that may be planned for: the rest is the context's and the allocator's
MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux kibibytes
SHOWN = 10  # layouts that a search prints
SEARCHED = (("1f1b", 1), ("interleaved", 2), ("interleaved", 5), ("zbv", 2))  # schedule, stages per rank


def main(argv: Sequence[str]) -> int:
    """The command line. 0: it fits; 3: nothing does; 4: the job or the cluster file is refused."""
    options, begin = parser().parse_args(argv), time.monotonic()
    try:
        cluster = load(options.cluster, nodes=options.nodes or None)
        machine = Machine.of(cluster)
        gpus = cluster.nodes * machine.gpus_per_node
        found = (
            list(search(options, machine, gpus))
            if options.search
            else [predict(asked_job(options, machine, gpus), machine)]
        )
    except (ValueError, ClusterError) as error:
        print(f"python -m benchmarks training --dry-run: {error}", file=sys.stderr)
        return 4
    if options.search:
        print(f"{len(found)} layouts fit {gpus} GPUs of {cluster.name}; the fastest:")
        print("\n".join(map(line, found[:SHOWN])))
        return 0 if found else 3
    print("\n".join(page(found[0])))
    spent, most = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAXRSS_BYTES
    print(f"Planned in {spent:.1f} s with {most / 1e9:.2f} GB of memory")
    if fits(found[0]):
        return 0
    rest = list(search(options, machine, found[0].job.layout.ranks))
    print("It does not fit. What would:" if rest else "It does not fit, and no layout of so many GPUs does.")
    print("\n".join(map(line, rest[:3])))
    return 3


def parser() -> argparse.ArgumentParser:
    """Options of a plan: those of the benchmark that decide what a step computes, and where."""
    assert __doc__
    made = argparse.ArgumentParser(
        prog="python -m benchmarks training --dry-run", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    made.add_argument("--dry-run", action="store_true", help="plan, start nothing")
    made.add_argument("--cluster", default="h100-sxm-ndr400", help="cluster file: name or path")
    made.add_argument("--nodes", type=int, default=0, help="of that kind of cluster; 0: as many as its file says")
    made.add_argument("--model", choices=SHAPES, default="70b")
    made.add_argument("--layers", type=int, default=0, help="use only so many layers, each of full size")
    made.add_argument("--layout", default="", help='"tp8,pp8,dp8"; needed without --search')
    made.add_argument("--sequence", type=int, default=8192, help="tokens in one sequence")
    made.add_argument("--micro-batch", type=int, default=1, help="sequences in one micro-batch")
    made.add_argument("--micro-batches", type=int, default=16, help="of each data parallel rank in one step")
    made.add_argument("--batch", type=int, default=0, help="sequences of one step; instead of --micro-batches")
    made.add_argument("--schedule", choices=SCHEDULES, default="1f1b")
    made.add_argument("--stages-per-rank", type=int, default=1)
    made.add_argument("--recompute", choices=RECOMPUTE, default="none")
    made.add_argument("--allow-tp-across-nodes", action="store_true", help="tensor parallel groups over the network")
    made.add_argument("--search", action="store_true", help="propose the fastest layouts that fit the cluster")
    return made


def asked_job(options: argparse.Namespace, machine: Machine, gpus: int) -> Job:
    """The job that was asked for. ValueError where it cannot run or the cluster is too small."""
    if not options.layout:
        raise ValueError('no layout: say --layout "tp8,pp8,dp8", or --search for the fastest that fit')
    layout = Layout.parse(options.layout)
    if layout.ranks > gpus:
        raise ValueError(f"layout {layout} needs {layout.ranks} GPUs and the cluster has {gpus}: use a smaller one")
    if layout.tp > machine.gpus_per_node and not options.allow_tp_across_nodes:
        raise ValueError(
            f"tp {layout.tp} would cross nodes of {machine.gpus_per_node} GPUs: use at most that, or "
            "--allow-tp-across-nodes to see its price"
        )
    shape = shape_of(options.model)
    job = Job(
        shape=shape.cut(options.layers) if options.layers else shape, layout=layout, sequence=options.sequence,
        micro_batch=options.micro_batch, micro_batches=micro_batches(options, layout), schedule=options.schedule,
        stages_per_rank=options.stages_per_rank, recompute=options.recompute,
    )  # fmt: skip
    job.check()
    return job


def micro_batches(options: argparse.Namespace, layout: Layout) -> int:
    """Micro-batches of each data parallel rank. ValueError where the batch does not divide."""
    if not options.batch:
        return int(options.micro_batches)
    count, left = divmod(options.batch, options.micro_batch * layout.dp)
    if left or not count:
        raise ValueError(
            f"a batch of {options.batch} is no multiple of micro-batch {options.micro_batch} x dp {layout.dp}"
        )
    return int(count)


def search(options: argparse.Namespace, machine: Machine, gpus: int) -> Iterator[Prediction]:
    """Every layout over all `gpus` that can run and fits, the fastest first, at the batch that was asked for."""
    batch = options.batch or options.micro_batch * options.micro_batches * dp_asked(options, gpus)
    found = []
    for layout in layouts(gpus, machine.gpus_per_node):
        for schedule, stages in SEARCHED if layout.pp > 1 else SEARCHED[:1]:
            asked = {"layout": str(layout), "batch": batch, "schedule": schedule, "stages_per_rank": stages}
            if (plan := leanest(argparse.Namespace(**{**vars(options), **asked}), machine, gpus)) is not None:
                found.append(plan)
    yield from sorted(found, key=lambda plan: plan.step)


def leanest(options: argparse.Namespace, machine: Machine, gpus: int) -> Prediction | None:
    """The plan with as little recomputation as fits; None where nothing does, or where it cannot run at all."""
    for recompute in RECOMPUTE:
        options.recompute = recompute
        try:
            job = asked_job(options, machine, gpus)
        except ValueError:
            continue  # what cannot run is no proposal
        if max(memory_of(job, r, alive=1).total for r in range(job.layout.pp)) > FULL * machine.memory_bytes:
            continue  # no need to play the schedule
        if fits(plan := predict(job, machine)):
            return plan
    return None


def dp_asked(options: argparse.Namespace, gpus: int) -> int:
    """How many micro-batches run side by side where the batch is not given: the asked layout's dp, or gpus / 8."""
    return Layout.parse(options.layout).dp if options.layout else max(1, gpus // 8)


def layouts(gpus: int, per_node: int) -> Iterator[Layout]:
    """Layouts over all GPUs, tensor parallel inside a node."""
    for tp in (n for n in range(1, per_node + 1) if per_node % n == 0):
        for pp in (n for n in range(1, 17) if gpus % (tp * n) == 0):
            yield Layout(tp=tp, pp=pp, dp=gpus // (tp * pp))


def memory(plan: Prediction) -> list[Memory]:
    """Of a rank of each pipeline stage."""
    return [memory_of(plan.job, r, alive=alive) for r, alive in enumerate(plan.timeline.alive)]


def fits(plan: Prediction) -> bool:
    """Whether the fullest rank stays within a GPU's memory."""
    return max(m.total for m in memory(plan)) <= FULL * plan.machine.memory_bytes


def line(plan: Prediction) -> str:
    """One plan in one line."""
    job, fullest = plan.job, max(m.total for m in memory(plan))
    pipeline = f"{job.schedule} x{job.stages_per_rank}" if job.layout.pp > 1 else "-"
    return (
        f"  {job.layout!s:24} {pipeline:14} m {job.micro_batches:<4} recompute {job.recompute:5} "
        f"step {plan.step:7.2f} s  {plan.tokens_rate:6.0f} tokens/s/GPU  MFU {plan.mfu:5.1%}  "
        f"memory {fullest / 1e9:5.1f} GB"
    )


def page(plan: Prediction) -> Iterator[str]:
    """The whole plan, as lines."""
    job, machine, layout = plan.job, plan.machine, plan.job.layout
    yield f"{job.shape.label} as {layout} on {layout.ranks} GPUs"
    yield f"A step: {job.batch} sequences of {job.sequence}, {job.tokens:,} tokens, {job.micro_batches} micro-batches"
    yield ""
    yield "Memory of one rank, GB       ranks  parameters  state  gathered  activations  logits  total    of"
    for r, (part, (most, least)) in enumerate(zip(memory(plan), count(job), strict=True)):
        parts = (part.state, part.gathered, part.activations, part.logits, part.total, machine.memory_bytes)
        state, gathered, activations, logits, total, of = (f"{b / 1e9:.1f}" for b in parts)
        uneven = f" (the last shard {least:,})" if least != most else ""
        yield (
            f"  pipeline rank {r:<3} alive {plan.timeline.alive[r]:<4} {layout.ranks // layout.pp:5}  "
            f"{most:10,}  {state:>5}  {gathered:>8}  {activations:>11}  {logits:>6}  {total:>5}  {of:>4}{uneven}"
        )
    yield ""
    yield "Traffic of the fullest rank    axis  where          count         MB     s a step"
    for c in plan.collectives:
        where = "in the node" if c.inside else "between nodes"
        yield f"  {c.name:28} {c.axis:5} {where:14} {c.count:5}  {c.bytes / 1e6:9.1f}  {c.seconds:11.3f}"
    yield ""
    full, causal = (job.shape.flops_per_token(job.sequence, causal=c) for c in (False, True))
    yield (
        f"Step {plan.step:.2f} s: passes {plan.timeline.step:.2f}, exposed data parallel {plan.exposed:.2f}, "
        f"optimizer {plan.optimizer:.3f}"
    )
    yield "Shares: " + ", ".join(f"{name} {part:.1%}" for name, part in plan.parts.items() if part > 0)
    yield f"Bubble {plan.timeline.bubble:.1%} of the passes; {plan.tokens_rate:.0f} tokens/s/GPU"
    peak = f"{machine.flops / 1e12:.0f} TFLOP/s dense bf16"
    yield f"MFU {plan.mfu:.1%} (causal; {plan.mfu * full / causal:.1%} full) of {peak}"
    size = checkpoint_bytes(parameters=job.shape.parameters, contents="mixed")
    yield f"Checkpoint {size / 1e9:.0f} GB (bf16 weights, fp32 master, both moments): 30 s need {size / 30e9:.1f} GB/s"


class Class(NamedTuple):
    """What decides how many parameters a rank holds."""

    layers: tuple[int, ...]  # of each of its stages
    first: bool  # it has the embedding
    last: bool  # it has the head
    remainder: bool  # it has the last shard of an uneven cut


def class_of(job: Job, rank: int) -> Class:
    """The class of one rank of the job's world."""
    layout = job.layout
    shards, stages = layout.copies_over * layout.cp, job.stages_of(rank // (layout.ranks // layout.pp))
    uneven = any(shape[0] % shards for stage in stages for shape in tensors(job, stage=stage))
    return Class(
        layers=tuple(len(job.layers_of(stage)) for stage in stages), first=0 in stages, last=job.stages - 1 in stages,
        remainder=uneven and rank // layout.tp % shards == shards - 1,
    )  # fmt: skip


def representatives(job: Job) -> dict[Class, int]:
    """The first rank of every class. Ranks that differ in tensor parallel index or in copy only hold as many."""
    found: dict[Class, int] = {}
    for rank in range(0, job.layout.ranks, job.layout.tp):
        found.setdefault(class_of(job, rank), rank)
    return found


def count(job: Job) -> list[tuple[int, int]]:
    """Parameters that a rank of each pipeline rank holds, cut by torch on meta tensors: the first shard, the last."""
    layout, chosen = job.layout, representatives(job)
    held = {which: parameters_of(job, rank) for which, rank in chosen.items()}
    per_stage = layout.ranks // layout.pp
    assert all(class_of(job, rank) in held for rank in range(0, layout.ranks, layout.tp))  # nobody is left out
    ends = ((r * per_stage, (r + 1) * per_stage - layout.tp) for r in range(layout.pp))
    return [(held[class_of(job, first)], held[class_of(job, last)]) for first, last in ends]


def parameters_of(job: Job, rank: int) -> int:
    """Parameters on one rank of the job's world."""
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from reference_model.parallel import Grid, build_stages

    plain = dataclasses.replace(job, compile="", recompute="none", data="")
    dist.init_process_group("fake", rank=rank, world_size=job.layout.ranks, store=FakeStore())
    Grid.open.cache_clear()
    try:
        stages = build_stages(plain, Grid.open(job.layout, "cpu"), torch.device("meta"), dtype=torch.bfloat16)
        return sum(p.to_local().numel() for s in stages for p in s.module.parameters())
    finally:
        dist.destroy_process_group()
        Grid.open.cache_clear()
