"""The verdicts on a terminal: the outcome, what failed worst first, what is not proven, passes as counts.

    print(table(stored, stored.verdicts(today=date.today())))

A view of reports/findings.py: nothing is judged here. No colour is needed to read it.
"""

from __future__ import annotations

import shutil
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tabulate import tabulate

from benchmarks.measurement import Verdict
from reports.culprits import told
from reports.evidence import listed
from reports.findings import Findings, Trouble, elsewhere, family, limit_text, noise_text, params_text, value_text
from reports.judge import unjudged
from reports.quantities import percent
from reports.runs import StoredRun

ROWS = 20  # rows of one table; the rest is counted, the page has more
HEAD = ("", "what", "where", "value", "limit", "margin", "noise", "n")


def table(stored: StoredRun, verdicts: Sequence[Verdict], *, width: int | None = None) -> str:
    """The whole summary as text, at most `width` columns wide where wrapping can help (the terminal's)."""
    width = width or min(shutil.get_terminal_size((120, 24)).columns, 140)
    findings = Findings.of(verdicts)
    outcome, reasons = stored.explain(verdicts)
    judged = [*findings.failures, *findings.noisy, *findings.waived]
    parts = [
        f"{outcome}: {', '.join(reasons)}",
        *(f"warning: {warning}" for warning in stored.warnings),
        _blame(told(stored), width),
        _rows(judged),
        *(_trouble(trouble, width) for trouble in findings.troubles[:ROWS]),
        _more(len(findings.troubles), "causes"),
        _advisory(findings.advisory),
        _quiet(stored, verdicts, findings, width),
        f"again: {stored.again()}" if judged or findings.troubles else "",
    ]
    return "\n\n".join(part for part in parts if part)


def _blame(found: dict[str, Any], width: int) -> str:
    """Who is to blame, a paragraph each; what a re-test cleared; "" where nobody was looked for."""
    said = [f"to blame: {s['title']}\n{_wrapped(s['evidence'], width)}" for s in found.get("suspects", ())]
    if found.get("common_cause"):
        said.append(f"no single culprit: {found['common_cause']}")
    if found.get("judged") is False:
        said.append(f"not judged: {'; '.join(found['notes'])}")
    if found.get("cleared"):
        said.append(f"cleared by a re-test: {', '.join(found['cleared'])}")
    return "\n\n".join(said)


def _wrapped(text: str, width: int) -> str:
    return textwrap.fill(text, width, initial_indent="    ", subsequent_indent="    ")


def _rows(verdicts: Sequence[Verdict]) -> str:
    if not verdicts:
        return ""
    rows = [
        (
            v.status,
            f"{v.metric} {params_text(v)}".strip(),
            v.subject,
            value_text(v),
            limit_text(v),
            percent(v.margin),
            noise_text(v),
            v.n,
        )
        for v in verdicts[:ROWS]
    ]
    text = tabulate(
        rows, headers=HEAD, tablefmt="simple", disable_numparse=True, colalign=("left",) * 3 + ("right",) * 5
    )
    return "\n".join(part for part in (text, _more(len(verdicts), "rows")) if part)


def _trouble(trouble: Trouble, width: int) -> str:
    """One cause with what it cost."""
    names = Counter(v.metric for v in trouble.verdicts)
    cost = listed([name if count == 1 else f"{name} x{count}" for name, count in names.items()])
    said = textwrap.wrap(trouble.reason, width - 4) or ["no reason recorded"]
    head = textwrap.wrap(f"{trouble.status}: {cost}", width - 4, break_long_words=False)
    return "\n    ".join([*head, *said])


def _advisory(verdicts: Sequence[Verdict]) -> str:
    return f"advisory limits missed; they never reject\n{_rows(verdicts)}" if verdicts else ""


def _quiet(stored: StoredRun, verdicts: Sequence[Verdict], findings: Findings, width: int) -> str:
    """Counts of what needs nobody's attention, by family."""
    lines = []
    for name, found in (
        ("passed", findings.passed),
        ("of these, passed only when tested again", findings.second_try),
        ("no baseline", findings.unbased),
        ("not applicable", findings.exempt),
        ("measured, not judged", unjudged(stored.run, verdicts)),
    ):
        if found:
            counts = Counter(family(v.metric) for v in found)
            advisory = sum(isinstance(v, Verdict) and v.status == "pass" and not v.mandatory for v in found)
            number = f"{len(found):,}, {advisory:,} of them advisory" if advisory else f"{len(found):,}"
            lines.append(f"{name}: {number} ({', '.join(f'{k} {n:,}' for k, n in counts.items())})")
    if others := elsewhere(stored.run, stored.cluster):
        lines.append(f"limits not for this cluster: {', '.join(others)}")
    return "\n".join(textwrap.fill(line, width, subsequent_indent="    ") for line in lines)


def _more(count: int, what: str, *, shown: int = ROWS) -> str:
    return f"... and {count - shown:,} more {what}" if count > shown else ""
