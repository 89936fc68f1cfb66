"""Pages from templates: the style sheet, the words and the small charts that all pages share.

>>> template("trend.html.j2").name
'trend.html.j2'
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from benchmarks.measurement import Verdict
from reports import charts, findings, money, quantities

FOLDER = Path(__file__).parent
CARDS = 40  # failures shown in full
GROUPS = 40  # causes of missing numbers
ROWS = 300  # rows of a folded table

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
        "noise_text": findings.noise_text, "digits": quantities.digits, "amount": money.amount, "months": money.months,
        "share": quantities.share, "tokens_text": money.amount_of_tokens, "bill_terms": money.terms,
    }  # fmt: skip
    return environment.get_template(name)
