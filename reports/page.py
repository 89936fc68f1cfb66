"""The page of a run: one HTML file that needs nothing else, neither network nor JavaScript.

    write(stored, verdicts)        # RUN/index.html, and RUN/verdicts.csv beside it

The outcome comes first, with who is suspect and what changed around it, then what failed by size of effect, then what
is not proven, then the numbers family by family, money, how the run went and on what machine. However large the run,
the page stays small: every list is cut at a size that a person reads, says how much it leaves out, and links the CSV
that holds all. Printed, it is one sheet to sign.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from benchmarks.measurement import Measurement, Verdict
from reports import charts, drainfile, findings, listing, money, spans, strip
from reports.before import Before
from reports.blamemap import blame_map
from reports.blamerefs import Rests
from reports.campaign import course, shared_facts
from reports.conduct import conduct
from reports.culprits import culprits, told
from reports.families import BYTES, families
from reports.findings import Findings, family
from reports.judge import unjudged
from reports.money import Bill
from reports.recordrefs import RecordRefs
from reports.runs import FAILED, SETTLED, StoredRun
from reports.sheet import sheet
from reports.templates import CARDS, GROUPS, ROWS, template

FILE = "index.html"
LARGEST = 1_900_000  # bytes of a page
SHORTER = (1, 3, 10, 40)  # lists and charts are cut to such a part of their length until the page is small enough
COUNTED = re.compile(r"\d[\d,]* checks? ")  # a reason that the counts by status say already


def write(
    stored: StoredRun, verdicts: Sequence[Verdict], path: Path | None = None, *, before: Before | None = None
) -> Path:
    """Write the page and the list of all verdicts beside the run's records, or to `path` and beside it.

    OSError where it cannot be.
    """
    path = path or stored.folder / FILE
    beside = path.with_name(listing.FILE if path.name == FILE else f"{path.stem}-{listing.FILE}")
    refs = RecordRefs(stored)
    listing.write(verdicts, refs, beside)
    away = os.path.relpath(stored.folder, path.parent)
    text = page(stored, verdicts, before=before, refs=refs, home="" if away == "." else f"{away}/", csv=beside.name)
    path.write_text(text, encoding="utf-8")
    return path


def page(
    stored: StoredRun, verdicts: Sequence[Verdict], *, before: Before | None = None, refs: RecordRefs | None = None,
    home: str = "", csv: str = listing.FILE,
) -> str:  # fmt: skip
    """The whole page as HTML. `home` leads from it to the run folder, `csv` is the list of all verdicts.

    Its lists are cut shorter until it is no larger than a mail takes.
    """
    before, refs = before or Before.of(stored), refs or RecordRefs(stored)
    found = Findings.of(verdicts)
    outcome, reasons = stored.explain(verdicts)
    shared, differing = shared_facts(stored.latest_environments)
    bill = money.worked_out(stored, stored.cluster.prices) if stored.cluster.prices else None
    context = dict(  # noqa: C408 - as a call's, so that each name stands alone
        run=stored.run,
        cluster=stored.cluster,
        outcome=outcome,
        reasons=reasons,
        beside=[reason for reason in reasons if not COUNTED.match(reason)],
        warnings=stored.warnings,
        found=found,
        criteria=findings.criteria(verdicts),
        elsewhere=findings.elsewhere(stored.run, stored.cluster),
        course=(how := course(stored)),
        conduct=conduct(stored.events),
        timeline=charts.timeline(how.spans, total=how.total_s, what="launches and batches of the run over time")
        if how.spans
        else "",
        conditions=strip.panel(stored),
        nodes=sorted(stored.latest_environments),
        shared=shared,
        differing=differing,
        telling=[
            (fact, values) for fact, values in differing if len(values) <= max(2, len(stored.latest_environments) // 2)
        ],
        before=before,
        changed=before.changed(stored),
        passed=_by_family(found.passed),
        unjudged=unjudged(stored.run, verdicts),
        strangers=_strangers(stored),
        blame=(blame := told(stored)),
        blame_map=blame_map(searched := culprits(stored)) if blame else None,
        rests=Rests(stored, refs, searched) if blame else None,
        drains=drainfile.lines(stored),
        sheet=sheet(stored, verdicts, blame),
        bill=bill,
        owning=_owning(bill) if bill and bill.even else "",
        folder=stored.folder,
        again=stored.again(),
        again_of=lambda e, status: stored.again(e.test, e.metric if status in (*SETTLED, "measured") else FAILED),
        refs=refs,
        home=home,
        csv=csv,
    )
    for share in SHORTER:
        cut = {name: max(1, whole // share) for name, whole in (("CARDS", CARDS), ("GROUPS", GROUPS), ("ROWS", ROWS))}
        found_families = families(stored, verdicts, before, room=BYTES // share)
        text: str = template("page.html.j2").render(**context, **cut, families=found_families).lstrip()
        if len(text.encode()) <= LARGEST:
            break
    return text


def _owning(bill: Bill) -> Markup:
    """Rent or buy as a chart."""
    prices = bill.prices
    rents = [
        (f"rent {money.amount(rent)} an hour", rent * prices.hours_a_day * money.DAYS_A_MONTH) for rent in prices.rents
    ]
    told = ", ".join(f"at {money.amount(rent, prices.currency)} an hour {money.months(m)}" for rent, m in bill.even)
    return spans.owning(
        buy=prices.buy, keep=prices.keep, rents=rents, crossings=[m for _, m in bill.even], unit=prices.currency,
        what=f"money spent over the months by renting and by owning; buying is cheaper after: {told}",
    )  # fmt: skip


def _by_family(verdicts: Sequence[Verdict]) -> dict[str, list[Verdict]]:
    by: dict[str, list[Verdict]] = {}
    for v in verdicts:
        by.setdefault(family(v.metric), []).append(v)
    return by


def _strangers(stored: StoredRun) -> list[str]:
    """Metrics that were measured and that nothing expected: shown, so that no number hides."""
    expected = {(e.config, e.metric) for e in stored.run.expected}
    found: dict[str, Measurement] = {}
    for m in stored.measurements:
        if (m.config, m.metric) not in expected and m.metric != "conditions":
            found.setdefault(m.metric, m)
    return sorted(found)
