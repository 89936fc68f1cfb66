"""Reading a run folder: what is whole is read, what was cut is said, what is wrong is refused with its cure."""

from __future__ import annotations

import errno
import hashlib
import os
from datetime import date
from types import SimpleNamespace

import pytest

from benchmarks.measurement import Config, Environment, Event, Expected, Measurement, Run, Subject, encode
from reports.runs import RunError, load
from suites import continuation
from suites.campaign import Campaign
from suites.options import Options
from suites.runfolder import RunFolder

TODAY = date(2026, 12, 1)
CLUSTER = """
nodes = 1
ranks_per_node = 2

[limits.speed]
metric = "gemm.flops"
unit = "FLOP/s"
floor = 1e9
source = "contract, page 3"
date = 2026-12-01
"""
SPEED = Expected(
    metric="gemm.flops", unit="FLOP/s", better="higher", config="gemm-1", test="suites/test_gemm.py::test_speed"
)
GOOD = Measurement(
    metric="gemm.flops", unit="FLOP/s", better="higher", samples=(2e9, 2.1e9), config="gemm-1",
    subject=Subject(group="world", ranks=2),
)  # fmt: skip
EVENTS = (
    Event(kind="selected", at="2026-12-01T02:00:00Z", detail={"tests": [SPEED.test], "all": True}),
    Event(kind="launch", at="2026-12-01T02:00:00Z", detail={"number": 1, "seconds": 4.0}),
    Event(kind="batch", at="2026-12-01T02:01:00Z", detail={"config": "gemm-1", "attempt": 1, "seconds": 2.0}),
    Event(kind="ended", at="2026-12-01T02:01:01Z", detail={"outcome": "ACCEPTED"}),
)


def write(folder, *, measurements=(GOOD,), events=EVENTS, cluster=CLUSTER, run=None):
    folder.mkdir(exist_ok=True)
    run = run or Run(
        id="r1", suite="acceptance", cluster="local", started_at="2026-12-01T02:00:00Z", expected=(SPEED,),
        cluster_sha256=hashlib.sha256(cluster.encode()).hexdigest(), revision="abc",
        configs=(Config(id="gemm-1", benchmark="gemm", spec={}, place={}, limit_s=60.0),),
    )  # fmt: skip
    (folder / "run.json").write_text(encode(run) + "\n")
    (folder / "cluster.toml").write_text(cluster)
    (folder / "measurements.jsonl").write_text("".join(encode(m) + "\n" for m in measurements))
    (folder / "environments.jsonl").write_text(encode(Environment(node="n1", facts={"torch": "2.13"})) + "\n")
    (folder / "events.jsonl").write_text("".join(encode(e) + "\n" for e in events))
    return folder


def test_a_run_reads_back_whole(tmp_path):
    stored = load(write(tmp_path / "run"))
    assert stored.run.id == "r1"
    assert stored.measurements == (GOOD,)
    assert stored.events == EVENTS
    assert stored.latest_environments["n1"].facts == {"torch": "2.13"}
    assert stored.cluster.limits[0].name == "speed"
    assert stored.warnings == ()
    verdicts = stored.verdicts(today=TODAY)
    assert [v.status for v in verdicts] == ["pass"]
    assert stored.outcome(verdicts) == "ACCEPTED"
    assert str(stored.folder) in verdicts[0].again


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("keep", [1, 20, -1])
def test_a_last_line_that_was_cut_is_dropped_and_said(tmp_path, keep, end):
    folder = write(tmp_path / "run", measurements=(GOOD, GOOD))
    path = folder / "measurements.jsonl"
    whole, cut, _ = path.read_text().split("\n")
    path.write_text(whole + "\n" + cut[:keep] + end)
    stored = load(folder)
    assert stored.measurements == (GOOD,)
    assert len(stored.warnings) == 1
    assert "measurements.jsonl: line 2 was cut short" in stored.warnings[0]


def test_a_last_line_that_only_lacks_its_newline_is_kept(tmp_path):
    folder = write(tmp_path / "run")
    path = folder / "measurements.jsonl"
    path.write_text(path.read_text().rstrip("\n"))
    assert load(folder).measurements == (GOOD,)


def test_a_cut_in_the_middle_is_refused_with_its_line(tmp_path):
    folder = write(tmp_path / "run", measurements=(GOOD, GOOD, GOOD))
    path = folder / "measurements.jsonl"
    lines = path.read_text().split("\n")
    lines[1] = lines[1][:20]
    path.write_text("\n".join(lines))
    with pytest.raises(RunError, match=r"measurements.jsonl:2: not a whole line of JSON"):
        load(folder)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('{"v":1', '{"v":99', "newer version"),
        ('"outcome"', '"outcom"', "unknown field outcom"),
        ('"config":"gemm-1"', '"config":7', "expected str"),
    ],
)
def test_a_record_that_is_not_ours_is_refused_even_as_the_last_line(tmp_path, old, new, said):
    folder = write(tmp_path / "run", measurements=(Measurement(
        metric="m", unit="1", better="equal", config="gemm-1", outcome="error", reason="x"),))  # fmt: skip
    path = folder / "measurements.jsonl"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(RunError, match=said):
        load(folder)


