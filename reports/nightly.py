"""What changed since last night: one run held against the nights before it, the pinned baseline and its own fleet.

    python -m reports nightly runs/tonight --history runs
    python -m reports nightly runs/tonight --history runs --confirm runs/again-1 runs/again-2

What is suspect becomes an alarm only when re-runs on other occasions see it as well (`confirm` makes them, and they
count by themselves from then on); creep and hard limits need none.
Exit 0: nothing; 1: a regression; 3: cannot say (something is missing or noisy, suspects wait for their re-runs, or
there are too few nights).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from tabulate import tabulate

from benchmarks.measurement import Verdict
from reports import ladder, runs
from reports.archive import Night, nights, read_night
from reports.climb import Climbed, climb
from reports.evidence import listed
from reports.findings import Findings
from reports.ladder import RERUNS
from reports.pins import pinned
from reports.quantities import percent
from reports.rungs import Alarm
from reports.runs import StoredRun

ROWS = 20
CONFIRM, CALM = "confirm", "undisturbed"  # RUN/confirm/: the re-runs of a run, and the names of those that count


@dataclass(frozen=True, kw_only=True)
class Report:
    """What one night amounts to."""

    run: str
    history: int  # nights before it
    baseline: str  # the pinned run's folder, "" where there is none
    findings: Findings
    climbed: Climbed
    partial: tuple[str, ...]  # why the run itself is not whole
    later: int  # runs that began after it: it is an older night, or a clock jumped
    again: str  # the command that measures the suspects again

    @property
    def unsure(self) -> list[str]:
        """Why nothing can be said for sure; empty where it can."""
        found, climbed = self.findings, self.climbed
        reasons = [*self.partial, *(f"{len(t.verdicts)} {t.status}: {t.reason}" for t in found.troubles)]
        if climbed.gone:
            names = listed([" ".join(name) for name in climbed.gone])
            reasons.append(f"{len(climbed.gone)} measured on other nights and not expected tonight: {names}")
        reasons += [f"{told}: not compared" for told in climbed.changed]
        if found.noisy:
            reasons.append(f"{len(found.noisy)} too noisy to decide")
        if climbed.suspects:
            reasons.append(f"{len(climbed.suspects)} suspect, waiting for {RERUNS} re-runs")
        if climbed.unbased:
            reasons.append(f"{climbed.unbased} numbers have fewer than {ladder.LEAST} comparable nights")
        return reasons

    @property
    def status(self) -> int:
        """0 nothing, 1 regression, 3 cannot say."""
        if self.climbed.groups or self.findings.failures:
            return 1
        return 3 if self.unsure else 0


def nightly(stored: StoredRun, verdicts: Sequence[Verdict], root: Path, *, again: Sequence[Path] = ()) -> Report:
    """Hold a run against the runs of `root` that were started before it. `again` are its re-runs, in any order."""
    tonight, reruns = read_night(stored.folder), [read_night(path) for path in again]
    apart = {tonight.run, *(night.run for night in reruns)}
    every = [night for night in nights(root, cluster=tonight.cluster) if night.run not in apart]
    before = [night for night in every if night.started < tonight.started]
    pin = pinned(root, cluster=tonight.cluster, suite=tonight.suite)
    climbed = climb(tonight, before, reruns=reruns, pin=pin.folder(root).name if pin else "")
    return Report(
        run=tonight.run,
        history=len(before),
        baseline=pin.run if pin else "",
        findings=Findings.of(verdicts),
        climbed=climbed,
        partial=tuple(_partial(stored, tonight)),
        later=len(every) - len(before),
        again=f"python -m reports confirm {stored.folder} --history {root}" if climbed.suspects else "",
    )


def reruns_of(folder: Path) -> list[Path]:
    """The re-runs that `confirm` made of a run and found undisturbed."""
    kept = folder / CONFIRM / CALM
    names = kept.read_text().split() if kept.is_file() else []
    return [path for name in names if runs.is_run(path := folder / CONFIRM / name)]


def _partial(stored: StoredRun, tonight: Night) -> Iterator[str]:
    """Why a run is not whole, whatever its numbers are."""
    if tonight.started > datetime.now(UTC) + timedelta(hours=1):
        yield f"it began in the future ({tonight.started:%Y-%m-%d %H:%M} UTC): set the clock, or the order is wrong"
    if not stored.ended:
        yield "the run never ended"
    if not stored.selected_all:
        yield "some checks were deselected"
    if stored.broken_checks:
        yield f"failed as a check: {listed(stored.broken_checks)}"


def table(report: Report) -> str:
    """The report as text."""
    words = {0: "NOTHING NEW", 1: "REGRESSION", 3: "CANNOT SAY"}
    held = f"{report.history} nights" + (f", baseline {report.baseline}" if report.baseline else ", no pinned baseline")
    parts = [f"{words[report.status]}: {report.run} against {held}"]
    if report.later:
        parts.append(f"left out: {report.later} that began later (an older night is judged, or a clock jumped)")
    if report.findings.failures:
        names = [f"{v.check}: {v.reason}" for v in report.findings.failures[:ROWS]]
        parts.append("\n".join(["below a hard limit", *names]))
    if report.climbed.groups:
        rows = [
            (group.node or "all", group.family, percent(group.effect), len(group.alarms), _worst(group.alarms[0]))
            for group in report.climbed.groups[:ROWS]
        ]
        head = ("node", "family", "worst", "alarms", "number")
        parts.append(tabulate(rows, headers=head, tablefmt="simple", disable_numparse=True))
    parts += [f"cannot say: {reason}" for reason in report.unsure]
    parts += [_lines(name, found) for name, found in _lists(report) if found]
    if report.again:
        parts.append(f"measure them again, beside what is not suspect: {report.again}")
    return "\n\n".join(parts)


def _lists(report: Report) -> list[tuple[str, tuple[Alarm, ...]]]:
    return [
        ("suspect", report.climbed.suspects),
        ("suspect at first, not seen again", report.climbed.refuted),
        ("better than before", report.climbed.improved),
    ]


def _lines(name: str, found: tuple[Alarm, ...]) -> str:
    ordered = sorted(found, key=lambda a: -abs(a.effect))
    lines = [f"{name}: {len(found)}", *(f"    {percent(a.effect)} {_worst(a)}" for a in ordered[:ROWS])]
    return "\n".join(lines + ([f"    ... and {len(found) - ROWS} more"] if len(found) > ROWS else []))


def _worst(alarm: Alarm) -> str:
    where = f" {alarm.unit}" if alarm.unit else ""
    on = f" on {alarm.node}" if alarm.node and alarm.node not in alarm.unit else ""
    return f"{alarm.title}{where}{on} ({alarm.rung})"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register `nightly`."""
    words = "what changed since last night: 0 nothing, 1 a regression, 3 cannot say"
    parser = commands.add_parser("nightly", help=words, description=words)
    parser.add_argument("run", type=Path, help="tonight's run folder")
    parser.add_argument(
        "--history", type=Path, default=Path("runs"), metavar="DIR", help="the folder of earlier runs (runs)"
    )
    parser.add_argument(
        "--confirm", type=Path, nargs="+", default=[], metavar="RUN", help="re-runs of what was suspect, at other hours"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write a page too")
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    stored = runs.load(options.run)
    again = options.confirm or reruns_of(options.run)
    report = nightly(stored, stored.verdicts(today=date.today()), options.history, again=again)
    print(table(report))
    if options.output:
        from reports import nightlypage  # shows what is found here

        every = nights(options.history, cluster=stored.run.cluster)
        print(f"\npage: {nightlypage.write(report, stored, every, stored.view(options.output))}")
    return report.status
