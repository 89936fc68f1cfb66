"""Times steps on every rank, and says where their time went.

A step runs from a barrier to the end of the optimizer; its parts come from the trainer's ledger. In a
pipeline, what a rank does within the passes is its busy time, and what is left of them is waiting. The bubble is
predicted, by playing the schedule with this run's own costs per stage; waiting beyond it is exposed communication
between stages. Steps after the timed ones are observed (observation.py): how long ranks wait for other communication.

>>> timing = time_steps(job, grid, world, dtype=torch.float32, warmup=2, steps=8)      # on every rank
>>> timing.slowest                                             # seconds of each step
[0.71, ...]
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass

import torch

from benchmarks.training.observation import Observed, observe
from benchmarks.world import World
from reference_model.job import Job
from reference_model.parallel import Grid
from reference_model.pipeline import Costs, Timeline, orders, simulate
from reference_model.trainer import Trainer

PHASES = ("data", "passes", "optimizer", "report")
Spans = dict[str, list[float]]  # seconds by the ledger's names


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Timed steps of all ranks."""

    job: Job
    times: list[list[float]]  # seconds, [rank][step]
    spans: list[list[Spans]]  # [rank][step]
    losses: list[float]  # of every step, those before the timed ones too
    norms: list[float]  # of the gradients, of the same steps
    observed: list[list[Observed]]  # [rank][observed step]
    peak_bytes: list[int]  # most memory that torch allocated, by rank; 0 on a CPU

    @property
    def slowest(self) -> list[float]:
        """Seconds of each step: its slowest rank's."""
        return [max(ranks) for ranks in zip(*self.times, strict=True)]

    @property
    def split(self) -> dict[str, float]:
        """Shares of the steps' time, over all ranks: together 1.

        data, optimizer and report are spans of their own. Of the passes: exposed communication along tp, cp and dp,
        in a pipeline the bubble and the exposed sends between stages, and compute, which is the rest of a rank's busy
        time. `other` is what no span covers, and communication of no known axis.
        """
        total = sum(map(sum, self.times))
        shares = {name: sum(sum(s.get(name, [])) for rank in self.spans for s in rank) / total for name in PHASES}
        passes = shares.pop("passes")
        outside = 1.0 - passes - sum(shares.values())
        busy = passes
        if self.job.layout.pp > 1:
            busy = sum(busy_of(s) for rank in self.spans for s in rank) / total
            bubble = min(passes - busy, self.predicted().bubble * passes)
            shares |= {"bubble": bubble, "pp": passes - busy - bubble}
        exposed = {axis: share * passes for axis, share in self.exposed.items()}
        compute, outside = busy - sum(exposed.values()), outside + exposed.pop("other", 0.0)
        return {"compute": compute, **exposed, **shares, "other": outside}

    @property
    def exposed(self) -> dict[str, float]:
        """Shares of the passes in which ranks wait for communication within a stage, by axis."""
        seen = [step for rank in self.observed for step in rank]
        axes = sorted({axis for step in seen for axis in step.exposed} - {"pp"})
        total = sum(step.seconds for step in seen)
        return {axis: sum(step.exposed.get(axis, 0.0) for step in seen) / total for axis in axes}

    @property
    def compute(self) -> list[float]:
        """Seconds of each rank's own work in the passes of a step, without waiting for anybody."""
        if all(step.compute for rank in self.observed for step in rank):  # as the device itself has it
            return [statistics.median(step.compute for step in rank) for rank in self.observed]
        found = []
        for spans, steps in zip(self.spans, self.observed, strict=True):
            within = [busy_of(s) if self.job.layout.pp > 1 else sum(s["passes"]) for s in spans]
            waited = statistics.median(
                sum(v for axis, v in step.exposed.items() if axis != "pp") / step.seconds for step in steps
            )
            found.append(statistics.median(within) - waited * statistics.median(sum(s["passes"]) for s in spans))
        return found

    @property
    def straggling(self) -> tuple[float, int]:
        """The share of their compute that ranks of one pipeline rank wait for its slowest, at worst; that rank."""
        own, per_stage = self.compute, len(self.times) // self.job.layout.pp
        worst = (0.0, 0)
        for first in range(0, len(own), per_stage):
            alike = own[first : first + per_stage]
            slowest = max(range(per_stage), key=alike.__getitem__)
            if alike[slowest] > 0:
                worst = max(worst, (1.0 - statistics.mean(alike) / alike[slowest], first + slowest))
        return worst

    def network(self, crossing: set[str]) -> list[float]:
        """Of each observed step, the share of a step in which ranks wait for communication between nodes.

        `crossing` are the axes with a group on several nodes. Communication that the timeline gives to no axis is taken
        for theirs.
        """
        within = (crossing - {"pp"}) | {"other"}
        passes = sum(sum(s["passes"]) for rank in self.spans for s in rank) / sum(map(sum, self.times))
        hops = self.split.get("pp", 0.0) if "pp" in crossing else 0.0
        found = []
        for steps in zip(*self.observed, strict=True):
            waited = sum(v for step in steps for axis, v in step.exposed.items() if axis in within)
            found.append(passes * waited / sum(step.seconds for step in steps) + hops)
        return found

    def unseen(self, crossing: set[str]) -> list[int]:
        """Ranks on whose timeline an observed step has none of the communication that it must have between nodes.

        A profiler that may not look (no right to the counters, or another one that holds them) records nothing: then
        nobody has waited, as far as it can tell, and that is no measurement.
        """
        if not (within := crossing - {"pp"}):
            return []
        return [
            rank for rank, steps in enumerate(self.observed)
            if any(sum(step.flown.get(axis, 0.0) for axis in (*within, "other")) <= 0 for step in steps)
        ]  # fmt: skip

    @property
    def bubbles(self) -> list[float]:
        """Of each step, the share of all ranks' passes in which a rank does nothing."""
        found = []
        for step in zip(*self.spans, strict=True):
            longest = max(sum(spans["passes"]) for spans in step)
            found.append(1.0 - sum(map(busy_of, step)) / (len(step) * longest))
        return found

    def predicted(self) -> Timeline:
        """The schedule played with the median cost of each stage's actions, sends and receives for nothing."""
        seen: dict[str, list[float]] = defaultdict(list)
        for spans in (spans for rank in self.spans for spans in rank):
            for name, seconds in spans.items():
                seen[name] += seconds
        cost = {name: statistics.median(seconds) for name, seconds in seen.items()}
        last, stages = self.job.stages - 1, range(self.job.stages)
        inputs, weights = (tuple(cost.get(f"{kind}{s}", 0.0) for s in stages) for kind in "IW")
        whole = tuple(cost.get(f"B{s}", 0.0) for s in stages)
        costs = Costs(
            forward=tuple(cost[f"F{s}"] + (cost["loss"] if s == last else 0.0) for s in stages),
            inputs=tuple(i or b / 2 for i, b in zip(inputs, whole, strict=True)),
            weights=tuple(w or b / 2 for w, b in zip(weights, whole, strict=True)),
        )
        return simulate(self.job, orders(self.job), costs)


