"""The conditions strip: what the nodes saw around each benchmark, as lanes over the run.

    panel(stored)      # None where no conditions were recorded

One record a node brackets each benchmark. A lane shows the lowest, middle and highest node (of GPUs: the slowest
clock and the hottest of a node). What nobody recorded has no lane.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from benchmarks.measurement import Measurement
from reports import spans
from reports.drawing import Panel
from reports.evidence import CONDITIONS
from reports.quantities import digits
from reports.runs import StoredRun
from reports.spans import Lane
from reports.statistics import median

COLUMNS = 80  # benchmarks on a strip; of more the last ones
Read = Callable[[Mapping[str, Any]], float | None]


def _gpus(conditions: Mapping[str, Any], name: str) -> list[float]:
    gpus = conditions.get("gpus")
    return [
        float(g[name])
        for g in (gpus if isinstance(gpus, list) else [])
        if isinstance(g, dict) and isinstance(g.get(name), int | float)
    ]


def _slowest(conditions: Mapping[str, Any]) -> float | None:
    return min(_gpus(conditions, "sm_clock_mhz"), default=None)


def _hottest(conditions: Mapping[str, Any]) -> float | None:
    return max(_gpus(conditions, "temperature_c"), default=None)


def _errors(conditions: Mapping[str, Any]) -> float | None:
    counted = [*_gpus(conditions, "ecc_corrected"), *_gpus(conditions, "ecc_uncorrected")]
    xids = conditions.get("xids")
    return sum(counted) + float(xids or 0.0) if counted or isinstance(xids, int | float) else None


def _plain(name: str) -> Read:
    def read(conditions: Mapping[str, Any]) -> float | None:
        value = conditions.get(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    return read


LANES: tuple[tuple[str, str, Read], ...] = (
    ("slowest SM clock", "MHz", _slowest),
    ("hottest GPU", "°C", _hottest),
    ("ECC and Xid errors", "1", _errors),
    ("load, 1 min", "1", _plain("load_1m")),
    ("retransmits", "1", _plain("retransmits")),
    ("CPU steal", "1", _plain("cpu_steal")),
    ("held back by cgroup", "s", _plain("cgroup_throttled_s")),
)


def panel(stored: StoredRun) -> Panel | None:
    """The strip of a run."""
    seen: dict[tuple[str, int], list[Measurement]] = defaultdict(list)
    disqualified: dict[tuple[str, int], set[str]] = defaultdict(set)
    for m in stored.measurements:
        if m.metric == CONDITIONS:
            seen[m.config, m.attempt].append(m)
        if m.conditions.get("disqualified"):
            disqualified[m.config, m.attempt].add(m.subject.node or m.subject.label)
    if not seen:
        return None
    places = list(seen)[-COLUMNS:]
    bad = frozenset(i for i, place in enumerate(places) if disqualified[place])
    found = [Lane(name=name, unit=unit, values=_values(seen, places, read), bad=bad) for name, unit, read in LANES]
    shown = [lane for lane in found if any(_interesting(v) for v in lane.values)]
    if not shown:
        return None
    columns = [config if attempt == 1 else f"{config} ({attempt})" for config, attempt in places]
    nodes = len({m.subject.node for records in seen.values() for m in records})
    told = "; ".join(_told(lane, columns) for lane in shown)
    detail = f"{nodes} {'node' if nodes == 1 else 'nodes'}, lowest to highest, around each benchmark in its order"
    if bad:
        detail += " · a cross marks what does not count"
    if quiet := [lane.name for lane in found if any(lane.values) and lane not in shown]:
        detail += f" · always 0: {', '.join(quiet)}"
    return Panel(title="conditions", detail=detail, chart=spans.lanes(columns, shown, what=told), wide=True)


def _values(
    seen: Mapping[tuple[str, int], Iterable[Measurement]], places: Iterable[tuple[str, int]], read: Read
) -> tuple[tuple[float, float, float] | None, ...]:
    """Lowest, middle and highest node of each place."""
    found: list[tuple[float, float, float] | None] = []
    for place in places:
        known = [value for m in seen[place] if (value := read(m.conditions)) is not None]
        found.append((min(known), median(known), max(known)) if known else None)
    return tuple(found)


def _interesting(value: tuple[float, float, float] | None) -> bool:
    return value is not None and value[2] != 0


def _told(lane: Lane, columns: list[str]) -> str:
    known = [v for v in lane.values if v]
    words = f"{lane.name} from {digits(min(v[0] for v in known))} to {digits(max(v[2] for v in known))}"
    if lane.bad:
        words += f", disqualified in {', '.join(columns[i] for i in sorted(lane.bad))}"
    return words
