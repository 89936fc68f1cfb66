"""Times steps on every rank, and says where their time went.

A step runs from a barrier to the end of the optimizer; its parts come from the trainer's ledger. In a
pipeline, what a rank does within the passes is its busy time, and what is left of them is waiting: the
bubble, and sends and receives that nothing hides. The bubble is also predicted, by playing the schedule
with this run's own costs per stage.

>>> timing = time_steps(job, grid, world, dtype=torch.float32, warmup=2, steps=8)      # on every rank
>>> timing.slowest                                             # seconds of each step
[0.71, ...]
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass

import torch

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
    peak_bytes: list[int]  # most memory that torch allocated, by rank; 0 on a CPU

    @property
    def slowest(self) -> list[float]:
        """Seconds of each step: its slowest rank's."""
        return [max(ranks) for ranks in zip(*self.times, strict=True)]

    @property
    def split(self) -> dict[str, float]:
        """Shares of the steps' time, over all ranks: data, busy, waiting, optimizer, report and what is left."""
        total = sum(map(sum, self.times))
        shares = {name: sum(sum(s.get(name, [])) for rank in self.spans for s in rank) / total for name in PHASES}
        passes = shares.pop("passes")
        busy = sum(busy_of(s) for rank in self.spans for s in rank) / total if self.job.layout.pp > 1 else passes
        return {**shares, "busy": busy, "waiting": passes - busy, "other": 1.0 - passes - sum(shares.values())}

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


def time_steps(job: Job, grid: Grid, world: World, *, dtype: torch.dtype, warmup: int, steps: int) -> Timing:
    """Train `warmup` steps, then time `steps`. Every rank calls it and gets the same answer."""
    trainer = Trainer(job, grid, world.device, dtype=dtype)
    losses = [trainer.step(number).loss for number in range(warmup)]
    if world.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(world.device)
    times, spans, numbers = [], [], iter(range(warmup, warmup + steps))
    for _ in range(steps):
        world.barrier()
        times.append(world.timed(lambda: losses.append(trainer.step(next(numbers)).loss)))
        spans.append(trainer.ledger.seconds())
    peak = torch.cuda.max_memory_allocated(world.device) if world.device.type == "cuda" else 0
    everyone = world.gather((times, spans, peak))
    return Timing(
        job=job, losses=losses, times=[own for own, _, _ in everyone], spans=[own for _, own, _ in everyone],
        peak_bytes=[own for _, _, own in everyone],
    )  # fmt: skip
