"""How fast a large NCCL log is read, and in how much memory: `make bench` runs this, the tests do not.

Goals: a log of 1 GB at over 100 MB/s in under 200 MB. Three logs, made outside the timing in a temporary folder
and deleted after: one of a training job (collective calls, tuning lines, the application's own output), one of
nothing but channel lines, and one with time stamps. `RACKPROOF_BENCH_MB` sets another size.

    python -m pytest tests/bench_nccl_log.py --benchmark-only
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reports.nccl_log import read_log

SIZE = int(os.environ.get("RACKPROOF_BENCH_MB", "1000")) * 10**6
NODES, GPUS = 16, 8
GOAL_MB_S, CEILING_MB = 100, 200
HEAD = Path(__file__).parent / "fixtures" / "nccl" / "v2.19.4-ib-h100-2x8.log"


def training(pick: random.Random) -> Iterator[str]:
    """A long job with NCCL_DEBUG_SUBSYS=INIT,COLL,TUNING: calls of every rank, choices, losses."""
    for step in range(1 << 40):
        rank = pick.randrange(NODES * GPUS)
        who = f"gpu-{rank // GPUS:03}:{4000 + rank % GPUS}:{5000 + rank % GPUS} [{rank % GPUS}] NCCL INFO "
        count, buffer = 1 << pick.randrange(10, 28), f"0x7f{step % 4096:03x}0000000"
        yield (
            f"{who}AllReduce: opCount {step:x} sendbuff {buffer} recvbuff {buffer} "
            f"count {count} datatype 9 op 0 root 0 comm 0x55d9{rank:02x}e4a6c0 [nranks=128] stream 0x55d9c{rank:02x}0"
        )
        yield f"{who}AllReduce: {2 * count} Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..15}}"
        yield f"step {step} | loss {2 + pick.random():.4f} | norm {pick.random():.3f} | tokens/s/gpu {1000 + step % 97}"


def channels(pick: random.Random) -> Iterator[str]:
    """Nothing but what connecting 128 ranks all to all prints: every rank and peer, 32 channels each."""
    ranks = list(range(NODES * GPUS))
    for distance in range(1, 1 << 40):
        for channel in range(32):
            pick.shuffle(ranks)
            for a in ranks:
                b = (a + distance) % len(ranks)
                relay = a - a % GPUS + b % GPUS
                via = "via P2P/CUMEM" if a // GPUS == b // GPUS else f"[send] via NET/IB/{b % GPUS}({relay})/GDRDMA"
                who = f"gpu-{a // GPUS:03}:{4000 + a % GPUS}:{5000 + a % GPUS} [{a % GPUS}]"
                yield f"{who} NCCL INFO Channel {channel:02}/1 : {a}[{a % GPUS}] -> {b}[{b % GPUS}] {via}"


def stamped(pick: random.Random) -> Iterator[str]:
    """Channel lines with a time stamp that changes: no prefix repeats for long."""
    for number, line in enumerate(channels(pick)):
        minutes, seconds = divmod(number // 10_000, 60)
        yield f"[2026-05-05 {minutes // 60 % 24:02}:{minutes % 60:02}:{seconds:02}] {line}"


@pytest.fixture(scope="module", params=[training, channels, stamped], ids=lambda made: made.__name__)
def log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A log of SIZE bytes: a real start, then 8 MB of lines over and over."""
    path = tmp_path_factory.mktemp("nccl") / f"{request.param.__name__}.log"
    lines, size = [], 0
    for line in request.param(random.Random(1)):
        lines.append(line)
        size += len(line) + 1
        if size > 8 << 20:
            break
    block = ("\n".join(lines) + "\n").encode()
    with path.open("wb") as file:
        file.write(HEAD.read_bytes())
        for _ in range(max(1, SIZE // len(block))):
            file.write(block)
    yield path
    path.unlink()


def test_a_large_log_is_read_fast(benchmark, log: Path) -> None:
    before = time.process_time()
    report = benchmark.pedantic(read_log, args=([str(log)],), rounds=1)
    size, busy = log.stat().st_size / 1e6, time.process_time() - before
    rate = size / benchmark.stats.stats.min
    benchmark.extra_info["MB/s"] = round(rate)
    print(
        f"\n{log.name}: {size:.0f} MB, {report.num_lines:,} lines: {rate:.0f} MB/s (goal {GOAL_MB_S}), "
        f"{size / busy:.0f} MB per second of CPU time"
    )
    assert report.num_bytes == log.stat().st_size


def test_in_little_memory(log: Path) -> None:
    code = (
        "import resource, sys; from reports.nccl_log import read_log; read_log([sys.argv[1]]);"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
    )
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", code, str(log)], check=True, capture_output=True, text=True, cwd=root)
    peak = int(done.stdout)
    print(f"\n{log.name}: peak memory {peak} MB (goal {CEILING_MB})")
    assert peak < CEILING_MB
