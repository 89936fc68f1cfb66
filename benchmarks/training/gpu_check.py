"""One GPU and one command: do 70B-shaped layers train at the rate that this GPU multiplies?

    make gpu-check                                         # under five minutes; exit 0 good, 1 not, 4 no GPU here
    python -m benchmarks.training.gpu_check --layers 1 --compile inductor

Trains as many full-size layers as fit (sequence 8192, bf16, one GPU) and holds the rate against the best product that
this GPU multiplied in the same minute (at least 0.75), and MFU on H100 and H200 against 0.55. Where it falls short
the longest kernels say where the rest goes. It says nothing about links, and it is no 70B result.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.measurement import Measurement
from benchmarks.spec import Place
from benchmarks.training.spec import Training
from reference_model.job import Job
from reference_model.layout import Layout
from reference_model.memory import memory_of
from reference_model.shape import shape_of

OF_GEMM = 0.75
MFU = {"h100-sxm": 0.55, "h200-sxm": 0.55}
FULL = 0.95  # share of the memory that may be planned for
MOST_LAYERS = 4  # more add time and say nothing new
SHAPES = ("8192", "8192x28672x8192", "8192x8192x28672")


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What was measured: FLOP/s of a whole step and of the best product, and the GPU's peak (0: unknown)."""

    step: float
    best_product: float
    peak: float = 0.0
    sku: str = ""

    @property
    def problems(self) -> list[str]:
        """Every goal that is missed, in words; empty where all are met."""
        found = []
        share = self.step / self.best_product
        if not share >= OF_GEMM:
            found.append(f"the step has {share:.2f} of the best product's rate, and should have {OF_GEMM}")
        goal = MFU.get(self.sku)
        if goal and not self.step / self.peak >= goal:
            found.append(f"MFU (causal) is {self.step / self.peak:.3f}, and should be {goal} on an {self.sku}")
        return found


def main(argv: Sequence[str] | None = None) -> int:
    """The command line. 0: all goals met; 1: one is missed; 4: there is no GPU, or too little memory."""
    options = parser().parse_args(argv)
    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        print(
            "gpu-check: torch sees no GPU here, so there is nothing to check. On a machine with one: "
            "nvidia-smi should list it, and torch be built for it (docs/install.md)",
            file=sys.stderr,
        )
        return 4
    try:
        return checked(options)
    except ValueError as error:
        print(f"gpu-check: {error}", file=sys.stderr)
        return 4


def parser() -> argparse.ArgumentParser:
    """Options; the defaults are the check."""
    assert __doc__
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.training.gpu_check", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    made.add_argument("--model", default="70b", help="whose layers are trained")
    made.add_argument("--layers", type=int, default=0, help="how many; 0: as many as fit, at most 4")
    made.add_argument("--sequence", type=int, default=8192)
    made.add_argument("--compile", default="", help='backend of torch.compile: "inductor"; empty: eager')
    made.add_argument("--recompute", default="none", help="none | selective | full")
    made.add_argument("--steps", type=int, default=10)
    made.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: only to try the command")
    return made


def checked(options: argparse.Namespace) -> int:
    """Measure, print, judge."""
    with one_rank(options.device) as world:
        import torch

        on_gpu = options.device == "cuda"
        memory = torch.cuda.get_device_properties(world.device).total_memory if on_gpu else 2**40
        layers = options.layers or layers_that_fit(options, memory)
        spec = Training(
            model=options.model, layers=layers, layout="tp1", sequence=options.sequence, micro_batch=1, micro_batches=2,
            steps=options.steps, warmup=3, observed=1, compile=options.compile, recompute=options.recompute,
            dtype="bf16",
        )  # fmt: skip
        best = best_product(world, on_gpu)
        found = {m.metric: m for m in measured(spec, world)}
    if (bad := found["training.flops"]).outcome != "ok":
        print(f"gpu-check: {bad.reason}", file=sys.stderr)
        return 1
    rates = rates_of(found["training.flops"], best, options.device)
    print("\n".join(told(spec, found, rates)))
    return 1 if rates.problems else 0


