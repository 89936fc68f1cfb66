"""Printed numbers and what their digits allow: is one the product of others, as far as it was printed?

>>> Figure.of("46.86").ulp
0.01
>>> agree(Figure.of("89.94"), Figure.of("47.97").value * 1.875, Figure.of("47.97").ulp * 1.875)
True
>>> agree(Figure.of("95.94"), Figure.of("47.97").value * 1.875, Figure.of("47.97").ulp * 1.875)
False
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

NUMBER = re.compile(r"[+-]?([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]{1,3}))?$")
WHOLE = re.compile(r"[0-9]{1,18}$")
SLACK = 1e-4  # relative: tools print two numbers from sums of floats that were rounded apart


@dataclass(frozen=True, slots=True)
class Figure:
    """A number and one unit of its last printed digit."""

    value: float
    ulp: float

    @classmethod
    def of(cls, token: str) -> Figure:
        """The figure a token prints; nan and inf are figures too. ValueError for anything else."""
        found = NUMBER.match(token)
        if not found:
            if token.lstrip("+-").lower() in ("nan", "inf", "infinity"):
                return cls(float(token), 0.0)
            raise ValueError(f"{token!r} is no number")
        return cls(float(token), float(f"1e{int(found[3] or 0) - len(found[2] or '')}"))

    @property
    def sound(self) -> bool:
        """Whether it is a number that can be measured: finite and not negative."""
        return math.isfinite(self.value) and self.value >= 0


def whole(token: str) -> int:
    """A whole number of at most 18 digits. ValueError for anything else."""
    if not WHOLE.match(token):
        raise ValueError(f"{token!r} is no whole number")
    return int(token)


def agree(printed: Figure, expected: float, uncertain: float) -> bool:
    """Whether `printed` can be `expected`, which itself is only known to within `uncertain`."""
    if not math.isfinite(printed.value) or not math.isfinite(expected):
        return False
    return abs(printed.value - expected) <= printed.ulp + uncertain + SLACK * abs(expected)
