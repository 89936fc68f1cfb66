"""The rungs of the ladder on indexed nights: which numbers of tonight are suspect, and which their re-runs confirm.

    night   against the last 20 nights on which the metric passed
    fleet   a unit against its peers of the same night, history or not
    gray    a unit whose median is fine and whose samples are not
    drift   the last 7 nights against the pinned baseline

The rules are reports/ladder.py's; what the alarms amount to is reports/nightly.py's.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.measurement import PAIRS
from reports import ladder
from reports.archive import Night, Series
from reports.findings import family
from reports.ladder import Bools, Deviation, Usual

FLOORS = {
    "gemm": 0.03, "memory": 0.02, "collectives": 0.03, "links": 0.04, "checkpoint": 0.10, "reads": 0.10,
    "training": 0.02,
}  # fmt: skip
FLOOR = 0.03  # of a family that has none
DRIFT_SHARE = 0.65  # in medians of seven nights a smaller difference already counts: creep, and small steps
FLEET_FACTOR = 3.0  # healthy GPUs differ (5 % in compute, 2 % in bandwidth): peers are held to a wider floor
GRAY_FLOOR = 0.01
UNKNOWN, NOT_SEEN, SEEN = -1, 0, 1

Floats = npt.NDArray[np.float64]


class Alarm(NamedTuple):
    """One thing that is worse (or, among improvements, better)."""

    rung: str
    family: str
    title: str
    unit: str  # label of the rank, pair or node; "" for what all share
    node: str
    effect: float  # share; negative is worse
    confirmed: bool
    refuted: bool  # a re-run settled it as chance; neither: it waits for one
    test: str


class Asked(NamedTuple):
    """One number against earlier nights: what all its units share, and what each adds (None: too few units)."""

    series: Series
    shared: Deviation
    own: Deviation | None
    past: tuple[Usual, Usual] | None = None  # what both are held against, for re-runs

    @property
    def parts(self) -> list[Deviation]:
        """Both as a list."""
        return [self.shared] if self.own is None else [self.shared, self.own]


def floor_of(metric: str) -> float:
    """The smallest difference between nights that matters for a metric."""
    return FLOORS.get(family(metric), FLOOR)


def judged(night: Night) -> list[Series]:
    """The series that have a goodness: positive times and rates."""
    return [s for s in night.series if s.better != "equal" and s.unit != "1"]


def against_nights(series: Series, tonight: Night, before: Sequence[Night]) -> Asked:
    """One number of tonight against the last comparable nights on which it passed."""
    shared, own = _parts(_rows(series, _comparable(series, before)))
    return _against(series, tonight, (ladder.usual(shared), ladder.usual(own)))


def _against(series: Series, tonight: Night, past: tuple[Usual, Usual]) -> Asked:
    shared, own = _parts(_goodness(tonight, series)[None])
    floor = floor_of(series.metric)
    common = ladder.against_history(past[0], shared[0], floor=floor)
    enough = len(series.labels) >= ladder.PEERS
    return Asked(series, common, ladder.against_history(past[1], own[0], floor=floor) if enough else None, past)


def night_alarms(asked: Sequence[Asked], before: Sequence[Night], reruns: Sequence[Night]) -> list[Alarm]:
    """Suspects of the night rung; confirmed where the re-runs see them and chance does not explain them.

    Chance is counted apart over what units share (few series) and over what is their own (very many).
    """
    again = [[_again(a, night, before) for a in asked] for night in reruns]
    shared = ladder.sound_occasions(_joined(asked, shared=True), [_joined(each, shared=True) for each in again])
    own = _joined(asked, shared=False), [_joined(each, shared=False) for each in again]
    real = [ladder.confirmed(*tries) for tries in (shared, own)]
    settled = [ladder.refuted(*tries, found) for tries, found in zip((shared, own), real, strict=True)]
    return alarms("night", asked, lambda d: d.suspect, confirmed=(real[0], real[1]), refuted=(settled[0], settled[1]))


def alarms(
    rung: str,
    asked: Sequence[Asked],
    pick: Callable[[Deviation], Bools],
    *,
    confirmed: tuple[Bools, Bools] | None = None,
    refuted: tuple[Bools, Bools] | None = None,
) -> list[Alarm]:
    """What `pick` picks, as alarms; `confirmed` and `refuted` have an entry per series, of the shared and own ones."""
    found = []
    at = [0, 0]
    for a in asked:
        for kind, part in enumerate(a.parts):
            for i in map(int, np.flatnonzero(pick(part))):
                real = confirmed is None or bool(confirmed[kind][at[kind] + i])
                false = refuted is not None and bool(refuted[kind][at[kind] + i])
                unit = i if kind else None
                found.append(_alarm(rung, a.series, unit, float(part.amount[i]), confirmed=real, refuted=false))
            at[kind] += len(part.amount)
    return found


def peer_alarms(tonight: Night, reruns: Sequence[Night]) -> list[Alarm]:
    """Units far behind their peers, in medians (fleet) or in samples (gray); confirmed if each re-run sees it too."""
    found = []
    for s in judged(tonight):
        if s.per in PAIRS or len(s.labels) < ladder.PEERS:
            continue
        for rung, floor, read in (("fleet", FLEET_FACTOR * floor_of(s.metric), _goodness), ("gray", GRAY_FLOOR, _gray)):
            values = read(tonight, s)
            if values is None:
                continue
            first = ladder.against_peers(values, floor=floor)
            seen = [_seen(night, s, floor, read) for night in reruns] if first.suspect.any() else []
            for i in map(int, np.flatnonzero(first.suspect)):
                tries = [each[i] for each in seen if each is not None]
                real = len(tries) >= ladder.RERUNS and all(t == SEEN for t in tries)
                amount = float(first.amount[i])
                found.append(_alarm(rung, s, i, amount, confirmed=real, refuted=NOT_SEEN in tries))
    return found


class _Crept(NamedTuple):
    """One number before and after the pinned night: both parts, nights x 1 and nights x units."""

    series: Series
    nights: list[Night]  # after it, tonight last
    old: tuple[Floats, Floats]
    new: tuple[Floats, Floats]

    def against_pinned(self, off: Container[str]) -> Asked:
        """The last seven nights that nothing disturbed as a whole; where so many were, the last seven."""
        sound = [i for i, night in enumerate(self.nights) if night.run not in off]
        chosen = sound if len(sound) >= ladder.DRIFT_NIGHTS else list(range(len(self.nights)))
        floor = DRIFT_SHARE * floor_of(self.series.metric)
        spreads = [ladder.steady_spread(*both) for both in zip(self.old, self.new, strict=True)]
        usual = np.median(spreads[1])  # of the units; one unit's few nights may be alike, or wild, by chance
        spreads[1] = np.maximum(usual, (spreads[1] + usual) / 2)
        parts = [
            ladder.against_pinned(new[chosen], old, spread=spread, floor=floor)
            for new, old, spread in zip(self.new, self.old, spreads, strict=True)
        ]
        return Asked(self.series, parts[0], parts[1] if len(self.series.labels) >= ladder.PEERS else None)


def drift_alarms(tonight: Night, before: Sequence[Night], pin: str) -> list[Alarm]:
    """What crept away from the pinned nights, the baseline (a folder's name) and those before it, beyond chance."""
    place = next((i for i, night in enumerate(before) if night.folder.name == pin), None)
    if place is None:
        return []
    crept = []
    for s in judged(tonight):
        old = _rows(s, _comparable(s, before[: place + 1]))
        nights = [*_comparable(s, before[place + 1 :]), tonight][-ladder.DRIFT_WINDOW :]
        if len(old):
            crept.append(_Crept(s, nights, _parts(old), _parts(_rows(s, nights))))
    if not crept:
        return []
    off = _disturbed(crept)
    asked = [each.against_pinned(off) for each in crept]
    real = [_beyond_chance(_joined(asked, shared=kind)) for kind in (True, False)]
    return [a for a in alarms("drift", asked, lambda d: d.suspect, confirmed=(real[0], real[1])) if a.confirmed]


def _beyond_chance(d: Deviation) -> Bools:
    return ladder.beyond_chance(d.suspect, d.chance, rate=ladder.DRIFT_RATE)


def _disturbed(crept: Sequence[_Crept]) -> set[str]:
    """The runs on which most numbers were far below what they were when the baseline was pinned."""
    names = list(dict.fromkeys(night.run for each in crept for night in each.nights))
    shared = np.full((len(names), len(crept)), np.nan)
    for column, each in enumerate(crept):
        shared[[names.index(night.run) for night in each.nights], column] = each.new[0][:, 0]
    pinned = [ladder.usual(each.old[0]) for each in crept]
    joined = Usual(*(np.concatenate([getattr(one, name) for one in pinned]) for name in Usual._fields))
    floor = np.array([floor_of(each.series.metric) for each in crept])
    return {names[i] for i in np.flatnonzero(ladder.disturbed(shared, joined, floor=floor))}


def _goodness(night: Night, series: Series) -> Floats:
    return ladder.goodness(night.medians(series), series.better)


def _gray(night: Night, series: Series) -> Floats | None:
    """Minus what the samples of each unit lack; None where there were too few samples."""
    missing = night.missing(series)
    return None if missing is None else -missing


def _seen(
    night: Night, series: Series, floor: float, read: Callable[[Night, Series], Floats | None]
) -> npt.NDArray[np.int64] | None:
    """Per unit whether another night sees it behind its peers as well; None where it did not measure the same."""
    other = night.by_key.get(series.key)
    values = None if other is None else read(night, other)
    if other is None or values is None:
        return None
    found = ladder.against_peers(values, floor=floor)
    seen = np.where(found.suspect, SEEN, np.where(found.known, NOT_SEEN, UNKNOWN))
    return _placed(series, other, seen, absent=UNKNOWN)


def _placed(series: Series, other: Series, values: npt.NDArray[Any], *, absent: Any) -> npt.NDArray[Any]:
    """A value of each unit of `other` in the order of the units of `series`, which may be others; by lasting name."""
    if other.lasting == series.lasting:
        return values
    at = {name: i for i, name in enumerate(other.lasting)}
    return np.array([values[at[name]] if name in at else absent for name in series.lasting], dtype=values.dtype)


def _comparable(series: Series, before: Sequence[Night]) -> list[Night]:
    """The last nights on which this number was measured and passed."""
    good = [night for night in before if (old := night.by_key.get(series.key)) and old.passed]
    return good[-ladder.HISTORY :]


def _rows(series: Series, nights: Sequence[Night]) -> Floats:
    """Nights x units in goodness, for the units of `series`; nan where a night lacks one."""
    rows = np.full((len(nights), len(series.labels)), np.nan)
    for row, night in zip(rows, nights, strict=True):
        if old := night.by_key.get(series.key):
            row[:] = _placed(series, old, _goodness(night, old), absent=np.nan)
    return rows


def _parts(rows: Floats) -> tuple[Floats, Floats]:
    """What the units of each night (first axis) share, nights x 1, and what each adds, nights x units."""
    shared = ladder.median_of(rows.T)[:, None]
    return shared, rows - shared


def _again(asked: Asked, rerun: Night, before: Sequence[Night]) -> Asked:
    """The same number of a re-run against the same nights; unknown where the re-run lacks it."""
    series = rerun.by_key.get(asked.series.key)
    if series is None:
        return Asked(asked.series, _unknown(asked.shared.amount.shape), asked.own and _unknown(asked.own.amount.shape))
    alike = asked.past is not None and series.lasting == asked.series.lasting
    found = _against(series, rerun, asked.past) if alike and asked.past else against_nights(series, rerun, before)
    if asked.own is None or found.own is None:
        return Asked(asked.series, found.shared, asked.own and _unknown(asked.own.amount.shape))
    d, shape = found.own, found.own.amount.shape
    own = Deviation(
        amount=_placed(asked.series, series, d.amount, absent=0.0),
        threshold=_placed(asked.series, series, np.broadcast_to(d.threshold, shape), absent=0.0),
        chance=_placed(asked.series, series, d.chance, absent=1.0),
        known=_placed(asked.series, series, d.known, absent=False),
    )
    return Asked(asked.series, found.shared, own)


def _unknown(shape: tuple[int, ...]) -> Deviation:
    """Nothing is known of so many series."""
    return Deviation(np.zeros(shape), np.zeros(shape), np.ones(shape), np.zeros(shape, dtype=bool))


def _joined(asked: Sequence[Asked], *, shared: bool) -> Deviation:
    """All shared or all own series of a night in one row."""
    parts = [a.shared if shared else a.own for a in asked]
    known = [part for part in parts if part is not None]
    if not known:
        return Deviation(np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0, dtype=bool))
    return Deviation(*(np.concatenate([np.ravel(part[i]) for part in known]) for i in range(4)))


def _alarm(rung: str, series: Series, place: int | None, amount: float, *, confirmed: bool, refuted: bool) -> Alarm:
    return Alarm(
        rung=rung,
        family=family(series.metric),
        title=series.title,
        unit="" if place is None else series.labels[place],
        node="" if place is None else series.nodes[place],
        effect=float(np.expm1(amount)),
        confirmed=confirmed,
        refuted=refuted,
        test=series.test,
    )
