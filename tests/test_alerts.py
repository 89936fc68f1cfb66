"""Who is told what: pages are few, the same trouble is one alert, and real amtool, Alertmanager and promtool agree."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import socket
import subprocess
import time
import urllib.request
from datetime import UTC, date, datetime, timedelta

import pytest

from clusters.knownbad import KnownBad
from reports import alerts, runs
from reports.alertcommand import in_quiet_hours, text
from reports.alerts import Alert
from reports.commands import main
from reports.nightly import nightly
from reports.runs import RunError
from tests import sample_run
from tests.campaigns import ROOT
from tests.made_up_nights import rewrite_head, write

TODAY = date(2026, 12, 1)
EXAMPLES = ROOT / "docs" / "examples"


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    root = tmp_path_factory.mktemp("alerts") / "runs"
    for night in range(9):
        write(root, night)
    return root


@pytest.fixture
def history(quiet, tmp_path):
    return shutil.copytree(quiet, tmp_path / "runs")


def found(folder, *, change=lambda v: v, known_bad=()):
    stored = runs.load(folder)
    verdicts = [change(v) for v in stored.verdicts(today=TODAY)]
    report = nightly(stored, verdicts, folder.parent)
    return alerts.of_night(stored, verdicts, report, known_bad=known_bad, today=TODAY)


def names(folder, **kwargs):
    return [(a.severity, a.name, a.labels.get("node", "")) for a in found(folder, **kwargs)]


def test_a_quiet_night_tells_nobody_anything(history, capsys):
    tonight = write(history, 12)
    assert main(["alerts", str(tonight), "--history", str(history)]) == 0
    assert capsys.readouterr().out == "nothing to tell\n"


def test_slow_is_a_ticket_and_wrong_is_a_page(history):
    tonight = write(history, 12, gpu={3: 0.4})
    assert names(tonight) == [("ticket", "BelowLimit", "node0")]
    wrong = names(tonight, change=lambda v: dataclasses.replace(v, metric=v.metric.replace("gemm.flops", "gemm.error")))
    assert wrong == [("page", "WrongData", "node0")]


def test_a_suspect_that_waits_for_its_re_run_is_nobodys_page(history):
    assert names(write(history, 12, factor={"collectives.all_reduce.busbw": 0.93})) == []


def test_most_of_a_cluster_not_there_is_one_page(history):
    tonight = write(history, 12, without=("gemm.flops", "checkpoint.save.time"))
    assert ("page", "LostQuorum", "") in names(tonight)
    assert ("page", "LostQuorum", "") not in names(write(history, 13, without=("gemm.flops",)))


def test_whoever_answers_for_a_node_is_left_alone_until_the_date(history):
    tonight = write(history, 12, gpu={3: 0.4})
    entry = KnownBad(node="node0", owner="rack team", ticket="HW-17", expires=date(2026, 12, 24), reason="fan")
    (alert,) = found(tonight, known_bad=[entry])
    assert alert.acknowledged == "HW-17" and "acknowledged (HW-17)" in text([alert], [], quiet=False)
    late = dataclasses.replace(entry, expires=date(2026, 11, 30))
    (alert,) = found(tonight, known_bad=[late])
    assert (
        alert.acknowledged == "" and "EXPIRED" in alert.details and text([alert], [], quiet=False).startswith("TICKET")
    )


def test_wrong_data_of_a_node_known_to_be_slow_still_wakes_people(history):
    tonight = write(history, 12, gpu={3: 0.4})
    slow = KnownBad(node="node0", owner="rack team", ticket="HW-17", expires=date(2026, 12, 24))
    for entry, ticket in ((slow, ""), (dataclasses.replace(slow, wrong_data=True), "HW-17")):
        (alert,) = found(
            tonight, known_bad=[entry],
            change=lambda v: dataclasses.replace(v, metric=v.metric.replace("gemm.flops", "gemm.error")),
        )  # fmt: skip
        assert (alert.name, alert.acknowledged) == ("WrongData", ticket) and "HW-17" in alert.details


def test_the_same_trouble_is_the_same_alert_until_it_ends(history, capsys):
    first, second, third = (write(history, n, gpu={3: slow}) for n, slow in ((12, 0.4), (13, 0.41), (14, 1.0)))
    for folder in (first, second):
        main(["alerts", str(folder), "--history", str(history)])
    old, new = (alerts.read(folder)[0] for folder in (first, second))
    assert old.identity == new.identity and new.since == runs.head(first).started_at
    assert old.summary == new.summary
    capsys.readouterr()
    assert main(["alerts", str(third), "--history", str(history)]) == 0
    assert capsys.readouterr().out.startswith("ended BelowLimit")
    (second / alerts.FILE).write_text("broken")
    assert alerts.read(second) == []


def test_what_was_not_measured_tonight_has_not_ended(history, capsys):
    bad, blind = write(history, 12, gpu={3: 0.4}), write(history, 13, without=("gemm.flops",))
    for folder in (bad, blind):
        main(["alerts", str(folder), "--history", str(history)])
    assert "ended" not in capsys.readouterr().out
    (still,) = (a for a in alerts.read(blind) if a.name == "BelowLimit")
    assert still.since == runs.head(bad).started_at


def test_a_night_of_the_future_or_of_some_checks_hides_no_stall(history):
    when = {"cluster": "rack7", "suite": "nightly", "hours": 26}
    last = datetime.fromisoformat(runs.head(history / "night-008").started_at)
    newest = write(history, 99)
    now = datetime.fromisoformat(runs.head(newest).started_at) - timedelta(days=2)
    assert now - last > timedelta(hours=26)
    assert [a.name for a in alerts.stalled(history, now=now, **when)] == ["NightlyStalled"]
    now += timedelta(days=2)
    assert alerts.stalled(history, now=now, **when) == []
    events = newest / "events.jsonl"
    events.write_text(events.read_text().replace('"all":true', '"all":false'))
    assert [a.name for a in alerts.stalled(history, now=now, **when)] == ["NightlyStalled"]


def test_a_nightly_that_stalls_is_a_page_whatever_its_folders_hold(history, capsys):
    when = {"cluster": "rack7", "suite": "nightly", "hours": 26}
    last = runs.head(history / "night-008").started_at[:10]
    on_time, late = (datetime.fromisoformat(f"{last}T{hour}:00+00:00") for hour in ("20:00", "23:00"))
    assert alerts.stalled(history, now=on_time, **when) == []
    late = late.replace(day=late.day + 1)
    assert [a.severity for a in alerts.stalled(history, now=late, **when)] == ["page"]
    (history / "night-008" / "events.jsonl").write_text("")  # it began and never ended
    assert alerts.stalled(history, now=on_time, **when) != []
    (history / "night-007" / "run.json").write_text("garbage")
    assert "no night ever ended" in alerts.stalled(history, now=on_time, **when | {"cluster": "rack8"})[0].summary
    assert main(["alerts", "--cluster", "rack7", "--history", str(history)]) == int(datetime.now(UTC) > late)
    assert main(["alerts", "--history", str(history)]) == 4
    assert "--cluster NAME" in capsys.readouterr().err


def test_a_night_that_never_ended_is_a_page(history):
    tonight = write(history, 12)
    lines = (tonight / "events.jsonl").read_text().splitlines()
    (tonight / "events.jsonl").write_text(lines[0] + "\n")
    assert main(["alerts", str(tonight), "--history", str(history)]) == 1


def test_quiet_hours_hold_tickets_back_and_never_a_page():
    both = [Alert(name=n, severity=s, summary="x") for n, s in (("WrongData", "page"), ("BelowLimit", "ticket"))]
    assert text(both, [], quiet=True).splitlines() == ["PAGE WrongData: x", "1 ticket(s), held back: quiet hours"]
    assert in_quiet_hours("09:00-17:00", datetime(2026, 1, 1, 9).time())
    for span in ("22:00", "22-07", "a-b"):
        with pytest.raises(RunError, match="--quiet"):
            in_quiet_hours(span, datetime(2026, 1, 1, 9).time())


def test_an_alertmanager_that_is_not_there_is_told_after_the_alerts(history, capsys):
    tonight = write(history, 12, gpu={3: 0.4})
    assert main(["alerts", str(tonight), "--history", str(history), "--to", "http://127.0.0.1:9"]) == 4
    said = capsys.readouterr()
    assert "TICKET BelowLimit" in said.out and "check --to" in said.err


@pytest.mark.machine("prometheus")
def test_the_example_configuration_routes_as_it_says():
    config = EXAMPLES / "alertmanager.yml"
    assert "SUCCESS" in tool("amtool", "check-config", str(config))
    for labels, receiver in (
        (["severity=page", "alertname=WrongData"], "pager"),
        (["severity=ticket", "alertname=Regression"], "tickets"),
        (["severity=page", "alertname=WrongData", "acknowledged=HW-17"], "record"),
    ):
        tool("amtool", "config", "routes", "test", f"--config.file={config}", f"--verify.receivers={receiver}", *labels)


@pytest.mark.machine("prometheus")
def test_the_example_rules_fire_when_they_should(tmp_path):
    for path in (EXAMPLES / "prometheus-rules.yml", ROOT / "tests" / "fixtures" / "prometheus-rules-test.yml"):
        shutil.copy(path, tmp_path)
    assert "3 rules found" in tool("promtool", "check", "rules", str(tmp_path / "prometheus-rules.yml"))
    tool("promtool", "test", "rules", "prometheus-rules-test.yml", cwd=tmp_path)


@pytest.mark.machine("prometheus")
def test_prometheus_reads_the_export(tmp_path):
    folder = sample_run.write(tmp_path / "run")
    rewrite_head(folder, suite='night "ly"\\')
    assert main(["export", str(folder), "--to", "openmetrics"]) == 0
    exported = (folder / "export.prom").read_text()
    tool("promtool", "check", "metrics", stdin=exported)
    with pytest.raises(AssertionError, match="promtool"):
        tool("promtool", "check", "metrics", stdin=exported.replace("{", "{{", 1))


@pytest.mark.slow
@pytest.mark.machine("prometheus")
def test_a_real_alertmanager_takes_them_and_tells_each_once(history, tmp_path):
    tonight = write(history, 12, gpu={3: 0.4, 11: 0.4})
    (tmp_path / "bad.toml").write_text('[node1]\nowner = "rack team"\nticket = "HW-17"\nexpires = 2099-01-01\n')
    with alertmanager(tmp_path) as url:
        command = [
            "alerts",
            str(tonight),
            "--history",
            str(history),
            "--known-bad",
            str(tmp_path / "bad.toml"),
            "--to",
            url,
        ]
        assert [main(command) for _ in range(2)] == [0, 0]
        told = json.loads(tool("amtool", f"--alertmanager.url={url}", "alert", "query", "-o", "json"))
        assert {(a["labels"]["node"], *(r["name"] for r in a["receivers"])) for a in told} == {
            ("node0", "tickets"), ("node1", "record"),
        }  # fmt: skip
        good = write(history, 13)
        assert main(["alerts", str(good), "--history", str(history), "--to", url]) == 0
        assert json.loads(tool("amtool", f"--alertmanager.url={url}", "alert", "query", "-o", "json")) == []


@contextlib.contextmanager
def alertmanager(folder):
    """A real Alertmanager on loopback with the example's configuration."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    program = shutil.which("alertmanager") or shutil.which("prometheus-alertmanager")
    command = [
        program, f"--config.file={EXAMPLES / 'alertmanager.yml'}", f"--storage.path={folder / 'state'}",
        f"--web.listen-address={url.removeprefix('http://')}", "--cluster.listen-address=",
    ]  # fmt: skip
    with (folder / "alertmanager.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        end = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"{url}/-/ready", timeout=2).close()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < end, (folder / "alertmanager.log").read_text()
                time.sleep(0.1)
        yield url
    finally:
        process.kill()
        process.wait()


def tool(name, *words, stdin=None, cwd=None):
    """What a tool prints; an AssertionError where it is not content."""
    done = subprocess.run([name, *words], input=stdin, capture_output=True, text=True, timeout=60, cwd=cwd)
    assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr if name == "promtool" else done.stdout
