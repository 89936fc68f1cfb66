"""Whole campaigns against planted causes: every status and outcome, every way a rank can go wrong.

Each test starts real ranks under the real controller, in a copy of the checkout (tests/campaigns.py).
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
import xml.etree.ElementTree as ET
from collections import defaultdict
from datetime import date
from pathlib import Path

import pytest

from tests.campaigns import CLUSTER, Checkout, Finished

pytestmark = pytest.mark.slow
TODAY = date(2026, 12, 1)


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path / "checkout")


def statuses(finished: Finished) -> dict[str, set[str]]:
    """Cause -> statuses of the verdicts on planted.rate."""
    found = defaultdict(set)
    for v in finished.stored.verdicts(today=TODAY):
        if v.metric == "planted.rate":
            found[v.params["cause"]].add(v.status)
    return found


def outcome(finished: Finished) -> str:
    stored = finished.stored
    return stored.outcome(stored.verdicts(today=TODAY))


def events(finished: Finished, kind: str) -> list[dict]:
    return [e.detail for e in finished.stored.events if e.kind == kind]


def ranks_of(folder: Path) -> list[int]:
    """Processes that run from a checkout's folder: workers, by their working folder under its runs."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if str(link.readlink()).startswith(str(folder / "runs")):
                found.append(int(link.parent.name))
        except OSError:
            continue
    return found


def wait_for(checkout: Checkout, process: subprocess.Popen[str], pattern: str, limit_s: float = 60.0) -> None:
    """Until a campaign has printed a line that matches."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end and process.poll() is None and not re.search(pattern, checkout.said()):
        time.sleep(0.02)
    assert re.search(pattern, checkout.said()), f"never said {pattern!r}:\n{checkout.said()}"


# -- statuses and outcomes ---------------------------------------------------------------------------------------


def test_every_status_is_reached_by_its_cause(checkout):
    checkout.cluster(
        """
[limits.waivable]
metric = "planted.rate"
unit = "B/s"
floor = 0.5e9
where = { cause = "waived" }
source = "definition: planted"

[limits.lapsed]
metric = "planted.rate"
unit = "B/s"
floor = 0.5e9
where = { cause = "expired" }
source = "definition: planted"

[limits.hint]
metric = "planted.rate"
unit = "B/s"
floor = 0.5e9
where = { cause = "advisory" }
mandatory = false
source = "definition: planted"

[waivers.w1]
limit = "waivable"
approver = "an approver"
reason = "known"
expires = 2999-01-01

