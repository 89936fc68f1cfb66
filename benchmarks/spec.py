"""What a benchmark must say about itself before it runs: the spec side of its two doors.

`benchmarks/NAME/spec.py` holds one frozen dataclass, the spec; `benchmarks/NAME/run.py` holds
`run(spec, world)`, a generator of Measurements. Specs never import torch, so that `--plan`, `--help` and
the judge's expectations are instant. The table below is the only place that knows every benchmark.

>>> sorted(BENCHMARKS)[0]
'checkpoint'
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from benchmarks.measurement import Config, Measurement, Metric

if TYPE_CHECKING:
    from benchmarks.world import World

BENCHMARKS = {
    # name -> class in benchmarks/NAME/spec.py
    "gemm": "Gemm",
    "memory": "Memory",
    "collectives": "Collective",
    "links": "Links",
    "hardware": "Hardware",
    "checkpoint": "Checkpoint",
    "reads": "Reads",
    "training": "Training",
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a config runs: ranks of one kind, started together in one environment."""

    device: str = "cpu"  # cpu | cuda
    backend: str = "gloo"  # gloo | nccl
    nodes: int = 1
    ranks_per_node: int = 1
    env: tuple[str, ...] = ()  # "NAME=value" for a launch of its own (NCCL_ALGO=Ring ...)

    @property
    def ranks(self) -> int:
        """World size."""
        return self.nodes * self.ranks_per_node

    def units(self, per: str) -> int:
        """How many units a metric emitted per world | node | rank | pair | meeting has here."""
        n = self.ranks
        return {"world": 1, "node": self.nodes, "rank": n, "pair": n * (n - 1), "meeting": n}[per]


class Spec(Protocol):
    """One benchmark's settings. `scope` says who measures: each device alone, or all ranks together."""

    benchmark: ClassVar[str]
    scope: ClassVar[str]  # device | world

    @property
    def limit_s(self) -> float:
        """Time-out of the whole benchmark, seconds; also its worst case in the plan. A field of the spec."""
        ...

    def emits(self, place: Place) -> list[Metric]:
        """Every metric it will emit there: what is expected of it."""
        ...

    def bytes_written(self, place: Place) -> int:
        """Bytes it writes to storage (0 for most)."""
        ...


def load_spec(benchmark: str) -> type[Any]:
    """The spec class of a benchmark. ValueError names the known ones."""
    if benchmark not in BENCHMARKS:
        raise ValueError(f"no benchmark {benchmark!r}: there are {', '.join(BENCHMARKS)}")
    module = importlib.import_module(f"benchmarks.{benchmark}.spec")
    cls: type[Any] = getattr(module, BENCHMARKS[benchmark])
    return cls


def load_run(benchmark: str) -> Callable[[Any, World], Iterator[Measurement]]:
    """The run function of a benchmark (imports torch)."""
    run: Callable[[Any, World], Iterator[Measurement]] = importlib.import_module(f"benchmarks.{benchmark}.run").run
    return run


def to_config(spec: Spec, place: Place) -> Config:
    """The config of a spec at a place; its id is a short hash of both (not of the time-out)."""
    fields, where = dataclasses.asdict(spec), dataclasses.asdict(place)  # type: ignore[call-overload]
    named = {k: v for k, v in fields.items() if k != "limit_s"}
    text = json.dumps([spec.benchmark, named, where], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return Config(
        id=f"{spec.benchmark}-{digest}", benchmark=spec.benchmark,
        spec=json.loads(json.dumps(fields)), place=json.loads(json.dumps(where)), limit_s=spec.limit_s,
    )  # fmt: skip


def from_config(config: Config) -> tuple[Any, Place]:
    """The spec and the place of a config (lists become the tuples they were)."""
    cls = load_spec(config.benchmark)
    return cls(**_frozen(config.spec)), to_place(config.place)


def to_place(fields: dict[str, Any]) -> Place:
    """A place from its plain fields."""
    return Place(**_frozen(fields))


def _frozen(fields: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
