"""Every collective of one step in closed form: what a layout must send, counted without running it.

A rank of pipeline rank r sends, within the passes, exactly this many collectives of this many bytes. `watch.py`
counts what really happens; the two are compared in every run and, to the byte, in the tests. It follows from how
`reference_model/parallel.py` cuts the model; sizes are counted as nccl-tests does. What clipping and the report of the
loss send is not in it.

>>> job = Job(shape=SHAPES["70b"], layout=Layout.parse("tp8"), sequence=8192, micro_batch=1, micro_batches=1)
>>> closed_form(job, pp_rank=0, element=2)["tp", "all_gather"].calls       # four in each block, one at each end
322
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import NamedTuple

from reference_model.job import Job
from reference_model.memory import local_parameters

Key = tuple[str, str]  # axis, operation
BUCKET_BYTES = 25 * 2**20  # DDP's default


class Sent(NamedTuple):
    """Collectives of one kind on one axis in one step."""

    calls: int
    bytes: int  # of all of them together


def closed_form(job: Job, *, pp_rank: int, element: int, reduced: int = 4) -> dict[Key, Sent]:
    """What a rank of `pp_rank` sends in the passes of one step, `element` bytes a value, `reduced` a gradient."""
    parts = [
        *_tensor(job, pp_rank, element, reduced),
        *_context(job, pp_rank, element),
        *_pipeline(job, pp_rank, element),
    ]
    parts += _state(job, pp_rank, element, reduced)
    found: dict[Key, Sent] = {}
    for key, count, size in parts:
        before = found.get(key, Sent(0, 0))
        found[key] = Sent(before.calls + count, before.bytes + size)
    return found


def _held(job: Job, pp_rank: int) -> tuple[int, bool, bool]:
    """Layers of a pipeline rank, and whether it has the embedding and the head."""
    stages = job.stages_of(pp_rank)
    return sum(len(job.layers_of(s)) for s in stages), 0 in stages, job.stages - 1 in stages


def _tensor(job: Job, pp_rank: int, element: int, reduced: int) -> Iterator[tuple[Key, int, int]]:
    """Sequence parallel: a block gathers twice and scatters twice on the way forward, and as often on the way back."""
    if job.layout.tp == 1:
        return
    layers, first, last = _held(job, pp_rank)
    m, tokens = job.micro_batches, job.micro_batch * job.sequence // job.layout.cp
    gathers, scatters = (4, 4) if job.recompute == "none" else (6, 5)  # torch stops before w2's scatter
    for name, each in (("all_gather", gathers), ("reduce_scatter", scatters)):
        count = m * (layers * each + first + last)
        yield ("tp", name), count, count * element * tokens * job.shape.dim
    if last:  # the loss over a cut vocabulary: maximum, sum of exponentials, and the target's logit
        yield ("tp", "all_reduce"), 3 * m, 3 * m * max(4, element) * tokens
    if sharded(job, element):  # gradients of the norms, whenever FSDP2 reduces
        count = _often(job) * (2 * layers + last)
        yield ("tp", "all_reduce"), count, count * job.shape.dim * (element if _shards(job) > 1 else reduced)


def _context(job: Job, pp_rank: int, element: int) -> Iterator[tuple[Key, int, int]]:
    """Keys and values of a sequence's other ranks: gathered, and their gradients scattered."""
    if job.layout.cp == 1:
        return
    layers, _, _ = _held(job, pp_rank)
    size = element * job.micro_batch * job.sequence * job.shape.kv_heads * job.shape.head_dim // job.layout.tp
    often = 2 * layers * job.micro_batches
    gathers = often * (1 if job.recompute == "none" else 2)
    yield ("cp", "all_gather"), gathers, gathers * size
    yield ("cp", "reduce_scatter"), often, often * size


def _pipeline(job: Job, pp_rank: int, element: int) -> Iterator[tuple[Key, int, int]]:
    """Activations to the next stage and gradients to the one before, where those are on another rank."""
    if job.layout.pp == 1:
        return
    owner = {stage: r for r in range(job.layout.pp) for stage in job.stages_of(r)}
    size = element * job.micro_batch * job.sequence // job.layout.cp // job.layout.tp * job.shape.dim
    for stage in job.stages_of(pp_rank):
        count = job.micro_batches * sum(owner.get(s, pp_rank) != pp_rank for s in (stage - 1, stage + 1))
        yield ("pp", "send"), count, count * size
        yield ("pp", "recv"), count, count * size


def _state(job: Job, pp_rank: int, element: int, reduced: int) -> Iterator[tuple[Key, int, int]]:
    """FSDP2: the weights of each unit gathered, its gradients reduced; HSDP and DDP also sum over the copies."""
    layout = job.layout
    layers, first, last = _held(job, pp_rank)
    shards, units, often = _shards(job), layers + first + 2 * last, _often(job)
    whole = shards * sum(local_parameters(job, stage=s) for s in job.stages_of(pp_rank))
    if shards > 1:
        # blocks and embedding once more on the way back; the head and the root stay
        again, ends = layers + first, last * job.shape.dim * (1 + job.shape.vocab // layout.tp)
        if layout.pp > 1:  # everything stays
            again, ends = 0, whole
        yield ("dp", "all_gather"), often * (units + again), often * element * (2 * whole - ends)
        yield ("dp", "reduce_scatter"), often * units, often * reduced * whole
    if layout.copies > 1:
        if sharded(job, element):
            yield ("copies", "all_reduce"), often * units, often * reduced * whole // shards
        else:  # DDP: once a step, in buckets of 25 MiB; a small model fits into one
            yield ("copies", "all_reduce"), ceil(element * whole / BUCKET_BYTES), element * whole


def sharded(job: Job, element: int) -> bool:
    """Whether FSDP2 holds the state: where there are shards, and always in bf16, for its mixed precision."""
    return element == 2 or _shards(job) > 1


def _shards(job: Job) -> int:
    return job.layout.copies_over * job.layout.cp


def _often(job: Job) -> int:
    """How often a step FSDP2 gathers and reduces: in a pipeline once, else for each micro-batch."""
    return 1 if job.layout.pp > 1 else job.micro_batches
