"""Data whose right result is known exactly: small whole numbers that stay whole in the dtype.

Every rank has a row of PERIOD random whole numbers; its buffer in iteration i is that row repeated, shifted
by i steps. So each iteration's data is fresh, any rank can tell any other rank's data without being told,
and the right sum is one more row. The numbers are small enough that every partial sum, in any order, is
exact: a wrong element is an error of the machine, never of rounding. PERIOD is prime, so a block that lands
a power of two away does not look right. Comparison is bit for bit.

This module moves nothing between ranks and times nothing.

>>> pattern = Pattern(members=2, dtype=torch.float32, summed=True)
>>> buffer = torch.empty(10)
>>> pattern.fill(buffer, row=SUM, start=0, iteration=3)
>>> pattern.wrong(buffer[None], rows=[SUM], start=0, iteration=3).count
0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from benchmarks.collectives.layout import SUM

DTYPES = {
    "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16,
    "fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2, "fp64": torch.float64,
    "int8": torch.int8, "uint8": torch.uint8, "int32": torch.int32, "int64": torch.int64,
}  # fmt: skip
EXACT = {
    # dtype -> every whole number from 0 to this one is exact: 2 ** (bits of the significand) for a float
    torch.float32: 1 << 24, torch.bfloat16: 1 << 8, torch.float16: 1 << 11,
    torch.float8_e4m3fn: 1 << 4, torch.float8_e5m2: 1 << 3, torch.float64: 1 << 53,
    torch.int8: 127, torch.uint8: 255, torch.int32: (1 << 31) - 1, torch.int64: 1 << 53,
}  # fmt: skip
CPU = torch.device("cpu")
BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

PERIOD = 4099  # elements; prime
STEP = 1663  # elements by which the data moves from one iteration to the next
BLOCK = PERIOD * 1024  # elements compared at once, so that a 16 GiB buffer needs no second one


@dataclass(kw_only=True)
class Wrong:
    """How many elements of a buffer are wrong, and the first of them."""

    count: int = 0
    first: dict[str, Any] = field(default_factory=dict)  # element, expected, got, iteration

    def add(self, other: Wrong) -> None:
        """Take in another buffer's errors; the first found stays first."""
        self.count += other.count
        self.first = self.first or other.first


@dataclass(kw_only=True)
class Pattern:
    """The data of one group of `members` ranks, in one dtype, on one device.

    `summed` says that the members' data will be added up: then at most as many members contribute to an
    element, and so little each, that the sum stays exact (bf16 256, fp16 2048).
    """

    members: int
    dtype: torch.dtype
    summed: bool
    device: torch.device = CPU
    seed: int = 1
    _tables: dict[tuple[int, ...], torch.Tensor] = field(default_factory=dict)

    def fill(self, out: torch.Tensor, *, row: int, start: int, iteration: int) -> None:
        """Write elements start... of a member's data (or of the SUM) into the flat tensor `out`."""
        numbers, offset = self._row(row), (start + iteration * STEP) % PERIOD
        k = out.numel() // PERIOD
        if k:
            out[: k * PERIOD].view(k, PERIOD).copy_(numbers[offset : offset + PERIOD])
        tail = out[k * PERIOD :]
        tail.copy_(numbers[offset : offset + tail.numel()])

    def wrong(self, got: torch.Tensor, *, rows: Sequence[int], start: int, iteration: int) -> Wrong:
        """Compare `got`, shape (rows, elements), bit for bit with elements start... of each of the members `rows`."""
        found, length = Wrong(), got.shape[1]
        offset = (start + iteration * STEP) % PERIOD
        if length <= PERIOD:  # one comparison, however many members
            self._compare(got, self._table(rows)[:, offset : offset + length], found, first=0)
        else:
            for i, row in enumerate(rows):
                numbers = self._row(row)
                for begin in range(0, length, BLOCK):
                    block, at = got[i, begin : begin + BLOCK], i * length + begin
                    whole = block[: block.numel() // PERIOD * PERIOD].view(-1, PERIOD)
                    self._compare(whole, numbers[None, offset : offset + PERIOD], found, first=at)
                    tail = block[None, whole.numel() :]
                    right = numbers[None, offset : offset + tail.numel()]
                    self._compare(tail, right, found, first=at + whole.numel())
        if found.first:
            found.first["iteration"] = iteration
        return found

    def _compare(self, got: torch.Tensor, right: torch.Tensor, found: Wrong, *, first: int) -> None:
        """Count where `got` differs from `right` (shapes as broadcast); its first element has the number `first`."""
        bits = BITS[got.element_size()]
        differs = got.view(bits) != right.view(bits)
        count = int(differs.sum())
        if count and not found.count:
            at = int(differs.flatten().nonzero()[0])
            expected = right.expand_as(got).flatten()[at].item()
            found.first = {"element": first + at, "expected": expected, "got": got.flatten()[at].item()}
        found.count += count

    def _row(self, row: int) -> torch.Tensor:
        """The row twice over (2 x PERIOD elements), so that any shift of it is one slice."""
        return self._table((row,))[0]

    def _table(self, rows: Sequence[int]) -> torch.Tensor:
        """Several rows, each twice over: shape (rows, 2 x PERIOD). Made once."""
        key = tuple(rows)
        if key not in self._tables:
            numbers = torch.stack([self._sum() if row == SUM else self._numbers(row) for row in key])
            self._tables[key] = numbers.to(self.dtype).repeat(1, 2).to(self.device)
        return self._tables[key]

    def _sum(self) -> torch.Tensor:
        total = torch.zeros(PERIOD, dtype=torch.int64)
        for member in range(self.members):
            total += self._numbers(member)
        return total

    def _numbers(self, member: int) -> torch.Tensor:
        """A member's PERIOD whole numbers."""
        exact = EXACT[self.dtype]
        contributors = min(self.members, exact) if self.summed else 1
        random = torch.Generator().manual_seed(self.seed * 1_000_003 + member)
        numbers = torch.randint(0, exact // contributors + 1, (PERIOD,), generator=random)
        if contributors < self.members and self.summed:  # element j: the members j, j + 1, ... j + contributors - 1
            numbers[(member - torch.arange(PERIOD)) % self.members >= contributors] = 0
        return numbers
