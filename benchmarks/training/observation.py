"""Observes a step: which collectives ran, and how long this rank waited for them.

On a CPU the watch (watch.py) counts and times in one step. On a GPU the watch only counts; a second step is recorded
by torch's profiler, and the device's timeline (trace.py) tells what was hidden and what was not. Both disturb the
step, so observed steps are never timed ones.

>>> observe(trainer, grid, world, number=10).exposed                       # on every rank: seconds by axis
{'tp': 0.012, 'dp': 0.003}
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.training import trace
from benchmarks.training.traffic import Key, Sent
from benchmarks.training.watch import Watch, axes_of
from benchmarks.world import World
from reference_model.parallel import Grid
from reference_model.trainer import Trainer

RECORDED = (  # the host's side too: NCCL's kernels take the names of their groups from there
    torch.profiler.ProfilerActivity.CPU,
    torch.profiler.ProfilerActivity.CUDA,
)


@dataclass(frozen=True, kw_only=True)
class Observed:
    """One rank's passes of one step."""

    seconds: float  # of the passes
    sent: dict[Key, Sent]  # collectives by axis and operation
    exposed: dict[str, float]  # seconds of waiting for communication and nothing else, by axis
    flown: dict[str, float] = field(default_factory=dict)  # seconds of communication, hidden or not
    compute: float = 0.0  # seconds in which the device computes; 0 where nothing records it
    kernels: tuple[tuple[str, int, float], ...] = ()  # the longest: name, how many, seconds of all


def observe(trainer: Trainer, grid: Grid, world: World, *, number: int) -> Observed:
    """Train one step on the tokens of step `number` and observe its passes. Every rank calls it."""
    trainer.ledger.clear()
    world.barrier()
    with Watch(grid) as watch:
        seconds = world.timed(lambda: trainer.forward_backward(number))
    trainer.update()
    sent = {key: Sent(seen.count, seen.bytes) for key, seen in watch.seen.items()}
    if world.device.type == "cuda":
        return _recorded(trainer, grid, world, number, sent)
    exposed: dict[str, float] = {}
    flown: dict[str, float] = {}
    for (axis, _), seen in watch.seen.items():
        state = "dp" if axis == "copies" else axis
        exposed[state] = exposed.get(state, 0.0) + seen.waited
        flown[state] = flown.get(state, 0.0) + max(seen.flown, seen.waited)
    return Observed(seconds=seconds, sent=sent, exposed=exposed, flown=flown)


def _recorded(trainer: Trainer, grid: Grid, world: World, number: int, sent: dict[Key, Sent]) -> Observed:
    """The same step once more, recorded by the profiler."""
    trainer.ledger.clear()
    world.barrier()
    with torch.profiler.profile(activities=RECORDED) as profile:
        seconds = world.timed(lambda: trainer.forward_backward(number))
        world.synchronize()
    trainer.update()
    events = exported(profile)
    parts = trace.read(events, axes=axes_of(grid))
    exposed = {("dp" if axis == "copies" else axis): 0.0 for axis in parts.exposed}
    flown = dict(exposed)
    for axis, spent in parts.exposed.items():
        state = "dp" if axis == "copies" else axis
        exposed[state] += spent
        flown[state] += parts.flown[axis]
    return Observed(
        seconds=seconds, sent=sent, exposed=exposed, flown=flown, compute=parts.compute,
        kernels=tuple(trace.kernels(events)),
    )  # fmt: skip


def exported(profile: Any) -> list[dict[str, Any]]:
    """The profiler's events, as its JSON has them."""
    with tempfile.TemporaryDirectory(prefix="rackproof-") as folder:
        path = Path(folder, "trace.json")
        profile.export_chrome_trace(str(path))
        found: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return found
