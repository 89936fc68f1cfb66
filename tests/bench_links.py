"""What a tournament costs: the time of its rounds, not of its pairs.

    pytest tests/bench_links.py -s           # make bench runs it; needs root, for hosts on shaped wires

Eight hosts have 28 pairs and 7 rounds. The same benchmark runs once as it is, all pairs of a round at once, and
once with every pair alone. With disjoint pairs on wires of their own, the first takes a quarter of the time and
finds the same bandwidths. Both times are printed, and the largest difference between the two tables.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tabulate import tabulate

HOSTS, RATE_MBIT = 8, 50.0
SIZES = {"bandwidth_sizes": (65536,), "bandwidth_budget_s": 0.6, "latency_budget_s": 0.1, "min_repetitions": 2}
ROOT = Path(__file__).resolve().parent.parent


def work() -> None:
    """On every host: the tournament in rounds and pair by pair, its seconds and its table, as a line."""
    import json

    from benchmarks.links import run as module
    from benchmarks.links.spec import Links
    from benchmarks.spec import Place
    from benchmarks.world import open_world

    world = open_world(Place(nodes=int(os.environ["WORLD_SIZE"])), timeout_s=120.0)
    in_rounds = module.schedule
    spec = Links(**SIZES, passes=1)
    for name in ("warm-up", "rounds", "pairs"):
        if name == "pairs":
            module.schedule = lambda spec, **seen: [[pair] for pairs in in_rounds(spec, **seen) for pair in pairs]
        world.barrier()
        begin = time.perf_counter()
        found = list(module.run(spec, world))
        seconds = time.perf_counter() - begin
        if world.is_first:
            medians = [statistics.median(samples) for samples in found[1].columns["samples"]]
            print(json.dumps({"name": name, "seconds": seconds, "medians": medians}), flush=True)


@pytest.mark.machine("root")
def test_rounds_against_pairs(benchmark: Any, tmp_path: Path) -> None:
    import json

    from tests.testbed import launch
    from tests.testbed.bed import Bed

    def tournament() -> list[dict[str, Any]]:
        with Bed(hosts=HOSTS, rate_mbit=RATE_MBIT) as bed:
            words = launch.command(bed.state, str(Path(__file__)), log_dir=tmp_path)
            with launch.Ranks(words, log_dir=tmp_path) as ranks:
                assert ranks.wait(300.0) == 0, ranks.log(0)
                return [json.loads(line) for line in ranks.log(0).splitlines() if line.startswith("{")]

    _, rounds, pairs = benchmark.pedantic(tournament, rounds=1)
    apart = [abs(a / b - 1) for a, b in zip(rounds["medians"], pairs["medians"], strict=True)]
    rows = [
        ["rounds", HOSTS - 1, f"{rounds['seconds']:.1f}"],
        ["pair by pair", HOSTS * (HOSTS - 1) // 2, f"{pairs['seconds']:.1f}"],
    ]
    print(f"\n{tabulate(rows, ['', 'turns', 'seconds'], disable_numparse=True)}")
    print(f"bandwidths differ by {statistics.median(apart):.1%} (median pair), {max(apart):.1%} (worst)")
    benchmark.extra_info.update(rounds_s=rounds["seconds"], pairs_s=pairs["seconds"], apart=max(apart))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    work()
