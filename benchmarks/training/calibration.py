"""Measures what a step is made of, on these ranks: products, attention, memory and the layout's own links.

The prediction of the hardware gate rests on it: a block's own matrix products at the job's shapes, its attention, a
copy in memory, and one collective of the true size along each axis, all ranks at the same time. The slowest rank
counts, because a step waits for it. Element-wise work is counted in bytes, on a block that holds no values, and
costs what a copy of so many bytes costs. What Python and kernel launches cost is not in it.

>>> calibrate(job, grid, world, dtype=torch.bfloat16).block.forward         # on every rank: seconds of one block
0.0041
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.training.prediction import Efficiency, Figures, Machine, Passes
from benchmarks.world import World
from reference_model.float8 import BACKWARD, FORWARD, multiply
from reference_model.job import Job
from reference_model.memory import block_parameters
from reference_model.model import Block, Places
from reference_model.parallel import Grid

REPETITIONS = 5
SAMPLE_S = 0.05  # of one sample on a GPU
COPY_BYTES = 2**26  # at least: an activation of a real model is larger than any cache
UNCOUNTED = ("mm", "bmm", "addmm", "_unsafe_view", "empty", "empty_like")


def calibrate(job: Job, grid: Grid, world: World, *, dtype: torch.dtype) -> Figures:
    """Figures of these ranks for a prediction of `job`. Every rank calls it and gets the same answer."""
    own = _Own(job, grid, world, dtype)
    world.barrier()
    parts = {
        "block": own.products(block_products(job), in_float8=job.fp8), "head": own.products(head_products(job)),
        "attention": own.attention(), "memory": own.memory(), "links": own.links(),
    }  # fmt: skip
    everyone = world.gather(parts)
    slow = {name: _slowest([rank[name] for rank in everyone]) for name in parts}
    memory, element = slow["memory"][0], torch.empty((), dtype=dtype).element_size()
    between = element_wise(job, world.device, dtype)
    block, head, attention = slow["block"], slow["head"], slow["attention"]
    flops = 6 * sum(n * k for n, k in block_products(job)) * own.tokens / sum(block)
    links = {axis: min(rank["links"][axis] for rank in everyone if axis in rank["links"]) for axis in own.axes}
    return Figures(
        block=Passes(
            forward=block[0] + attention[0] + between["forward"] * memory,
            inputs=block[1] + attention[1] + between["backward"] * memory,
            weights=block[2],
        ),
        head=Passes(forward=head[0] + between["loss"] * memory, inputs=head[1], weights=head[2]),
        again=between["forward"] * memory,
        last_product=block[0] * job.shape.ffn * job.shape.dim / job.shape.block_matmul_parameters,
        links=links,
        machine=Machine(
            flops=flops, memory_bytes=0.0, memory_bandwidth=1.0 / memory, inside=0.0, between=0.0,
            gpus_per_node=world.place.ranks_per_node,
        ),
        efficiency=Efficiency(gemm=1.0, attention=1.0, memory=1.0, link=1.0),
        element=element,
        bytes=between,
    )  # fmt: skip


def block_products(job: Job) -> list[tuple[int, int]]:
    """(outputs, inputs) of a block's weights on one tensor parallel rank."""
    shape, tp = job.shape, job.layout.tp
    dim, ffn, kv_dim = shape.dim, shape.ffn, shape.kv_heads * shape.head_dim
    return [
        (dim // tp, dim), (kv_dim // tp, dim), (kv_dim // tp, dim), (dim, dim // tp),
        (ffn // tp, dim), (ffn // tp, dim), (dim, ffn // tp),
    ]  # fmt: skip


def head_products(job: Job) -> list[tuple[int, int]]:
    """The same of the output head."""
    return [(job.shape.vocab // job.layout.tp, job.shape.dim)]


class _Own:
    """What one rank measures."""

    def __init__(self, job: Job, grid: Grid, world: World, dtype: torch.dtype) -> None:
        self.job, self.grid, self.world, self.dtype = job, grid, world, dtype
        self.tokens = job.micro_batch * job.sequence // job.layout.cp
        layout = job.layout
        sizes = {"tp": layout.tp, "cp": layout.cp, "dp": layout.copies_over * layout.cp, "copies": layout.copies}
        self.axes = [axis for axis, size in {**sizes, "pp": layout.pp}.items() if size > 1]

    def values(self, *shape: int) -> Tensor:
        """Random numbers of the products' type."""
        return torch.randn(shape, device=self.world.device, dtype=torch.float32).to(self.dtype)

    def seconds(self, work: Callable[[], Any], *, together: bool = False) -> float:
        """Median time of `work`, after one call that is not counted.

        A GPU is kept at it, so that its clock sinks; but where ranks work `together`, all of them as often.
        """
        work()
        self.world.synchronize()
        times = 1
        if self.world.device.type == "cuda" and not together:
            times = max(1, math.ceil(SAMPLE_S / max(self.world.timed(work), 1e-6)))

        def often() -> None:
            for _ in range(times):
                work()

        return statistics.median(self.world.timed(often) / times for _ in range(REPETITIONS))

    def products(self, weights: list[tuple[int, int]], *, in_float8: bool = False) -> tuple[float, float, float]:
        """Seconds of all products: forward, gradients of the inputs, gradients of the weights."""

        def product(a: Tensor, b: Tensor, low: torch.dtype) -> Callable[[], Tensor]:
            return lambda: multiply(a, b, low) if in_float8 else a @ b.T

        found: dict[tuple[int, int], tuple[float, float, float]] = {}
        for n, k in set(weights):
            x, w, gradient = self.values(self.tokens, k), self.values(n, k), self.values(self.tokens, n)
            found[n, k] = (
                self.seconds(product(x, w, FORWARD)), self.seconds(product(gradient, w.T, BACKWARD)),
                self.seconds(product(gradient.T, x.T, BACKWARD)),
            )  # fmt: skip
        forward, inputs, backward = (sum(found[w][i] for w in weights) for i in range(3))
        return forward, inputs, backward

    def attention(self) -> tuple[float, float]:
        """Seconds of a block's attention on this rank's heads: forward, backward."""
        job, shape, tp = self.job, self.job.shape, self.job.layout.tp
        context = self.grid.context
        mask = context.mask(job.sequence).to(self.world.device) if context is not None else None
        q = self.values(job.micro_batch, shape.heads // tp, job.sequence // job.layout.cp, shape.head_dim)
        k, v = (self.values(job.micro_batch, shape.kv_heads // tp, job.sequence, shape.head_dim) for _ in range(2))
        for tensor in (q, k, v):
            tensor.requires_grad_(True)

        def forward() -> Tensor:
            return scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=True)

        gradient, once = self.values(*q.shape), self.seconds(forward)
        return once, max(0.0, self.seconds(lambda: forward().backward(gradient)) - once)

    def memory(self) -> tuple[float]:
        """Seconds to move one byte: a copy reads and writes."""
        element = torch.empty((), dtype=self.dtype).element_size()
        size = max(COPY_BYTES if self.world.device.type == "cuda" else 0, element * self.tokens * self.job.shape.dim)
        source = torch.ones(size, dtype=torch.uint8, device=self.world.device)
        target = torch.empty_like(source)
        return (self.seconds(lambda: target.copy_(source)) / (2 * size),)

    def links(self) -> dict[str, float]:
        """B/s of one rank along each axis of the layout, at the size that a block sends."""
        return {axis: self._link(axis) for axis in self.axes}

    def _link(self, axis: str) -> float:
        job, shape = self.job, self.job.shape
        if axis == "pp":
            return self._hop()
        group = self.grid.context.group if axis == "cp" and self.grid.context else self.grid.group(_dimension(axis))
        ranks = dist.get_world_size(group)
        values = {
            "tp": self.tokens * shape.dim, "dp": block_parameters(job),
            "cp": job.micro_batch * job.sequence * shape.kv_heads * shape.head_dim // job.layout.tp,
            "copies": max(ranks, block_parameters(job) // (job.layout.copies_over * job.layout.cp)),
        }[axis]  # fmt: skip
        part = self.values(-(-values // ranks))
        whole = torch.empty(part.numel() * ranks, dtype=part.dtype, device=part.device)

        def both() -> None:
            dist.all_gather_into_tensor(whole, part, group=group)
            dist.reduce_scatter_tensor(part, whole, group=group)

        size = whole.numel() * whole.element_size()
        moved: float = 2 * size * (ranks - 1) / ranks
        return moved / self.seconds(both, together=True)

    def _hop(self) -> float:
        """B/s from a stage to the next while the one before sends too."""
        group, ranks, mine = self.grid.group("pp"), self.job.layout.pp, self.grid.index("pp")
        sent = self.values(self.tokens // self.job.layout.tp, self.job.shape.dim)
        got = torch.empty_like(sent)
        to, source = (dist.get_global_rank(group, (mine + step) % ranks) for step in (1, -1))

        def hop() -> None:
            pair = dist.P2POp(dist.isend, sent, to, group), dist.P2POp(dist.irecv, got, source, group)
            for work in dist.batch_isend_irecv(list(pair)):
                work.wait()

        size: float = sent.numel() * sent.element_size()
        return size / self.seconds(hop, together=True)


def element_wise(job: Job, device: torch.device, dtype: torch.dtype) -> dict[str, float]:
    """Bytes that one micro-batch moves besides its products and attention: a block forward, backward; the loss.

    Counted operation by operation on tensors without values, as this torch runs them on this device; everything is
    cut by tp. A compiled block is fused: each value is read and written about once.
    """
    shape, layout = job.shape, job.layout
    tokens, element = job.micro_batch * job.sequence // layout.cp, torch.empty((), dtype=dtype).element_size()
    with FakeTensorMode(), torch.device(device), _Bytes() as counted:
        logits = torch.empty(tokens, shape.vocab, dtype=dtype, requires_grad=True)
        targets = torch.empty(tokens, dtype=torch.long)
        counted.moved = 0
        wide = logits.float() if dtype == torch.bfloat16 else logits
        cross_entropy(wide, targets, reduction="sum").backward()
        loss = counted.moved
        block = Block(shape)
        for module in block.modules():
            for name, parameter in module.named_parameters(recurse=False):
                setattr(module, name, nn.Parameter(torch.empty(parameter.shape, dtype=dtype)))
        tables = torch.empty(2, job.sequence // layout.cp, shape.head_dim // 2, dtype=dtype)
        x = torch.empty(job.micro_batch, job.sequence // layout.cp, shape.dim, dtype=dtype, requires_grad=True)
        counted.moved = 0
        y = block(x, Places(cos=tables[0], sin=tables[1]))
        forward, counted.moved = counted.moved, 0
        y.backward(torch.empty_like(y))
        backward = counted.moved
    if job.compile:
        forward = element * tokens * (14 * shape.dim + 5 * shape.ffn)
        backward = 2 * forward
    return {"forward": forward / layout.tp, "backward": backward / layout.tp, "loss": loss / layout.tp}


class _Bytes(TorchDispatchMode):
    """Adds up what operations read and write, but for views, products and attention."""

    moved = 0

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = op(*args, **(kwargs or {}))
        name = op._schema.name.partition("::")[2]
        uncounted = op.is_view or op.namespace != "aten" or name in UNCOUNTED or "attention" in name
        if not uncounted:
            self.moved += sum(t.numel() * t.element_size() for t in _tensors((args, result)))
        return result


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)


def _slowest(rows: list[Any]) -> Any:
    return tuple(map(max, zip(*rows, strict=True))) if isinstance(rows[0], tuple) else None


def _dimension(axis: str) -> str:
    return "shard" if axis == "dp" else axis
