"""Time-outs nest, and those of the cluster that could end a campaign are said before it begins."""

from __future__ import annotations

from datetime import datetime

import pytest

from suites import slurm, timeouts

NOW = datetime(2026, 12, 1, 22, 0)
CONFIG = """
InactiveLimit           = 0 sec
KillWait                = 30 sec
SlurmdTimeout           = 300 sec
"""


@pytest.fixture
def told(monkeypatch):
    """What Slurm answers."""
    answers = {"config": CONFIG, "job": "JobId=12 JobState=RUNNING EndTime=2026-12-01T22:30:00"}
    monkeypatch.setattr(slurm, "ask", lambda *words: answers[words[2]])
    return answers


def test_each_is_behind_the_one_before():
    said = timeouts.lines(longest_s=10, group_s=70, start_s=60, backend="nccl", environ={})
    assert said[0] == (
        "time-outs: a benchmark 10 s at most, then the process group 70 s, then NCCL's watchdog 130 s "
        "(TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC); a launch 60 s"
    )
    assert "NCCL_IB_TIMEOUT=20, NCCL_IB_RETRY_CNT=7" in said[1] and "flight-recorder-RANK" in said[1]
    assert len(timeouts.lines(longest_s=10, group_s=70, start_s=60, environ={})) == 1, "gloo has no watchdog"


def test_what_the_environment_says_is_kept_and_warned_of():
    own = {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "60", "NCCL_IB_TIMEOUT": "22"}
    assert timeouts.nccl(70, environ=own)["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"] == "60"
    said = timeouts.lines(longest_s=10, group_s=70, start_s=60, backend="nccl", environ=own)
    assert any("may end a rank before its group's time-out of 70 s: unset it" in line for line in said)
    assert any("NCCL_IB_TIMEOUT=22" in line for line in said)


def test_slurms_own_are_read(told):  # noqa: ARG001
    said = timeouts.of_slurm("12", worst_s=600, now=NOW)
    assert said == ["Slurm: SlurmdTimeout 300 sec, KillWait 30 sec, InactiveLimit 0 sec"]


def test_a_job_that_ends_before_the_plan_is_warned_of(told):
    (_, said) = timeouts.of_slurm("12", worst_s=3600, now=NOW)
    assert said.startswith("warning: Slurm ends job 12 in 30 min, the plan may take 60") and "--resume" in said
    told["job"] = "JobId=12 EndTime=Unknown"
    assert len(timeouts.of_slurm("12", worst_s=3600, now=NOW)) == 1


def test_a_slurm_that_does_not_answer_has_no_time_outs(monkeypatch):
    def silent(*_):
        raise slurm.SlurmError("did not answer")

    monkeypatch.setattr(slurm, "ask", silent)
    assert timeouts.of_slurm("12", worst_s=60, now=NOW) == []
