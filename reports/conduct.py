"""How a run was conducted: who started its ranks, on which nodes, at what cost, by what time-outs, and what stayed.

Read from the run's events for the page; each line is a term and its words. Nothing is judged here.

>>> conduct([])
[]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from benchmarks.measurement import Event
from reports.evidence import listed
from reports.quantities import quantity

PARTS = {"import_s": "import", "group_s": "group"}
Line = tuple[str, str]


def conduct(events: Iterable[Event]) -> list[Line]:
    """Terms and words, of the last campaign where several measured in one run; leftovers and losses of all."""
    by: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        by[event.kind].append(event.detail)
    found: list[Line] = []
    for detail in by["nodes"][-1:]:
        found += _nodes(detail)
    found += [("known to be bad", line) for detail in by["known_bad"][-1:] for line in detail.get("lines", ())]
    if by["launch"]:
        found.append(("start-up", _start_up(by["launch"])))
    found += [("time-outs", line.removeprefix("time-outs: ")) for d in by["timeouts"][-1:] for line in d["lines"]]
    for detail in by["continued"]:
        found.append(("went on without", f"{listed(detail['without'])}, in a run of its own beside this one"))
    found += [("left behind", what) for detail in by["leftover"] for what in detail.get("what", ())]
    return found


def _nodes(detail: dict[str, Any]) -> list[Line]:
    hosts, left_out = detail.get("hosts", ()), detail.get("left_out", ())
    found = [("ranks started by", f"{detail.get('launcher')} ({detail.get('why')})")]
    if hosts:
        found.append(("nodes", f"{len(hosts)}: {listed(hosts)}"))
    if left_out:
        found.append(("left out", listed(left_out)))
    return found


def _start_up(launches: list[dict[str, Any]]) -> str:
    """What came before any measuring: at many ranks on a shared file system the import is what hurts."""
    slowest = max(launches, key=lambda launch: float(launch.get("seconds") or 0))
    whole = quantity(float(slowest.get("seconds") or 0), "s")
    parts = " and ".join(f"{words} {quantity(float(slowest.get(key) or 0), 's')}" for key, words in PARTS.items())
    worlds = len({str(launch.get("place")) for launch in launches})
    many = f"{len(launches)} launches for {worlds} kind(s) of world" if len(launches) > 1 else "one launch"
    return f"{many}; until the group was up, {whole} at most, of it {parts}"
