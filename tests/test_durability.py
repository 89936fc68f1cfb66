"""The page shows what saving needs, gets and costs, and calls a projection one."""

from __future__ import annotations

import dataclasses
import hashlib
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.checkpoint.spec import Checkpoint
from benchmarks.measurement import Event, Expected, Run, Subject, encode
from benchmarks.spec import Place, to_config
from reports import page, runs
from reports.durability import panels

CLUSTER = """
name = "rack7"
nodes = {nodes}
gpus_per_node = 8
gpu = "h100-sxm"

[network]
kind = "infiniband"
nics_per_node = 8
nic_rate = 50e9
source = "data sheet"

[limits.in_time]
metric = "checkpoint.save.time"
unit = "s"
ceiling = 30
source = "contract"
date = 2026-11-02
"""
JOB = Checkpoint(
    model="70b", layout="tp8,pp4,dp16", metadata_files=0, in_a_row=10, mtbf_s=356_000.0, interval_s=1600.0,
    network_rate=400e9,
)  # fmt: skip
VALUES = {
    "save.time": 21.0, "load.time": 18.0, "raw.bandwidth": 62e9, "save.bandwidth": 47e9, "sustained.bandwidth": 55e9,
    "scaling.bandwidth": 1.1e9,
}  # fmt: skip


def run_of(folder: Path, nodes: int, spec: Checkpoint = JOB) -> runs.StoredRun:
    """A run on disk in which everything that a spec promises has a value."""
    place = Place(device="cuda", backend="nccl", nodes=nodes, ranks_per_node=8)
    config = to_config(spec, place)
    records, expected = [], []
    for m in spec.emits(place):
        value = VALUES.get(m.name.removeprefix("checkpoint."), 1.0)
        value *= {"stock": 1.9, "aligned": 1.0}.get(str(m.params.get("writer")), 1.0) if m.unit == "s" else 1.0
        value *= float(m.params.get("nodes", 1)) * 0.95
        if m.name == "checkpoint.sustained.bandwidth" and m.params.get("projected"):
            continue  # never projected: an error
        fields: dict[str, Any] = {"config": config.id, "subject": Subject(ranks=place.ranks)}
        if m.params.get("projected"):
            fields["notes"] = {"projected": f"PROJECTED from 1, 2 ... {nodes} to 64 nodes, 512 ranks"}
        records.append(m.measured(value, value * 1.01, value * 1.02, **fields))
        expected.append(
            Expected(
                metric=m.name, unit=m.unit, better=m.better, params=m.params, config=config.id,
                test="suites/test_checkpoint.py::test_a_save",
            )
        )  # fmt: skip
    text = CLUSTER.format(nodes=nodes)
    run = Run(
        id="r", suite="acceptance", cluster="rack7", cluster_sha256=hashlib.sha256(text.encode()).hexdigest(),
        started_at="2026-12-01T02:00:00Z", nodes=nodes, configs=(config,), expected=tuple(expected),
    )  # fmt: skip
    folder.mkdir()
    (folder / "cluster.toml").write_text(text)
    (folder / "run.json").write_text(encode(run) + "\n")
    (folder / "measurements.jsonl").write_text("".join(encode(r) + "\n" for r in records))
    (folder / "environments.jsonl").write_text("")
    (folder / "events.jsonl").write_text(encode(Event(kind="ended", at="2026-12-01T03:00:00Z")) + "\n")
    return runs.load(folder)


def test_a_whole_job_shows_need_network_and_what_saving_costs(tmp_path: Path):
    scale, lost = panels(run_of(tmp_path / "r", 64))
    assert "987,754,479,624 bytes = 987.8 GB = 919.9 GiB" in scale.detail
    for words in ("30 s need", "32.9 GB/s", "saved by aligned", "saved by stock", "plain writes", "in a row"):
        assert words in scale.chart
    assert "the network carries, 64 nodes" in scale.chart
    assert "25.6 TB/s" in scale.chart
    assert "aligned stops training for" in lost.detail
    assert "best interval" in lost.detail
    assert "the cluster file" in lost.detail
    assert "PROJECTED" not in scale.detail + lost.detail


def test_a_part_of_it_is_called_projected(tmp_path: Path):
    stored = run_of(tmp_path / "r", 32)
    found = {panel.title: panel for panel in panels(stored)}
    assert found["what saving needs and gets"].detail.startswith("PROJECTED · 987,754,479,624 bytes")
    assert found["training time lost to saves and failures"].detail.startswith("PROJECTED")
    assert "which passes nothing" in found["bandwidth by nodes"].detail
    text = page.page(stored, stored.verdicts(today=date(2026, 12, 1)))
    assert "PROJECTED: " in text
    assert "never passes one" in text
    rows = [row for row in text.split("<tr>")[1:] if "raw.bandwidth" in row and "PROJECTED" in row]
    assert rows
    assert not [row for row in rows if "passed" in row]


def test_what_was_not_measured_is_not_drawn(tmp_path: Path):
    spec = dataclasses.replace(JOB, mtbf_s=0.0, writers=("aligned",), in_a_row=0)
    stored = run_of(tmp_path / "r", 64, spec)
    assert [panel.title for panel in panels(stored)] == ["what saving needs and gets"]
    (tmp_path / "r" / "measurements.jsonl").write_text("")
    assert panels(runs.load(tmp_path / "r")) == []
