"""What the checkpoint benchmark saves, where, and what it promises. No torch here.

>>> Checkpoint().state_bytes(Place(ranks_per_node=4))
58812956
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
    repetitions: int = 4  # saves, raw writes and loads; the order of save and raw write alternates
    limit_s: float = 120.0  # time-out of the whole benchmark, seconds

    def __post_init__(self) -> None:
        """Refuse what cannot be saved, with the cure."""
        shape_of(self.model)
        if self.contents not in CONTENTS:
            raise ValueError(f"checkpoint: no contents {self.contents!r}: there are {', '.join(CONTENTS)}")
        if self.repetitions < 1:
            raise ValueError("checkpoint: give at least one repetition")
        if self.layout != "auto":
            Layout.parse(self.layout)

    def layout_at(self, place: Place) -> Layout:
        """The layout there. ValueError where it needs another number of ranks."""
        layout = Layout.auto(place.ranks) if self.layout == "auto" else Layout.parse(self.layout)
        if layout.ranks != place.ranks:
            raise ValueError(f"checkpoint: layout {layout} needs {layout.ranks} ranks, there are {place.ranks}")
        return layout

    def state_bytes(self, place: Place) -> int:
        """Bytes of one checkpoint's tensors."""
        return total_bytes(shape_of(self.model), self.layout_at(place), self.contents)

    def emits(self, place: Place) -> list[Metric]:
        """Save, raw write and load, per world."""
        return [self.metric(name, place) for name in METRICS]

    def metric(self, name: str, place: Place) -> Metric:
        """One of METRICS, with what was saved as its params."""
        unit, better = METRICS[name]
        params: dict[str, Scalar] = {"contents": self.contents, "bytes": self.state_bytes(place)}
        return Metric(name=f"checkpoint.{name}", unit=unit, better=better, params=params)

    def bytes_written(self, place: Place) -> int:
        """Tensor bytes of all saves and raw writes (headers and manifests add under a hundredth)."""
        return 2 * self.repetitions * self.state_bytes(place)


METRICS = {
    "save.time": ("s", "lower"),  # barrier to barrier: data, metadata and folder durable, manifest in place
    "save.bandwidth": ("B/s", "higher"),  # bytes over save.time
    "raw.bandwidth": ("B/s", "higher"),  # the same bytes, folders, syncs and manifest by plain writes
    "load.time": ("s", "lower"),  # cold, barrier to barrier
    "load.wrong_tensors": ("1", "equal"),  # parts whose hash is not that of what was saved
    "load.cold_share": ("1", "higher"),  # share of the file bytes proven to come from the device
}
