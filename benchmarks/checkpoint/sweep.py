"""How many ranks per node, threads per rank and stripes write a node's bytes fastest: measured, with advice.

    torchrun --nproc-per-node=8 -m benchmarks checkpoint --sweep --directory /scratch/me --mib 4096

Every combination writes the same bytes per node, synced, in an order that changes every round. The ceiling is the best
of them. The advice is the smallest combination within 5 % of it: fewer writers leave cores to training. Stripe counts
are tried on Lustre only.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.checkpoint.save import together
from benchmarks.spec import Place
from benchmarks.storage.aligned import CHUNK, Staging
from benchmarks.storage.filesystem import filesystem_of
from benchmarks.world import World, open_world

MIB = 2**20
CLOSE = 0.95  # of the best: not worth more writers
STRIPES = (1, 4, -1)  # Lustre: -1 is all targets


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to write a node's bytes. `stripes` 0: as the folder has it."""

    ranks: int  # that write, per node
    threads: int  # of each of them
    stripes: int = 0

    @property
    def label(self) -> str:
        """2 ranks per node, 2 threads, stripe count 4."""
        stripes = f", stripe count {self.stripes}" if self.stripes else ""
        return f"{self.ranks} ranks per node, {self.threads} threads{stripes}"


def ways(local_ranks: int, *, lustre: bool) -> list[Way]:
    """Powers of two up to all ranks of a node, 1 to 4 threads, and on Lustre a few stripe counts."""
    ranks = [n for n in (1, 2, 4, 8, 16) if n < local_ranks] + [local_ranks]
    stripes = STRIPES if lustre else (0,)
    return [Way(ranks=r, threads=t, stripes=s) for r, t, s in itertools.product(ranks, (1, 2, 4), stripes)]


def advice(rates: dict[Way, list[float]]) -> tuple[Way, float]:
    """The way with the fewest writers whose median is within CLOSE of the best, and its share of the best."""
    medians = {way: statistics.median(samples) for way, samples in rates.items()}
    best = max(medians.values())
    close = [way for way, rate in medians.items() if rate >= CLOSE * best]
    chosen = min(close, key=lambda way: (way.ranks * way.threads, way.ranks, -medians[way]))
    return chosen, medians[chosen] / best


def sweep(world: World, folder: Path, *, node_bytes: int, rounds: int = 3) -> dict[Way, list[float]]:
    """B/s of all nodes together for every way and round, barrier to barrier. Raises RuntimeError on all ranks alike."""
    tried = ways(len(world.local_ranks), lustre=filesystem_of(folder).kind == "lustre")
    staging = {threads: Staging(folder, threads=threads) for threads in sorted({way.threads for way in tried})}
    data = torch.randint(0, 256, (CHUNK,), dtype=torch.uint8, generator=torch.Generator().manual_seed(world.rank))
    rates: dict[Way, list[float]] = defaultdict(list)
    for turn in range(rounds):
        order = tried.copy()
        random.Random(turn).shuffle(order)
        for number, way in enumerate(order):
            step = folder / f"{turn}-{number}"
            seconds = _write(world, step, way, staging[way.threads], data, node_bytes)
            rates[way].append(node_bytes * len(set(world.nodes)) / seconds)
            if world.is_first:
                shutil.rmtree(step)
    return rates


def _write(world: World, step: Path, way: Way, staging: Staging, data: torch.Tensor, node_bytes: int) -> float:
    with together(world, step):
        if world.is_first:
            step.mkdir()
            if way.stripes:
                subprocess.run(["lfs", "setstripe", "-c", str(way.stripes), str(step)], check=True, timeout=60)
    active = world.local_ranks.index(world.rank) < way.ranks
    size = node_bytes // way.ranks if active else 0
    parts = [data] * (size // CHUNK) + ([data[: size % CHUNK]] if size % CHUNK else [])
    world.barrier()
    begin = time.perf_counter()
    with together(world, step):
        if active:
            staging.write(step / f"rank{world.rank}.bin", parts)
    slowest: float = max(world.gather(time.perf_counter() - begin))
    return slowest


def main(argv: Sequence[str]) -> int:
    """The command line, on every rank. 0: measured."""
    assert __doc__
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks checkpoint --sweep",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sweep", action="store_true", help="what chose this tool")
    parser.add_argument("--directory", required=True, help="on the file system under test")
    parser.add_argument(
        "--mib", type=int, default=256, help="MiB per node and write: more than its caches take in a second"
    )
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(argv)
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    nodes = int(os.environ.get("WORLD_SIZE", "1")) // local
    world = open_world(Place(nodes=nodes, ranks_per_node=local), timeout_s=1800)
    folder = Path(world.gather(tempfile.mkdtemp(dir=options.directory) if world.is_first else "")[0])
    try:
        rates = sweep(world, folder, node_bytes=options.mib * MIB, rounds=options.rounds)
    finally:
        if world.is_first:
            shutil.rmtree(folder, ignore_errors=True)
    if world.is_first:
        for way, samples in sorted(rates.items(), key=lambda item: -statistics.median(item[1])):
            print(f"{statistics.median(samples) / 1e9:8.2f} GB/s  {min(samples) / 1e9:8.2f} at least  {way.label}")
        chosen, share = advice(rates)
        print(f"advice: {chosen.label}: {share:.0%} of the ceiling")
    world.barrier()
    torch.distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
