"""How long reading, judging and showing a large run takes: 100,000 measurements, and every pair of 512 ranks.

    python -m pytest tests/bench_reports.py --benchmark-only

Goals: judge and page of 100,000 measurements in a few seconds, the page under 2 MB. The run is made up outside
the timing: 512 ranks with 192 numbers of 10 samples each, a tenth of the limits missed, and two pair tables.
"""

from __future__ import annotations

import hashlib
import random
from datetime import date
from pathlib import Path

import pytest

from benchmarks.measurement import Config, Event, Expected, Measurement, Metric, Run, Subject, encode
from reports import page, runs

RANKS, NUMBERS, SAMPLES = 512, 192, 10
TODAY = date(2026, 12, 1)
CLUSTER = """
nodes = 64
ranks_per_node = 8

[limits.rate]
metric = "gemm.flops"
unit = "FLOP/s"
floor = 6.0e14
source = "contract"
date = 2026-11-02

[limits.symmetry]
metric = "gemm.flops"
unit = "1"
floor = 0.9
of = "peers"
source = "measured"
date = 2026-11-02

[limits.links]
metric = "links.*"
unit = "B/s"
floor = 4.0e10
source = "NDR400, 80 %"
date = 2026-11-02
"""


def numbers(random: random.Random) -> tuple[list[Expected], list[Measurement]]:
    """192 numbers of 512 ranks, a record each, and two tables of all pairs."""
    expected, measurements = [], []
    for i in range(NUMBERS):
        slow = 0.8 if i % 10 == 0 else 1.0
        metric = Metric(name="gemm.flops", unit="FLOP/s", better="higher", params={"m": 64 * (i + 1)}, per="rank")
        expected.append(expect(metric, RANKS))
        for rank in range(RANKS):
            rate = 6.9e14 * (slow if rank == i else 1.0)
            subject = Subject(group="gpu", node=f"node{rank // 8:02}", rank=rank, gpu=rank % 8)
            samples = [rate * random.gauss(1, 0.005) for _ in range(SAMPLES)]
            measurements.append(metric.measured(*samples, subject=subject, config="c"))
    pairs = [(a, b) for a in range(RANKS) for b in range(RANKS) if a != b]
    for size in (1 << 20, 1 << 28):
        metric = Metric(name="links.bandwidth", unit="B/s", better="higher", params={"bytes": size}, per="pair")
        expected.append(expect(metric, len(pairs)))
        columns = {
            "a": [a for a, _ in pairs],
            "b": [b for _, b in pairs],
            "samples": [[4.6e10 * random.gauss(1, 0.01) for _ in range(3)] for _ in pairs],
        }
        measurements.append(metric.measured(columns=columns, config="c", subject=Subject(ranks=RANKS)))
    return expected, measurements


def expect(metric: Metric, units: int) -> Expected:
    return Expected(
        metric=metric.name, unit=metric.unit, better=metric.better, config="c", test="suites/test_gemm.py::test_rate",
        params=metric.params, per=metric.per, units=units,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder on disk."""
    path = tmp_path_factory.mktemp("large") / "run"
    path.mkdir()
    expected, measurements = numbers(random.Random(1))
    run = Run(
        id="large", suite="nightly", cluster="large", started_at="2026-12-01T02:00:00Z", nodes=64,
        expected=tuple(expected),
        cluster_sha256=hashlib.sha256(CLUSTER.encode()).hexdigest(),
        configs=(Config(id="c", benchmark="gemm", spec={}, place={"nodes": 64}, limit_s=1.0),),
    )  # fmt: skip
    (path / "run.json").write_text(encode(run) + "\n")
    (path / "cluster.toml").write_text(CLUSTER)
    with (path / "measurements.jsonl").open("w") as file:
        file.writelines(encode(m) + "\n" for m in measurements)
    ended = [
        Event(kind="selected", at="2026-12-01T02:00:00Z", detail={"all": True}),
        Event(kind="ended", at="2026-12-01T03:00:00Z"),
    ]
    (path / "events.jsonl").write_text("".join(encode(e) + "\n" for e in ended))
    return path


def test_read(benchmark, folder):
    stored = benchmark.pedantic(runs.load, (folder,), rounds=2)
    print(f"\n{len(stored.measurements):,} records of {sum(f.stat().st_size for f in folder.iterdir()) / 1e6:,.0f} MB")


def test_judge(benchmark, folder):
    stored = runs.load(folder)
    verdicts = benchmark.pedantic(stored.verdicts, kwargs={"today": TODAY}, rounds=2)
    assert len(verdicts) == 2 * NUMBERS + 2


def test_page(benchmark, folder):
    stored = runs.load(folder)
    verdicts = stored.verdicts(today=TODAY)
    text = benchmark.pedantic(page.page, (stored, verdicts), rounds=2)
    print(f"\npage of {len(text.encode()) / 1e3:,.0f} kB")
    assert len(text.encode()) < 2e6