[waivers.w2]
limit = "lapsed"
approver = "an approver"
reason = "known"
expires = 2020-01-01
""",
        text=CLUSTER.replace(
            'metric = "planted.rate"\nunit = "B/s"\nfloor',
            'metric = "planted.rate"\nwhere = {{ cause = "slow" }}\nunit = "B/s"\nfloor',
            1,
        ),
    )
    causes = (
        "good", "slow", "nan", "infinite", "impossible", "negative", "empty", "absent", "throttled", "other unit",
        "same rank", "error record", "waived", "expired", "advisory",
    )  # fmt: skip
    checkout.plant(*causes)
    finished = checkout.run("--junitxml=out.xml")
    found = statuses(finished)
    expected = {
        "good": {"pass"}, "slow": {"fail", "pass"}, "nan": {"error"}, "infinite": {"error"},
        "impossible": {"impossible"}, "negative": {"impossible"}, "empty": {"error"}, "absent": {"missing"},
        "throttled": {"error"}, "other unit": {"error"}, "same rank": {"missing"}, "error record": {"error"},
        "waived": {"waived", "pass"}, "expired": {"fail", "pass"}, "advisory": {"fail", "pass"},
    }  # fmt: skip
    bad = {c: (found[c], want) for c, want in expected.items() if not _same(found[c], want)}
    assert not bad
    assert finished.code == 1 and outcome(finished) == "REJECTED"
    cases = ET.parse(checkout.folder / "out.xml").getroot().iter("testcase")
    green = {c.attrib["name"] for c in cases if not list(c.iter("failure")) and not list(c.iter("error"))}
    assert green and not any(
        f"planted.rate[cause={c}]" in name for name in green for c in ("nan", "absent", "throttled", "empty")
    )


def _same(found: set[str], wanted: set[str]) -> bool:
    """Unsound numbers may be called error or impossible or missing, as long as they never pass."""
    if wanted <= {"error", "impossible", "missing"}:
        return bool(found) and found <= {"error", "impossible", "missing"}
    return found == wanted


@pytest.mark.parametrize(
    ("cause", "code", "word"),
    [("good", 0, "ACCEPTED"), ("nan", 3, "INCOMPLETE"), ("noisy", 3, "INCOMPLETE"), ("slow", 1, "REJECTED")],
)
def test_the_exit_status_is_the_outcome(checkout, cause, code, word):
    checkout.plant("good", cause)
    finished = checkout.run()
    assert (finished.code, outcome(finished)) == (code, word)
    assert re.search(rf"^{word}", finished.output, re.M)


def test_a_used_waiver_makes_it_conditional(checkout):
    checkout.cluster(
        '\n[waivers.known]\nlimit = "rate"\napprover = "an approver"\nreason = "a ticket"\nexpires = 2999-01-01\n'
    )
    checkout.plant("good", "waived")
    finished = checkout.run()
    assert (finished.code, outcome(finished)) == (6, "CONDITIONAL")
    waived = [v for v in finished.stored.verdicts(today=TODAY) if v.status == "waived"]
    assert waived and "an approver" in waived[0].reason


def test_an_exempted_metric_is_not_applicable_and_nothing_else_is(checkout):
    checkout.cluster('\n[not_applicable]\n"planted.time" = "no clock here"\n')
    checkout.plant("good")
    finished = checkout.run()
    by_metric = {v.metric: v.status for v in finished.stored.verdicts(today=TODAY)}
    assert by_metric == {"planted.rate": "pass", "planted.time": "not_applicable"} and finished.code == 0


def test_a_limit_on_the_baseline_needs_one_and_then_judges(checkout):
    checkout.cluster(
        '\n[limits.tonight]\nmetric = "planted.rate"\nunit = "1"\nof = "baseline"\nfloor = 0.9\nsource = "x"\n'
    )
    checkout.plant("good")
    first = checkout.run("--suite", "nightly")
    assert "no_baseline" in statuses(first)["good"] and first.code == 0
    second = checkout.run("--suite", "nightly", "--baseline", str(first.folder))
    assert statuses(second)["good"] == {"pass"} and second.code == 0, "the run keeps what it was held against"


# -- selection ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "selection", [["-k", "good"], ["--deselect", "suites/test_planted.py::test_slow_start"], ["-m", "not slow"]]
)
def test_a_selection_is_never_accepted(checkout, selection):
    checkout.plant("good", "slow start")
    text = (checkout.folder / "suites" / "test_planted.py").read_text()
    text = text.replace(
        "\n\n@needs(lambda cluster: Planted(cause='slow start'",
        "\n\n@pytest.mark.slow\n@needs(lambda cluster: Planted(cause='slow start'",
    )
    (checkout.folder / "suites" / "test_planted.py").write_text("import pytest\n" + text)
    finished = checkout.run(*selection)
    assert finished.code == 3 and outcome(finished) == "INCOMPLETE"
    assert "missing" in statuses(finished)["slow start"]


def test_stopping_at_the_first_failure_loses_no_verdict(checkout):
    checkout.plant("slow", "good")
    finished = checkout.run("-x")
    assert finished.code == 1 and statuses(finished)["good"] == {"pass"}


def test_a_check_that_breaks_by_itself_is_never_accepted(checkout):
    checkout.plant("good")
    path = checkout.folder / "suites" / "test_planted.py"
    path.write_text(path.read_text().replace('verdicts("planted.*").must_pass()', 'raise KeyError("our own bug")'))
    finished = checkout.run()
    assert finished.code == 3 and outcome(finished) == "INCOMPLETE"


def test_a_check_on_a_metric_nobody_measured_fails(checkout):
    checkout.plant("good")
    path = checkout.folder / "suites" / "test_planted.py"
    path.write_text(path.read_text().replace("planted.*", "planet.*"))
    finished = checkout.run()
    assert finished.code == 3 and "no benchmark of this check emits planet.*" in finished.output


def test_a_listing_of_checks_is_no_acceptance(checkout):
    checkout.plant("good")
    assert checkout.run("--collect-only").code == 3


def test_a_broken_check_stays_broken_until_it_runs_again(checkout):
    checkout.plant("good", "waived")
    path = checkout.folder / "suites" / "test_planted.py"
    good = path.read_text()
    path.write_text(good.replace('verdicts("planted.*").must_pass()', 'raise KeyError("our own bug")', 1))
    checkout.cluster('\n[waivers.w]\nlimit = "rate"\napprover = "a"\nreason = "r"\nexpires = 2999-01-01\n')
    first = checkout.run()
    assert first.code == 3
    path.write_text(good)
    assert checkout.run("--resume", str(first.folder), "-k", "waived").code == 3, "it was not looked at again"
    assert checkout.run("--resume", str(first.folder)).code == 6


def test_more_repetitions_never_dilute_a_fail(checkout):
    """One number fails, another of the same benchmark is noisy: only the noisy one is measured again."""
    checkout.plant("slow and noisy once")
    finished = checkout.run()
    assert len(events(finished, "noisy")) >= 1
    assert finished.code == 1 and "fail" in statuses(finished)["slow and noisy once"]
    resumed = checkout.run("--resume", str(finished.folder))
    assert resumed.code == 1


def test_a_run_is_not_its_own_baseline_and_has_only_one(checkout):
    checkout.cluster(
        '\n[limits.tonight]\nmetric = "planted.rate"\nunit = "1"\nof = "baseline"\nfloor = 0.9\nsource = "x"\n'
    )
    checkout.plant("good")
    run = ("--suite", "nightly")
    first = checkout.run(*run)
    itself = checkout.run("--resume", str(first.folder), "--baseline", str(first.folder))
    assert itself.code == 4 and "own baseline" in itself.output
    second = checkout.run(*run, "--baseline", str(first.folder))
    again = checkout.run("--resume", str(second.folder), "--baseline", str(first.folder))
    assert again.code == 4 and "baseline already" in again.output


# -- ranks that go wrong -----------------------------------------------------------------------------------------


def test_dead_hung_and_raising_ranks_cost_only_their_own_benchmark(checkout):
    checkout.plant("killed", "good", "stopped", "asleep", "raises", "exits", "leaves out", "slow", limit_s=8.0)
    finished = checkout.run()
    found = statuses(finished)
    assert found["good"] == {"pass"} and "fail" in found["slow"]
    assert all(found[c] == {"error"} for c in ("killed", "stopped", "asleep", "raises", "exits", "leaves out"))
    told = {e["reason"]: e for e in events(finished, "error")}
    reasons = "\n".join(told)
    assert "rank 1" in reasons and "SIGKILL" in reasons and "exit status 7" in reasons and "planted: this" in reasons
    stopped = next(e for r, e in told.items() if "hangs (stopped)" in r)
    assert stopped["rank"] == 1 and "in happen" in stopped["stack"]
    asleep = next(e for r, e in told.items() if "hangs (answering)" in r)
    assert asleep["rank"] == 1 and "time.sleep(60)" in asleep["stack"]
    left_out = next(e for r, e in told.items() if "is missing: it is through" in r)
    assert left_out["rank"] == 1 and "barrier" in left_out["reason"], "the others wait in a barrier that it left out"
    batches = {e["config"]: e["seconds"] for e in events(finished, "batch")}
    assert max(batches.values()) < 8.0 + 1.5  # the hung rank is named within the benchmark's limit
    assert not ranks_of(checkout.folder) and not events(finished, "leftover")


def test_what_goes_wrong_after_the_last_record_still_counts(checkout):
    causes = ("killed at the end", "raises at the end", "asleep at the end")
    checkout.plant(*causes, "other rank", limit_s=6.0)
    finished = checkout.run()
    found = statuses(finished)
    assert all(found[cause] == {"error"} for cause in (*causes, "other rank")) and finished.code == 3


def test_a_rank_killed_from_outside_in_a_sweep_is_named(checkout):
    checkout.plant("good")
    (checkout.folder / "suites" / "test_sweep.py").write_text(
        "from benchmarks.collectives.spec import Collective\n"
        "from suites.needs import needs\n\n"
        "@needs(lambda cluster: Collective(op='all_reduce', sizes=(8, 65536, 16777216), limit_s=60.0, budget_s=5.0))\n"
        "def test_sweep(verdicts):\n"
        "    verdicts('collectives.*').must_pass()\n"
    )
    checkout.cluster(
        '\n[limits.right]\nmetric = "collectives.*.wrong_elements"\nunit = "1"\nequal = 0\nsource = "definition: x"\n'
    )
    process = checkout.start()
    wait_for(checkout, process, r"collectives")
    end = time.monotonic() + 30
    while time.monotonic() < end and b"busbw" not in (checkout.newest() / "measurements.jsonl").read_bytes():
        time.sleep(0.05)
    victim = max(
        p for p in ranks_of(checkout.folder) if b"benchmarks.worker" in Path(f"/proc/{p}/cmdline").read_bytes()
    )
    os.kill(victim, signal.SIGKILL)
    finished = checkout.finish(process)
    assert finished.code == 3 and any("SIGKILL" in e["reason"] for e in events(finished, "error"))
    kept = [m for m in finished.stored.measurements if m.metric.startswith("collectives") and m.outcome == "ok"]
    assert kept, "what was measured before the kill is kept"


@pytest.mark.machine("root")
def test_ranks_that_share_no_folder_with_the_controller(checkout):
    """The launcher hides the run folders behind a private mount: records and stacks must travel by the line."""
    launchers = checkout.folder / "benchmarks" / "launch" / "__init__.py"
    launchers.write_text(launchers.read_text() + PRIVATE)
    checkout.plant("good", "killed", "slow start")
    finished = checkout.run()
    assert statuses(finished)["good"] == {"pass"} == statuses(finished)["slow start"]
    assert statuses(finished)["killed"] == {"error"}
    logs = [path for path in (finished.folder / "logs").rglob("*") if path.is_file()]
    assert {path.name for path in logs} == {"launcher.log"}, "the ranks wrote elsewhere"


PRIVATE = """

