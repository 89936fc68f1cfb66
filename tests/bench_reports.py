"""How long reading, judging and showing a large run takes: 100,000 measurements, and every pair of 512 ranks.

    python -m pytest tests/bench_reports.py --benchmark-only

Goals: judge and page of 100,000 measurements in a few seconds; pages under 2 MB, and that of 10,000 nodes x 50 numbers
x 30 samples built under 5 s; a trend over 365 nights of 512 ranks x 50 numbers under 3 s once they are indexed; two
runs of 10,000 nodes x 50 numbers x 30 samples compared under 10 s and 2 GB; as many host names as anybody could have
(RACKPROOF_BENCH_HOSTS: 100,000) read, judged and shown in time and memory that grow no faster than they. Runs are made
up outside the timing. RACKPROOF_BENCH_NODES and RACKPROOF_BENCH_NIGHTS set other sizes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import random
import resource
import time
from datetime import date, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from benchmarks.measurement import Config, Environment, Event, Expected, Measurement, Metric, Run, Subject, encode
from reports import archive, comparepage, index, page, runs, sides, trend
from reports.compare import compare

RANKS, NUMBERS, SAMPLES = 512, 192, 10
NODES = int(os.environ.get("RACKPROOF_BENCH_NODES", "10000"))
HOSTS = int(os.environ.get("RACKPROOF_BENCH_HOSTS", "100000"))
NIGHTS = int(os.environ.get("RACKPROOF_BENCH_NIGHTS", "365"))
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
    fresh = lambda: ((dataclasses.replace(stored),), {})  # noqa: E731 - without what a round has looked up
    verdicts = benchmark.pedantic(lambda run: run.verdicts(today=TODAY), setup=fresh, rounds=2)
    assert len(verdicts) == 2 * NUMBERS + 2


def test_page(benchmark, folder):
    stored = runs.load(folder)
    verdicts = stored.verdicts(today=TODAY)
    text = benchmark.pedantic(page.page, (stored, verdicts), rounds=2)
    print(f"\npage of {len(text.encode()) / 1e3:,.0f} kB")
    assert len(text.encode()) < 2e6


def tables(folder: Path, *, units: int, samples: int, factor: float = 1.0) -> Path:
    """A run of 50 numbers, each a table of all ranks."""
    random = np.random.default_rng(1)
    folder.mkdir(parents=True)
    expected = []
    with (folder / "measurements.jsonl").open("w") as file:
        for i in range(50):
            metric = Metric(name="gemm.flops", unit="FLOP/s", better="higher", params={"m": i}, per="rank")
            expected.append(expect(metric, units))
            level = 7e14 * factor * random.normal(1, 0.01, (units, 1))
            rows = (level * random.normal(1, 0.005, (units, samples))).tolist()
            file.write(
                encode(metric.measured(columns={"rank": list(range(units)), "samples": rows}, config="c")) + "\n"
            )
    run = Run(
        id=folder.name, suite="nightly", cluster="large", started_at="2026-01-01T02:00:00Z", expected=tuple(expected),
        cluster_sha256=hashlib.sha256(CLUSTER.encode()).hexdigest(),
        configs=(Config(id="c", benchmark="gemm", spec={}, place={}, limit_s=1.0),),
    )  # fmt: skip
    (folder / "run.json").write_text(encode(run) + "\n")
    (folder / "cluster.toml").write_text(CLUSTER)
    return folder


def test_page_of_many_nodes(benchmark, tmp_path):
    """One rank of each node, and what each node was and saw: environment and conditions."""
    folder = tables(tmp_path / "many", units=NODES, samples=30)
    names = [f"node{i:05}" for i in range(NODES)]
    facts = {"torch": "2.13", "gpus": [{"name": "H100", "index": 0}]}
    around = {"load_1m": 1.0, "gpus": [{"index": 0, "sm_clock_mhz": 1980, "temperature_c": 60}]}
    (folder / "environments.jsonl").write_text(
        "".join(
            encode(Environment(node=name, ranks=(i,), facts={**facts, "driver": f"580.{i % 997 == 0:d}"})) + "\n"
            for i, name in enumerate(names)
        )
    )
    with (folder / "measurements.jsonl").open("a") as file:
        for name in names:
            subject = Subject(group="node", node=name)
            bracket = Measurement(
                metric="conditions", unit="1", better="equal", config="c", subject=subject, conditions=around
            )
            file.write(encode(bracket) + "\n")
    stored = runs.load(folder)
    verdicts = stored.verdicts(today=TODAY)
    written = benchmark.pedantic(page.write, (stored, verdicts), rounds=2)
    print(f"\n{NODES:,} nodes: page of {written.stat().st_size / 1e3:,.0f} kB")
    assert written.stat().st_size < 2e6


def test_many_host_names(benchmark, tmp_path):
    """One number of each of very many nodes, every one with a name, a record and an environment of its own."""
    metric = Metric(name="gemm.flops", unit="FLOP/s", better="higher", per="node")
    run = Run(
        id="hosts", suite="nightly", cluster="large", started_at="2026-12-01T02:00:00Z", nodes=HOSTS,
        expected=(expect(metric, HOSTS),), cluster_sha256=hashlib.sha256(CLUSTER.encode()).hexdigest(),
        configs=(Config(id="c", benchmark="gemm", spec={}, place={"nodes": HOSTS}, limit_s=1.0),),
    )  # fmt: skip
    (tmp_path / "run.json").write_text(encode(run) + "\n")
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    with (tmp_path / "measurements.jsonl").open("w") as records, (tmp_path / "environments.jsonl").open("w") as nodes:
        for i in range(HOSTS):
            subject = Subject(group="node", node=f"host-{i:07}")
            rates = (7e14 * (1 + (i % 97) * 1e-4), 7e14, 6.99e14)
            records.write(encode(metric.measured(*rates, subject=subject, config="c")) + "\n")
            facts = {"driver": f"580.{i % 3}", "hostname": subject.node}
            nodes.write(encode(Environment(node=subject.node, ranks=(i,), facts=facts)) + "\n")

    def shown() -> Path:
        stored = runs.load(tmp_path)
        return page.write(stored, stored.verdicts(today=TODAY))

    begin = time.process_time()
    written = benchmark.pedantic(shown, rounds=1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    took = time.process_time() - begin
    print(f"\n{HOSTS:,} hosts: {took:.1f} s of CPU, peak {peak:.2f} GB, page of {written.stat().st_size / 1e3:,.0f} kB")
    assert written.stat().st_size < 2e6


def test_compare(benchmark, tmp_path):
    folders = [
        tables(tmp_path / name, units=NODES, samples=30, factor=factor) for name, factor in (("a", 1.0), ("b", 0.97))
    ]

    def compared() -> str:
        return comparepage.page([compare(*(sides.load_side(str(folder)) for folder in folders))])

    begin = time.process_time()
    text = benchmark.pedantic(compared, rounds=1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"\n{NODES:,} nodes: {time.process_time() - begin:.1f} s of CPU, peak {peak:.2f} GB, page {len(text):,} bytes"
    )


def test_trend(benchmark, tmp_path):
    stored = runs.load(tables(tmp_path / "one", units=512, samples=5))
    root = tmp_path / "runs"
    for night in range(NIGHTS):
        folder = root / f"night-{night:03}"
        folder.mkdir(parents=True)
        started = (datetime.fromisoformat(stored.run.started_at) + timedelta(days=night)).isoformat()
        run = dataclasses.replace(stored.run, id=folder.name, started_at=started)
        (folder / "run.json").write_text(encode(run) + "\n")
        each = dataclasses.replace(stored, run=run, folder=folder)
        index.write(each, index.stamp_of(folder))
    begin = time.process_time()
    found = benchmark.pedantic(lambda: trend.trends(archive.nights(root), "gemm.flops", node="rank 7"), rounds=1)
    assert len(found) == 50
    assert len(found[0].values) == NIGHTS
    print(f"\n{NIGHTS} nights: {time.process_time() - begin:.1f} s of CPU")
