"""What the memory benchmark runs and promises. No torch here.

>>> [metric.name for metric in Memory().emits(Place())]
['memory.copy.bandwidth', 'memory.copy.wrong_elements']
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from benchmarks.measurement import Metric
from benchmarks.spec import Place

MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class Memory:
    """One buffer copied to another on every device alone and all at once."""

    benchmark: ClassVar[str] = "memory"
    scope: ClassVar[str] = "device"

    bytes: int = 320 * MIB  # of each of the two buffers, a multiple of 8; more than the last-level cache
    repetitions: int = 5  # samples
    sample_s: float = 0.1  # a sample repeats the copy until it is about this long, seconds
    limit_s: float = 60.0  # time-out of the whole benchmark, seconds

    def __post_init__(self) -> None:
        """Refuse what cannot be measured, with the cure."""
        if self.bytes < 8 or self.bytes % 8:
            raise ValueError(f"memory: bytes is {self.bytes}: give a positive multiple of 8")
        if self.repetitions < 1:
            raise ValueError("memory: give at least one repetition")

    def emits(self, place: Place) -> list[Metric]:  # noqa: ARG002 - the same everywhere
        """Bandwidth and wrong elements of the copy, per rank."""
        return [self.bandwidth(), self.wrong()]

    def bandwidth(self) -> Metric:
        """Bytes read plus bytes written, over the time: 2 x bytes / s."""
        return Metric(
            name="memory.copy.bandwidth", unit="B/s", better="higher", params={"bytes": self.bytes}, per="rank"
        )

    def wrong(self) -> Metric:
        """Eight-byte words that differ from their source after the last copy."""
        return Metric(
            name="memory.copy.wrong_elements", unit="1", better="equal", params={"bytes": self.bytes}, per="rank"
        )

    def bytes_written(self, place: Place) -> int:  # noqa: ARG002 - the contract of every spec
        """Nothing is written to storage."""
        return 0
