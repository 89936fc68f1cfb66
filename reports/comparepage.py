"""A comparison shown: a page and a terminal table, worst first.

write(comparisons, path)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup
from tabulate import tabulate

from reports import charts
from reports.compare import SAME, WORDS, Change, Comparison, repeated
from reports.quantities import percent
from reports.templates import template

ROWS = 25
MEANING = {
    "worse": "At least one number is worse.",
    "undecided": "Nothing is proven worse, but not everything could be compared or decided.",
    "better": "Nothing is worse, and something is better.",
    "same": f"Every number is the same within {SAME:.0%}.",
}
ONE_RUN = (
    "One run a side: the intervals hold the noise within a run, not how runs differ. "
    "To decide, repeat and interleave both sides, and compare A1+A2 with B1+B2."
)


def page(comparisons: Sequence[Comparison]) -> str:
    """The comparison as one self-contained HTML file."""
    text: str = template("compare.html.j2").render(
        comparisons=comparisons,
        verdict=verdict(comparisons),
        meaning=MEANING,
        one_run="" if repeated([s for c in comparisons for s in (c.before, c.after)]) else ONE_RUN,
        interval=_interval,
        reach=_reach,
        order=WORDS[:-1],
    )
    return text.lstrip()


def write(comparisons: Sequence[Comparison], path: Path) -> Path:
    """Write the page."""
    path.write_text(page(comparisons), encoding="utf-8")
    return path


def verdict(comparisons: Sequence[Comparison]) -> str:
    """The gravest word of all comparisons."""
    return min((c.word for c in comparisons), key=("worse", "undecided", "better", "same").index)


def table(comparisons: Sequence[Comparison]) -> str:
    """The comparison as text."""
    parts = []
    for c in comparisons:
        counts = ", ".join(f"{n} {word}" for word, n in c.counts.items())
        parts.append(f"{c.after.name} against {c.before.name}: {c.word.upper()} ({counts or 'nothing in common'})")
        parts += [f"compared all the same: {difference}" for difference in c.across]
        parts += [f"not a whole run: {said}" for said in c.partial]
        if c.environment:
            head = ("differs", c.before.name, c.after.name)
            parts.append(tabulate(c.environment, headers=head, tablefmt="simple", disable_numparse=True))
        rows = [_row(change) for word in ("worse", "undecided", "better") for change in c.of(word)]
        if rows:
            columns = ("", "what", "before", "after", "gain", "interval", "")
            parts.append(tabulate(rows[:ROWS], headers=columns, tablefmt="simple", disable_numparse=True))
        if len(rows) > ROWS:
            parts.append(f"... and {len(rows) - ROWS:,} more rows")
        lost = Counter((change.expected.metric, change.reason) for change in c.of("missing"))
        parts += [f"missing: {metric} x{count}, {reason}" for (metric, reason), count in lost.items()]
    if not repeated([s for c in comparisons for s in (c.before, c.after)]):
        parts.append(ONE_RUN)
    return "\n\n".join(parts)


def _row(change: Change) -> tuple[str, ...]:
    interval = ""
    if change.ratio:
        interval = f"{change.ratio.low:.3f} to {change.ratio.high:.3f}"
    return (
        change.word,
        change.title,
        *change.shown,
        percent(change.gain) if change.ratio else "–",
        interval,
        change.reason,
    )


def _interval(change: Change, comparison: Comparison) -> Markup:
    """A ratio's interval on an axis that all rows of the comparison share."""
    if change.ratio is None:
        return Markup("")
    return charts.ratio(change.ratio, reach=_reach(comparison), word=change.word)


def _reach(comparison: Comparison) -> float:
    """How far from 1 the axis of a comparison's ratios goes."""
    return min(1.0, max([SAME * 2.5, *(abs(c.ratio.median - 1) * 1.3 for c in comparison.changes if c.ratio)]))
