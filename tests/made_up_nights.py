"""Nights on disk: small accepted runs of two nodes with eight GPUs each, written quickly and exactly as wished."""

from __future__ import annotations

import dataclasses
import hashlib
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from benchmarks.measurement import Config, Environment, Event, Expected, Measurement, Run, Subject, encode

CLUSTER = """
name = "rack7"
nodes = 2
ranks_per_node = 8

[limits.rate]
metric = "gemm.flops"
unit = "FLOP/s"
floor = 3.0e14
source = "contract"
date = 2026-01-01
"""
START = datetime.fromisoformat("2026-11-01T02:00:00+00:00")
RANKS, SAMPLES = 16, 20
PLACE = {"device": "cuda", "backend": "nccl", "nodes": 2, "ranks_per_node": 8}

EXPECTED = (
    Expected(
        metric="gemm.flops", unit="FLOP/s", better="higher", config="gemm-1", params={"dtype": "bf16"}, per="rank",
        units=RANKS, test="suites/test_gemm.py::test_rate",
    ),
    Expected(
        metric="collectives.all_reduce.busbw", unit="B/s", better="higher", config="coll-1",
        params={"bytes": 1 << 30}, test="suites/test_collectives.py::test_wire",
    ),
    Expected(
        metric="checkpoint.save.time", unit="s", better="lower", config="ckpt-1", params={"contents": "full"},
        test="suites/test_checkpoint.py::test_save",
    ),
)  # fmt: skip
TYPICAL = {"gemm.flops": 7e14, "collectives.all_reduce.busbw": 3.6e11, "checkpoint.save.time": 25.0}


def write(
    root: Path,
    night: int,
    *,
    name: str = "",
    factor: dict[str, float] | None = None,
    gpu: dict[int, float] | None = None,
    gray: int | None = None,
    driver: str = "580.65",
    without: tuple[str, ...] = (),
) -> Path:
    """One night. `factor` multiplies a metric, `gpu` a rank's GEMM; a sixth of the samples of rank `gray` is slow."""
    random = np.random.default_rng(1000 * night + len(name))
    measurements: list[Measurement] = []
    for e in EXPECTED:
        if e.metric in without:
            continue
        level = TYPICAL[e.metric] * (factor or {}).get(e.metric, 1.0) * random.normal(1, 0.003)
        for rank in range(e.units):
            subject = Subject(group="world", ranks=RANKS)
            samples = level * random.normal(1, 0.002, SAMPLES)
            if e.per == "rank":
                subject = Subject(group="gpu", node=f"node{rank // 8}", rank=rank, gpu=rank % 8)
                samples = samples * (gpu or {}).get(rank, 1.0) * (1 + 0.004 * (rank % 3))
                if rank == gray:
                    samples[::6] *= 0.7
            measurements.append(
                Measurement(
                    metric=e.metric, unit=e.unit, better=e.better, params=e.params, config=e.config, subject=subject,
                    samples=tuple(samples.tolist()),
                )
            )  # fmt: skip
    at = (START + timedelta(days=night, minutes=len(name))).isoformat().replace("+00:00", "Z")
    folder = root / (name or f"night-{night:03}")
    folder.mkdir(parents=True)
    run = Run(
        id=folder.name, suite="nightly", cluster="rack7", started_at=at, nodes=2, expected=EXPECTED,
        cluster_sha256=hashlib.sha256(CLUSTER.encode()).hexdigest(), scope={"sku": "h100-sxm", "backend": "nccl"},
        configs=tuple(
            Config(id=e.config, benchmark=e.config, spec={}, place=PLACE, limit_s=60.0) for e in EXPECTED
        ),
    )  # fmt: skip
    events = (Event(kind="selected", at=at, detail={"all": True}), Event(kind="ended", at=at))
    (folder / "run.json").write_text(encode(run) + "\n")
    (folder / "cluster.toml").write_text(CLUSTER)
    (folder / "measurements.jsonl").write_text("".join(encode(m) + "\n" for m in measurements))
    (folder / "environments.jsonl").write_text(
        "".join(encode(Environment(node=f"node{i}", facts={"driver": driver})) + "\n" for i in range(2))
    )
    (folder / "events.jsonl").write_text("".join(encode(e) + "\n" for e in events))
    return folder


def rewrite_head(folder: Path, **changes: object) -> None:
    """Change fields of a run's head."""
    from reports import runs

    (folder / "run.json").write_text(encode(dataclasses.replace(runs.head(folder), **changes)) + "\n")
