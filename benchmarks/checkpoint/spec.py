"""What the checkpoint benchmark saves, where, and what it promises. No torch here.

>>> Checkpoint().state_bytes(Place(ranks_per_node=4))
58772744
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from benchmarks.checkpoint.shards import CONTENTS, Layout, rank_shards, total_bytes
from benchmarks.measurement import Metric, Scalar
from benchmarks.spec import Place
from clusters.projection import doublings
from reference_model.shape import shape_of


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A training job's state saved until durable, beside the raw writer of the same bytes, and loaded back cold."""

    benchmark: ClassVar[str] = "checkpoint"
    scope: ClassVar[str] = "world"

    model: str = "tiny"  # a shape of reference_model/shape.py: tiny, 8b, 70b, 405b
    layout: str = "auto"  # how it is spread: "tp8,pp4,dp16"; auto: tensor and pipeline parallel 2 where ranks allow.
    # Of more ranks than there are, each rank here saves what that rank of the job saves: what follows is PROJECTED
    contents: str = "mixed"  # weights (2 B per parameter) | mixed (14) | fp32 (12)
    directory: str = ""  # where it is saved: the file system under test; empty: a temporary folder of rank 0's node
    filesystem: str = ""  # what that must be: sorts or kinds ("parallel", "lustre,gpfs"); empty: no memory, no network
    capacity_bytes: int = 0  # that its file system must have
    writers: tuple[str, ...] = ("stock", "aligned")  # of WRITERS: DCP's own storage, ours, and each in a process
    load_layout: str = ""  # load under another layout than it was saved; empty: the same
    threads: int = 2  # that write a rank's file, plain and aligned
    metadata_files: int = 64  # that each rank makes, finds and removes at once with all others; 0: none
    repetitions: int = 3  # of everything; the order of the writers rotates. 0: only what `in_a_row` asks
    in_a_row: int = 0  # plain saves one after another, to see a burst buffer fill; 0: none
    sustain_s: float = 0.0  # that those take at least, seconds: the gate asks 300
    server_cache_bytes: int = 0  # of the storage's servers: three times as much is enough too; 0: not known
    pause_s: float = 0.0  # between repetitions and saves in a row, seconds: the real cadence (500 steps of 3.2 s: 1600)
    network_rate: float = 0.0  # B/s that one node's network carries; 0: not known. Bounds what is projected
    interval_s: float = 0.0  # of training between saves, seconds: for the share of time lost; 0: not known
    mtbf_s: float = 0.0  # mean time between failures of the whole job, seconds; 0: not known
    restart_s: float = 300.0  # from a failure to the first new step, seconds
    limit_s: float = 120.0  # time-out of the whole benchmark, seconds

    def __post_init__(self) -> None:
        """Refuse what cannot be saved, with the cure."""
        shape_of(self.model)
        if self.contents not in CONTENTS:
            raise ValueError(f"checkpoint: no contents {self.contents!r}: there are {', '.join(CONTENTS)}")
        if unknown := sorted(set(self.writers) - set(WRITERS)):
            raise ValueError(f"checkpoint: no writer {', '.join(unknown)}: there are {', '.join(WRITERS)}")
        if self.threads < 1 or not self.writers or self.repetitions < (0 if self.in_a_row > 0 else 1):
            raise ValueError("checkpoint: give at least one repetition (or in_a_row), thread and writer")
        counts = ("metadata_files", "repetitions", "in_a_row", "capacity_bytes", "server_cache_bytes", "network_rate")
        times = ("sustain_s", "pause_s", "interval_s", "mtbf_s", "restart_s")
        if negative := [name for name in (*counts, *times) if not 0 <= getattr(self, name) < math.inf]:
            raise ValueError(f"checkpoint: {', '.join(negative)} must be zero or more")
        if self.sustain_s and not self.in_a_row:
            raise ValueError("checkpoint: sustain_s needs in_a_row: how many saves at least, 10 say")
        for layout in (self.layout, self.load_layout):
            if layout not in ("", "auto"):
                Layout.parse(layout)

    def layout_at(self, place: Place) -> Layout:
        """The layout there, or the whole job's where there are fewer ranks. ValueError where it needs fewer."""
        return _layout(self.layout, place, whole=False)

    def partial(self, place: Place) -> bool:
        """Whether there are fewer ranks than the job has: each saves its part, and the whole is projected."""
        return self.layout_at(place).ranks > place.ranks

    def load_layout_at(self, place: Place) -> Layout:
        """The layout that it is loaded under."""
        return _layout(self.load_layout or self.layout, place, whole=bool(self.load_layout))

    def state_bytes(self, place: Place) -> int:
        """Bytes of one checkpoint's tensors, as far as the ranks there save it."""
        if not self.partial(place):
            return self.whole_bytes(place)
        shape, layout = shape_of(self.model), self.layout_at(place)
        shards = (rank_shards(shape, layout, rank, self.contents) for rank in range(place.ranks))
        return sum(shard.bytes for of_rank in shards for shard in of_rank if shard.saved_here)

    def whole_bytes(self, place: Place) -> int:
        """Bytes of the whole job's checkpoint, however many ranks there are."""
        return total_bytes(shape_of(self.model), self.layout_at(place), self.contents)

    def emits(self, place: Place) -> list[Metric]:
        """What is wrong with the place, the raw writer's rate, and save and load of every writer, per world."""
        of_folder = [self.problems()] if self.repetitions else []
        if self.repetitions and self.metadata_files:
            of_folder += [self.metadata(operation) for operation in OPERATIONS]
        rows = [self.sustained(name, place) for name in SUSTAINED if self.in_a_row]
        if not self.repetitions:
            return rows
        if self.partial(place):
            return [*of_folder, *self._emits_projected(place), *rows]
        of_writers = [(name, w) for w in self.writers for name in METRICS if name != STALL or w in ASYNC]
        return [*of_folder, self.raw(place), *(self.metric(name, writer, place) for name, writer in of_writers), *rows]

    def _emits_projected(self, place: Place) -> list[Metric]:
        measured = [RAW, *(writer for writer in self.writers if writer not in ASYNC)]
        steps = [self.scaling(writer, nodes, place) for writer in measured for nodes in doublings(place.nodes)]
        found = [
            self.metric(name, writer, place) if name in PROVEN else self.projected(name, writer, place)
            for writer in self.writers
            for name in METRICS
            if name != STALL or writer in ASYNC
        ]
        return [*steps, self.projected("raw.bandwidth", "", place), *found]

    def sustained(self, name: str, place: Place) -> Metric:
        """One of SUSTAINED, of plain saves in a row."""
        unit, better = SUSTAINED[name]
        if name == "bandwidth" and self.partial(place):  # what fewer nodes reach is no rate of the whole
            return self.projected("sustained.bandwidth", "", place)
        params: dict[str, Scalar] = {"contents": self.contents, "bytes": self.state_bytes(place)}
        return Metric(name=f"checkpoint.sustained.{name}", unit=unit, better=better, params=params)

    def scaling(self, writer: str, nodes: int, place: Place) -> Metric:
        """B/s of so many nodes, each rank with the bytes and files that it has in the whole job."""
        layout = self.layout_at(place)
        params: dict[str, Scalar] = {"contents": self.contents, "writer": writer, "nodes": nodes, "of": layout.ranks}
        return Metric(name="checkpoint.scaling.bandwidth", unit="B/s", better="higher", params=params)

    def projected(self, name: str, writer: str, place: Place) -> Metric:
        """A number of the whole job that was not measured: it may fail a cluster and passes none (reports/judge.py)."""
        unit, better = METRICS.get(name, ("B/s", "higher"))
        params: dict[str, Scalar] = {"contents": self.contents, "bytes": self.whole_bytes(place), "projected": True}
        params |= {"writer": writer} if writer else {}
        return Metric(name=f"checkpoint.{name}", unit=unit, better=better, params=params)

    def problems(self) -> Metric:
        """How many things are wrong with where it is saved: the wrong sort of file system, a full OST ..."""
        return Metric(
            name="checkpoint.directory.problems",
            unit="1",
            better="equal",
            params={"expected": self.filesystem or "any"},
        )

    def metadata(self, operation: str) -> Metric:
        """Files that all ranks together create, stat or unlink per second, in one folder."""
        return Metric(
            name=f"checkpoint.metadata.{operation}", unit="1/s", better="higher", params={"files": self.metadata_files}
        )

    def raw(self, place: Place) -> Metric:
        """The same bytes, folders, syncs and manifest by plain writes: the ceiling."""
        params: dict[str, Scalar] = {"contents": self.contents, "bytes": self.state_bytes(place)}
        return Metric(name="checkpoint.raw.bandwidth", unit="B/s", better="higher", params=params)

    def metric(self, name: str, writer: str, place: Place) -> Metric:
        """One of METRICS of one writer."""
        unit, better = METRICS[name]
        params: dict[str, Scalar] = {**self.raw(place).params, "writer": writer}
        if self.load_layout and name.startswith("load."):
            params["layout"] = f"{self.layout_at(place)} as {self.load_layout_at(place)}"
        return Metric(name=f"checkpoint.{name}", unit=unit, better=better, params=params)

    def space_bytes(self, place: Place) -> int:
        """Room that it needs: two checkpoints and a raw write are there at the same time."""
        return 3 * self.state_bytes(place)

    def bytes_written(self, place: Place) -> int:
        """Tensor bytes of all saves and raw writes (headers and manifests add under a hundredth)."""
        doubled = 2 if self.repetitions and self.partial(place) else 1  # 1 + 1/2 + 1/4 ... of the nodes once more
        saves = doubled * (1 + len(self.writers)) * self.repetitions + self.in_a_row
        return saves * self.state_bytes(place)


