"""`alerts`: prints who should be told what, keeps it in the run, and hands it to an Alertmanager.

    python -m reports alerts runs/tonight --history runs --to http://alertmanager:9093
    python -m reports alerts --cluster rack7 --history runs --hours 26        # by cron: has the nightly stalled?

Exit status: 0 nobody needs to get up, 1 a page that nobody has acknowledged. Tickets are printed; in quiet hours they
are held back until those end. A page never is.
"""

from __future__ import annotations

import argparse
import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from datetime import datetime, time
from pathlib import Path

from clusters import knownbad
from reports import alerts, runs
from reports.alerts import PAGE, TICKET, Alert
from reports.nightly import nightly, reruns_of
from reports.runs import RunError

TIMEOUT_S = 10.0


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register `alerts`."""
    words = "who is told what after a night: 0 nobody needs to get up, 1 a page"
    parser = commands.add_parser("alerts", help=words, description=words)
    add = parser.add_argument
    add("run", type=Path, nargs="?", help="tonight's run folder; without it, only whether the nightly has stalled")
    add("--history", type=Path, default=Path("runs"), metavar="DIR", help="the folder of earlier runs (runs)")
    add("--known-bad", type=Path, metavar="FILE", help="nodes that somebody answers for, until a date")
    add("--cluster", default="", metavar="NAME", help="whose nightly may have stalled")
    add("--suite", default="nightly", metavar="NAME", help="of which suite (nightly)")
    add("--hours", type=float, default=26.0, metavar="H", help="so long may the last night be ago (26)")
    add("--quiet", default="", metavar="HH:MM-HH:MM", help="local time in which tickets are held back: 22:00-07:00")
    add("--to", default="", metavar="URL", help="an Alertmanager, such as http://alertmanager:9093")
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    quiet = in_quiet_hours(options.quiet, datetime.now().time())
    now = alerts.now_utc()
    if options.run is None:
        if not options.cluster:
            raise RunError("name tonight's run, or whose nightly to look after: --cluster NAME")
        found = alerts.stalled(
            options.history, cluster=options.cluster, suite=options.suite, now=now, hours=options.hours
        )
        ended: list[Alert] = []
    else:
        found, ended = _night(options)
    print(text(found, ended, quiet=quiet))
    if options.to:
        send(options.to, [a.plain(now=now) for a in found] + [a.plain(now=now, ended=True) for a in ended])
    return int(any(a.severity == PAGE and not a.acknowledged for a in found))


def _night(options: argparse.Namespace) -> tuple[list[Alert], list[Alert]]:
    """A night's alerts, kept in its folder, and those that have ended."""
    try:
        known = knownbad.load(options.known_bad) if options.known_bad else ()
    except knownbad.KnownBadError as error:
        raise RunError(str(error)) from None
    stored, today = runs.load(options.run), alerts.now_utc().date()
    verdicts = stored.verdicts(today=today)
    report = nightly(stored, verdicts, options.history, again=reruns_of(stored.folder))
    found = alerts.unique(alerts.of_night(stored, verdicts, report, known_bad=known, today=today))
    if not stored.ended:
        labels, summary = {"cluster": stored.run.cluster, "suite": stored.run.suite}, "the last night never ended"
        since = stored.run.started_at
        found.append(Alert(name="NightlyStalled", severity=PAGE, summary=summary, labels=labels, since=since))
    found, ended = alerts.since_before(found, alerts.before(stored, options.history))
    alerts.write(found, stored.folder)
    return found, ended


def text(found: Sequence[Alert], ended: Sequence[Alert], *, quiet: bool) -> str:
    """What to do, pages first."""
    lines = []
    for severity in (PAGE, TICKET):
        mine = [a for a in found if a.severity == severity and not a.acknowledged]
        if severity == TICKET and quiet and mine:
            lines.append(f"{len(mine)} ticket(s), held back: quiet hours")
            continue
        lines += [f"{severity.upper()} {a.name}: {a.summary}{_since(a)}" for a in mine]
    lines += [f"acknowledged ({a.acknowledged}) {a.name}: {a.summary}" for a in found if a.acknowledged]
    lines += [f"ended {a.name}: {a.summary}" for a in ended]
    return "\n".join(lines) or "nothing to tell"


def _since(alert: Alert) -> str:
    return f", since {alert.since[:10]}" if alert.since else ""


def in_quiet_hours(span: str, at: time) -> bool:
    """Whether a time of day lies in "22:00-07:00" (which may pass midnight). RunError where that is no span.

    >>> in_quiet_hours("22:00-07:00", time(3, 30)), in_quiet_hours("22:00-07:00", time(12))
    (True, False)
    """
    if not span:
        return False
    try:
        begin, end = (datetime.strptime(word, "%H:%M").time() for word in span.split("-"))
    except ValueError:
        raise RunError(f"--quiet {span}: two times of day, such as 22:00-07:00") from None
    return begin <= at < end if begin <= end else at >= begin or at < end


def send(url: str, found: list[dict[str, object]]) -> None:
    """Hand alerts to an Alertmanager. RunError where it does not take them."""
    body = json.dumps(found).encode()
    try:
        request = urllib.request.Request(
            f"{url.rstrip('/')}/api/v2/alerts", data=body, headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT_S):
            pass
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise RunError(f"{url} does not take the alerts ({reason}): check --to; they are printed above") from None
