"""Predicts a step from a machine's figures: what compute, links and schedule should give.

The model is a sum of parts, each with one efficiency that is the same for every layout and machine: matrix
products and attention at a share of the peak, element-wise work at a share of the memory bandwidth,
collectives at a share of their link, the pipeline by playing its schedule. Tensor and context parallel
traffic is exposed, FSDP2's hides behind compute where there is no pipeline. `tests/test_training_plan.py`
holds it against published 70B results. It does not know congestion, stragglers or power limits.

>>> predict(job, Machine.of(load("h100-sxm-ndr400"))).mfu
0.47
"""

from __future__ import annotations

from dataclasses import dataclass

from clusters.cluster import Cluster
from reference_model.job import Job
from reference_model.memory import LOGIT_BYTES, local_parameters
from reference_model.pipeline import Costs, Timeline, orders, simulate

OPTIMIZER_BYTES = 32  # a parameter: read weight, gradient (twice: norm) and moments, write weight and moments


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The figures of one cluster that a prediction needs, per GPU; B/s are one way."""

    flops: float  # dense bf16 peak
    memory_bytes: float
    memory_bandwidth: float
    inside: float  # B/s to the other GPUs of its node
    between: float  # B/s to other nodes
    gpus_per_node: int

    @classmethod
    def of(cls, cluster: Cluster) -> Machine:
        """A cluster file's figures. ValueError where it names no GPU."""
        if cluster.gpu is None or not cluster.gpus_per_node:
            raise ValueError(
                f"{cluster.name} names no GPU: plan with a cluster file that does (--cluster h100-sxm-ndr400)"
            )
        gpu, count = cluster.gpu, cluster.gpus_per_node
        return cls(
            flops=gpu.bf16_flops, memory_bytes=gpu.memory_bytes, memory_bandwidth=gpu.memory_bandwidth,
            inside=gpu.nvlink_bandwidth, between=cluster.network.node_rate / count, gpus_per_node=count,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Efficiency:
    """Shares of the figures that good code reaches; fitted once to the published rows in the tests."""

    gemm: float = 0.64
    attention: float = 0.45
    memory: float = 0.75
    link: float = 0.80


@dataclass(frozen=True, kw_only=True)
class Collective:
    """One kind of traffic of one rank in one step."""

    name: str
    axis: str
    count: int
    bytes: int  # of one, as nccl-tests counts them
    inside: bool  # within a node
    seconds: float  # of all of them together


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A step as it should be."""

    job: Job
    machine: Machine
    timeline: Timeline  # of the passes
    ideal: Timeline  # the same where nothing has to be sent from stage to stage
    collectives: tuple[Collective, ...]
    exposed: float  # seconds of data parallel traffic that nothing hides
    optimizer: float  # seconds

    @property
    def step(self) -> float:
        """Seconds of one step."""
        return self.timeline.step + self.exposed + self.optimizer

    @property
    def parts(self) -> dict[str, float]:
        """Shares of the step, by the names that a measured split has (timing.py); together 1."""
        passes = self.timeline.step
        sent = {axis: sum(c.seconds for c in self.collectives if c.axis == axis) / self.step for axis in ("tp", "cp")}
        pp = (passes - self.ideal.step) / self.step
        bubble = self.ideal.bubble * self.ideal.step / self.step
        dp, optimizer = self.exposed / self.step, self.optimizer / self.step
        compute = 1.0 - sum(sent.values()) - pp - bubble - dp - optimizer
        return {"compute": compute, **sent, "dp": dp, "pp": pp, "bubble": bubble, "optimizer": optimizer}

    @property
    def tokens_rate(self) -> float:
        """Tokens per second and GPU."""
        return self.job.tokens / self.step / self.job.layout.ranks

    @property
    def mfu(self) -> float:
        """Model FLOPs (causal attention) by the dense bf16 peak."""
        return self.tokens_rate * self.job.shape.flops_per_token(self.job.sequence) / self.machine.flops


def predict(
    job: Job, machine: Machine, efficiency: Efficiency | None = None, *, figures: Figures | None = None
) -> Prediction:
    """The step of a job on a machine, bf16 with float32 master weights; or as measured `figures` have it."""
    job.check()
    rates = Rates(job=job, machine=machine, efficiency=efficiency or Efficiency())
    if figures is not None:
        rates = Rates(job=job, machine=machine, efficiency=figures.efficiency, element=figures.element, figures=figures)
    timeline = simulate(job, orders(job), rates.costs())
    traffic = rates.traffic()
    exposed = sum(c.seconds for c in traffic if c.axis in ("dp", "copies"))
    if job.layout.pp == 1:
        exposed = max(0.0, exposed - timeline.step)
    local = max(sum(local_parameters(job, stage=s) for s in job.stages_of(r)) for r in range(job.layout.pp))
    return Prediction(
        job=job, machine=machine, timeline=timeline, ideal=simulate(job, orders(job), rates.costs().without_hops()),
        collectives=traffic, exposed=exposed, optimizer=rates.in_memory(OPTIMIZER_BYTES * local),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Passes:
    """Seconds of one micro-batch: forward, gradients of the inputs, gradients of the weights."""

    forward: float
    inputs: float
    weights: float


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What a calibration measured on the ranks themselves (calibration.py), in place of a data sheet."""

    block: Passes  # without traffic
    head: Passes  # with the loss
    again: float  # seconds of a block's element-wise work, forward
    last_product: float  # seconds of a block's last product, forward
    links: dict[str, float]  # B/s of a rank along each axis, as busbw
    machine: Machine  # the same as rates: FLOP/s of the products, B/s of memory
    efficiency: Efficiency
    element: int  # bytes of a value
    bytes: dict[str, float]  # that element-wise work moves: a block forward and backward, the loss


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Times of a job's parts on a machine: from a data sheet, or from figures measured on it."""

    job: Job
    machine: Machine
    efficiency: Efficiency
    element: int = 2  # bytes of a value
    figures: Figures | None = None

    @property
    def tokens(self) -> int:
        """Tokens of one micro-batch on one tensor parallel group."""
        return self.job.micro_batch * self.job.sequence // self.job.layout.cp

    def gemm(self, parameters: float) -> float:
        """Seconds to multiply a micro-batch's tokens by `parameters` weights, cut by tp."""
        flops = 2 * parameters * self.tokens / self.job.layout.tp
        return flops / (self.machine.flops * self.efficiency.gemm)

    def attention(self) -> float:
        """Seconds of one block's two attention products, forward, causal half."""
        flops = 2 * self.job.shape.dim * self.job.sequence * self.tokens / self.job.layout.tp
        return flops / (self.machine.flops * self.efficiency.attention)

    def elementwise(self) -> float:
        """Seconds of one block's norms, residuals, rotations and SwiGLU, forward: bf16 reads and writes."""
        values = self.tokens / self.job.layout.tp * (14 * self.job.shape.dim + 5 * self.job.shape.ffn)
        return self.in_memory(2 * values)

    def in_memory(self, size: float) -> float:
        """Seconds to move `size` bytes between a GPU and its memory."""
        return size / (self.machine.memory_bandwidth * self.efficiency.memory)

    def axis(self, name: str) -> tuple[int, int]:
        """Distance in ranks between neighbours along an axis of the grid, and how many ranks it has."""
        layout = self.job.layout
        line = layout.tp * layout.cp
        return {
            "tp": (1, layout.tp), "cp": (layout.tp, layout.cp), "dp": (layout.tp, layout.copies_over * layout.cp),
            "copies": (line * layout.copies_over, layout.copies), "pp": (line * layout.dp, 2),
        }[name]  # fmt: skip

    def link(self, axis: str) -> tuple[float, bool]:
        """B/s of a rank along an axis (ring), and whether the axis stays inside a node."""
        (stride, size), machine = self.axis(axis), self.machine
        if self.figures is not None:
            return self.figures.links[axis], stride * size <= machine.gpus_per_node
        if stride * size <= machine.gpus_per_node:
            return machine.inside * self.efficiency.link, True
        # ranks of one ring in one node share the rate of their NICs; a hop uses its own
        together = 1 if axis == "pp" else max(1, machine.gpus_per_node // stride)
        return min(machine.inside, machine.between * together) * self.efficiency.link, False

    def collective(self, name: str, axis: str, *, size: int, count: int) -> Collective:
        """`count` all-gathers or reduce-scatters of `size` bytes in all over an axis, or sends along pp."""
        (_, n), (rate, inside) = self.axis(axis), self.link(axis)
        seconds = count * size * (1.0 if axis == "pp" else (n - 1) / n) / rate
        return Collective(name=name, axis=axis, count=count, bytes=size, inside=inside, seconds=seconds)

    def block(self) -> Passes:
        """Seconds of one block without its traffic."""
        if self.figures is not None:
            return self.figures.block
        gemm = self.gemm(self.job.shape.block_matmul_parameters)
        attention, between = self.attention(), self.elementwise()
        return Passes(
            forward=gemm + attention + between,
            inputs=gemm + 2.5 * attention + 2 * between,  # flash attention's backward: 2.5 forwards
            weights=gemm,
        )

    def head(self) -> Passes:
        """Seconds of the output head and the loss."""
        if self.figures is not None:
            return self.figures.head
        shape = self.job.shape
        head = self.gemm(shape.dim * shape.vocab)
        logits = self.in_memory(LOGIT_BYTES * self.tokens * shape.vocab / self.job.layout.tp)
        return Passes(forward=head + logits, inputs=head, weights=head)

    def recomputed(self, forward: float) -> float:
        """Seconds of what a block computes again; `forward` is its whole forward pass."""
        if self.job.recompute == "full":  # torch stops before the last product of each block
            shape = self.job.shape
            return forward - (self.figures.last_product if self.figures else self.gemm(shape.dim * shape.ffn))
        if self.job.recompute == "selective":
            traffic = sum(c.seconds for c in self.block_traffic())
            return traffic + (self.figures.again if self.figures else self.elementwise())
        return 0.0

    def costs(self) -> Costs:
        """Seconds of each stage's actions. Recomputation comes with the gradients of the inputs."""
        job, block, head = self.job, self.block(), self.head()
        traffic = sum(c.seconds for c in self.block_traffic())
        forward = block.forward + traffic
        inputs = block.inputs + traffic + self.recomputed(forward)
        stages = range(job.stages)
        blocks = [len(job.layers_of(stage)) for stage in stages]
        last = [stage == job.stages - 1 for stage in stages]
        edge = sum(c.seconds for c in self.end_traffic(1))
        ends = [edge * ((stage == 0) + (stage == job.stages - 1)) for stage in stages]
        hop = self.collective("", "pp", size=self.hop_bytes, count=1).seconds if job.layout.pp > 1 else 0.0
        return Costs(
            forward=tuple(b * forward + end * head.forward + e for b, end, e in zip(blocks, last, ends, strict=True)),
            inputs=tuple(b * inputs + end * head.inputs + e for b, end, e in zip(blocks, last, ends, strict=True)),
            weights=tuple(b * block.weights + end * head.weights for b, end in zip(blocks, last, strict=True)),
            hop=hop,
        )

    @property
    def hop_bytes(self) -> int:
        """Bytes that one micro-batch sends from a stage to the next, on one rank."""
        return self.element * self.tokens * self.job.shape.dim // self.job.layout.tp

    def block_traffic(self) -> list[Collective]:
        """Of one block and one micro-batch: what its forward or its backward pass sends."""
        shape, layout, found = self.job.shape, self.job.layout, []
        if layout.tp > 1:
            size = self.element * self.tokens * shape.dim
            found.append(self.collective("all-gather, reduce-scatter", "tp", size=size, count=4))
        if layout.cp > 1:
            size = 2 * self.element * self.tokens * layout.cp * shape.kv_heads * shape.head_dim // layout.tp
            found.append(self.collective("keys and values", "cp", size=size, count=1))
        return found

    def end_traffic(self, count: int) -> list[Collective]:
        """What the embedding scatters, or the head gathers, with tensor parallelism; each does so once a pass."""
        if self.job.layout.tp == 1:
            return []
        size = self.element * self.tokens * self.job.shape.dim
        return [self.collective("of embedding and head", "tp", size=size, count=count)]

    def traffic(self) -> tuple[Collective, ...]:
        """Everything that the fullest rank sends in one step."""
        job, layout = self.job, self.job.layout
        held = [[len(job.layers_of(s)) for s in job.stages_of(r)] for r in range(layout.pp)]
        passes = max(map(sum, held)) * job.micro_batches * (2 if job.recompute == "none" else 3)
        found = [self.collective(c.name, c.axis, size=c.bytes, count=c.count * passes) for c in self.block_traffic()]
        ends = max((0 in job.stages_of(r)) + (job.stages - 1 in job.stages_of(r)) for r in range(layout.pp))
        found += self.end_traffic(2 * job.micro_batches * ends)
        if layout.pp > 1:
            count = 2 * job.micro_batches * job.stages_per_rank
            found.append(self.collective("activations and their gradients", "pp", size=self.hop_bytes, count=count))
        return tuple(found + self.state_traffic())

    def state_traffic(self) -> list[Collective]:
        """FSDP2: bf16 weights gathered, float32 gradients reduced: in a pipeline once a step, else each micro-batch."""
        job, (_, shards), (_, copies) = self.job, self.axis("dp"), self.axis("copies")
        whole = max(
            sum(local_parameters(job, stage=s, shards=1) for s in job.stages_of(r)) for r in range(job.layout.pp)
        )
        often, gathers = (1, 1) if job.layout.pp > 1 else (job.micro_batches, 2)
        found = []
        if shards > 1:
            found.append(self.collective("weights", "dp", size=self.element * whole, count=gathers * often))
            found.append(self.collective("gradients", "dp", size=4 * whole, count=often))
        if copies > 1:  # an all-reduce is a reduce-scatter and an all-gather
            found.append(
                self.collective("gradients of the copies", "copies", size=4 * whole // shards, count=2 * often)
            )
        return found
