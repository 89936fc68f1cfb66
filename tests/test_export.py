"""A run in other formats: complete, in SI units, read by the tools it is meant for, never over the run itself."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from datetime import date

import pandas as pd
import pytest

from reports import export, runs
from reports.commands import main
from tests import sample_run

TODAY = date(2026, 12, 1)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    return runs.load(sample_run.write(tmp_path_factory.mktemp("export") / "sample"))


@pytest.fixture(scope="module")
def verdicts(stored):
    return stored.verdicts(today=TODAY)


def test_csv_has_every_record_of_every_attempt_and_every_pair(stored, verdicts, tmp_path):
    export.to_csv(stored, verdicts, tmp_path / "run.csv")
    table = pd.read_csv(tmp_path / "run.csv")
    pairs = 16 * 15
    assert len(table) == len(stored.measurements) - 3 + 3 * pairs
    link = table[(table.metric == "links.bandwidth") & (table.from_rank == 3) & (table.to_rank == 11)].iloc[0]
    assert link["median"] == pytest.approx(2.9e10, rel=0.05)
    assert link.unit == "B/s"
    save = table[table.metric == "checkpoint.save.time"]
    assert list(save.attempt) == [1, 2]
    died = table[table.reason == "rank 11 on gpu-a07-2 died: SIGBUS"]
    assert set(died.outcome) == {"error"}
    assert died["median"].isna().all()


def test_csv_of_broken_samples_has_no_number_in_their_place(stored, verdicts, tmp_path):
    bad = dataclasses.replace(stored.measurements[0], samples=(1.0, float("nan")))
    export.to_csv(dataclasses.replace(stored, measurements=(bad,)), verdicts, tmp_path / "run.csv")
    row = pd.read_csv(tmp_path / "run.csv").iloc[0]
    assert row.n == 2
    assert pd.isna(row["median"])


def test_an_empty_run_exports_to_an_empty_table(stored, verdicts, tmp_path):
    export.to_csv(dataclasses.replace(stored, measurements=()), verdicts, tmp_path / "run.csv")
    assert (tmp_path / "run.csv").read_text().strip() == ""


def test_pytest_benchmark_compares_two_exports(stored, tmp_path):
    slower = sample_run.write(tmp_path / "slower", seed=8, slower=2.0)
    for folder, name in ((stored.folder, "a"), (slower, "b")):
        assert main(["export", str(folder), "--to", "pytest-benchmark", "-o", str(tmp_path / f"{name}.json")]) == 0
    command = [
        sys.executable, "-m", "pytest_benchmark", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json"),
        "--group-by=name", "--columns=median", "--sort=name",
    ]  # fmt: skip
    said = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=True).stdout
    group = said[said.index("collectives.all_reduce.busbw 1 GiB bf16 (s per GB)") :]
    ratios = re.findall(r"\((\d\.\d+)\)", group[: group.index("\n\n")])
    assert sorted(map(float, ratios)) == [1.0, pytest.approx(2.0, rel=0.05)]


def test_rates_become_times_that_a_hand_can_check(stored, verdicts, tmp_path):
    export.to_benchmark(stored, verdicts, tmp_path / "a.json")
    entries = {b["name"]: b for b in json.loads((tmp_path / "a.json").read_text())["benchmarks"]}
    busbw = next(
        m for m in stored.measurements if m.metric.endswith("all_reduce.busbw") and m.params["bytes"] == 1 << 30
    )
    entry = entries["collectives.all_reduce.busbw 1 GiB bf16 (s per GB)"]
    assert sorted(entry["stats"]["data"]) == pytest.approx(sorted(1e9 / s for s in busbw.samples))
    assert entry["stats"]["rounds"] == 20


OPENMETRICS = re.compile(r'^[a-z_]+\{(?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"(?:,|(?=\})))*\} [-+0-9.e]+$')


def test_openmetrics_is_well_formed_whatever_the_names(stored, verdicts, tmp_path):
    run = dataclasses.replace(stored.run, cluster='a "b"\\\nc')
    export.to_openmetrics(dataclasses.replace(stored, run=run), verdicts, tmp_path / "run.prom")
    lines = (tmp_path / "run.prom").read_text().split("\n")
    assert lines[-2:] == ["# EOF", ""]
    samples = [line for line in lines if line and not line.startswith("#")]
    assert all(OPENMETRICS.match(line) for line in samples)
    assert len(samples) == len({line.rpartition(" ")[0] for line in samples})
    assert 'outcome="REJECTED"} 1.0' in "\n".join(samples)
    known = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert {line.partition("{")[0] for line in samples} == known


def test_parquet_holds_the_same_as_csv(stored, tmp_path):
    for kind in ("csv", "parquet"):
        assert main(["export", str(stored.folder), "--to", kind, "-o", str(tmp_path / kind)]) == 0
    table = pd.read_parquet(tmp_path / "parquet")
    pd.testing.assert_frame_equal(table, export.records(stored))
    assert len(table) == len(pd.read_csv(tmp_path / "csv"))


def test_parquet_without_pyarrow_says_what_to_do(stored, capsys, monkeypatch):
    def absent(*_, **__):
        raise ImportError("no engine")

    monkeypatch.setattr(pd.DataFrame, "to_parquet", absent)
    assert main(["export", str(stored.folder), "--to", "parquet"]) == 4
    assert "pip install pyarrow" in capsys.readouterr().err


def test_junit_is_the_same_by_either_command(stored, tmp_path):
    assert main(["export", str(stored.folder), "--to", "junit", "-o", str(tmp_path / "a.xml")]) == 0
    main(["junit", str(stored.folder), "-o", str(tmp_path / "b.xml")])
    assert (tmp_path / "a.xml").read_bytes() == (tmp_path / "b.xml").read_bytes()


@pytest.mark.parametrize("name", runs.FILES)
def test_no_view_writes_over_the_run(stored, name, capsys):
    before = (stored.folder / name).read_bytes()
    for command in (["export"], ["render"], ["junit"]):
        assert main([*command, str(stored.folder), "-o", str(stored.folder / name)]) == 4
    assert "holds the run itself" in capsys.readouterr().err
    assert (stored.folder / name).read_bytes() == before
    for kind in ("csv", "pytest-benchmark", "openmetrics", "junit"):
        assert main(["export", str(stored.folder), "--to", kind]) == 0
    assert (stored.folder / name).read_bytes() == before
