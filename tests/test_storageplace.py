"""Which file system is under test, also when a run is gone on with, and that results never lie on it."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.checkpoint.spec import Checkpoint
from benchmarks.measurement import Config
from clusters.loader import load
from suites import storageplace, test_checkpoint, test_reads
from suites.options import UsageError


def test_the_option_comes_before_the_file_and_is_where_tokens_are_read_too(tmp_path: Path):
    cluster = dataclasses.replace(load("local"), settings={"checkpoint": {"directory": "/elsewhere", "threads": 3}})
    chosen = storageplace.under_test(cluster, str(tmp_path))
    assert test_checkpoint.state(chosen).directory == test_checkpoint.in_a_row(chosen).directory == str(tmp_path)
    assert test_reads.tokens(chosen).directory == str(tmp_path)
    assert test_checkpoint.state(chosen).threads == 3
    assert storageplace.under_test(cluster, "") is cluster


def test_a_relative_folder_means_the_same_on_every_rank(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    assert test_checkpoint.state(storageplace.under_test(load("local"), "here")).directory == str(tmp_path / "here")


def test_a_run_that_is_gone_on_with_keeps_its_place():
    def config(benchmark: str, **spec: str) -> Config:
        return Config(id=benchmark, benchmark=benchmark, spec=spec, place={}, limit_s=1.0)

    run = SimpleNamespace(run=SimpleNamespace(configs=(config("gemm"), config("checkpoint", directory="/lustre/a"))))
    assert storageplace.before(run) == "/lustre/a"
    assert storageplace.before(SimpleNamespace(run=SimpleNamespace(configs=()))) == ""


def test_results_on_the_file_system_under_test_are_refused(tmp_path: Path):
    cluster = load("local")
    storageplace.refuse_results_on(cluster, tmp_path)  # a temporary folder: nobody named a file system
    here = storageplace.under_test(cluster, str(tmp_path))
    with pytest.raises(UsageError, match="give a folder elsewhere: --run-dir"):
        storageplace.refuse_results_on(here, tmp_path / "runs" / "not-made-yet")
    storageplace.refuse_results_on(here, Path("/proc"))
    storageplace.refuse_results_on(storageplace.under_test(cluster, "/not/on/this/host"), tmp_path)


@pytest.mark.parametrize("name", ["in_a_row", "sustain_s", "pause_s", "server_cache_bytes", "mtbf_s", "network_rate"])
@pytest.mark.parametrize("value", [-1, math.inf, math.nan])
def test_settings_that_mean_nothing_are_refused(name: str, value: float):
    with pytest.raises(ValueError, match=f"{name} must be zero or more"):
        Checkpoint(**{name: value})
