"""What the checkpoint benchmark saves, where, and what it promises. No torch here.

>>> Checkpoint().state_bytes(Place(ranks_per_node=4))
58772744
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from benchmarks.checkpoint.shards import CONTENTS, Layout, total_bytes
from benchmarks.measurement import Metric, Scalar
from benchmarks.spec import Place
from reference_model.shape import shape_of


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A training job's state saved until durable, beside the raw writer of the same bytes, and loaded back cold."""

    benchmark: ClassVar[str] = "checkpoint"
    scope: ClassVar[str] = "world"

    model: str = "tiny"  # a shape of reference_model/shape.py: tiny, 8b, 70b, 405b
    layout: str = "auto"  # how it is spread: "tp8,pp4,dp16"; auto: tensor and pipeline parallel 2 where ranks allow
    contents: str = "mixed"  # weights (2 B per parameter) | mixed (14) | fp32 (12)
    directory: str = ""  # where it is saved: the file system under test; empty: a temporary folder of rank 0's node
    filesystem: str = ""  # what that must be: sorts or kinds ("parallel", "lustre,gpfs"); empty: anything but memory
    capacity_bytes: int = 0  # that its file system must have
    writers: tuple[str, ...] = ("stock", "aligned")  # of WRITERS: DCP's own storage, ours, and each in a process
    load_layout: str = ""  # load under another layout than it was saved; empty: the same
    threads: int = 2  # that write a rank's file, plain and aligned
    metadata_files: int = 64  # that each rank makes, finds and removes at once with all others; 0: none
    repetitions: int = 3  # of everything; the order of the writers rotates
    pause_s: float = 0.0  # between repetitions, seconds: the cadence of training, to see a burst buffer fill
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
        if self.repetitions < 1 or self.threads < 1 or not self.writers:
            raise ValueError("checkpoint: give at least one repetition, thread and writer")
        for layout in (self.layout, self.load_layout):
            if layout not in ("", "auto"):
                Layout.parse(layout)

    def layout_at(self, place: Place) -> Layout:
        """The layout there. ValueError where it needs another number of ranks."""
        return _layout(self.layout, place)

    def load_layout_at(self, place: Place) -> Layout:
        """The layout that it is loaded under."""
        return _layout(self.load_layout or self.layout, place)

    def state_bytes(self, place: Place) -> int:
        """Bytes of one checkpoint's tensors."""
        return total_bytes(shape_of(self.model), self.layout_at(place), self.contents)

    def emits(self, place: Place) -> list[Metric]:
        """What is wrong with the place, the raw writer's rate, and save and load of every writer, per world."""
        of_writers = [(name, w) for w in self.writers for name in METRICS if name != STALL or w in ASYNC]
        of_folder = [self.metadata(operation) for operation in OPERATIONS if self.metadata_files]
        found = [self.metric(name, writer, place) for name, writer in of_writers]
        return [self.problems(), *of_folder, self.raw(place), *found]

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
        return (1 + len(self.writers)) * self.repetitions * self.state_bytes(place)


def _layout(text: str, place: Place) -> Layout:
    layout = Layout.auto(place.ranks) if text == "auto" else Layout.parse(text)
    if layout.ranks != place.ranks:
        raise ValueError(f"checkpoint: layout {layout} needs {layout.ranks} ranks, there are {place.ranks}")
    return layout


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
