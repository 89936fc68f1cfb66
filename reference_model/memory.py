"""How much memory a rank will need: bf16 products, float32 master weights, FSDP2 or HSDP, AdamW.

Parameters are counted tensor by tensor as torch cuts them; activations are what autograd keeps for a block
with fused norms and flash attention, held against a real block by the tests. The allocator's own loss and
the workspace of libraries are not counted: leave a tenth free.

>>> job = Job(shape=shape_of("70b"), layout=Layout.parse("tp8,pp8,dp8"), sequence=8192, micro_batch=1, micro_batches=8)
>>> local_parameters(job, stage=0)
149045248
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod

from reference_model.job import Job

STATE_BYTES = 16  # a parameter: float32 weight, gradient and both moments of Adam
LOGIT_BYTES = 14  # a logit: bf16, its float32 copy, log-probability and gradient


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes of one rank at its fullest."""

    state: int  # weights, gradients and optimizer, as sharded
    gathered: int  # whole weights and gradients that FSDP2 keeps for a time
    activations: int  # of all micro-batches alive at once
    logits: int  # of one micro-batch, on the rank with the head

    @property
    def total(self) -> int:
        """All of it."""
        return self.state + self.gathered + self.activations + self.logits


def memory_of(job: Job, pp_rank: int, *, alive: int) -> Memory:
    """What a rank of one pipeline stage needs; `alive` is the most stage inputs it keeps (see pipeline.Timeline)."""
    stages = job.stages_of(pp_rank)
    blocks = [len(job.layers_of(stage)) for stage in stages]
    whole = sum(local_parameters(job, stage=stage, shards=1) for stage in stages)
    if job.layout.pp > 1:
        gathered = 6 * whole  # all of the stage in bf16, and its gradients in float32 until the last micro-batch
    else:
        gathered = 6 * 2 * block_parameters(job)  # the block at work and the one being fetched
    tokens = job.micro_batch * job.sequence // job.layout.cp
    block = block_activations(job, tokens)
    kept = kept_activations(job, tokens)
    return Memory(
        state=STATE_BYTES * sum(local_parameters(job, stage=stage) for stage in stages),
        gathered=gathered,
        activations=alive * max(blocks) * kept + (block if job.recompute != "none" else 0),
        logits=LOGIT_BYTES * tokens * job.shape.vocab // job.layout.tp if job.stages - 1 in stages else 0,
    )


def block_activations(job: Job, tokens: int) -> int:
    """Bytes that autograd keeps of one block for `tokens` tokens of one micro-batch, in bf16.

    In units of 2 bytes x tokens x dim: two norm inputs, query, attention output (2 + 2) and key, value (2 K/H) and four
    of the feed-forward's width, all cut by tp; and the two inputs that tensor parallelism gathers, whole.
    """
    shape, tp = job.shape, job.layout.tp
    kv_dim = shape.kv_heads * shape.head_dim
    return 2 * tokens * ((4 * shape.dim + 2 * kv_dim * job.layout.cp + 4 * shape.ffn) // tp + 2 * shape.dim)


def kept_activations(job: Job, tokens: int) -> int:
    """Bytes that one block keeps until its backward pass: all; its input; or its input and the results of its products.

    Those are, by token: query, attention and both blocks' outputs (4 d), key and value, w1's and w3's; cut by tp.
    """
    shape, tp = job.shape, job.layout.tp
    if job.recompute == "none":
        return block_activations(job, tokens)
    products = 4 * shape.dim + 2 * shape.kv_heads * shape.head_dim * job.layout.cp + 2 * shape.ffn
    return 2 * tokens * (shape.dim + (products if job.recompute == "selective" else 0)) // tp


def local_parameters(job: Job, *, stage: int, shards: int = 0) -> int:
    """Parameters of a stage on its fullest rank, cut by tp, then by first dimension into `shards` (0: all)."""
    shards = shards or job.layout.copies_over * job.layout.cp
    return sum(ceil(shape[0] / shards) * prod(shape[1:]) for shape in tensors(job, stage=stage))


def block_parameters(job: Job) -> int:
    """Parameters of one block's tensors on one tensor parallel rank."""
    return sum(map(prod, _block(job)))


def tensors(job: Job, *, stage: int) -> Iterator[tuple[int, ...]]:
    """Shapes of a stage's parameters on one tensor parallel rank."""
    vocab, dim = job.shape.vocab // job.layout.tp, job.shape.dim
    if stage == 0:
        yield vocab, dim
    for _ in job.layers_of(stage):
        yield from _block(job)
    if stage == job.stages - 1:
        yield from ((dim,), (vocab, dim))


def _block(job: Job) -> list[tuple[int, ...]]:
    shape, tp = job.shape, job.layout.tp
    dim, ffn, kv_dim = shape.dim, shape.ffn // tp, shape.kv_heads * shape.head_dim // tp
    return [
        (dim,), (dim // tp, dim), (kv_dim, dim), (kv_dim, dim), (dim, dim // tp),
        (dim,), (ffn, dim), (dim, ffn), (ffn, dim),
    ]  # fmt: skip
