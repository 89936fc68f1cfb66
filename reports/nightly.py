"""What changed since last night: one run held against the nights before it, the pinned baseline and its own fleet.

    python -m reports nightly runs/tonight --history runs
    python -m reports nightly runs/tonight --history runs --confirm runs/again-1 runs/again-2

What is suspect becomes an alarm only when re-runs on other occasions see it as well; creep and hard limits need none.
Exit 0: nothing; 1: a regression; 3: cannot say (something is missing or noisy, suspects wait for their re-runs, or
there are too few nights).
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import NamedTuple

from tabulate import tabulate

from benchmarks.measurement import Verdict
from reports import ladder, runs
from reports.archive import nights, read_night
from reports.evidence import listed
from reports.findings import Findings
from reports.pins import pinned
from reports.quantities import percent
from reports.rungs import Alarm, against_nights, alarms, drift_alarms, judged, night_alarms, peer_alarms
from reports.runs import StoredRun

ROWS = 20


class Group(NamedTuple):
    """Alarms of one node and family: one thing to look at."""

    node: str
    family: str
    alarms: tuple[Alarm, ...]  # worst first

    @property
    def effect(self) -> float:
        """Of the worst alarm."""
        return self.alarms[0].effect


@dataclass(frozen=True, kw_only=True)
class Report:
    """What one night amounts to."""

    run: str
    history: int  # nights before it
    baseline: str  # the pinned run's folder, "" where there is none
    findings: Findings
    groups: tuple[Group, ...]  # real, worst first
    suspects: tuple[Alarm, ...]  # waiting for a re-run
    refuted: tuple[Alarm, ...]  # the re-runs did not see them
    improved: tuple[Alarm, ...]
    unbased: int  # numbers with too few comparable nights
    partial: tuple[str, ...]  # why the run itself is not whole
    again: str  # the command that measures the suspects again

    @property
    def unsure(self) -> list[str]:
        """Why nothing can be said for sure; empty where it can."""
        found = self.findings
        reasons = [*self.partial, *(f"{len(t.verdicts)} {t.status}: {t.reason}" for t in found.troubles)]
        if found.noisy:
            reasons.append(f"{len(found.noisy)} too noisy to decide")
        if self.suspects:
            reasons.append(f"{len(self.suspects)} suspect, waiting for a re-run")
        if self.unbased:
            reasons.append(f"{self.unbased} numbers have fewer than {ladder.LEAST} comparable nights")
        return reasons

    @property
    def status(self) -> int:
        """0 nothing, 1 regression, 3 cannot say."""
        if self.groups or self.findings.failures:
            return 1
        return 3 if self.unsure else 0


def nightly(stored: StoredRun, verdicts: Sequence[Verdict], root: Path, *, again: Sequence[Path] = ()) -> Report:
    """Hold a run against the runs of `root` that were started before it. `again` are its re-runs, in any order."""
    tonight, reruns = read_night(stored.folder), [read_night(path) for path in again]
    apart = {tonight.run, *(night.run for night in reruns)}
    every = nights(root, cluster=tonight.cluster)
    before = [night for night in every if night.started < tonight.started and night.run not in apart]
    pin = pinned(root, cluster=tonight.cluster, suite=tonight.suite)
    asked = [against_nights(series, tonight, before) for series in judged(tonight)]
    suspects = [*night_alarms(asked, before, reruns), *peer_alarms(tonight, reruns)]
    crept = drift_alarms(tonight, before, pin.folder(root).name) if pin else []
    unproven = tuple(a for a in suspects if not a.confirmed)
    tests = sorted({a.test for a in unproven})
    return Report(
        run=tonight.run,
        history=len(before),
        baseline=pin.run if pin else "",
        findings=Findings.of(verdicts),
        groups=tuple(_grouped([*(a for a in suspects if a.confirmed), *crept])),
        suspects=() if reruns else unproven,
        refuted=unproven if reruns else (),
        improved=tuple(alarms("night", asked, lambda d: d.improved)),
        unbased=sum(not a.shared.known.any() for a in asked),
        partial=tuple(_partial(stored)),
        again=f"pytest {' '.join(tests)} --cluster {tonight.cluster} --suite {tonight.suite}" if tests else "",
    )


def _partial(stored: StoredRun) -> Iterator[str]:
    """Why a run is not whole, whatever its numbers are."""
    if not stored.ended:
        yield "the run never ended"
    if not stored.selected_all:
        yield "some checks were deselected"
    if stored.broken_checks:
        yield f"failed as a check: {listed(stored.broken_checks)}"


def _grouped(found: Sequence[Alarm]) -> list[Group]:
    """Alarms of one node and family together, the worst group first."""
    groups: dict[tuple[str, str], list[Alarm]] = defaultdict(list)
    for alarm in found:
        groups[alarm.node or alarm.unit, alarm.family].append(alarm)
    made = [Group(node, name, tuple(sorted(each, key=lambda a: a.effect))) for (node, name), each in groups.items()]
    return sorted(made, key=lambda group: group.effect)


def table(report: Report) -> str:
    """The report as text."""
    words = {0: "NOTHING NEW", 1: "REGRESSION", 3: "CANNOT SAY"}
    held = f"{report.history} nights" + (f", baseline {report.baseline}" if report.baseline else ", no pinned baseline")
    parts = [f"{words[report.status]}: {report.run} against {held}"]
    if report.findings.failures:
        names = [f"{v.check}: {v.reason}" for v in report.findings.failures[:ROWS]]
        parts.append("\n".join(["below a hard limit", *names]))
    if report.groups:
        rows = [
            (group.node or "all", group.family, percent(group.effect), len(group.alarms), _worst(group.alarms[0]))
            for group in report.groups[:ROWS]
        ]
        head = ("node", "family", "worst", "alarms", "number")
        parts.append(tabulate(rows, headers=head, tablefmt="simple", disable_numparse=True))
    parts += [f"cannot say: {reason}" for reason in report.unsure]
    parts += [_lines(name, found) for name, found in _lists(report) if found]
    if report.suspects:
        parts.append(
            f"measure them again twice, at another hour or beside a control: {report.again}\n"
            f"then: python -m reports nightly ... --confirm RUN RUN"
        )
    return "\n\n".join(parts)


def _lists(report: Report) -> list[tuple[str, tuple[Alarm, ...]]]:
    return [
        ("suspect", report.suspects),
        ("suspect at first, not seen again", report.refuted),
        ("better than before", report.improved),
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
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    stored = runs.load(options.run)
    report = nightly(stored, stored.verdicts(today=date.today()), options.history, again=options.confirm)
    print(table(report))
    return report.status
