"""Runs that searched for a culprit, made up in memory: pair tables between nodes with planted faults, and a re-test.

stored = searched(tmp_path, nodes=8, fault=lambda a, b, rail: 0.9 if a == 3 else 1.0)
culprits(stored).accused
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.links.schedule import schedule
from benchmarks.links.spec import Links
from benchmarks.measurement import Config, Environment, Event, Measurement, Run, now
from benchmarks.spec import Place, from_config, to_config
from clusters.loader import load
from reports.runs import StoredRun

SPEED, HALF_ROUND_TRIP_S = 1e10, 5e-6  # bytes/s; seconds
Fault = Callable[[int, int, int], float]  # sender's node, receiver's node, rail -> share of the speed
FILE = """
description = "made up"
nodes = {nodes}
ranks_per_node = {rails}
[limits.no_suspects]
metric = "links.suspects"
unit = "1"
equal = 0
source = "definition"
"""


def searched(
    folder: Path, *, nodes: int = 8, rails: int = 1, spec: Links | None = None, fault: Fault = lambda *_: 1.0,
    left_out: Sequence[int] = (), late: Fault | None = None, limits: str = "",
) -> StoredRun:  # fmt: skip
    """A run of one tournament. Ranks of the nodes `left_out` met only one other; with `late`, how many times as long as
    usual a round trip takes, latencies too. `limits` are further tables of its cluster file."""
    path = folder / "cluster.toml"
    path.write_text(FILE.format(nodes=nodes, rails=rails) + limits, encoding="utf-8")
    spec = spec or Links(passes=1, meet="nodes" if rails > 1 else "ranks")
    config = to_config(spec, Place(nodes=nodes, ranks_per_node=rails))
    environments = tuple(
        Environment(node=f"n{i}", ranks=tuple(range(i * rails, (i + 1) * rails))) for i in range(nodes)
    )
    run = Run(
        id="made-up", suite="fabric", cluster="cluster", cluster_sha256="", started_at=now(), nodes=nodes,
        configs=(config,),
    )  # fmt: skip
    return StoredRun(
        run=run, cluster=load(str(path)), measurements=measured(config, fault=fault, left_out=left_out, late=late),
        environments=environments, events=(), warnings=(), folder=folder,
    )  # fmt: skip


def measured(
    config: Config,
    *,
    fault: Fault,
    attempt: int = 1,
    left_out: Sequence[int] = (),
    seed: int = 0,
    late: Fault | None = None,
) -> tuple[Measurement, ...]:
    """The tables that the links benchmark would yield for a config."""
    spec, place = from_config(config)
    per, dice = place.ranks_per_node, random.Random(seed)
    names = [f"n{rank // per}" for rank in range(place.ranks)]
    pairs = {p for one in schedule(spec, nodes=names) for a, b in one for p in ((a, b), (b, a))}
    for node in left_out:
        mine = sorted(p for p in pairs if node in (p[0] // per, p[1] // per))
        pairs -= {p for p in mine if set(p) != set(mine[0])}
    listed = sorted(pairs)
    columns: dict[str, list[Any]] = {"a": [a for a, _ in listed], "b": [b for _, b in listed]}
    size = max(spec.bandwidth_sizes)
    speeds: list[list[float]] = []
    for a, b in listed:
        share = fault(a // per, b // per, a % per) if a % per == b % per and a // per != b // per else 1.0
        speeds.append([SPEED * share * dice.gauss(1, 0.003) for _ in range(4)])
    bandwidth = spec.pair_metric("bandwidth", size).measured(columns=columns | {"samples": speeds})
    wrong = spec.wrong_metric().measured(columns=columns | {"samples": [[0.0] for _ in listed]})
    found = [bandwidth, wrong]
    if late is not None:
        base = [HALF_ROUND_TRIP_S * late(a // per, b // per, a % per) for a, b in listed]
        trips = [[t * (1 + dice.expovariate(20)) for _ in range(8)] for t in base]  # what else runs only adds
        found.append(
            spec.pair_metric("latency", min(spec.latency_sizes)).measured(columns=columns | {"samples": trips})
        )
    return tuple(
        Measurement(**{**vars(m), "config": config.id, "attempt": attempt, "started_at": now()}) for m in found
    )


class Notebook:
    """A run folder that only remembers events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def event(self, kind: str, **detail: Any) -> None:
        """Remember one."""
        self.events.append(Event(kind=kind, at=now(), detail=detail))