@contextlib.contextmanager
def one_rank(device: str) -> Iterator[Any]:
    """A world of this process alone."""
    import torch.distributed as dist

    from benchmarks.world import open_world

    alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    os.environ.update(alone)
    place = Place(device=device, backend="nccl" if device == "cuda" else "gloo")
    yield open_world(place, timeout_s=300)
    dist.destroy_process_group()


def layers_that_fit(options: argparse.Namespace, memory_bytes: int) -> int:
    """Full-size layers that one GPU trains. ValueError where not even one fits."""
    shape = shape_of(options.model)
    for layers in range(min(MOST_LAYERS, shape.layers), 0, -1):
        job = Job(
            shape=shape.cut(layers), layout=Layout(), sequence=options.sequence, micro_batch=1, micro_batches=2,
            recompute=options.recompute,
        )  # fmt: skip
        need = memory_of(job, 0, alive=1).total
        if need <= FULL * memory_bytes:
            return layers
    raise ValueError(
        f"one layer of {options.model} needs {need / 1e9:.0f} GB and the GPU has {memory_bytes / 1e9:.0f} GB: "
        "use --model 8b, or a shorter --sequence"
    )


def best_product(world: Any, on_gpu: bool) -> float:
    """FLOP/s of the fastest of a few large products, bf16."""
    from benchmarks.gemm.run import run
    from benchmarks.gemm.spec import Gemm

    spec = Gemm(shapes=SHAPES if on_gpu else ("256",), dtypes=("bf16",))
    return max(max(m.samples) for m in run(spec, world) if m.metric == "gemm.flops")


def measured(spec: Training, world: Any) -> Iterator[Measurement]:
    """The training benchmark on this world."""
    from benchmarks.training.run import run

    return run(spec, world)


def rates_of(flops: Measurement, best: float, device: str) -> Rates:
    """The rates to judge, with the peak that the benchmark found for this GPU."""
    sku = ""
    if device == "cuda":
        import torch

        from clusters.hardware import identify
        from clusters.table import ClusterError

        with contextlib.suppress(ClusterError):  # no goal of its own: the share of its products still judges
            sku = identify(torch.cuda.get_device_name()).sku
    return Rates(step=median(flops.samples), best_product=best, peak=flops.notes.get("peak", 0.0), sku=sku)


def told(spec: Training, found: dict[str, Measurement], rates: Rates) -> Iterator[str]:
    """The result as lines."""
    flops, step = found["training.flops"], found["training.step.time"]
    how = f", {spec.compile}" if spec.compile else ""
    yield f"{flops.params['model']}, sequence {spec.sequence}, bf16, one GPU{how}"
    yield f"  step                 {median(step.samples):.3f} s"
    yield f"  rate                 {rates.step / 1e12:.2f} TFLOP/s (causal)"
    yield f"  best product         {rates.best_product / 1e12:.2f} TFLOP/s; share {rates.step / rates.best_product:.3f}"
    if rates.peak:
        for name in ("MFU, causal", "MFU, full attention", "HFU, causal"):
            yield f"  {name:20} {flops.notes[name]:.3f} of {rates.peak / 1e12:.0f} TFLOP/s"
        yield f"  peak                 {flops.notes['peak_source']}"
    else:
        yield f"  MFU                  {flops.notes['MFU']}"
    share = found["training.predicted_share"]
    yield f"  of the prediction    {median(share.samples):.3f} (from this GPU's own products and memory)"
    split = ", ".join(f"{name} {part:.1%}" for name, part in step.notes["split"].items() if part >= 0.001)
    yield f"  split                {split}"
    yield from (f"MISSED: {problem}" for problem in rates.problems)
    if rates.problems:
        kernels = step.notes.get("longest_kernels", ())
        yield "Where the time goes (two micro-batches):" if kernels else "No kernels were recorded: see the split."
        yield from (f"  {seconds * 1e3:9.1f} ms {count:6} x {name[:90]}" for name, count, seconds in kernels)
    else:
        yield "GOOD"


if __name__ == "__main__":
    sys.exit(main())
