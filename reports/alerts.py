"""Who is told what after a night: a page for wrong data, lost quorum or a stalled nightly, a ticket for the rest.

    python -m reports alerts runs/tonight --history runs --known-bad site/bad.toml --to http://alertmanager:9093

An alert's labels name the trouble, never the run or a value, so that the same trouble on the next night is the same
alert; since when it lasts is taken over from the night before (RUN/alerts.json). What was there then and is gone is
told once, as ended. A node that somebody answers for is marked acknowledged until the date in the known-bad file; its
wrong data only where the file says that this is known.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from benchmarks.measurement import Verdict
from clusters.knownbad import KnownBad
from reports import runs
from reports.evidence import listed
from reports.findings import effect, family
from reports.nightly import Report
from reports.quantities import percent
from reports.runs import RunError, StoredRun

FILE = "alerts.json"
PAGE, TICKET = "page", "ticket"
WRONG = ("*.wrong_*", "gemm.error", "training.loss_error", "training.gradient_error")
QUORUM = 0.5  # of the expected numbers; with fewer soundly measured, the cluster as a whole is not there
LASTS = timedelta(hours=36)  # until the next night has said whether it is still so
AHEAD = timedelta(hours=1)  # of this clock, a cluster's may be
SEEN = ("WrongData", "BelowLimit", "Regression")  # only a night that measures the same can end these

Identity = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Alert:
    """One trouble and who should hear of it."""

    name: str  # WrongData, LostQuorum, NightlyStalled, BelowLimit, Regression, NotMeasured
    severity: str  # page | ticket
    summary: str
    labels: Mapping[str, str] = field(default_factory=dict)  # cluster, suite, node, family
    details: str = ""
    since: str = ""  # the time of the first night in a row that had it
    acknowledged: str = ""  # the ticket of whoever answers for it

    @property
    def identity(self) -> Identity:
        """What makes it the same alert on another night."""
        return (("alertname", self.name), ("severity", self.severity), *sorted(self.labels.items()))

    def plain(self, *, now: datetime, ended: bool = False) -> dict[str, Any]:
        """As Alertmanager's API takes it (POST /api/v2/alerts)."""
        labels = dict(self.identity) | ({"acknowledged": self.acknowledged} if self.acknowledged else {})
        notes = {"summary": self.summary, "description": self.details, "since": self.since}
        end = now if ended else now + LASTS
        return {
            "labels": labels, "annotations": {k: v for k, v in notes.items() if v},
            "startsAt": self.since or now.isoformat(), "endsAt": end.isoformat(),
        }  # fmt: skip


def of_night(
    stored: StoredRun, verdicts: Sequence[Verdict], report: Report, *, known_bad: Iterable[KnownBad] = (), today: date,
) -> list[Alert]:  # fmt: skip
    """The alerts of one night, pages first."""
    found = [*_failures(verdicts), *_quorum(stored, verdicts), *_regressions(report), *_not_measured(verdicts)]
    common = {"cluster": stored.run.cluster, "suite": stored.run.suite}
    entries = {entry.node: entry for entry in known_bad}
    full = [
        replace(_acknowledged(a, entries, today), labels=common | dict(a.labels), since=stored.run.started_at)
        for a in found
    ]
    return sorted(full, key=lambda a: (a.severity, a.identity))


def stalled(root: Path, *, cluster: str, suite: str, now: datetime, hours: float) -> list[Alert]:
    """A page where no whole night of this cluster and suite has come to its end for so many hours.

    One that some checks were left out of is no night, and one that began in the future only tells of a clock.
    """
    if not root.is_dir():
        raise RunError(f"{root}: no such folder of runs; name it with --history")
    last: datetime | None = None
    for folder in root.iterdir():
        try:
            run = runs.head(folder) if runs.is_run(folder) else None
            if run is None or (run.cluster, run.suite) != (cluster, suite) or not _ended(folder):
                continue
            began = runs.moment(run.started_at)
        except (RunError, ValueError):
            continue  # it cannot be read, so it is no night that ended
        if began <= now + AHEAD:
            last = max(last or began, began)
    if last and now - last <= timedelta(hours=hours):
        return []
    said = f"the last night that ended began at {last:%Y-%m-%d %H:%M} UTC" if last else "no night ever ended"
    labels = {"cluster": cluster, "suite": suite}
    return [Alert(name="NightlyStalled", severity=PAGE, summary=f"{said} (allowed: {hours:g} h)", labels=labels)]


def _ended(folder: Path) -> bool:
    stored = runs.load(folder, measurements=False)
    return stored.ended and stored.selected_all


def _failures(verdicts: Iterable[Verdict]) -> list[Alert]:
    """Mandatory limits that failed: wrong data pages, the rest is a ticket; by node and family."""
    groups: dict[tuple[str, str, str], list[Verdict]] = defaultdict(list)
    for v in verdicts:
        if v.status == "fail" and v.mandatory:
            name = "WrongData" if any(fnmatchcase(v.metric, pattern) for pattern in WRONG) else "BelowLimit"
            for node in _nodes(v):
                groups[name, node, family(v.metric)].append(v)
    found = []
    for (name, node, kind), group in groups.items():
        worst = min(group, key=effect)
        where = f" on {node}" if node else ""
        found.append(
            Alert(
                name=name, severity=PAGE if name == "WrongData" else TICKET, labels=_labels(node, kind),
                summary=f"{kind}{where}: {len(group)} below a hard limit, worst {worst.check}",
                details=f"{worst.reason}; again: {worst.again}",
            )
        )  # fmt: skip
    return found


