"""What a save's limit asks of storage, what the network could carry, where the cluster lies, and what saving costs.

    panels(stored)      # bandwidths on one scale, time lost over the interval, what more nodes would reach

Drawn from the records, the cluster file and the benchmark's settings; nothing is judged here. What was worked out for
more nodes than were measured is called PROJECTED wherever it stands.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from benchmarks.measurement import Expected, Measurement
from clusters.physics import daly_interval, lost_share
from reports.drawing import Frame, Panel, Point, grid, mark, path, svg, text, ticks, y_axis
from reports.quantities import duration, quantity
from reports.runs import StoredRun
from reports.statistics import Estimate, estimates, median

WIDE, ROW = 720.0, 26.0
SAVE, RAW, ROWS, SCALING = (
    "checkpoint.save.time", "checkpoint.raw.bandwidth", "checkpoint.sustained.bandwidth",
    "checkpoint.scaling.bandwidth",
)  # fmt: skip
STALL = "checkpoint.save.stall"
CURVE = 60  # points
TIMES = (1, 10, 60, 600, 3600, 36_000, 360_000)  # that are named on an axis, seconds


@dataclass(kw_only=True)
class Saves:
    """The sound numbers of one layout's checkpoint: one config and one size."""

    size: int
    config: str
    times: dict[str, Measurement] = field(default_factory=dict)  # writer -> save.time
    stalls: dict[str, Measurement] = field(default_factory=dict)  # of asynchronous writers
    raw: Measurement | None = None
    rows: Measurement | None = None
    projected: bool = False


def panels(stored: StoredRun) -> list[Panel]:
    """Those that the run's records allow, in this order."""
    sound = list(_sound(stored))
    found: dict[Any, Saves] = {}
    for e, m in sound:
        size = e.params.get("bytes")
        if e.metric not in (SAVE, RAW, ROWS, STALL) or not isinstance(size, int) or size < 1:
            continue
        saves = found.setdefault((size, e.params.get("contents")), Saves(size=size, config=e.config))
        saves.projected |= bool(e.params.get("projected"))
        _keep(saves, e, m)
    made = [panel for saves in found.values() for panel in (_scale(stored, saves), _lost(stored, saves)) if panel]
    return made + _doublings(sound)


def _keep(saves: Saves, e: Expected, m: Measurement) -> None:
    if e.metric == SAVE:
        saves.times[str(e.params.get("writer"))] = m
        saves.config = e.config
    elif e.metric == STALL:
        saves.stalls[str(e.params.get("writer"))] = m
    elif e.metric == RAW:
        saves.raw = m
    else:
        saves.rows = m


def _sound(stored: StoredRun) -> Iterator[tuple[Expected, Measurement]]:
    for e in stored.run.expected:
        if not e.metric.startswith("checkpoint."):
            continue
        attempts = stored.evidence.attempts(e)
        if attempts and not attempts[-1].problem:
            mine = [m for m in stored.evidence.by_key[e.config, e.key] if m.attempt == attempts[-1].number]
            yield from ((e, m) for m in mine[:1] if m.samples)


def _scale(stored: StoredRun, saves: Saves) -> Panel | None:
    """Bandwidths on one scale, from what the limit needs to what the network carries."""
    rates = [(f"saved by {w}", saves.size / median(m.samples), "bar") for w, m in sorted(saves.times.items())]
    if saves.raw:
        rates.append(("plain writes", median(saves.raw.samples), "bar"))
    if saves.rows:
        rates.append(
            (f"{saves.rows.notes.get('saves', 'saves')} in a row, last third", median(saves.rows.samples), "bar")
        )
    if not rates:
        return None
    limits = [x for x in stored.cluster.limits if x.metric == SAVE and x.bound == "ceiling" and x.of == "value"]
    within = sorted({x.value for x in limits})
    rates += [(f"{_long(s)} need", saves.size / s, "before-band") for s in within]
    network = stored.cluster.network.node_rate * stored.run.nodes
    if network:
        rates.append((f"the network carries, {stored.run.nodes} nodes", network, "before-band"))
    rates.sort(key=lambda row: row[1])
    told = "; ".join(f"{name} {quantity(rate, 'B/s')}" for name, rate, _ in rates)
    label = "PROJECTED · " if saves.projected else ""
    detail = f"{label}{both(saves.size)} · logarithmic"
    if not within:
        detail += " · the cluster file limits no time to save in"
    return Panel(title="what saving needs and gets", detail=detail, chart=_bars(rates, what=told), wide=True)