def _privately(job: Job) -> list[str]:
    logs = job.log_dir
    hide = f'mount -t tmpfs none "{logs}/../../.." && mkdir -p "{logs}" && cd "{logs}" && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", hide, "sh", *torchrun.command(job)]


LAUNCHERS["torchrun"] = Launcher(command=_privately, deaths=torchrun.deaths)
"""


# -- interrupts, resume, retest ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_a_valid_run_that_resume_finishes(checkout, number):
    checkout.plant("good", "asleep", limit_s=40.0)
    process = checkout.start()
    wait_for(checkout, process, r"\[ 2/2\]")
    process.send_signal(number)
    finished = checkout.finish(process, timeout_s=30)
    assert finished.code == 2 and outcome(finished) == "INCOMPLETE"
    assert not ranks_of(checkout.folder)
    assert statuses(finished)["good"] == {"pass"}, "what was measured is kept"
    run = checkout.folder / "benchmarks" / "planted" / "run.py"
    run.write_text(run.read_text().replace("time.sleep(60)", "pass"))  # the cause is cured
    resumed = checkout.run("--resume", finished.folder.name)
    assert resumed.folder == finished.folder and resumed.code == 0 and outcome(resumed) == "ACCEPTED"
    assert len([m for m in resumed.stored.measurements if m.metric == "planted.rate" and "good" in m.config]) <= 2


def test_resume_measures_what_is_missing_and_never_overturns_a_fail(checkout):
    checkout.plant("killed once", "slow")
    first = checkout.run()
    assert first.code == 1 and statuses(first)["killed once"] == {"error"}
    run = checkout.folder / "benchmarks" / "planted" / "run.py"
    run.write_text(run.read_text().replace("tuple(s / 10 for s in GOOD)", "GOOD"))  # slow is cured, too
    resumed = checkout.run("--resume", str(first.folder))
    assert statuses(resumed)["killed once"] == {"pass"} and "fail" in statuses(resumed)["slow"]
    assert resumed.code == 1
    retested = checkout.run("--retest", "failed")
    assert retested.folder == first.folder and retested.code == 0
    slow = [v for v in retested.stored.verdicts(today=TODAY) if v.params.get("cause") == "slow" and v.attempts > 1]
    assert slow and "attempt 1 was fail" in slow[0].reason, "the failed attempt stays in sight"


def test_a_busy_port_in_the_environment_is_not_used(checkout):
    checkout.plant("good")
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        finished = checkout.run(env={"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(busy.getsockname()[1])})
    assert finished.code == 0


def test_a_noisy_number_is_measured_again_and_pooled(checkout):
    checkout.plant("noisy once")
    finished = checkout.run()
    assert finished.code == 0 and len(events(finished, "noisy")) >= 1


def test_a_second_campaign_on_the_cluster_is_refused_and_the_holder_named(checkout):
    checkout.plant("slow start", "good", limit_s=30.0)
    process = checkout.start()
    wait_for(checkout, process, r"launch 1")
    second = subprocess.run(checkout.command(), cwd=checkout.folder, capture_output=True, text=True, timeout=60)
    assert second.returncode == 4
    assert f"process {process.pid}" in second.stderr + second.stdout
    assert checkout.finish(process).code == 0


def test_a_killed_controller_takes_its_ranks_along_and_resume_finishes(checkout):
    checkout.plant("good", "asleep", limit_s=40.0)
    process = checkout.start()
    wait_for(checkout, process, r"\[ 2/2\]")
    process.kill()
    finished = checkout.finish(process)
    end = time.monotonic() + 10
    while ranks_of(checkout.folder) and time.monotonic() < end:
        time.sleep(0.1)
    assert not ranks_of(checkout.folder)
    assert outcome(finished) == "INCOMPLETE" and statuses(finished)["good"] == {"pass"}


@pytest.mark.machine("root")
def test_a_full_disk_under_the_run_folder_costs_nothing_that_was_written(checkout):
    runs = checkout.folder / "runs"
    runs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=700k", "none", str(runs)], check=True)
    try:
        checkout.plant("good", "slow start", "negative", "empty")
        run = checkout.folder / "benchmarks" / "planted" / "run.py"
        run.write_text(run.read_text().replace("0.98e9, 1e9)", "0.98e9, 1e9) * 1500", 1))
        finished = checkout.run()
        assert finished.code == 3 and "No space left" in finished.output
        assert outcome(finished) == "INCOMPLETE" and finished.stored.measurements
    finally:
        subprocess.run(["umount", str(runs)], check=True)
