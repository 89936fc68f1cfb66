"""Pipeline schedules on paper: who does what in which order, and how long a step takes from that.

`orders` gives each rank's actions as torch's schedules define them; `simulate` plays them with a cost per
stage and finds the step, the bubble and how many micro-batches are alive at once. Nothing runs: neither
ranks nor tensors. A forward paired with a backward (DualPipeV) is played before it, as parallel.py runs it.

>>> job = Job(shape=SHAPES["70b"], layout=Layout.parse("pp4"), sequence=8192, micro_batches=8)
>>> round(simulate(job, orders(job), Costs.even(job.stages)).bubble, 4)       # (p - 1) / (m + p - 1)
0.2727
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

from reference_model.job import SINGLE, Job

TORCH_NAMES = {
    "interleaved": "Interleaved1F1B", "looped-bfs": "LoopedBFS", "zero-bubble": "InterleavedZeroBubble",
    "zbv": "ZBVZeroBubble", "dualpipev": "DualPipeV",
}  # fmt: skip


class Action(NamedTuple):
    """One piece of work: F forward, B whole backward, I gradients of inputs, W gradients of weights."""

    kind: str
    stage: int
    micro_batch: int


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Seconds of one micro-batch in each stage. A whole backward is inputs + weights."""

    forward: tuple[float, ...]
    inputs: tuple[float, ...]
    weights: tuple[float, ...]
    hop: float = 0.0  # from the end of an action to the start of the next stage's, on another rank

    @classmethod
    def even(cls, stages: int, *, forward: float = 1.0, inputs: float = 1.0, weights: float = 1.0) -> Costs:
        """The same costs for every stage."""
        return cls(forward=(forward,) * stages, inputs=(inputs,) * stages, weights=(weights,) * stages)

    def without_hops(self) -> Costs:
        """The same where a next stage's start costs nothing."""
        return replace(self, hop=0.0)

    def of(self, action: Action) -> float:
        """Seconds of one action."""
        forward, inputs, weights = (part[action.stage] for part in (self.forward, self.inputs, self.weights))
        return {"F": forward, "I": inputs, "W": weights, "B": inputs + weights}[action.kind]


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """What a schedule amounts to."""

    step: float  # seconds from the first action to the end of the last
    busy: tuple[float, ...]  # seconds of work, by pipeline rank
    alive: tuple[int, ...]  # most (stage, micro-batch) pairs whose activations a rank holds at once
    slots: tuple[tuple[int, Action, float, float], ...] = ()  # (rank, action, begin, end)

    @property
    def bubble(self) -> float:
        """Share of all ranks' time in which a rank has nothing to do."""
        return 1.0 - sum(self.busy) / (len(self.busy) * self.step)


def orders(job: Job) -> list[list[Action]]:
    """Each pipeline rank's actions, in the order in which it does them."""
    return _orders(job.schedule if job.layout.pp > 1 else "1f1b", job.layout.pp, job.micro_batches, job.stages_per_rank)


@functools.cache
def _orders(schedule: str, pp: int, m: int, stages_per_rank: int) -> list[list[Action]]:
    if schedule in SINGLE:
        return [list(_single(rank, m, m if schedule == "gpipe" else min(m, pp - rank))) for rank in range(pp)]
    planned = get_schedule_ops(TORCH_NAMES[schedule], pp, m, stages_per_rank)
    return [[action for torchs in rank if torchs is not None for action in _ours(torchs)] for rank in planned]


def _single(rank: int, m: int, warm: int) -> Iterator[Action]:
    """GPipe and 1F1B differ in how many forwards come first: all, or as many as fill the pipeline behind."""
    yield from (Action("F", rank, i) for i in range(warm))
    for i in range(m - warm):
        yield Action("B", rank, i)
        yield Action("F", rank, warm + i)
    yield from (Action("B", rank, i) for i in range(m - warm, m))


def _ours(torchs: object) -> Iterator[Action]:
    """One of torch's actions; an overlapped pair is two."""
    parts = getattr(torchs, "sub_actions", None)
    if parts:
        for part in parts:
            yield from _ours(part)
        return
    kind = str(torchs.computation_type.value)  # type: ignore[attr-defined]
    yield Action(kind, torchs.stage_index, torchs.microbatch_index)  # type: ignore[attr-defined]


def simulate(job: Job, ranks: Sequence[Sequence[Action]], costs: Costs) -> Timeline:
    """Play the orders: an action starts when its rank is free and what it needs has arrived.

    ValueError where the orders wait for each other.
    """
    owner = {stage: rank for rank in range(job.layout.pp) for stage in job.stages_of(rank)}
    done: dict[Action, float] = {}
    clock, place = [0.0] * len(ranks), [0] * len(ranks)
    slots: list[tuple[int, Action, float, float]] = []
    while any(place[r] < len(ranks[r]) for r in range(len(ranks))):
        before = list(place)
        for r, actions in enumerate(ranks):
            while place[r] < len(actions):
                ready = _ready(actions[place[r]], done, owner, costs, job.stages - 1)
                if ready is None:
                    break
                begin = max(clock[r], ready)
                clock[r] = begin + costs.of(actions[place[r]])
                slots.append((r, actions[place[r]], begin, clock[r]))
                done[actions[place[r]]] = clock[r]
                place[r] += 1
        if place == before:
            raise ValueError(f"the schedule waits for itself at {[a[i] for a, i in zip(ranks, place, strict=True)]}")
    busy = tuple(sum(map(costs.of, actions)) for actions in ranks)
    return Timeline(step=max(clock), busy=busy, alive=tuple(map(_alive, ranks)), slots=tuple(slots))


def _ready(action: Action, done: dict[Action, float], owner: dict[int, int], costs: Costs, last: int) -> float | None:
    """When what an action needs is there; None where it has not been made yet."""
    kind, stage, i = action
    if kind == "F":
        needs = [Action("F", stage - 1, i)] if stage else []
    elif kind == "W":
        needs = [Action("I", stage, i)]
    elif stage == last:
        needs = [Action("F", stage, i)]
    else:
        needs = [next((a for k in "BI" if (a := Action(k, stage + 1, i)) in done), Action("B", stage + 1, i))]
    if any(need not in done for need in needs):
        return None
    return max((done[n] + (costs.hop if owner[n.stage] != owner[stage] else 0.0) for n in needs), default=0.0)


def _alive(actions: Sequence[Action]) -> int:
    """Activations live from F until the gradients of the weights are there."""
    most = now = 0
    for action in actions:
        now += {"F": 1, "B": -1, "I": 0, "W": -1}[action.kind]
        most = max(most, now)
    return most
