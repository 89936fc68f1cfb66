"""Reads a GPU's own timeline of one step: how long it computes, and how long it waits for which communication.

torch's profiler records every kernel with its stream, start and length; NCCL's kernels carry the name of
their process group. Communication that runs while something computes is hidden; the rest is exposed.
Nothing here needs a GPU: the timeline is the JSON that the profiler exports.

>>> parts = read([{"ph": "X", "cat": "kernel", "name": "gemm", "ts": 0, "dur": 4, "args": {}}], axes={})
>>> parts.compute
4e-06
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Seconds of one rank's device between its first and its last kernel."""

    compute: float  # at least one kernel that does not communicate
    exposed: dict[str, float]  # by axis: communication and nothing else; where two overlap, the first in ORDER has it
    flown: dict[str, float]  # by axis: communication, hidden or not
    idle: float  # nothing at all


ORDER = ("tp", "cp", "dp", "copies", "pp", "other")


def read(events: Iterable[dict[str, Any]], *, axes: dict[object, str]) -> Parts:
    """The parts of a timeline; `axes` names the axis of a group by its ranks and by its name."""
    compute: list[Interval] = []
    sent: dict[str, list[Interval]] = defaultdict(list)
    for event in events:
        if event.get("ph") != "X" or event.get("cat") not in ON_DEVICE:
            continue
        span = float(event["ts"]) * 1e-6, (float(event["ts"]) + float(event["dur"])) * 1e-6
        if event["name"].startswith("nccl"):
            of = event.get("args", {})
            sent[axes.get(_ranks(of)) or axes.get(of.get("Process Group Name"), "other")].append(span)
        else:
            compute.append(span)
    busy, exposed, flown = joined(compute), {}, {}
    covered = busy
    for axis in ORDER:
        if axis in sent:
            flown[axis] = length(joined(sent[axis]))
            together = joined([*covered, *sent[axis]])
            exposed[axis] = length(together) - length(covered)
            covered = together
    whole = covered[-1][1] - covered[0][0] if covered else 0.0
    return Parts(compute=length(busy), exposed=exposed, flown=flown, idle=whole - length(covered))


def kernels(events: Iterable[dict[str, Any]], *, most: int = 12) -> list[tuple[str, int, float]]:
    """The kernels that take longest: name, how many, seconds of all of them."""
    found: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if event.get("ph") == "X" and event.get("cat") in ON_DEVICE:
            found[event["name"]].append(float(event["dur"]) * 1e-6)
    rows = [(name, len(spans), sum(spans)) for name, spans in found.items()]
    return sorted(rows, key=lambda row: -row[2])[:most]


def joined(spans: Sequence[Interval]) -> list[Interval]:
    """The union of intervals, in order, without overlap.

    >>> joined([(3.0, 4.0), (0.0, 2.0), (1.0, 2.5)])
    [(0.0, 2.5), (3.0, 4.0)]
    """
    found: list[Interval] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found


def length(spans: Iterable[Interval]) -> float:
    """Seconds that intervals without overlap cover."""
    return sum(end - begin for begin, end in spans)


def _ranks(arguments: dict[str, Any]) -> tuple[int, ...]:
    """The ranks of an NCCL kernel's group; the profiler writes them as text and cuts long lists short."""
    text = arguments.get("Process Group Ranks", "[]")
    try:
        ranks = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return ()
    return tuple(ranks) if isinstance(ranks, list) else ()
