"""What the reading benchmark reads, where, and what it promises. No torch here.

>>> [m.name for m in Reads().emits(Place())][:2]
['reads.sequential.bandwidth', 'reads.random.bandwidth']
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from benchmarks.measurement import Metric, Scalar
from benchmarks.spec import Place

FILES = ("large", "small")  # few large token files, and many small ones


@dataclass(frozen=True, kw_only=True)
class Reads:
    """Token files read cold by all ranks at once, in order and at random: what data loading asks of storage."""

    benchmark: ClassVar[str] = "reads"
    scope: ClassVar[str] = "world"

    directory: str = ""  # the file system under test; empty: a temporary folder of rank 0's node
    filesystem: str = ""  # judged by the checkpoint benchmark: see there
    capacity_bytes: int = 0  # likewise
    large_files: int = 1  # of each rank
    large_bytes: int = 2**25  # of each: more than storage can keep in memory, or it is memory that is measured
    small_files: int = 64  # of each rank
    small_bytes: int = 2**16  # of each
    window_bytes: int = 32_768  # of one random read: a sequence of 8192 tokens of 4 bytes
    random_reads: int = 256  # of each rank
    repetitions: int = 3
    limit_s: float = 120.0  # time-out of the whole benchmark, seconds

    def __post_init__(self) -> None:
        """Refuse what cannot be read, with the cure."""
        counts = (self.large_files, self.small_files, self.random_reads, self.repetitions)
        if min(counts) < 1:
            raise ValueError("reads: give at least one large file, small file, random read and repetition")
        if self.window_bytes < 8 or self.window_bytes % 8 or self.small_bytes % 8 or self.large_bytes % 8:
            raise ValueError("reads: sizes of windows and files are whole multiples of 8 bytes")
        if min(self.large_bytes, self.small_bytes) < self.window_bytes:
            raise ValueError(f"reads: every file must hold a window of {self.window_bytes} bytes")

    def emits(self, place: Place) -> list[Metric]:  # noqa: ARG002 - a Spec
        """Rates of both orders, the share proven cold, and wrong elements, for large and for small files."""
        return [self.metric(name, files) for files in FILES for name in METRICS]

    def metric(self, name: str, files: str) -> Metric:
        """One of METRICS for "large" or "small" files."""
        unit, better = METRICS[name]
        params: dict[str, Scalar] = {"files": files, "file_bytes": self.shape(files)[1]}
        if name.startswith("random"):
            params["window"] = self.window_bytes
        return Metric(name=f"reads.{name}", unit=unit, better=better, params=params)

    def shape(self, files: str) -> tuple[int, int]:
        """(files of each rank, bytes of each)."""
        return (self.large_files, self.large_bytes) if files == "large" else (self.small_files, self.small_bytes)

    def space_bytes(self, place: Place) -> int:
        """Room that its files need."""
        return place.ranks * sum(count * size for count, size in map(self.shape, FILES))

    def bytes_written(self, place: Place) -> int:
        """All its files, once."""
        return self.space_bytes(place)


METRICS = {
    "sequential.bandwidth": ("B/s", "higher"),  # every file from its beginning to its end
    "random.bandwidth": ("B/s", "higher"),  # windows at random places of all files
    "random.rate": ("1/s", "higher"),  # such windows per second, of all ranks together
    "cold_share": ("1", "higher"),  # of the bytes, proven to come from the device; the worst of all reads
    "wrong_elements": ("1", "equal"),  # 8-byte words that are not what was written
}