def both(size: int) -> str:
    """Bytes, decimal and binary.

    >>> both(58_772_744)
    '58,772,744 bytes = 58.77 MB = 56.05 MiB'
    """
    decimal, binary = ((1e9, "GB"), (2**30, "GiB")) if size >= 1e9 else ((1e6, "MB"), (2**20, "MiB"))
    return f"{size:,} bytes = {size / decimal[0]:.4g} {decimal[1]} = {size / binary[0]:.4g} {binary[1]}"


def _bars(rates: Sequence[tuple[str, float, str]], *, what: str) -> Markup:
    low, high = math.log10(rates[0][1]) - 0.5, math.log10(rates[-1][1])
    frame = Frame(WIDE, len(rates) * ROW + 8, low, high if high > low else low + 1, 0, 1, left=190, right=90)
    parts = []
    for i, (name, rate, css) in enumerate(rates):
        y, end = i * ROW + 4, frame.x(math.log10(rate))
        box = f'x="{frame.left:g}" y="{y:g}" width="{max(1.0, end - frame.left):.1f}" height="{ROW - 8:g}"'
        parts.append(text(frame.left - 8, y + 13, name, "tick end"))
        parts.append(f'<rect class="{css}" {box}/>')
        parts.append(text(end + 6, y + 13, quantity(rate, "B/s"), "tick"))
    return svg(frame, parts, what, css="wide")


def _lost(stored: StoredRun, saves: Saves) -> Panel | None:
    """Share of training time lost over the interval between saves, with the best interval (Young, Daly)."""
    spec = next((c.spec for c in stored.run.configs if c.id == saves.config), {})
    mtbf_s, restart_s = float(spec.get("mtbf_s", 0) or 0), float(spec.get("restart_s", 0) or 0)
    costs = {w: saves.stalls.get(w, m) for w, m in saves.times.items()}  # an asynchronous save stops only for its stall
    if not mtbf_s or not costs:
        return None
    writer = min(costs, key=lambda w: median(costs[w].samples))
    save_s = median(costs[writer].samples)
    best = daly_interval(save_s=save_s, mtbf_s=mtbf_s)
    interval = float(spec.get("interval_s", 0) or 0)
    marks = [(best, "best")] + ([(interval, "the cluster file's")] if interval else [])
    said = [
        f"{name} interval {_long(at)}: {_share(at, save_s, restart_s, mtbf_s):.2%} lost" for at, name in marks
    ]  # fmt: skip
    label = "PROJECTED · " if saves.projected else ""
    detail = (
        f"{label}{writer} stops training for {_long(save_s)} · a failure of the job every {_long(mtbf_s)}, "
        f"{_long(restart_s)} to go on · {'; '.join(said)} (Daly 2006)"
    )
    chart = _curve([at for at, _ in marks], save_s, restart_s, mtbf_s, what="; ".join(said))
    return Panel(title="training time lost to saves and failures", detail=detail, chart=chart, wide=True)


def _long(seconds: float) -> str:
    """Seconds in words; short ones with digits that count."""
    return quantity(seconds, "s") if seconds < 60 else duration(seconds)


def _share(interval_s: float, save_s: float, restart_s: float, mtbf_s: float) -> float:
    return lost_share(interval_s=interval_s, save_s=save_s, restart_s=restart_s, mtbf_s=mtbf_s)


