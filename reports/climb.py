"""The whole ladder on one night: from indexed nights to what is worse, what waits for a re-run, and what is not there.

Reads no file and prints nothing; `python -m reports nightly` and `confirm` do. The rungs are reports/rungs.py's.

    climbed = climb(tonight, before, reruns=[again_1, again_2], pin="night-003")
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reports.archive import Night
from reports.findings import family
from reports.rungs import Alarm, against_nights, alarms, drift_alarms, judged, night_alarms, peer_alarms

RECENT = 5  # nights that say what a night usually measures


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
class Climbed:
    """What the rungs found."""

    groups: tuple[Group, ...]  # real, worst first
    suspects: tuple[Alarm, ...]  # waiting for a re-run
    refuted: tuple[Alarm, ...]  # the re-runs did not see them
    improved: tuple[Alarm, ...]
    unbased: int  # numbers with too few comparable nights
    gone: tuple[tuple[str, str], ...]  # (metric, params) that other nights have and tonight does not even expect
    changed: tuple[str, ...]  # metrics whose unit or direction is another one than before: never compared


def climb(tonight: Night, before: Sequence[Night], *, reruns: Sequence[Night] = (), pin: str = "") -> Climbed:
    """Hold a night against those before it (oldest first), its own fleet, and the pinned one (its folder's name)."""
    asked = [against_nights(series, tonight, before) for series in judged(tonight)]
    suspects = [*night_alarms(asked, before, reruns), *peer_alarms(tonight, reruns)]
    crept = drift_alarms(tonight, before, pin) if pin else []
    return Climbed(
        groups=tuple(grouped([*(a for a in suspects if a.confirmed), *crept])),
        suspects=tuple(a for a in suspects if not (a.confirmed or a.refuted)),
        refuted=tuple(a for a in suspects if a.refuted),
        improved=tuple(alarms("night", asked, lambda d: d.improved)),
        unbased=sum(not a.shared.known.any() for a in asked),
        gone=gone(tonight, before),
        changed=tuple(changed_units(tonight, before)),
    )


def grouped(found: Sequence[Alarm]) -> list[Group]:
    """Alarms of one node and family together, the worst group first."""
    groups: dict[tuple[str, str], list[Alarm]] = defaultdict(list)
    for alarm in found:
        groups[alarm.node or alarm.unit, alarm.family].append(alarm)
    made = [Group(node, name, tuple(sorted(each, key=lambda a: a.effect))) for (node, name), each in groups.items()]
    return sorted(made, key=lambda group: group.effect)


def gone(tonight: Night, before: Sequence[Night]) -> tuple[tuple[str, str], ...]:
    """Numbers that most of the last nights of this suite and size measured, and tonight does not expect."""
    alike = [n for n in before if (n.cluster, n.suite, n.nodes) == (tonight.cluster, tonight.suite, tonight.nodes)]
    recent = alike[-RECENT:]
    counts = Counter((s.metric, s.key[1]) for night in recent for s in night.series)
    expected = {(metric, params) for metric, params, *_ in tonight.expected}
    return tuple(sorted(name for name, n in counts.items() if name not in expected and 2 * n > len(recent)))


def changed_units(tonight: Night, before: Sequence[Night]) -> list[str]:
    """Metrics that were measured in another unit, or with another direction, on the last night that had them."""
    old: dict[str, tuple[str, str, str]] = {}
    for night in before:
        old |= {metric: (unit, better, night.run) for metric, _, unit, better in night.expected}
    new = {metric: (unit, better) for metric, _, unit, better in tonight.expected}
    return [
        f"{metric} changed its unit: {old[metric][0]} ({old[metric][1]} is better) until {old[metric][2]}, "
        f"now {unit} ({better} is better)"
        for metric, (unit, better) in sorted(new.items())
        if metric in old and old[metric][:2] != (unit, better)
    ]


def families(names: Sequence[tuple[str, str]]) -> str:
    """Numbers counted by family: 3 gemm, 1 links."""
    return ", ".join(f"{n} {name}" for name, n in Counter(family(metric) for metric, _ in names).items())