def _layout(text: str, place: Place, *, whole: bool) -> Layout:
    layout = Layout.auto(place.ranks) if text == "auto" else Layout.parse(text)
    if layout.cp > 1:
        raise ValueError(f"checkpoint: layout {layout}: leave cp out; ranks that share a sequence hold the same state")
    if layout.ranks < place.ranks or (whole and layout.ranks != place.ranks):
        raise ValueError(f"checkpoint: layout {layout} needs {layout.ranks} ranks, there are {place.ranks}")
    return layout


RAW = "raw"  # plain writes, in what is measured by number of nodes


OPERATIONS = ("create", "stat", "unlink")  # of metadata.py
WRITERS = ("stock", "aligned", "async-stock", "async-aligned")
ASYNC = WRITERS[2:]
STALL = "save.stall"  # of ASYNC only
METRICS = {
    STALL: ("s", "lower"),  # until training could go on: the state is copied, not yet durable
    "save.time": ("s", "lower"),  # barrier to barrier: data, metadata and folder durable, manifest in place
    "save.bandwidth": ("B/s", "higher"),  # bytes over save.time
    "load.time": ("s", "lower"),  # cold, by other ranks than those that wrote, barrier to barrier
    "load.wrong_tensors": ("1", "equal"),  # parts that do not hold exactly what was saved
    "load.cold_share": ("1", "higher"),  # share of the file bytes proven to come from the device
}
PROVEN = ("load.wrong_tensors", "load.cold_share")  # what a part of the job's ranks can prove of loads
SUSTAINED = {
    "bandwidth": ("B/s", "higher"),  # of the last third of the saves in a row
    "kept": ("1", "higher"),  # of the first third's rate: well below 1 where a cache filled
}
