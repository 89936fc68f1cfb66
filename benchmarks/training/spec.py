"""What the training benchmark is asked, and what it promises to emit. No torch here.

A step is proven before it is timed: a small model with the same layout and schedule is held against a
single process in float64. Only then are steps of the asked model timed.

>>> from benchmarks.spec import Place
>>> [m.name for m in Training().emits(Place(ranks_per_node=4))][0]
'training.loss_error'
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from benchmarks.measurement import Metric, Scalar
from benchmarks.spec import Place
from reference_model.job import Job
from reference_model.layout import Layout
from reference_model.shape import shape_of


@dataclass(frozen=True, kw_only=True)
class Training:
    """Training steps of one model in one layout."""

    benchmark: ClassVar[str] = "training"
    scope: ClassVar[str] = "world"

    model: str = "tiny"  # tiny | 8b | 70b | 405b
    layers: int = 0  # use only so many layers, each of full size; 0: all
    layout: str = "auto"  # "tp2,pp2,dp1"; "auto" exercises what the number of ranks allows
    sequence: int = 128  # tokens in one sequence
    micro_batch: int = 2  # sequences in one micro-batch
    micro_batches: int = 4  # micro-batches of each data parallel rank in one step
    schedule: str = "1f1b"  # gpipe | 1f1b | interleaved | looped-bfs | zero-bubble | zbv | dualpipev
    stages_per_rank: int = 1  # pipeline stages on one rank
    recompute: str = "none"  # none | selective (all but products and attention) | full: computed again going backward
    compile: str = ""  # backend of torch.compile for every block ("inductor"); empty: eager
    dtype: str = "auto"  # of the products: bf16 | fp8 (blocks only, the rest bf16) | fp32 | fp64; "auto": bf16 on GPUs
    data: str = ""  # a packed token file; empty: synthetic tokens
    steps: int = 8  # timed steps; 48 with 2 before them store a loss curve of 50
    observed: int = 2  # steps after them, slower: their communication is counted and timed
    warmup: int = 2  # steps before them; the first pipeline step is never timed
    allow_tp_across_nodes: bool = False  # tensor parallel groups over the network: slow, but its price can be measured
    peak: float = 0.0  # dense bf16 FLOP/s of one GPU, for MFU; 0: of its data sheet, if the GPU is known
    memory_rate: float = 0.0  # B/s of one GPU's memory ...
    inside_rate: float = 0.0  # ... of its links inside a node, one way ...
    between_rate: float = 0.0  # ... and of its share of the network: from a data sheet, for the plan shown beside
    seed: int = 0  # of weights and tokens
    deterministic: bool = False  # only operations that repeat bit for bit, also on GPUs; slower, in a launch of its own
    limit_s: float = 180.0

    def job(self, place: Place) -> Job:
        """The job it becomes there. ValueError with a cure where it cannot run."""
        auto = Layout.auto(place.ranks, per_node=place.ranks_per_node)
        layout = auto if self.layout == "auto" else Layout.parse(self.layout)
        if layout.ranks != place.ranks:
            raise ValueError(
                f"layout {layout} needs {layout.ranks} ranks and there are {place.ranks}: "
                f'use tp x pp x dp = {place.ranks}, or "auto" (here {auto})'
            )
        shape = shape_of(self.model)
        job = Job(
            shape=shape.cut(self.layers) if self.layers else shape, layout=layout, sequence=self.sequence,
            micro_batch=self.micro_batch, micro_batches=self.micro_batches, schedule=self.schedule,
            stages_per_rank=self.stages_per_rank, recompute=self.recompute, compile=self.compile, seed=self.seed,
            fp8=self.dtype == "fp8", data=self.data,
        )  # fmt: skip
        job.check()
        return job

    def check(self, place: Place) -> None:
        """Raise ValueError, with a cure, where this cannot run at `place`. Costs nothing: no rank is needed."""
        job = self.job(place)
        if self.dtype not in ("auto", "bf16", "fp8", "fp32", "fp64"):
            raise ValueError(f"no dtype {self.dtype!r} for training: use auto, bf16, fp8, fp32 or fp64")
        if self.dtype == "fp8" and place.device != "cuda":
            raise ValueError("fp8 needs tensor cores that have it (H100 and later); these ranks run on CPUs: use bf16")
        tp, inside = job.layout.tp, place.ranks_per_node
        if place.nodes > 1 and inside % tp and not self.allow_tp_across_nodes:
            raise ValueError(
                f"tp {tp} does not fit into nodes of {inside} ranks: its traffic would cross the network; use a tp "
                f"that divides {inside}, or allow_tp_across_nodes to measure the price"
            )
        if min(self.steps, self.warmup, self.observed) < 1:
            raise ValueError(
                "training needs a timed step, one before it and an observed one after it: "
                "raise steps, warmup and observed to 1"
            )
        if min(self.peak, self.memory_rate, self.inside_rate, self.between_rate) < 0:
            raise ValueError("of peak, memory_rate, inside_rate and between_rate none is negative; 0 is unknown")

    def warning(self, place: Place) -> str:
        """What will make it slow there, though it was asked for; "" where nothing."""
        tp, inside = self.job(place).layout.tp, place.ranks_per_node
        if place.nodes == 1 or inside % tp == 0:
            return ""
        return f"tensor parallel groups of {tp} ranks cross nodes of {inside}: every block waits for the network"

    @property
    def env(self) -> tuple[str, ...]:
        """Variables of the launch that it needs for itself: without it cuBLAS does not repeat its sums."""
        return ("CUBLAS_WORKSPACE_CONFIG=:4096:8",) if self.deterministic else ()

    def dtype_at(self, place: Place) -> str:
        """The products' type there."""
        if self.dtype != "auto":
            return self.dtype
        return "bf16" if place.device == "cuda" else "fp32"

    def emits(self, place: Place) -> list[Metric]:
        """Errors of the proof, then the speed of the step."""
        self.check(place)
        return list(self.metrics(place).values())

    def metrics(self, place: Place) -> dict[str, Metric]:
        """Every metric, by the last part of its name."""
        job = self.job(place)
        params: dict[str, Scalar] = {
            "model": job.shape.label, "layout": str(job.layout), "sequence": job.sequence, "batch": job.batch,
            "schedule": job.schedule if job.layout.pp > 1 else "none", "dtype": self.dtype_at(place),
        }  # fmt: skip
        if job.recompute != "none":
            params["recompute"] = job.recompute
        if job.compile:
            params["compile"] = job.compile
        if self.deterministic:
            params["deterministic"] = True
        found = {
            "loss_error": Metric(name="training.loss_error", unit="1", better="lower", params=params),
            "gradient_error": Metric(name="training.gradient_error", unit="1", better="lower", params=params),
            "step.time": Metric(name="training.step.time", unit="s", better="lower", params=params),
            "tokens_rate": Metric(name="training.tokens_rate", unit="1/s", better="higher", params=params),
            "flops": Metric(name="training.flops", unit="FLOP/s", better="higher", params=params),
            # predicted from this run's own products, memory and links, by measured step time
            "predicted_share": Metric(name="training.predicted_share", unit="1", better="higher", params=params),
        }
        if place.nodes > 1:  # share of the step in which ranks wait for communication between nodes
            found["network_share"] = Metric(name="training.network_share", unit="1", better="lower", params=params)
        if self.data:  # share of the step in which it waits for its tokens
            found["data_share"] = Metric(name="training.data_share", unit="1", better="lower", params=params)
        if job.layout.pp > 1:  # share of the passes in which a rank does nothing
            found["bubble"] = Metric(name="training.bubble", unit="1", better="lower", params=params)
        return found

    def bytes_written(self, place: Place) -> int:  # noqa: ARG002 (part of the contract)
        """Nothing goes to storage."""
        return 0
