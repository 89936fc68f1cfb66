"""The same bytes and files per rank by 1, 2, 4 ... nodes: what a projection to the whole cluster is made of.

Each number of nodes is a world of its own, with a group of its own; the other ranks wait. Where the real job has
more ranks than there are, every rank here writes exactly what that rank of the real job writes.

    rates = {n: [...B/s], ...} = scaling(spec, world, folder, state, tools)["raw"]
"""

from __future__ import annotations

import dataclasses
import math
import shutil
from pathlib import Path

import torch.distributed as dist

from benchmarks.checkpoint.save import Saved, save
from benchmarks.checkpoint.spec import ASYNC, RAW, Checkpoint
from benchmarks.checkpoint.state import State
from benchmarks.checkpoint.writers import WRITERS, Tools, write_plain
from benchmarks.world import World
from clusters.projection import ProjectionError, doublings, project

Rates = dict[str, dict[int, list[float]]]  # writer -> nodes -> B/s of each repetition


def scaling(spec: Checkpoint, world: World, folder: Path, state: State, tools: Tools) -> Rates:
    """Rates of plain writes and of every writer that is not asynchronous, by number of nodes and repetition."""
    turns = [RAW, *(writer for writer in spec.writers if writer not in ASYNC)]
    worlds = {nodes: part(world, nodes) for nodes in doublings(len(set(world.nodes)))}
    rates: Rates = {turn: {nodes: [] for nodes in worlds} for turn in turns}
    for repetition in range(spec.repetitions):
        for nodes, inside in worlds.items():
            for turn in turns:
                step = folder / f"scaling-{repetition}-{nodes}-{turn}"
                write = write_plain if turn == RAW else WRITERS[turn][0]
                saved = save(state, step, inside, write=write, tools=tools) if inside else None
                if world.is_first:
                    shutil.rmtree(step)
                rates[turn][nodes].append(_rate(saved, state, inside, world))
    return rates


def part(world: World, nodes: int) -> World | None:
    """The world of the first `nodes` nodes; None on ranks outside. Called by all ranks alike: it makes a group."""
    names = list(dict.fromkeys(world.nodes))[:nodes]
    members = [rank for rank, node in enumerate(world.nodes) if node in names]
    assert members == list(range(len(members))), "ranks are numbered node by node"
    group = dist.new_group(members, backend="gloo")
    if world.rank not in members:
        return None
    return dataclasses.replace(world, size=len(members), nodes=world.nodes[: len(members)], control=group)


def projected(rates: dict[int, list[float]], *, nodes: int, ceilings: list[float]) -> list[float]:
    """The rate of `nodes` nodes by each repetition; `ceilings` bound them one by one. Raises ProjectionError."""
    found = []
    for repetition, ceiling in enumerate(ceilings):
        of_nodes = {n: samples[repetition] for n, samples in rates.items()}
        found.append(project(of_nodes, nodes=nodes, ceiling=ceiling))
    return found


def network_ceiling(spec: Checkpoint, nodes: int) -> float:
    """What the network carries from so many nodes, B/s; infinite where the cluster file does not say."""
    return spec.network_rate * nodes if spec.network_rate else math.inf


def _rate(saved: Saved | None, state: State, inside: World | None, world: World) -> float:
    """B/s of one save, told to the ranks outside too."""
    size = sum(part.numel() for part in state.saved_parts()) if inside else 0
    told = world.gather((size, saved.seconds if saved else 0.0))
    return float(sum(size for size, _ in told) / max(seconds for _, seconds in told))


__all__ = ["ProjectionError", "Rates", "network_ceiling", "part", "projected", "scaling"]
