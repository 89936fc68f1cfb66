"""The pytest plugin: `pytest suites --cluster NAME` runs a campaign; every view shows the same Verdicts.

Nothing happens here unless `--cluster` is given, so the project's own tests are not disturbed. With it, the
campaign runs before the first check; each check then asserts its stored Verdicts, JUnit is written from the
Verdicts, and the exit status is the outcome's: 0 accepted, 1 rejected, 3 incomplete, 6 conditional, 4 usage.
"""

from __future__ import annotations

import shlex
import signal
import sys
import traceback
from collections.abc import Generator
from pathlib import Path
from typing import Any, TextIO

import pytest

from benchmarks.launch import LAUNCHERS
from reports import drainfile, junit, runs
from reports.judge import EXIT_CODES
from reports.table import table
from suites import overhead
from suites.allocation import AUTO, Wish, describe
from suites.campaign import Campaign
from suites.continuation import find_run
from suites.needs import SUITES
from suites.nightly import Range
from suites.nodes import NodesError, expand
from suites.options import Options, UsageError, seconds, who
from suites.preview import preview
from suites.progress import Progress
from suites.verdicts import VerdictFailure, VerdictsOf

INCOMPLETE = 3
CAMPAIGN = pytest.StashKey[Campaign]()
JUNIT = pytest.StashKey[str]()
BROKEN: pytest.StashKey[list[str]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The campaign's options."""
    group = parser.getgroup("campaign", "acceptance campaigns (pytest suites --cluster NAME)")
    add = group.addoption
    add("--cluster", metavar="NAME|FILE", help="the cluster file: a shipped name such as local, or a TOML file")
    add("--suite", default="acceptance", choices=SUITES, help="which checks; each suite expects its own (acceptance)")
    add("--plan", action="store_true", help="print what would run, where and at what cost; run nothing")
    add("--run-dir", default="runs", metavar="DIR", help="where run folders are made (runs)")
    add("--resume", default="", metavar="RUN", help="finish a run: measure only what is missing in it")
    add("--retest", default="", metavar="failed|NODE|METRIC", help="a new attempt in the newest (or --resume'd) run")
    add("--baseline", default="", metavar="RUN", help="a run folder whose values nightly limits compare with")
    add("--checkpoint-dir", default="", metavar="DIR", help="the file system under test, instead of the file's")
    add(
        "--topology",
        default="",
        metavar="FILE",
        help="what hangs where: TOML, topology.conf, ibnetdiscover's output",
    )
    add("--cabling", default="", metavar="FILE", help="what ibnetdiscover found plugged, against --topology's plan")
    add(
        "--budget",
        default="",
        metavar="20m",
        help="of the search for a culprit: fewer rounds, less sure",
    )
    add("--by", default="", metavar="NAME", help="who starts it, for the page (RACKPROOF_BY, else the user's name)")
    add("--drain-file", default="", metavar="FILE", help="write who is to blame there: a node and the reason a line")
    where = parser.getgroup("nodes", "where a campaign runs")
    add = where.addoption
    add("--launcher", default=AUTO, choices=[AUTO, *sorted(LAUNCHERS)], help="what starts the ranks (auto)")
    add("--nodes", metavar="N|idle:MIN-MAX", help="how many nodes, for this run, instead of what the file says")
    add("--nodelist", default="", metavar="n[1-4]", help="exactly these nodes")
    add("--exclude", default="", metavar="n7", help="none of these nodes")
    add("--partition", default="", metavar="NAME", help="of Slurm, where nodes are asked of it")
    add("--within-nights", type=int, default=7, metavar="N", help="with idle nodes: each is tested so often (7)")
    add("--until", default="", metavar="HH:MM", help="no benchmark begins that might run past that time of day")
    add("--known-bad", default="", metavar="FILE", help="nodes known to be bad: shown, and left out of fleet medians")
    add("--continue-without-failed", action="store_true",
        help="nodes that fail by themselves are left out, and the others go on in a run of their own")  # fmt: skip
    add("--container-image", default="", metavar="IMAGE", help="a reference for Pyxis, or a .sif file for Apptainer")
    add("--launcher-options", default="", metavar="WORDS", help="further words for srun, mpirun or ssh, quoted")
    add("--salloc-options", default="", metavar="WORDS", help="further words for salloc (--account=...), quoted")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Refuse what a campaign cannot share a session with; let `--plan` be answered in few words."""
    if config.option.resume and not config.option.cluster:
        config.option.cluster, config.option.suite = _of_run(config.option)
    if not config.option.cluster:
        if config.option.plan or config.option.retest:
            raise pytest.UsageError("say which cluster: --cluster local, or a cluster file")
        return None
    if getattr(config.option, "numprocesses", None):
        raise pytest.UsageError("a campaign has one controller: run it without -n (xdist)")
    if config.option.plan:
        config.option.no_header, config.option.verbose = True, -2  # nothing but the plan
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Take `--junitxml` over: it is written from Verdicts, not from pytest's own outcomes."""
    if config.option.cluster and getattr(config.option, "xmlpath", None):
        config.stash[JUNIT] = config.option.xmlpath
        config.option.xmlpath = None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Only the suite's own checks are items of a campaign; without a campaign, checks are refused."""
    ours = [item for item in items if hasattr(getattr(item, "function", None), "needs")]
    if not config.option.cluster:
        if ours:
            raise pytest.UsageError("checks need a cluster: pytest suites --cluster local")
        return
    suite = config.option.suite
    items[:] = [item for item in ours if suite in item.function.needs[1]]  # type: ignore[attr-defined]


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the campaign, and pytest's own loop then asserts what came of it; or only show its plan."""
    config = session.config
    if not config.option.cluster or config.option.collectonly or not session.items:
        return None
    if session.testsfailed:  # a module did not import: pytest's own loop says so and ends
        return None
    config.stash[BROKEN] = []
    try:
        stream = _terminal(config)
        selected = [item.nodeid.partition("[")[0] for item in session.items]
        if config.option.plan:
            print(preview(_options(config), selected), file=stream)
            return True
        campaign = Campaign.open(_options(config), selected, say=lambda text: print(text, end="", file=stream))
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    config.stash[CAMPAIGN] = campaign
    print(f"\nrun folder: {campaign.folder.path}", file=stream)
    for line in (*describe(campaign.held), *campaign.timeouts):
        print(line, file=stream)
    for line in campaign.plan.cluster.contradictions:
        print(f"{campaign.plan.cluster.path}: {line}", file=stream)
    for line in campaign.plan.warnings:
        print(f"warning: {line}", file=stream)
    old = signal.signal(signal.SIGTERM, _interrupt)
    try:
        progress = Progress(write=lambda text: print(text, end="", file=stream, flush=True))
        campaign.measure(progress)
        if campaign.left:
            _go_on(campaign, progress)
    finally:
        signal.signal(signal.SIGTERM, old)
    return None


def _go_on(campaign: Campaign, progress: Progress) -> None:
    """The nodes that are left, in a run of their own; the outcome of the session stays the first run's."""
    try:
        rest = campaign.rest()
    except UsageError as error:
        progress.write(f"the other nodes cannot go on: {error}\n")
        return
    for line in ("", f"without the nodes that failed: run folder {rest.folder.path}", *describe(rest.held)):
        progress.write(f"{line}\n")
    try:
        rest.measure(progress)
    finally:
        rest.close([])
    progress.write(f"{table(rest.stored(), rest.verdicts_once())}\npage: {rest.folder.path / 'index.html'}\n\n")


@pytest.fixture
def verdicts(request: pytest.FixtureRequest) -> VerdictsOf:
    """verdicts(pattern): this check's Verdicts on the metrics that match, to be asserted."""
    campaign = request.config.stash.get(CAMPAIGN, None)
    if campaign is None:
        pytest.fail("no campaign ran: checks need --cluster", pytrace=False)
    test = request.node.nodeid.partition("[")[0]
    plan = campaign.plan
    return VerdictsOf(campaign.verdicts_once, plan.needed_by.get(test, ()), plan.expected)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Remember which checks broke: failed in their own code, not by a Verdict."""
    report = yield
    by_verdict = call.excinfo is not None and call.excinfo.errisinstance(VerdictFailure)
    if report.failed and not by_verdict and item.config.stash.get(CAMPAIGN, None):
        item.config.stash[BROKEN].append(item.nodeid)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Write the end and the views, and turn the outcome into the exit status."""
    campaign = session.config.stash.get(CAMPAIGN, None)
    if campaign is None:
        if session.config.option.cluster and not session.config.option.plan and exitstatus in (0, 1):
            session.exitstatus = INCOMPLETE  # nothing was measured: only listed, or a check did not import
        return
    try:
        broken = session.config.stash[BROKEN]
        campaign.close(broken)
        if path := session.config.option.drain_file:
            drainfile.write(campaign.stored(), campaign.stored().view(Path(path)))
        if xml := session.config.stash.get(JUNIT, None):
            junit.write(campaign.stored(), campaign.verdicts_once(), campaign.stored().view(Path(xml)))
        outcome = campaign.outcome
    except Exception:  # noqa: BLE001 - a crash of ours is never an acceptance, nor a rejection
        traceback.print_exc(file=_terminal(session.config))
        session.exitstatus = INCOMPLETE
        return
    if exitstatus in (0, 1):
        session.exitstatus = EXIT_CODES[outcome]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The verdict table, what stopped the campaign if anything did, and where the page is."""
    campaign = config.stash.get(CAMPAIGN, None)
    if campaign is None:
        return
    if cost := overhead.line(campaign.stored().events):
        terminalreporter.write_line(cost)
    terminalreporter.section("verdicts")
    terminalreporter.write_line(table(campaign.stored(), campaign.verdicts_once()))
    if campaign.trouble:
        terminalreporter.write_line(f"stopped early: {campaign.trouble}", red=True)
        finish = campaign.stored().again().removesuffix(" --retest failed")
        terminalreporter.write_line(f"finish it: {finish}")
    terminalreporter.write_line(f"page: {campaign.folder.path / 'index.html'}")


def _of_run(option: Any) -> tuple[str, str]:
    """The cluster file and the suite of the run that is resumed: it need not be said again."""
    try:
        folder = find_run(option.resume, Path(option.run_dir))
        return str(folder / "cluster.toml"), runs.load(folder).run.suite
    except (UsageError, runs.RunError) as error:
        raise pytest.UsageError(str(error)) from None


def _options(config: pytest.Config) -> Options:
    o = config.option
    if o.drain_file and not Path(o.drain_file).resolve().parent.is_dir():
        raise pytest.UsageError(f"--drain-file {o.drain_file}: there is no such folder to write it to")
    try:
        return Options(
            cluster=o.cluster, suite=o.suite, runs=Path(o.run_dir), resume=o.resume, retest=o.retest,
            baseline=o.baseline, nodes=_count(o.nodes), wish=_wish(o), idle=Range.parse(o.nodes or ""),
            within_nights=o.within_nights, until=o.until, known_bad=Path(o.known_bad) if o.known_bad else None,
            continue_without_failed=o.continue_without_failed,
            topology=Path(o.topology) if o.topology else None, cabling=Path(o.cabling) if o.cabling else None,
            budget_s=seconds(o.budget),
            checkpoint_dir=o.checkpoint_dir, by=who(o.by),
        )  # fmt: skip
    except (NodesError, UsageError) as error:
        raise pytest.UsageError(str(error)) from None


def _wish(o: Any) -> Wish:
    return Wish(
        launcher=o.launcher, nodelist=expand(o.nodelist), exclude=expand(o.exclude), partition=o.partition,
        image=o.container_image, options=tuple(shlex.split(o.launcher_options)),
        salloc=tuple(shlex.split(o.salloc_options)),
    )  # fmt: skip


def _count(text: str | None) -> int | None:
    if text is None or Range.parse(text):
        return None
    if not text.isdigit() or int(text) < 1:
        raise NodesError(f"--nodes {text}: a number of nodes, from 1 on, or idle:MIN-MAX")
    return int(text)


def _terminal(config: pytest.Config) -> TextIO:
    """The real terminal: pytest captures sys.stdout while the session runs."""
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    stream: TextIO | None = reporter._tw._file if reporter else sys.__stdout__
    return stream or sys.stderr


def _interrupt(*_: object) -> None:
    """SIGTERM ends a campaign as Ctrl-C does: ranks ended, the run valid."""
    raise KeyboardInterrupt
