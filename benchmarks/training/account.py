"""The account of timed steps: each metric with everything that explains it.

A step's time comes with its split, measured and predicted; FLOP/s with every convention, the peak and its source;
each collective with what the closed form says it should be. Rank 0 writes it; nothing is judged here.

>>> [m.metric for m in Account(spec, world, timing, figures).measurements(spec.metrics(world.place))][0]
'training.step.time'
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

import torch

from benchmarks.measurement import Measurement, Metric
from benchmarks.training.calibration import block_products, head_products
from benchmarks.training.prediction import OPTIMIZER_BYTES, Figures, Machine, Prediction, predict
from benchmarks.training.spec import Training
from benchmarks.training.timing import Timing
from benchmarks.training.traffic import closed_form
from benchmarks.world import World
from clusters.hardware import identify
from clusters.table import ClusterError
from reference_model.job import Job
from reference_model.layout import Layout
from reference_model.memory import local_parameters, memory_of

MOST_SLOTS = 4000  # of a pipeline's schedule that is noted: a picture of more shows nothing


class Account:
    """What timed steps amount to."""

    def __init__(self, spec: Training, world: World, timing: Timing, figures: Figures) -> None:
        self.spec, self.world, self.timing, self.figures, self.job = spec, world, timing, figures, timing.job
        self.plan = timing.predicted() if self.job.layout.pp > 1 else None
        self.predicted = predict(self.job, figures.machine, figures=figures)

    def measurements(self, metrics: dict[str, Metric]) -> Iterator[Measurement]:
        """One for each of the spec's metrics that are about speed."""
        job, slowest, everyone = self.job, self.timing.slowest, self.world.all()
        yield metrics["step.time"].measured(*slowest, subject=everyone, notes=self.step(), columns=self.columns())
        rates = [job.tokens / s for s in slowest]
        per_gpu = {"of one rank": median(rates) / self.world.size}
        yield metrics["tokens_rate"].measured(*rates, subject=everyone, notes=per_gpu)
        flops = job.tokens * job.shape.flops_per_token(job.sequence)
        yield metrics["flops"].measured(*(flops / s for s in slowest), subject=everyone, notes=self.flops())
        if self.plan:
            measured = self.timing.bubbles
            notes = {"predicted": self.plan.bubble, "residual": median(measured) - self.plan.bubble}
            yield metrics["bubble"].measured(*measured, subject=everyone, notes=notes)
        share = [self.predicted.step / s for s in slowest]
        yield metrics["predicted_share"].measured(*share, subject=everyone, notes=self.prediction())
        if "network_share" in metrics:
            yield self.network_share(metrics["network_share"])
        if "data_share" in metrics:
            yield metrics["data_share"].measured(*self.stalls(), subject=everyone)

    def network_share(self, metric: Metric) -> Measurement:
        """What ranks wait for the network; an error where that was not to be seen."""
        axes, everyone = crossing(self.job.layout, self.world.nodes), self.world.all()
        notes = {"axes": axes}
        if blind := self.timing.unseen(set(axes)):
            reason = (
                f"rank {blind[0]} on {self.world.nodes[blind[0]]} ({len(blind)} of {self.world.size} ranks): no "
                f"communication along {', '.join(axes)} on its timeline, so nobody knows how long it waited; let "
                "torch's profiler record kernels there (end other profilers, DCGM's too; allow its counters to users)"
            )
            return metric.measured(subject=everyone, outcome="error", reason=reason, notes=notes)
        return metric.measured(*self.timing.network(set(axes)), subject=everyone, notes=notes)

    def step(self) -> dict[str, Any]:
        """Notes of the step's time: what it consists of, and how steady it is."""
        timing, slowest = self.timing, self.timing.slowest
        share, rank = timing.straggling
        notes: dict[str, Any] = {
            "losses": timing.losses, "gradient_norms": timing.norms, "split": timing.split,
            "predicted": {"step_s": self.predicted.step, "split": self.predicted.parts},
            "p95_s": sorted(slowest)[min(len(slowest) - 1, int(0.95 * len(slowest)))],
            "variation": statistics.stdev(slowest) / statistics.mean(slowest) if len(slowest) > 1 else 0.0,
            "straggler": {"waited_for": share, "rank": rank, "node": self.world.nodes[rank]},
            "hidden": self.hidden(), "collectives": self.collectives(), "memory_use": self.memory_use(),
        }  # fmt: skip
        if warning := self.spec.warning(self.world.place):
            notes["warning"] = warning
        if self.plan and len(self.plan.slots) <= MOST_SLOTS:  # rank, kind, stage, micro-batch, begin, end
            notes["timeline"] = [[r, *a, round(begin, 6), round(end, 6)] for r, a, begin, end in self.plan.slots]
        if planned := self.planned():
            notes["planned"] = {"step_s": planned.step, "split": planned.parts, "mfu": planned.mfu}
        if all(timing.peak_bytes):
            alive = enumerate(self.plan.alive if self.plan else (1,))
            notes["predicted_bytes"] = [memory_of(self.job, r, alive=n).total for r, n in alive]  # by pipeline rank
        if kernels := timing.observed[0][-1].kernels:
            notes["longest_kernels"] = [list(kernel) for kernel in kernels]
        return notes

    def columns(self) -> dict[str, list[Any]]:
        """Of every rank: its place in the pipeline, median step, own compute in it, and memory at the fullest."""
        timing, per_stage = self.timing, self.world.size // self.job.layout.pp
        found: dict[str, list[Any]] = {
            "rank": list(range(self.world.size)), "median_s": list(map(median, timing.times)),
            "compute_s": timing.compute, "pipeline_rank": [r // per_stage for r in range(self.world.size)],
        }  # fmt: skip
        return found | ({"peak_bytes": timing.peak_bytes} if all(timing.peak_bytes) else {})

    def flops(self) -> dict[str, Any]:
        """One step's FLOPs in each convention (the metric counts the first), and their shares of a peak."""
        job, ranks, step = self.job, self.world.size, median(self.timing.slowest)
        model, full = (job.tokens * job.shape.flops_per_token(job.sequence, causal=c) for c in (True, False))
        executed = model + job.tokens * recomputed_flops(job)
        notes: dict[str, Any] = {
            "model, causal": model, "model, full attention": full, "executed, causal": executed,
            "share of own products": model / step / ranks / self.figures.machine.flops,
        }  # fmt: skip
        peak, source = self.peak()
        if not peak:
            return notes | {"MFU": f"unknown: {source}"}
        shares = {"MFU, causal": model, "MFU, full attention": full, "HFU, causal": executed}
        notes |= {name: flops / step / ranks / peak for name, flops in shares.items()}
        return notes | {"peak": peak, "peak_source": source}

    def peak(self) -> tuple[float, str]:
        """Dense bf16 FLOP/s of one device and who says so; 0 and the cure where nobody knows."""
        if self.spec.peak:
            return self.spec.peak, "as given (peak)"
        if self.world.device.type != "cuda":
            return 0.0, "a CPU's peak is in no data sheet here: give it with --peak, FLOP/s"
        try:
            known = identify(torch.cuda.get_device_name(self.world.device))
        except ClusterError as error:
            return 0.0, f"{error}, or give it with --peak"
        return known.bf16_flops, known.source

    def prediction(self) -> dict[str, Any]:
        """What the predicted step rests on."""
        figures = self.figures
        return {
            "step_s": self.predicted.step, "split": self.predicted.parts, "source": self.source(),
            "products_flops": figures.machine.flops, "memory_rate": figures.machine.memory_bandwidth,
            "link_rates": figures.links, "block_s": list(vars(figures.block).values()),
            "head_s": list(vars(figures.head).values()),
        }  # fmt: skip

    def source(self) -> str:
        """Where the prediction's figures are from."""
        axes = ", ".join(sorted(self.figures.links))
        links = f" and links ({axes})" if axes else ""
        return f"products, attention, memory{links}, measured on these ranks before the steps"

    def planned(self) -> Prediction | None:
        """The step as the data sheets have it (--dry-run says the same), where they were given."""
        spec, place = self.spec, self.world.place
        if not (spec.peak and spec.memory_rate and (spec.inside_rate or self.world.size == 1)):
            return None
        machine = Machine(
            flops=spec.peak, memory_bytes=0.0, memory_bandwidth=spec.memory_rate, inside=spec.inside_rate or 1.0,
            between=spec.between_rate or spec.inside_rate or 1.0, gpus_per_node=place.ranks_per_node,
        )  # fmt: skip
        return predict(self.job, machine)

    def hidden(self) -> dict[str, float]:
        """By axis: the share of its communication that runs behind something else."""
        seen = [step for rank in self.timing.observed for step in rank]
        found = {}
        for axis in sorted({axis for step in seen for axis in step.exposed} - {"pp"}):
            flown = sum(step.flown.get(axis, 0.0) for step in seen)
            if flown > 0:
                found[axis] = max(0.0, 1.0 - sum(step.exposed.get(axis, 0.0) for step in seen) / flown)
        return found

    def collectives(self) -> list[dict[str, Any]]:
        """What a rank of each pipeline rank sent in its passes, beside the closed form."""
        per_stage, found = self.world.size // self.job.layout.pp, []
        for r in range(self.job.layout.pp):
            sent = self.timing.observed[r * per_stage][-1].sent
            element = self.figures.element
            wanted = closed_form(self.job, pp_rank=r, element=element, reduced=max(4, element))
            for axis, name in sorted({*sent, *wanted}):
                got, should = sent.get((axis, name), (0, 0)), wanted.get((axis, name), (0, 0))
                found.append(
                    {
                        "pipeline_rank": r, "axis": axis, "operation": name, "count": got[0], "bytes": got[1],
                        "planned_count": should[0], "planned_bytes": should[1],
                    }
                )  # fmt: skip
        return found

    def memory_use(self) -> dict[str, float]:
        """Bytes that one rank's counted operations move in a step, and their share of what its memory can copy.

        Products read and write each operand once; attention is left out, since it stays in caches.
        """
        job, figures, element = self.job, self.figures, self.figures.element
        tokens = job.micro_batch * job.sequence // job.layout.cp
        layers = max(sum(len(job.layers_of(s)) for s in job.stages_of(r)) for r in range(job.layout.pp))

        def operands(weights: list[tuple[int, int]]) -> float:
            return 3.0 * element * sum(n * k + tokens * (n + k) for n, k in weights)

        block = figures.bytes["forward"] + figures.bytes["backward"] + operands(block_products(job))
        head = figures.bytes["loss"] + operands(head_products(job))
        local = max(sum(local_parameters(job, stage=s) for s in job.stages_of(r)) for r in range(job.layout.pp))
        moved = job.micro_batches * (layers * block + head) + OPTIMIZER_BYTES * local
        rate = moved / median(self.timing.slowest)
        return {"bytes": moved, "share_of_copy": rate / figures.machine.memory_bandwidth}

    def stalls(self) -> list[float]:
        """Of each timed step, the share in which its slowest rank waits for tokens."""
        found = []
        for step in range(len(self.timing.slowest)):
            ranks = zip(self.timing.times, self.timing.spans, strict=True)
            found.append(max(sum(spans[step].get("data", [])) / times[step] for times, spans in ranks))
        return found


def recomputed_flops(job: Job) -> float:
    """FLOPs of one token that recomputation adds: full blocks; selective keeps every product and all attention."""
    return job.shape.recomputed_flops_per_token(job.sequence) if job.recompute == "full" else 0.0


def crossing(layout: Layout, nodes: Sequence[str]) -> list[str]:
    """The axes that have a group on several nodes; `nodes` is the node of every rank.

    >>> crossing(Layout.parse("tp2,dp2"), ["a", "a", "b", "b"])
    ['dp']
    """
    line = layout.tp * layout.cp
    sizes = {
        "tp": (1, layout.tp), "cp": (layout.tp, layout.cp), "dp": (layout.tp, layout.cp * layout.dp),
        "pp": (line * layout.dp, layout.pp),
    }  # fmt: skip
    found = []
    for axis, (stride, size) in sizes.items():
        starts = (r for r in range(len(nodes)) if r // stride % size == 0)
        if size > 1 and any(len({nodes[r + i * stride] for i in range(size)}) > 1 for r in starts):
            found.append(axis)
    return found
