"""What the matrix-product benchmark runs and promises. No torch here.

>>> Gemm(shapes=("512x1024x256",)).emits(Place())[0].params
{'dtype': 'fp32', 'm': 512, 'n': 1024, 'k': 256}
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from benchmarks.measurement import Metric, Scalar
from benchmarks.spec import Place

DTYPES = ("fp32", "tf32", "bf16", "fp16")
DEFAULT_DTYPES = {"cpu": ("fp32", "bf16"), "cuda": ("bf16", "tf32", "fp32")}


@dataclass(frozen=True, kw_only=True)
class Gemm:
    """C = A B on every device alone and all at once, by dtype and shape."""

    benchmark: ClassVar[str] = "gemm"
    scope: ClassVar[str] = "device"

    shapes: tuple[str, ...] = ("1024",)  # "MxNxK", or "N" for a square: C is M x N, sums are K long
    dtypes: tuple[str, ...] = ()  # of DTYPES; empty: what the device is made for (DEFAULT_DTYPES)
    repetitions: int = 9  # samples per dtype and shape
    sample_s: float = 0.1  # a sample repeats the product until it is about this long, seconds
    warm_up_s: float = 0.3  # products before the clock starts, seconds: clocks and caches settle
    limit_s: float = 60.0  # time-out of the whole benchmark, seconds

    def __post_init__(self) -> None:
        """Refuse what cannot be measured, with the cure."""
        if unknown := sorted(set(self.dtypes) - set(DTYPES)):
            raise ValueError(f"gemm: no dtype {', '.join(unknown)}: there are {', '.join(DTYPES)}")
        if not self.shapes or self.repetitions < 1:
            raise ValueError("gemm: give at least one shape and one repetition")
        for shape in self.shapes:
            sizes(shape)

    def cases(self, place: Place) -> list[tuple[str, int, int, int]]:
        """(dtype, m, n, k) of every product measured there."""
        dtypes = self.dtypes or DEFAULT_DTYPES[place.device]
        if place.device == "cpu" and "tf32" in dtypes:
            raise ValueError("gemm: tf32 exists on GPUs only: take it out of [gemm] dtypes")
        return [(dtype, *sizes(shape)) for dtype in dtypes for shape in self.shapes]

    def emits(self, place: Place) -> list[Metric]:
        """gemm.flops and gemm.error, per rank, for every dtype and shape."""
        return [metric for case in self.cases(place) for metric in (flops(*case), error(*case))]

    def bytes_written(self, place: Place) -> int:  # noqa: ARG002 - the contract of every spec
        """Nothing is written."""
        return 0


def sizes(shape: str) -> tuple[int, int, int]:
    """(m, n, k) of "MxNxK" or "N". ValueError says what a shape looks like."""
    words = shape.split("x")
    if len(words) not in (1, 3) or not all(re.fullmatch(r"[1-9]\d*", word) for word in words):
        raise ValueError(f'gemm: shape {shape!r} is not "MxNxK" (8192x28672x8192) or "N" (4096)')
    m, n, k = map(int, words * 3 if len(words) == 1 else words)
    return m, n, k


def flops(dtype: str, m: int, n: int, k: int) -> Metric:
    """2 m n k over the time of one product: a multiplication and an addition each."""
    return Metric(name="gemm.flops", unit="FLOP/s", better="higher", params=_params(dtype, m, n, k), per="rank")


def error(dtype: str, m: int, n: int, k: int) -> Metric:
    """Largest error of sampled rows, in units of the dtype's bound (run.py): above 1 the product is wrong."""
    return Metric(name="gemm.error", unit="1", better="lower", params=_params(dtype, m, n, k), per="rank")


def _params(dtype: str, m: int, n: int, k: int) -> dict[str, Scalar]:
    return {"dtype": dtype, "m": m, "n": n, "k": k}
