"""Is B as good as A: rack against rack, before against after, vendor against vendor.

Each side is one run, or several joined by "+" (A1+A2). Only what is comparable is compared; other hardware, node
counts, sizes or precisions are refused unless asked for (`across`), and then said. A difference is `better` or
`worse` when its interval leaves 1 and it stands out among all numbers compared, `same` when the interval lies
within 2 %, else `undecided`.

    python -m reports compare runs/rack-a runs/rack-b -o compare.html
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from benchmarks.measurement import PAIRS, Expected
from reports.bootstrap import FEW, Units, ratio_of_medians
from reports.numbers import Number, title
from reports.quantities import percent, quantity
from reports.runs import RunError
from reports.sides import Side, differences, environment, refuse_changed_units
from reports.statistics import Estimate, chance, discoveries, median, robust_z

SAME = 0.02
OUTLIER = 6.0
POSITIVE_ONLY = ("s", "B/s", "FLOP/s", "1/s")
WORDS = ("worse", "missing", "undecided", "better", "same")


@dataclass(frozen=True, kw_only=True)
class Change:
    """One number on both sides."""

    expected: Expected
    word: str  # worse | missing | undecided | better | same
    before: float | None = None  # the median unit, in the metric's unit
    after: float | None = None
    ratio: Estimate | None = None  # after over before
    units: int = 0
    reason: str = ""

    @property
    def title(self) -> str:
        """Metric and params."""
        return title(self.expected)

    @property
    def shown(self) -> tuple[str, str]:
        """Both values with their unit."""
        return quantity(self.before, self.expected.unit), quantity(self.after, self.expected.unit)

    @property
    def gain(self) -> float:
        """How much better, as a share; negative is worse."""
        if self.ratio is None:
            return 0.0
        return self.ratio.median - 1 if self.expected.better == "higher" else 1 / self.ratio.median - 1


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Everything that differs between two sides, and everything that does not."""

    before: Side
    after: Side
    changes: tuple[Change, ...]  # worst first
    environment: tuple[tuple[str, str, str], ...]  # (fact, before, after) where they differ
    across: tuple[str, ...]  # what was not comparable, and compared all the same
    partial: tuple[str, ...]  # runs that are not whole

    def of(self, word: str) -> list[Change]:
        """The changes of one kind, largest first."""
        found = [change for change in self.changes if change.word == word]
        return sorted(found, key=lambda c: -abs(c.gain))

    @property
    def counts(self) -> dict[str, int]:
        """How many numbers are what; only what there is."""
        return {word: n for word in WORDS if (n := sum(change.word == word for change in self.changes))}

    @property
    def word(self) -> str:
        """What it amounts to: worse, undecided (also where something is missing or a run not whole), better or same."""
        counts = self.counts
        if "worse" in counts:
            return "worse"
        if "missing" in counts or "undecided" in counts or not counts or self.partial:
            return "undecided"
        return "better" if "better" in counts else "same"


def compare(before: Side, after: Side, *, across: bool = False) -> Comparison:
    """Compare two sides. RunError for what is not comparable, naming both; `across` compares all the same."""
    for a in before.runs:
        for b in after.runs:
            if a.run.id == b.run.id and a.folder.resolve() != b.folder.resolve():
                raise RunError(f"{a.folder} and {b.folder} are two runs with one id ({a.run.id}): one is a copy")
    refuse_changed_units(before, after)
    strange = differences(before, after)
    if strange and not across:
        raise RunError(f"not comparable: {'; '.join(strange)}; compare all the same with --across")
    return Comparison(
        before=before,
        after=after,
        changes=tuple(_changes(before, after)),
        environment=tuple(environment(before, after)),
        across=tuple(strange),
        partial=tuple(f"{r.run.id} never ended" for side in (before, after) for r in side.runs if not r.ended),
    )


def _changes(before: Side, after: Side) -> list[Change]:
    """One change per number that both sides expect."""
    a, b = _by_name(before), _by_name(after)
    expected = {e.key: e for e in after.runs[0].run.expected}
    changes = []
    for e in before.runs[0].run.expected:
        name = e.key
        if name not in expected or _exempt(e.metric, before, after):
            continue
        if name not in a or name not in b:
            where = " and ".join(side.name for side, found in ((before, a), (after, b)) if name not in found)
            changes.append(Change(expected=e, word="missing", reason=f"not soundly measured in {where}"))
        else:
            changes.append(_change(e, a[name], b[name]))
    return sorted(_believed(changes), key=lambda change: (WORDS.index(change.word), change.gain))


def _believed(changes: list[Change]) -> list[Change]:
    """Of many numbers some differ by chance: what does not stand out among all of them is undecided."""
    tested = [i for i, change in enumerate(changes) if change.ratio and change.ratio.n > 1]
    real = discoveries([chance(ratio) for i in tested if (ratio := changes[i].ratio)])
    for i, believed in zip(tested, real, strict=True):
        change = changes[i]
        if not believed and change.word in ("worse", "better") and not change.reason:
            reason = f"by chance alone, some of {len(tested)} numbers differ as much"
            changes[i] = dataclasses.replace(change, word="undecided", reason=reason)
    return changes


