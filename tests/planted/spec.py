"""A benchmark whose numbers, or lack of them, are planted: put into a copy of the checkout by tests/campaigns.py.

It goes through a whole campaign like any other: a suite asks for it, ranks run it, the judge judges it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from benchmarks.measurement import Metric
from benchmarks.spec import Place


@dataclass(frozen=True, kw_only=True)
class Planted:
    """One cause, from run.py's CAUSES, planted on one rank."""

    benchmark: ClassVar[str] = "planted"
    scope: ClassVar[str] = "world"

    cause: str = "good"
    on_rank: int = 1
    limit_s: float = 10.0

    def emits(self, place: Place) -> list[Metric]:  # noqa: ARG002
        """One rate and one time per cause, both per rank."""
        return [
            Metric(name="planted.rate", unit="B/s", better="higher", params={"cause": self.cause}, per="rank"),
            Metric(name="planted.time", unit="s", better="lower", params={"cause": self.cause}, per="rank"),
        ]

    def bytes_written(self, place: Place) -> int:  # noqa: ARG002
        """Nothing."""
        return 0