def busy_of(spans: Spans) -> float:
    """Seconds in which a rank worked on a pipeline's actions."""
    return sum(sum(seconds) for name, seconds in spans.items() if name not in PHASES)


def time_steps(
    job: Job, grid: Grid, world: World, *, dtype: torch.dtype, warmup: int, steps: int, observed: int = 1
) -> Timing:
    """Train `warmup` steps, time `steps`, observe some more. Every rank calls it and gets the same answer."""
    trainer = Trainer(job, grid, world.device, dtype=dtype)
    done = [trainer.step(number) for number in range(warmup)]
    if world.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(world.device)
    times, spans, numbers = [], [], iter(range(warmup, warmup + steps))
    for _ in range(steps):
        world.barrier()
        times.append(world.timed(lambda: done.append(trainer.step(next(numbers)))))
        spans.append(trainer.ledger.seconds())
    peak = torch.cuda.max_memory_allocated(world.device) if world.device.type == "cuda" else 0
    seen = [observe(trainer, grid, world, number=warmup + steps + n) for n in range(observed)]
    everyone = world.gather((times, spans, peak, seen))
    return Timing(
        job=job, losses=[step.loss for step in done], norms=[step.gradient_norm for step in done],
        times=[own[0] for own in everyone], spans=[own[1] for own in everyone],
        peak_bytes=[own[2] for own in everyone], observed=[own[3] for own in everyone],
    )  # fmt: skip