def _curve(marks: Sequence[float], save_s: float, restart_s: float, mtbf_s: float, *, what: str) -> Markup:
    low, high = math.log10(min(marks) / 10), math.log10(max(marks) * 10)
    xs = [low + (high - low) * i / (CURVE - 1) for i in range(CURVE)]
    ys = [_share(10**x, save_s, restart_s, mtbf_s) for x in xs]
    frame = Frame(WIDE, 190, low, high, 0.0, max(ys) * 1.08)
    points = [(frame.x(x), frame.y(y)) for x, y in zip(xs, ys, strict=True)]
    times = [(frame.x(math.log10(s)), _long(s)) for s in TIMES if low <= math.log10(s) <= high]
    dots = []
    for at in marks:
        share = _share(at, save_s, restart_s, mtbf_s)
        x, y = frame.x(math.log10(at)), frame.y(share)
        dots.append(mark(x, y, Point(at, Estimate(share, share, share, 1)), "1", _long(at)))
        dots.append(text(x, y - 9, f"{_long(at)}: {share:.2%}", "tick mid"))
    parts = [
        *(grid(frame, y, f"{y:.3g}" if y < 0.01 else f"{y:.0%}") for y in ticks(0.0, frame.y_high, 4)),
        *(text(x, frame.height - 8, name, "tick end" if x > WIDE - 60 else "tick mid") for x, name in times),
        f'<polyline class="line" points="{path(points)}"/>', *dots,
    ]  # fmt: skip
    return svg(frame, parts, what, css="wide")


def _doublings(sound: Sequence[tuple[Expected, Measurement]]) -> list[Panel]:
    """B/s by number of nodes with the same bytes per rank, and what was projected from it."""
    by_writer: dict[tuple[str, str], dict[int, Estimate]] = defaultdict(dict)
    for e, m in sound:
        if e.metric == SCALING:
            key = e.config, str(e.params["writer"])
            by_writer[key][int(e.params["nodes"])] = estimates([m.samples]).at(0)
    found = []
    for (config, writer), steps in by_writer.items():
        mine = [
            (e, m) for e, m in sound if e.config == config and e.params.get("projected")
            and e.params.get("writer", "raw") == writer
        ]  # fmt: skip
        found.append(_steps(writer, steps, mine))
    return found


def _steps(writer: str, steps: dict[int, Estimate], projected: Sequence[tuple[Expected, Measurement]]) -> Panel:
    most = max(steps)
    points = [Point(math.log2(n), steps[n], "pass", f"{n}") for n in sorted(steps)]
    detail = f"{writer} · the same bytes and files per rank on {', '.join(map(str, sorted(steps)))} nodes"
    if most > 1 and most // 2 in steps:
        kept = steps[most].median / (2 * steps[most // 2].median)
        detail += f" · the last doubling keeps {kept:.0%}"
    further = []
    for e, m in projected[:1]:
        rate = median(m.samples) if e.unit == "B/s" else int(e.params["bytes"]) / median(m.samples)
        further = [Point(math.log2(2 * most), Estimate(rate, rate, rate, len(m.samples)), "noisy", f"{2 * most}?")]
        detail += f" · {m.notes.get('projected', 'PROJECTED')}: {quantity(rate, 'B/s')}, which passes nothing"
    linear = steps[min(steps)].median / min(steps)
    top = max([p.value.high for p in points + further] + [linear * most]) * 1.1
    frame = Frame(360, 210, 0.0, math.log2(2 * most), 0.0, top)
    named = [text(frame.x(p.x), frame.y(p.value.median) + 18, "PROJECTED", "tick end") for p in further]
    line = path([(frame.x(p.x), frame.y(p.value.median)) for p in points])
    ideal = path([(frame.x(math.log2(n)), frame.y(linear * n)) for n in sorted(steps)])
    parts = [
        y_axis(frame, "B/s"), *(text(frame.x(p.x), frame.height - 8, p.label, "tick mid") for p in points + further),
        f'<polyline class="before" points="{ideal}"/>', f'<polyline class="line" points="{line}"/>',
        *(mark(frame.x(p.x), frame.y(p.value.median), p, "B/s", p.label) for p in points + further), *named,
    ]  # fmt: skip
    return Panel(title="bandwidth by nodes", detail=detail, chart=svg(frame, parts, detail))
