"""A made-up run of two nodes with eight GPUs each, in which everything happens that a report must show.

python -m tests.sample_run runs/sample     # writes the folder; then: python -m reports render runs/sample
"""

from __future__ import annotations

import dataclasses
import hashlib
import random
import sys
from pathlib import Path

from benchmarks.measurement import Config, Environment, Event, Expected, Measurement, Metric, Run, Subject, encode

CLUSTER = (Path(__file__).parent / "fixtures" / "page" / "rack7.toml").read_text(encoding="utf-8")

SPLIT = {
    "compute": 0.701, "tp": 0.052, "dp": 0.027, "pp": 0.018, "bubble": 0.145, "optimizer": 0.031, "data": 0.004,
    "report": 0.002, "other": 0.02,
}  # fmt: skip
PREDICTED = {
    "step_s": 30.1,
    "split": {"compute": 0.74, "tp": 0.05, "dp": 0.02, "pp": 0.01, "bubble": 0.15, "optimizer": 0.03},
}
SAVED = {
    "sort": "parallel",
    "filesystem": {"kind": "lustre"},
    "raw_mode": "direct",
    "lost_share_at_file_interval": 0.04,
}
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce")
SIZES = tuple(1 << n for n in range(10, 31, 2))
RANKS = 16
HOSTS = ("gpu-a07-1", "gpu-a07-2")


class Sample:
    """Builds the records one by one; `seed` picks the noise."""

    def __init__(self, seed: int = 7) -> None:
        self.random = random.Random(seed)
        self.configs: list[Config] = []
        self.expected: list[Expected] = []
        self.measurements: list[Measurement] = []

    def around(self, value: float, spread: float, n: int) -> list[float]:
        """n samples within about `spread` of a value."""
        return [value * (1 + self.random.gauss(0, spread)) for _ in range(n)]

    def config(self, benchmark: str, name: str) -> str:
        """A new config's id."""
        place = {"device": "cuda", "backend": "nccl", "nodes": 2, "ranks_per_node": 8}
        self.configs.append(
            Config(id=f"{benchmark}-{name}", benchmark=benchmark, spec={"name": name}, place=place, limit_s=120)
        )
        return f"{benchmark}-{name}"

    def expect(self, metric: Metric, config: str) -> Metric:
        """Note that a metric is expected, and give it back."""
        units = {"world": 1, "rank": RANKS, "pair": RANKS * (RANKS - 1)}[metric.per]
        test = f"suites/test_{config.partition('-')[0]}.py::test_reaches_its_limits"
        self.expected.append(
            Expected(
                metric=metric.name,
                unit=metric.unit,
                better=metric.better,
                config=config,
                test=test,
                params=metric.params,
                per=metric.per,
                units=units,
            )
        )
        return metric

    def emit(self, metric: Metric, config: str, *samples: float, **fields) -> None:
        """One measurement of it."""
        fields.setdefault("subject", Subject(group="world", ranks=RANKS))
        self.measurements.append(metric.measured(*samples, config=config, **fields))


