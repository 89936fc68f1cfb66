"""How good the test bed is: seconds until it is up, scatter of healthy pairs, seconds until ranks are at work.

    make bench ARGS="-k testbed"

Scatter is what decides whether a link that is 10 % slow can be told: it is printed as the standard deviation
of all directed pairs' bandwidth over its mean, one transfer a pair.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest

from tests.testbed import flows, launch
from tests.testbed.bed import Bed

pytestmark = pytest.mark.machine("root")


@pytest.mark.parametrize("hosts", [4, 8, 32])
def test_testbed_up_and_down(benchmark: Any, hosts: int) -> None:
    def up_and_down() -> None:
        with Bed(hosts=hosts):
            pass

    benchmark.pedantic(up_and_down, rounds=3)


@pytest.mark.parametrize("rate_mbit", [50, 100, 200])
def test_testbed_scatter_of_healthy_pairs(benchmark: Any, rate_mbit: int) -> None:
    num_bytes = rate_mbit * 1_000_000 // 8 // 20  # 50 ms each
    with Bed(hosts=8, rate_mbit=rate_mbit) as bed:
        found = benchmark.pedantic(
            lambda: [flows.bandwidth(bed, a, b, num_bytes=num_bytes) for a, b in flows.pairs(bed)], rounds=1
        )
    scatter, mean = statistics.stdev(found) / statistics.mean(found), statistics.mean(found)
    worst = min(found) / statistics.median(found)
    print(f"\n8 hosts at {rate_mbit} Mbit/s: mean {mean / 1e6:.2f} MB/s, scatter {scatter:.2%}, slowest {worst:.3f}")


def test_testbed_ranks_at_work(benchmark: Any, tmp_path: Path) -> None:
    program = tmp_path / "reduce.py"
    program.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\ndist.all_reduce(torch.ones(1))\ndist.destroy_process_group()\n"
    )
    with Bed(hosts=8) as bed:

        def start() -> None:
            words = launch.command(bed.state, str(program), log_dir=tmp_path)
            with launch.Ranks(words, log_dir=tmp_path) as ranks:
                assert ranks.wait(60) == 0

        benchmark.pedantic(start, rounds=3)
