"""C = A B on this rank's device: how many FLOP/s, and is C right.

Data is normal random: zeros would draw less power and so run faster than any training. The product that is
checked is the last one timed. Not here: a product over several devices, and sparsity, which no dense model has.

    torchrun --nproc-per-node=4 -m benchmarks gemm --shapes 1024,2048 --dtypes fp32
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from benchmarks.gemm.spec import Gemm, error, flops
from benchmarks.measurement import Measurement
from benchmarks.world import World

SUMS = 2.0**-24  # unit roundoff of the sums: float32 for every dtype here
# dtype -> (stored as, unit roundoff of reading an input, unit roundoff of storing the result)
ROUNDING = {
    "fp32": (torch.float32, 0.0, 2.0**-24),
    "tf32": (torch.float32, 2.0**-11, 2.0**-24),  # inputs are cut to 10 bits of fraction
    "bf16": (torch.bfloat16, 0.0, 2.0**-8),
    "fp16": (torch.float16, 0.0, 2.0**-11),
}
CHECKED_ROWS = 16
LAMBDA = 6.0
REDUCED = ("allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction")  # of torch's matmul


def run(spec: Gemm, world: World) -> Iterator[Measurement]:
    """gemm.flops and gemm.error of this rank for every dtype and shape of the spec."""
    for dtype, m, n, k in spec.cases(world.place):
        samples, a, b, c = _measure(spec, world, dtype, m, n, k)
        wrong = error_in_bounds(a, b, c, dtype=dtype)
        yield flops(dtype, m, n, k).measured(*samples, subject=world.me())
        yield error(dtype, m, n, k).measured(wrong, subject=world.me(), notes={"checked_rows": min(m, CHECKED_ROWS)})


def error_in_bounds(a: Tensor, b: Tensor, c: Tensor, *, dtype: str, rows: int = CHECKED_ROWS) -> float:
    """Largest |C - A B| of evenly spread rows (the last one too) over the bound of `dtype`; NaN counts as infinite.

    The bound per element is  LAMBDA (sqrt(k) u |a| |b| + 2 w |ab|) + 2 v |c|  with the 2-norms of the row of A (m, k),
    of the column of B (k, n) and of their products term by term; u, w and v are the roundoffs of the sums, of reading
    an input and of storing the result. It holds with a probability of 1 - 2 exp(-LAMBDA^2 / 2) per element at least
    (Higham and Mary 2019, A New Approach to Probabilistic Rounding Error Analysis, theorem 3.1; Cauchy-Schwarz
    replaces |A||B| by the norms). Tensor cores truncate, which the slack of the norms covers. The reference is computed
    in float64 on the same device's copy of A and B.
    """
    _, w, v = ROUNDING[dtype]
    m, k = a.shape
    chosen = torch.linspace(0, m - 1, min(m, rows)).round().long().to(a.device)
    some, right = a[chosen].double(), b.double()
    exact = some @ right
    sums = math.sqrt(k) * SUMS * some.norm(dim=1)[:, None] * right.norm(dim=0)[None, :]
    inputs = 2 * w * (some.square() @ right.square()).sqrt() if w else 0.0
    bound = LAMBDA * (sums + inputs) + 2 * v * exact.abs()
    worst = ((c[chosen].double() - exact).abs() / bound).nan_to_num(nan=math.inf, posinf=math.inf).max()
    return float(worst)


def _measure(
    spec: Gemm, world: World, dtype: str, m: int, n: int, k: int
) -> tuple[list[float], Tensor, Tensor, Tensor]:
    """FLOP/s of each repetition, and A, B, C of the last product."""
    stored, _, _ = ROUNDING[dtype]
    generator = torch.Generator(device=world.device).manual_seed(world.rank)
    a, b = (torch.randn(shape, device=world.device, generator=generator).to(stored) for shape in ((m, k), (k, n)))
    c = torch.empty((m, n), device=world.device, dtype=stored)
    with _float32_sums(dtype == "tf32"):
        num_products = max(1, math.ceil(spec.sample_s / _warm_up(spec, world, a, b, c)))

        def products() -> None:
            for _ in range(num_products):
                torch.mm(a, b, out=c)

        world.synchronize()
        work = 2.0 * m * n * k * num_products
        samples = [work / world.timed(products) for _ in range(spec.repetitions - 1)]
        c.fill_(math.nan)  # what is checked below was written by a timed product
        samples.append(work / world.timed(products))
    return samples, a, b, c


def _warm_up(spec: Gemm, world: World, a: Tensor, b: Tensor, c: Tensor) -> float:
    """Multiply for `warm_up_s`; seconds of the fastest product seen (the first compiles, allocates, wakes clocks)."""
    end, fastest = time.monotonic() + spec.warm_up_s, math.inf
    while True:
        world.synchronize()
        fastest = min(fastest, world.timed(lambda: torch.mm(a, b, out=c)))
        if time.monotonic() >= end:
            return fastest


@contextmanager
def _float32_sums(tensor_cores: bool) -> Iterator[None]:
    """Float32 products on TF32 tensor cores or truly in float32; 16-bit ones summed in float32 to the end.

    Whatever the process' settings were, they are restored.
    """
    settings = torch.backends.cuda.matmul
    wanted = dict.fromkeys(REDUCED, False) | {"allow_tf32": tensor_cores}
    before = {name: getattr(settings, name) for name in wanted}
    try:
        for name, value in wanted.items():
            setattr(settings, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(settings, name, value)