def _change(e: Expected, before: list[Number], after: list[Number]) -> Change:
    values = [median([n.typical.median for n in side]) for side in (before, after)]
    units = min(len(n.units) for n in [*before, *after])
    if e.better == "equal" or e.unit not in POSITIVE_ONLY:
        return _plain_change(e, before, after, values, units)
    scales = _scales(e, before, after)
    ratio = ratio_of_medians(*(_samples(side, scales) for side in (before, after)))
    word, reason = _word(e, ratio), ""
    if ratio.n == 1:
        word, reason = "undecided", "one sample a side: nothing says how noisy it is"
    elif word in ("same", "undecided"):
        word, reason = _straggler(e, before, after) or (word, "")
    return Change(expected=e, word=word, before=values[0], after=values[1], ratio=ratio, units=units, reason=reason)


def _scales(e: Expected, before: list[Number], after: list[Number]) -> dict[tuple[object, ...], float]:
    """Per pair, what both sides are divided by: links of several kinds have no common median. Else nothing."""
    if e.per not in PAIRS:
        return {}
    pairs = [{unit.identity for unit in n.units} for n in [*before, *after]]
    if any(each != pairs[0] for each in pairs):
        return {}
    medians = before[0].estimates.median.tolist()
    return {unit.identity: value for unit, value in zip(before[0].units, medians, strict=True)}


def _samples(side: list[Number], scales: dict[tuple[object, ...], float]) -> list[Units]:
    """Each run's units in units of `scales`: their samples, or of many only their medians."""
    found: list[Units] = []
    for n in side:
        divisors = np.array([scales.get(unit.identity, 1.0) for unit in n.units]) if scales else np.ones(len(n.units))
        if len(n.units) > FEW:
            found.append(n.estimates.median / divisors)
        else:
            found.append([[s / by for s in unit.samples] for unit, by in zip(n.units, divisors.tolist(), strict=True)])
    return found


def _straggler(e: Expected, before: list[Number], after: list[Number]) -> tuple[str, str] | None:
    """A worst unit that fell behind its own median, or caught up, while the median stayed.

    It counts when even the good end of the worst unit's interval is more than SAME further behind.
    """
    if e.per in PAIRS:
        return _changed_pair(e, before, after)
    if min(len(n.units) for n in [*before, *after]) < 2:
        return None
    old, new = (min((_behind(e, n) for n in side), key=lambda found: found[0]) for side in (before, after))
    told = f"worst unit {new[2]} reaches {new[0]:.1%} of the median unit, before {old[2]} {old[0]:.1%}"
    if new[1] < old[0] - SAME:
        return "worse", told
    return ("better", told) if old[1] < new[0] - SAME else None


def _changed_pair(e: Expected, before: list[Number], after: list[Number]) -> tuple[str, str] | None:
    """The pair that changed most, where it stands OUTLIER robust sigmas apart from how all pairs changed."""
    scales = _scales(e, before, after)
    if len(scales) < 8:
        return None
    number = after[0]
    ratios = number.estimates.median / np.array([scales[unit.identity] for unit in number.units])
    gains = np.log(ratios) if e.better == "higher" else -np.log(ratios)
    z = robust_z(gains, floor=SAME / 2)
    low, high = int(z.argmin()), int(z.argmax())
    if z[low] < -OUTLIER:
        return "worse", f"pair {number.units[low].label} changed by {percent(math.expm1(gains[low]))}"
    if z[high] > OUTLIER:
        return "better", f"pair {number.units[high].label} changed by {percent(math.expm1(gains[high]))}"
    return None


def _behind(e: Expected, number: Number) -> tuple[float, float, str]:
    """Of the worst unit: its share of the median unit, that of the good end of its interval, and its label."""
    values, middle = number.estimates, number.typical.median
    if e.better == "higher":
        i = int(values.median.argmin())
        return float(values.median[i]) / middle, float(values.high[i]) / middle, number.units[i].label
    i = int(values.median.argmax())
    return middle / float(values.median[i]), middle / float(values.low[i]), number.units[i].label


def _plain_change(e: Expected, before: list[Number], after: list[Number], values: list[float], units: int) -> Change:
    """A number without a ratio (counts of errors, shares, losses): compared by its worst unit."""
    pick = min if e.better == "higher" else max
    worst = [pick(float(pick(n.estimates.median)) for n in side) for side in (before, after)]
    if worst[0] == worst[1]:
        word = "same"
    elif e.better == "equal":
        word = "worse" if abs(worst[1]) > abs(worst[0]) else "better"
    else:
        word = "undecided"
    reason = "" if word == "same" else f"worst unit {worst[0]:.3g}, now {worst[1]:.3g}"
    return Change(expected=e, word=word, before=values[0], after=values[1], units=units, reason=reason)


def _word(e: Expected, ratio: Estimate) -> str:
    if ratio.low >= 1 - SAME and ratio.high <= 1 + SAME:
        return "same"
    if ratio.low <= 1 <= ratio.high:
        return "undecided"
    return "better" if (ratio.low > 1) == (e.better == "higher") else "worse"


def _by_name(side: Side) -> dict[tuple[str, str], list[Number]]:
    """The numbers of a side; one that a repetition lacks is not there at all."""
    found: dict[tuple[str, str], list[Number]] = defaultdict(list)
    for each in side.numbers:
        for number in each:
            found[number.name].append(number)
    return {name: each for name, each in found.items() if len(each) >= len(side.runs)}


def _exempt(metric: str, *sides: Side) -> bool:
    """Whether a cluster file of either side says that it has no such number."""
    return any(
        fnmatchcase(metric, x.metric) for side in sides for stored in side.runs for x in stored.cluster.exemptions
    )


def repeated(sides: Sequence[Side]) -> bool:
    """Whether every side has several runs, so that the intervals know how runs differ."""
    return all(len(side.runs) > 1 for side in sides)
