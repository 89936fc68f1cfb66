"""Measure the links themselves with one tool, on all ranks together; rank 0 yields the tables.

A tool that some node lacks is no measurement and no fault of the links: every number is then `missing`, and the
reason says on which node and what to install. A tool that is there and fails is an error.

    srun -N2 --ntasks-per-node=8 python -m benchmarks hardware --device cuda --tool ib_write_lat --nics 8
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks.hardware import nvbandwidth, perftest, pingpong, symmetric
from benchmarks.hardware.spec import PERFTEST, Hardware
from benchmarks.measurement import Measurement
from benchmarks.world import World

NAMED = 3  # nodes in a reason


def run(spec: Hardware, world: World) -> Iterator[Measurement]:
    """The tables of the spec's tool, or why there are none. Every rank calls it."""
    metrics = spec.emits(world.place)
    if reason := lacking(spec, world):
        for metric in metrics if world.is_first else ():
            yield metric.measured(outcome="missing", reason=reason, subject=world.all())
        return
    if spec.tool in PERFTEST:
        yield from perftest.measure(spec, world)
    elif spec.tool == "nvbandwidth":
        yield from nvbandwidth.measure(spec, world)
    else:
        yield from pingpong.measure(spec, world, open_words=symmetric.Words)


def lacking(spec: Hardware, world: World) -> str:
    """What some node lacks for the tool, and which nodes; "" where all have it. The same on every rank."""
    asks: dict[str, Callable[[Hardware, World], str]] = {
        "symmetric_memory": symmetric.lacking, "nvbandwidth": nvbandwidth.lacking,
    }  # fmt: skip
    told = world.gather(asks.get(spec.tool, perftest.lacking)(spec, world))
    nodes = {node: what for node, what in zip(world.nodes, told, strict=True) if what}
    if not nodes:
        return ""
    named = ", ".join(list(nodes)[:NAMED]) + (f" and {len(nodes) - NAMED} more" if len(nodes) > NAMED else "")
    return f"{named}: {next(iter(nodes.values()))}"