def gpu(rank: int) -> Subject:
    return Subject(group="gpu", node=HOSTS[rank // 8], rank=rank, gpu=rank % 8, gpu_serial=f"1650{rank:06d}")


def devices(s: Sample) -> None:
    """GEMM with one weak GPU, memory copies with one that throttled."""
    for dtype, rate in (("bf16", 6.9e14), ("fp32", 4.4e14)):
        config = s.config("gemm", dtype)
        params = {"dtype": dtype, "m": 8192, "n": 8192, "k": 8192}
        flops = s.expect(Metric(name="gemm.flops", unit="FLOP/s", better="higher", params=params, per="rank"), config)
        for rank in range(RANKS):
            weak = 0.83 if rank == 13 else 1.0
            s.emit(
                flops, config, *s.around(rate * weak * (1.5 if dtype == "fp32" else 1), 0.006, 20), subject=gpu(rank)
            )
    config = s.config("memory", "copy")
    copy = Metric(name="memory.copy.bandwidth", unit="B/s", better="higher", per="rank", params={"bytes": 1 << 30})
    s.expect(copy, config)
    for rank in range(RANKS):
        conditions = {"disqualified": ["thermal slowdown"]} if rank == 4 else {}
        s.emit(copy, config, *s.around(2.9e12, 0.004, 20), subject=gpu(rank), conditions=conditions)


def collectives(s: Sample) -> None:
    """Sweeps; one is slow at the end, one noisy, one impossible, one died half-way."""
    for op in OPS:
        config = s.config("collectives", op)
        for size in SIZES:
            params = {"bytes": size, "dtype": "bf16", "group": "world"}
            busbw = Metric(name=f"collectives.{op}.busbw", unit="B/s", better="higher", params=params)
            wrong = Metric(name=f"collectives.{op}.wrong_elements", unit="1", better="equal", params=params)
            s.expect(busbw, config)
            s.expect(wrong, config)
            if size <= 65536:
                s.expect(Metric(name=f"collectives.{op}.latency", unit="s", better="lower", params=params), config)
            if op == "reduce":
                continue
            if op == "broadcast" and size > 1 << 20:
                for metric in (busbw, wrong):
                    s.emit(metric, config, outcome="error", reason="rank 11 on gpu-a07-2 died: SIGBUS")
                continue
            top = {"all_reduce": 3.01e11, "all_to_all": 3.32e11}.get(op, 3.65e11)
            rate = top * size / (size + 24e6)
            if op == "reduce_scatter" and size == 1 << 26:
                rate = 9.1e11
            s.emit(busbw, config, *s.around(rate, 0.04 if op == "all_to_all" else 0.01, 20))
            s.emit(wrong, config, 0.0)
            if size <= 65536:
                latency = Metric(name=f"collectives.{op}.latency", unit="s", better="lower", params=params)
                s.emit(latency, config, *s.around(1.4e-5 + size / 4e10, 0.03, 40))


def links(s: Sample) -> None:
    """All pairs; one cable is slow in one direction."""
    config = s.config("links", "pairs")
    pairs = [(a, b) for a in range(RANKS) for b in range(RANKS) if a != b]
    same = {pair: pair[0] // 8 == pair[1] // 8 for pair in pairs}
    tables = {
        "latency": ("s", "lower", lambda p: 8e-6 if same[p] else 1.6e-5, {"bytes": 8}),
        "bandwidth": (
            "B/s",
            "higher",
            lambda p: 1.9e11 if same[p] else 4.7e10 * (0.62 if p == (3, 11) else 1),
            {"bytes": 1 << 28},
        ),
        "wrong_elements": ("1", "equal", lambda p: 0.0, {}),  # noqa: ARG005
    }  # fmt: skip
    for name, (unit, better, value, params) in tables.items():
        metric = s.expect(Metric(name=f"links.{name}", unit=unit, better=better, params=params, per="pair"), config)
        columns = {
            "a": [a for a, _ in pairs], "b": [b for _, b in pairs],
            "samples": [s.around(value(pair), 0.015, 9) if unit != "1" else [0.0] for pair in pairs],
        }  # fmt: skip
        s.emit(metric, config, columns=columns)


def jobs(s: Sample) -> None:
    """A checkpoint that was retested, and a training step that is waived; one number never came."""
    config = s.config("checkpoint", "full")
    params = {"contents": "bf16 + fp32 master, m, v", "bytes": 988_000_000_000}
    for name, unit, better, attempts in (
        ("save.time", "s", "lower", ([41.0, 40.2, 41.7], [27.1, 27.9, 26.8])),
        ("save.bandwidth", "B/s", "higher", ([2.4e10, 2.45e10, 2.38e10], [3.6e10, 3.5e10, 3.7e10])),
        ("raw.bandwidth", "B/s", "higher", ([4.4e10, 4.5e10, 4.6e10], [4.5e10, 4.4e10, 4.6e10])),
        ("load.time", "s", "lower", ()),
    ):
        whose = {"writer": "aligned"} if not name.startswith("raw") else {}
        metric = Metric(name=f"checkpoint.{name}", unit=unit, better=better, params={**params, **whose})
        s.expect(metric, config)
        columns = {
            "rank": list(range(RANKS)),
            "rank_s": [24.0 + 0.2 * (r * 5 % 7) + 2.2 * (r == 9) for r in range(RANKS)],
            "begin_s": [0.3 + 0.05 * (r % 4) + 1.4 * (r == 5) for r in range(RANKS)],
            "end_s": [25.0 + 0.2 * (r * 5 % 7) + 2.2 * (r == 9) for r in range(RANKS)],
        }
        for attempt, samples in enumerate(attempts, 1):
            fields = {"columns": columns, "notes": SAVED} if name == "save.time" else {}
            s.emit(metric, config, *samples, attempt=attempt, **fields)
    config = s.config("training", "70b")
    params = {"model": "llama-70b", "layout": "tp8 pp2", "sequence": 8192, "batch": 64}
    for name, unit, better, value, notes in (
        ("step.time", "s", "lower", 31.8, {"split": SPLIT, "predicted": PREDICTED, "timeline": pipeline(2, 6)}),
        ("tokens_rate", "1/s", "higher", 16480.0, {}),
        ("loss_error", "1", "lower", 3e-6, {}),
        ("flops", "FLOP/s", "higher", 16480.0 * 449.22e9, {}),
        ("bubble", "1", "lower", 0.161, {"predicted": 1 / 7, "residual": 0.161 - 1 / 7}),
    ):
        metric = Metric(name=f"training.{name}", unit=unit, better=better, params=params)
        s.emit(s.expect(metric, config), config, *s.around(value, 0.004, 12), notes=notes)


def pipeline(ranks: int, micro_batches: int) -> list[list[object]]:
    """1F1B played with forwards of 1 s and backwards of 2 s: [rank, kind, stage, micro-batch, begin, end]."""
    rows, free, done = [], [0.0] * ranks, {}
    orders = []
    for rank in range(ranks):
        warm = min(micro_batches, ranks - rank)
        order = [("F", i) for i in range(warm)]
        for i in range(micro_batches - warm):
            order += [("B", i), ("F", warm + i)]
        orders.append(order + [("B", i) for i in range(micro_batches - warm, micro_batches)])
    while any(orders):
        for rank, order in enumerate(orders):
            while order:
                kind, i = order[0]
                need = ("F", rank - 1, i) if kind == "F" else ("B", rank + 1, i)
                if 0 <= need[1] < ranks and need not in done:
                    break
                begin = max(free[rank], done.get(need, 0.0))
                free[rank] = done[kind, rank, i] = begin + (1.0 if kind == "F" else 2.0)
                rows.append([rank, kind, rank, i, begin, free[rank]])
                order.pop(0)
    return rows


def conditions(s: Sample) -> None:
    """What each node saw around each benchmark: one GPU throttled while memory was copied."""
    for config in s.configs:
        for i, node in enumerate(HOSTS):
            hot = config.benchmark == "memory" and i == 0
            gpus = [
                {
                    "index": g, "serial": f"1650{8 * i + g:06d}", "power_w": 640.0 + g,
                    "sm_clock_mhz": 1410 if hot and g == 4 else 1965 - 5 * g,
                    "temperature_c": 88 if hot and g == 4 else 58 + g,
                    "throttle": ["software thermal slowdown"] if hot and g == 4 else ["software power cap"],
                }
                for g in range(8)
            ]  # fmt: skip
            found = {"seconds": 40.0, "load_1m": 9.5 + i, "retransmits": float(3 * i), "cpu_steal": 0.0, "gpus": gpus}
            subject = Subject(group="node", node=node)
            s.measurements.append(
                Measurement(
                    metric="conditions", unit="1", better="equal", config=config.id, subject=subject, conditions=found
                )
            )


def events(s: Sample) -> list[Event]:
    """Two launches, one dead rank, one retest."""
    stack = 'Thread 0x7f3a "MainThread"\n  File "run.py", line 88, in run\n    dist.broadcast(buffer, src=0)\n'
    made = [Event(kind="selected", at="2026-12-01T02:00:00.000Z", detail={"tests": ["suites"], "all": True})]
    clock = 5.0
    for number, configs in ((1, s.configs[:7]), (2, s.configs[7:])):
        made.append(
            Event(
                kind="launch",
                at=stamp(clock),
                detail={
                    "number": number,
                    "seconds": 14.2 + number,
                    "import_s": 6.1,
                    "group_s": 4.4,
                    "ranks": 16,
                    "place": {"device": "cuda", "backend": "nccl", "nodes": 2, "ranks_per_node": 8},
                    "outcome": "ok",
                },
            )
        )
        clock += 16
        for config in configs:
            seconds = s.random.uniform(20, 95)
            clock += seconds
            if config.id == "collectives-broadcast":
                made.append(
                    Event(
                        kind="error",
                        at=stamp(clock),
                        detail={
                            "config": config.id,
                            "attempt": 1,
                            "kind": "died",
                            "rank": 11,
                            "node": HOSTS[1],
                            "reason": "rank 11 on gpu-a07-2 died: SIGBUS",
                            "stack": stack,
                            "log": "bus error\n",
                            "launch": number,
                        },
                    )
                )
            made.append(
                Event(
                    kind="batch",
                    at=stamp(clock),
                    detail={
                        "config": config.id,
                        "benchmark": config.benchmark,
                        "attempt": 1,
                        "launch": number,
                        "seconds": seconds,
                        "overhead_s": 0.4,
                    },
                )
            )
    return [
        *made,
        Event(kind="retest", at=stamp(clock), detail={"what": "failed"}),
        Event(kind="ended", at=stamp(clock)),
    ]


def stamp(seconds: float) -> str:
    return f"2026-12-01T02:{int(seconds) // 60:02d}:{seconds % 60:06.3f}Z"


def environments() -> list[Environment]:
    facts = {
        "os": "Ubuntu 24.04", "kernel": "6.8.0-48", "cpu": "Xeon Platinum 8480C", "cores": 112, "torch": "2.13.0",
        "nccl": "2.30.4", "cuda": "13.0", "memory_bytes": 2_164_663_517_184,
    }  # fmt: skip
    drivers = ("580.95.05", "580.65.06")
    return [
        Environment(
            node=node,
            ranks=tuple(range(8 * i, 8 * i + 8)),
            facts={
                **facts,
                "driver": drivers[i],
                "gpus": [{"name": "NVIDIA H100 80GB HBM3", "index": g} for g in range(8)],
            },
        )
        for i, node in enumerate(HOSTS)
    ]


def write(folder: Path, *, seed: int = 7, slower: float = 1.0) -> Path:
    """The whole run folder. `slower` divides every rate of it."""
    s = Sample(seed)
    for part in (devices, collectives, links, jobs, conditions):
        part(s)
    if slower != 1.0:
        s.measurements = [
            dataclasses.replace(m, samples=tuple(v / slower for v in m.samples)) if m.better == "higher" else m
            for m in s.measurements
        ]
    run = Run(
        id=folder.name, suite="acceptance", cluster="rack7", started_at="2026-12-01T02:00:00.000Z", nodes=2,
        cluster_sha256=hashlib.sha256(CLUSTER.encode()).hexdigest(), revision="4f2a91c03b7e",
        scope={"sku": "h100-sxm", "nodes": 2, "backend": "nccl"}, configs=tuple(s.configs), expected=tuple(s.expected),
        command="pytest suites --cluster rack7.toml", by="k.larsen",
    )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(encode(run) + "\n")
    (folder / "cluster.toml").write_text(CLUSTER)
    for name, records in (
        ("measurements", s.measurements), ("environments", environments()), ("events", events(s)),
    ):  # fmt: skip
        (folder / f"{name}.jsonl").write_text("".join(encode(r) + "\n" for r in records))
    return folder


if __name__ == "__main__":
    print(write(Path(sys.argv[1])))
