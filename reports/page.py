"""The page of a run: one HTML file that needs nothing else, neither network nor JavaScript.

    write(stored, verdicts)        # RUN/index.html

The outcome comes first, then what failed by size of effect, then what is not proven, then the numbers family
by family, how the run went and on what machine. However large the run, the page stays small: every list is
cut at a size that a person reads, and says how much it leaves out.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from benchmarks.measurement import Measurement, Verdict
from reports import charts, findings, quantities
from reports.campaign import course, shared_facts
from reports.culprits import told
from reports.families import families
from reports.findings import Findings, family
from reports.judge import unjudged
from reports.runs import StoredRun

FILE = "index.html"
CARDS = 40  # failures shown in full
GROUPS = 40  # causes of missing numbers
ROWS = 300  # rows of a folded table
FOLDER = Path(__file__).parent

SYMBOLS = {
    "pass": "✓", "fail": "✕", "noisy": "≈", "missing": "∅", "error": "!", "impossible": "⌁", "waived": "⚑",
    "not_applicable": "–", "no_baseline": "·", "advisory": "△", "measured": "○",
    "ACCEPTED": "✓", "REJECTED": "✕", "INCOMPLETE": "∅", "CONDITIONAL": "⚑",
    "worse": "▼", "better": "▲", "same": "✓", "undecided": "≈",
}  # fmt: skip
WORDS = {
    "pass": "passed", "fail": "failed", "noisy": "too noisy to decide", "missing": "missing", "error": "in error",
    "impossible": "impossible", "waived": "waived", "not_applicable": "not applicable",
    "no_baseline": "without a baseline", "advisory": "advisory limits missed", "measured": "not judged",
}  # fmt: skip
MEANING = {
    "ACCEPTED": "Every mandatory check was measured and passed.",
    "CONDITIONAL": "Every mandatory check passed or is waived by name and date.",
    "INCOMPLETE": "Nothing mandatory failed, but not everything that must be known was soundly measured.",
    "REJECTED": "At least one mandatory check failed.",
}


def write(stored: StoredRun, verdicts: Sequence[Verdict], path: Path | None = None) -> Path:
    """Write the page beside the run's records, or to `path`. OSError where it cannot be."""
    path = path or stored.folder / FILE
    path.write_text(page(stored, verdicts), encoding="utf-8")
    return path


def page(stored: StoredRun, verdicts: Sequence[Verdict]) -> str:
    """The whole page as HTML."""
    found = Findings.of(verdicts)
    outcome, reasons = stored.explain(verdicts)
    shared, differing = shared_facts(stored.latest_environments)
    text: str = template("page.html.j2").render(
        run=stored.run,
        cluster=stored.cluster,
        outcome=outcome,
        reasons=reasons,
        warnings=stored.warnings,
        found=found,
        criteria=findings.criteria(verdicts),
        elsewhere=findings.elsewhere(stored.run, stored.cluster),
        families=families(stored, verdicts),
        course=(how := course(stored)),
        timeline=charts.timeline(how.spans, total=how.total_s, what="launches and batches of the run over time")
        if how.spans
        else "",
        nodes=sorted(stored.latest_environments),
        shared=shared,
        differing=differing,
        passed=_by_family(found.passed),
        unjudged=unjudged(stored.run, verdicts),
        strangers=_strangers(stored),
        blame=told(stored),
        folder=stored.folder,
        again=stored.again(),
    )
    return text.lstrip()


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


def bullet(v: Verdict) -> Markup:
    """The value of a verdict against its limit as a small bar; nothing for exact limits."""
    if v.value is None or v.limit_value is None or v.bound == "equal" or v.limit_value <= 0:
        return Markup("")
    low, high = v.low if v.low is not None else v.value, v.high if v.high is not None else v.value
    return charts.bullet(
        low=low, value=v.value, high=high, limit=v.limit_value, bound=v.bound, status=v.status, unit=v.limit_unit
    )


@functools.cache
def template(name: str) -> Any:
    """A page's template, with the style sheet and the words that all pages share."""
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "style": Markup((FOLDER / "page.css").read_text(encoding="utf-8")), "symbols": SYMBOLS, "words": WORDS,
        "meaning": MEANING, "bullet": bullet, "CARDS": CARDS, "GROUPS": GROUPS, "ROWS": ROWS,
        "quantity": quantities.quantity, "percent": quantities.percent, "duration": quantities.duration,
        "params_text": findings.params_text, "limit_text": findings.limit_text, "value_text": findings.value_text,
        "noise_text": findings.noise_text,
    }  # fmt: skip
    return environment.get_template(name)
