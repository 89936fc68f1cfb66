"""--plan shows what would run with exactly these options, and runs nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from suites import nightly, slurm
from suites.allocation import Wish
from suites.needs import checks
from suites.nightly import Range
from suites.options import Options, UsageError, who
from suites.preview import preview


@pytest.fixture
def no_slurm(monkeypatch):
    monkeypatch.setattr(slurm, "is_here", lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture
def everything(no_slurm):  # noqa: ARG001
    return [check.test for check in checks("acceptance")]


def test_all_of_it(everything):
    said = preview(Options(cluster="local"), everything)
    assert "launcher: torchrun (one node, this one)" in said and "time-outs: a benchmark" in said
    assert "INCOMPLETE" not in said and " of the " not in said


def test_a_selection_is_a_smaller_plan_of_an_incomplete_run(everything):
    some = [test for test in everything if "gemm" in test]
    said = preview(Options(cluster="local"), some)
    assert f"the outcome will be INCOMPLETE: {len(everything) - len(some)} of {len(everything)} checks" in said
    assert "collectives" not in said.partition("in all:")[0] and "gemm" in said


def test_named_nodes_are_shown_and_a_plan_for_elsewhere_is_no_error(everything):
    named = Options(cluster="h100-sxm-ndr400", nodes=2, wish=Wish(nodelist=("n10", "n9")))
    assert "nodes: n[9-10]" in preview(named, everything)
    many = Options(cluster="h100-sxm-ndr400", nodes=64, wish=Wish(launcher="srun"))
    assert "launcher: none from here: srun needs Slurm" in preview(many, everything)


def test_the_night_chooses_its_block(everything, monkeypatch, tmp_path):
    names = tuple(f"n{k}" for k in range(1, 9))
    monkeypatch.setattr(nightly, "idle_nodes", lambda _: (names, names[1:]))
    options = Options(cluster="h100-sxm-ndr400", idle=Range(least=2, most=4), runs=tmp_path)
    said = preview(options, everything)
    assert "tonight: n[3-4], idle; least recently tested: never" in said and "nodes: n[3-4]" in said
    assert "n[1-2,5-8]" in said.partition("not tested within 7 nights: ")[2]
    with pytest.raises(UsageError, match="no block of 8 to 8 idle nodes"):
        preview(Options(cluster="h100-sxm-ndr400", idle=Range(least=8, most=8), runs=tmp_path), everything)


def test_known_bad_nodes_of_the_cluster_file_are_shown(everything, tmp_path):
    (tmp_path / "bad.toml").write_text('[n17]\nowner = "us"\nticket = "HW-1"\nexpires = 2099-01-01\n')
    path = tmp_path / "rack.toml"
    path.write_text('ranks_per_node = 2\n[campaign]\nknown_bad = "bad.toml"\n')
    assert "n17 is known to be bad (HW-1, us, until 2099-01-01)" in preview(Options(cluster=str(path)), everything)
    path.write_text('ranks_per_node = 2\n[campaign]\nknown_bad = "gone.toml"\n')
    with pytest.raises(UsageError, match=r"gone\.toml"):
        preview(Options(cluster=str(path)), everything)


@pytest.mark.parametrize(
    ("named", "environ", "found"),
    [
        ("kim", {"RACKPROOF_BY": "cron"}, "kim"),
        ("", {"RACKPROOF_BY": "night shift", "SUDO_USER": "kim"}, "night shift"),
        ("", {"SUDO_USER": "kim", "SLURM_JOB_USER": "root"}, "kim"),
        ("", {"SLURM_JOB_USER": "lee"}, "lee"),
        (" two\n lines ", {}, "two lines"),
        ("x" * 500, {}, "x" * 80),
    ],
)
def test_who_starts_it_is_told_by_name_then_by_the_environment(named, environ, found):
    assert who(named, environ) == found


def test_who_starts_it_is_the_user_or_nobody(monkeypatch):
    monkeypatch.setattr("getpass.getuser", lambda: "user")
    assert who("", {}) == "user"

    def nameless():
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr("getpass.getuser", nameless)
    assert who("", {}) == ""


def test_the_command_prints_the_plan_and_nothing_else():
    words = [sys.executable, "-m", "pytest", "suites", "--cluster", "local", "--plan", "-k", "gemm"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.lstrip().startswith("plan: suite acceptance on local"), done.stdout
    assert "checks were deselected" in done.stdout and "passed" not in done.stdout
