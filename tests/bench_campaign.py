"""What a campaign costs beside measuring: seconds per launch and per benchmark, with the floor beside.

    make bench ARGS="-k campaign"

A campaign of planted benchmarks, which measure next to nothing, in a copy of the checkout: what it takes is
overhead. The floor is what no campaign of torch ranks can avoid: the interpreter, `import torch`, the group.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

import pytest

from tests.campaigns import Checkout

FLOOR = """
import torch, torch.distributed as dist, torch.multiprocessing as mp
dist.init_process_group("gloo")
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture
def checkout(tmp_path):
    made = Checkout(tmp_path / "checkout")
    made.plant(*[f"good {k}" for k in range(20)])
    return made


def test_campaign_overhead(benchmark, checkout, tmp_path):
    finished = benchmark.pedantic(checkout.run, rounds=3, warmup_rounds=1)
    assert finished.code == 0
    events = finished.stored.events
    launches = [e.detail for e in events if e.kind == "launch"]
    per_benchmark = [e.detail["overhead_s"] for e in events if e.kind == "batch"]
    floor = statistics.median(torchrun(tmp_path) for _ in range(3))
    print(
        f"\ncampaign of {len(per_benchmark)} benchmarks, 2 ranks: {benchmark.stats.stats.median:.2f} s in all\n"
        f"  per launch     {launches[0]['seconds']:.2f} s, of it import {launches[0]['import_s']:.2f} s and group "
        f"{launches[0]['group_s']:.2f} s ({len(launches)} launch)\n"
        f"  floor          {floor:.2f} s: torchrun of 2 ranks that import torch, join, meet once and leave\n"
        f"  per benchmark  {statistics.median(per_benchmark) * 1e3:.1f} ms between the last record and the next batch "
        f"(median), {max(per_benchmark) * 1e3:.1f} ms at most"
    )


def torchrun(folder):
    """Seconds of the smallest job that torchrun can run on two ranks."""
    script = folder / "floor.py"
    script.write_text(FLOOR)
    begin = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)],
        check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    return time.perf_counter() - begin