def test_folders_that_are_no_runs_are_refused_with_what_to_do(tmp_path):
    with pytest.raises(RunError, match="no such run folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(RunError, match="an empty folder"):
        load(tmp_path)
    (tmp_path / "notes.txt").touch()
    with pytest.raises(RunError, match=r"holds no run\.json"):
        load(tmp_path)


def test_a_run_of_a_newer_version_is_refused(tmp_path):
    folder = write(tmp_path / "run")
    head = folder / "run.json"
    head.write_text(head.read_text().replace('{"v":1', '{"v":2'))
    with pytest.raises(RunError, match="newer version"):
        load(folder)


def test_another_cluster_file_is_refused(tmp_path):
    folder = write(tmp_path / "run")
    (folder / "cluster.toml").write_text(CLUSTER.replace("1e9", "1e6"))
    with pytest.raises(RunError, match="not the file this run was started with"):
        load(folder)
    (folder / "cluster.toml").unlink()
    with pytest.raises(RunError, match="is gone"):
        load(folder)


def test_a_run_is_only_as_complete_as_its_last_campaign(tmp_path):
    resumed = Event(kind="resumed", at="2026-12-01T03:00:00Z")
    part = Event(kind="selected", at="", detail={"tests": [], "all": False})
    for events, outcome in (
        (EVENTS, "ACCEPTED"),
        (EVENTS[:-1], "INCOMPLETE"),
        ((*EVENTS, resumed), "INCOMPLETE"),
        ((*EVENTS, resumed, EVENTS[-1]), "ACCEPTED"),
        ((*EVENTS[:-1], Event(kind="interrupted", at="")), "INCOMPLETE"),
        ((part, *EVENTS[1:]), "INCOMPLETE"),
        ((part, *EVENTS), "ACCEPTED"),
        ((*EVENTS, Event(kind="page", at="")), "ACCEPTED"),
        ((), "INCOMPLETE"),
    ):
        stored = load(write(tmp_path / "run", events=events))
        assert stored.outcome(stored.verdicts(today=TODAY)) == outcome, events


def test_a_metric_is_measured_again_by_its_name_whatever_it_amounts_to(tmp_path):
    stored = load(write(tmp_path / "r"))
    verdicts = stored.verdicts(today=date(2026, 12, 1))
    assert continuation._meant(stored, [], "gemm.flops") == {"gemm-1"}  # though no limit judges it
    assert continuation._meant(stored, verdicts, "gemm.flop") == set()
    assert [v.again.rpartition(" ")[2] for v in verdicts] == ["gemm.flops"]


def test_what_a_config_died_of_is_read_from_the_events(tmp_path):
    died = Event(kind="error", at="", detail={"config": "gemm-1", "attempt": 1, "reason": "rank 1 on n1 died: SIGKILL"})
    stored = load(write(tmp_path / "run", measurements=(), events=(*EVENTS[:3], died, EVENTS[3])))
    verdicts = stored.verdicts(today=TODAY)
    assert [(v.status, v.reason) for v in verdicts] == [("error", "rank 1 on n1 died: SIGKILL")]
    assert stored.outcome(verdicts) == "INCOMPLETE"


def test_a_growing_run_is_read_from_where_it_was_left(tmp_path):
    folder = write(tmp_path)
    file, kept = folder / "measurements.jsonl", {}
    line = file.read_bytes()
    assert load(folder, kept=kept).measurements == load(folder).measurements
    file.write_bytes(line + line + line[:20])  # a line is being written
    half = load(folder, kept=kept)
    assert len(half.measurements) == 2 and "cut short" in half.warnings[0]
    file.write_bytes(line * 2 + b"garbage\n")
    assert all("cut short" in load(folder, kept=kept).warnings[0] for _ in range(2))
    file.write_bytes(line * 2 + b"garbage\n" + line)
    with pytest.raises(RunError, match=r"measurements.jsonl:3: "):
        load(folder, kept=kept)
    file.write_bytes(line * 3)
    assert len(load(folder, kept=kept).measurements) == 3
    file.write_bytes(line)  # cut back
    assert load(folder, kept=kept).measurements == (GOOD,)


def closing(folder) -> Campaign:
    """A campaign that has measured everything and is about to close its run."""
    events = (folder / "events.jsonl").read_text().splitlines(keepends=True)
    (folder / "events.jsonl").write_text("".join(line for line in events if '"ended"' not in line))
    nobody = SimpleNamespace(release=lambda: None)
    return Campaign(
        options=Options(cluster="c"), plan=None, folder=RunFolder(folder), lock=nobody, held=nobody, pending=(),
        measured=True,
    )  # fmt: skip


def test_a_run_that_never_reached_the_disk_is_not_accepted(tmp_path, monkeypatch):
    campaign = closing(write(tmp_path / "run"))
    campaign.close(())
    assert campaign.outcome == load(tmp_path / "run").outcome(campaign.verdicts_once()) == "ACCEPTED"
    campaign = closing(write(tmp_path / "lost"))
    campaign.folder.event("batch")

    def full(_: int) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(os, "fsync", full)
    campaign.close(())
    assert campaign.outcome == "INCOMPLETE" and not load(tmp_path / "lost").ended
    assert campaign.trouble.endswith("events.jsonl is not durable: Disk quota exceeded")


def test_what_a_campaign_remembers_is_not_believed_over_its_run_folder(tmp_path):
    campaign = closing(write(tmp_path / "run"))
    assert [v.status for v in campaign.verdicts_once()] == ["pass"]
    file = tmp_path / "run" / "measurements.jsonl"
    size = file.stat().st_size
    file.write_text(file.read_text().replace("2000000000.0", "0200000000.0").replace("2100000000.0", "0210000000.0"))
    file.write_text(file.read_text().replace("0200000000.0", "200000000.00").replace("0210000000.0", "210000000.00"))
    assert file.stat().st_size == size
    campaign.close(())
    assert campaign.outcome == "REJECTED"