def _nodes(v: Verdict) -> set[str]:
    """Every node with a failing unit; "" for what has none, and for more units than a verdict lists."""
    units = v.evidence.get("units", ())
    found = {str(node or "") for _, node, _ in units} or {str(v.evidence.get("node") or "")}
    return found | ({""} if v.evidence.get("num_units", 0) > len(units) else set())


def _quorum(stored: StoredRun, verdicts: Sequence[Verdict]) -> list[Alert]:
    """A page where less than QUORUM of what was expected is soundly there."""
    exempt = {(v.config, v.check) for v in verdicts if v.status == "not_applicable"}
    lost = {(v.config, v.check) for v in verdicts if v.status in ("missing", "error") and not v.limit}
    wanted = len(stored.run.expected) - len(exempt)
    if wanted < 1 or wanted - len(lost) >= QUORUM * wanted:
        return []
    reasons = list(dict.fromkeys(v.reason for v in verdicts if v.status in ("missing", "error")))
    summary = f"{len(lost)} of {wanted} numbers are not there"
    return [Alert(name="LostQuorum", severity=PAGE, summary=summary, details=listed(reasons))]


def _regressions(report: Report) -> list[Alert]:
    return [
        Alert(
            name="Regression", severity=TICKET, labels=_labels(group.node, group.family),
            summary=f"{group.family}{f' on {group.node}' if group.node else ''}: {percent(group.effect)}",
            details=listed([f"{a.title} {a.unit} {percent(a.effect)} ({a.rung})" for a in group.alarms]),
        )
        for group in report.climbed.groups
    ] + [
        Alert(
            name="NotMeasured", severity=TICKET, labels=_labels("", family(metric)),
            summary=f"{metric} is not expected any more, and other nights measured it",
        )
        for metric in sorted({metric for metric, _ in report.climbed.gone})
    ]  # fmt: skip


def _not_measured(verdicts: Iterable[Verdict]) -> list[Alert]:
    """One ticket a family for what is missing, in error or impossible."""
    groups: dict[str, list[Verdict]] = defaultdict(list)
    for v in verdicts:
        if v.status in ("missing", "error", "impossible"):
            groups[family(v.metric)].append(v)
    return [
        Alert(
            name="NotMeasured", severity=TICKET, labels=_labels("", kind),
            summary=f"{kind}: {len(group)} missing, in error or impossible",
            details=listed(list(dict.fromkeys(v.reason for v in group))),
        )
        for kind, group in groups.items()
    ]  # fmt: skip


def _labels(node: str, kind: str) -> dict[str, str]:
    return {"family": kind} | ({"node": node} if node else {})


def _acknowledged(alert: Alert, entries: Mapping[str, KnownBad], today: date) -> Alert:
    """Marked where its node is known to be bad; an entry that has expired is only told.

    Wrong data wakes people unless the entry knows of it: who answers for a slow node has not seen that.
    """
    entry = entries.get(alert.labels.get("node", ""))
    if entry is None:
        return alert
    told = "; ".join(filter(None, [alert.details, entry.line(today)]))
    known = entry.counts(today) and (entry.wrong_data or alert.name != "WrongData")
    return replace(alert, details=told, acknowledged=entry.ticket if known else "")


def unique(found: Iterable[Alert]) -> list[Alert]:
    """One alert of each identity; of several, the first, with what the others say."""
    by: dict[Identity, Alert] = {}
    for a in found:
        old = by.get(a.identity)
        by[a.identity] = replace(old, details="; ".join(filter(None, [old.details, a.summary]))) if old else a
    return list(by.values())


def since_before(found: Sequence[Alert], earlier: Sequence[Alert]) -> tuple[list[Alert], list[Alert]]:
    """The alerts with the time since when they last, and those of the night before that have ended.

    What was bad and could not be measured tonight has not ended: it lasts.
    """
    old = {a.identity: a for a in earlier}
    lasting = [replace(a, since=old[a.identity].since) if a.identity in old else a for a in found]
    there, blind = {a.identity for a in found}, {a.labels.get("family") for a in found if a.name == "NotMeasured"}
    gone = [a for a in earlier if a.identity not in there]
    unseen = [a for a in gone if a.name in SEEN and a.labels.get("family") in blind]
    return [*lasting, *unseen], [a for a in gone if a not in unseen]


def write(found: Sequence[Alert], folder: Path) -> Path:
    """Keep a night's alerts in its run folder, a view like the page."""
    path = folder / FILE
    path.write_text(json.dumps([vars(a) | {"labels": dict(a.labels)} for a in found], indent=1), encoding="utf-8")
    return path


def read(folder: Path) -> list[Alert]:
    """The alerts that were kept; none where the file is absent or not ours."""
    try:
        return [Alert(**each) for each in json.loads((folder / FILE).read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError):
        return []


def before(stored: StoredRun, root: Path) -> list[Alert]:
    """The alerts of the newest earlier night of the same cluster and suite that kept any."""
    earlier = []
    for folder in root.iterdir():
        if (folder / FILE).is_file() and runs.is_run(folder):
            run = runs.head(folder)
            if (run.cluster, run.suite) == (stored.run.cluster, stored.run.suite):
                earlier.append((runs.moment(run.started_at), folder))
    mine = runs.moment(stored.run.started_at)
    past = [found for found in earlier if found[0] < mine]
    return read(max(past)[1]) if past else []


def now_utc() -> datetime:
    """The time now."""
    return datetime.now(UTC)
