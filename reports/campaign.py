"""How a run went: launches, batches, attempts, errors, and where the time was spent that measured nothing.

Read from the run's events for the page. Seconds throughout.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from benchmarks.measurement import Environment, Event
from reports.evidence import listed
from reports.quantities import quantity
from reports.runs import StoredRun

PAUSE_S = 30.0  # a longer gap between two batches is a pause between campaigns: not drawn


@dataclass(frozen=True, kw_only=True)
class Error:
    """One thing that went wrong, with where it was."""

    reason: str
    config: str
    attempt: int
    stack: str
    log: str  # the folder of its launch's output, in the run folder


@dataclass(frozen=True, kw_only=True)
class Course:
    """A run's course in numbers."""

    launches: int
    launch_s: float
    batches: int
    batch_s: float
    overhead_s: float  # of the batches: waiting before the first and after the last record
    spans: tuple[tuple[float, float, str, str], ...]  # begin, end, css class, label; pauses closed up
    errors: tuple[Error, ...]
    happened: tuple[tuple[str, str], ...]  # (time, words): resumed, tested again, interrupted

    @property
    def total_s(self) -> float:
        """Seconds from the first launch to the last batch, pauses left out."""
        return self.spans[-1][1] if self.spans else 0.0

    @property
    def measuring_s(self) -> float:
        """Seconds in which records came."""
        return self.batch_s - self.overhead_s


def course(stored: StoredRun) -> Course:
    """What happened, from the run's events."""
    by: dict[str, list[Event]] = defaultdict(list)
    for event in stored.events:
        by[event.kind].append(event)
    return Course(
        launches=len(by["launch"]),
        launch_s=sum(_seconds(e) for e in by["launch"]),
        batches=len(by["batch"]),
        batch_s=sum(_seconds(e) for e in by["batch"]),
        overhead_s=sum(float(e.detail.get("overhead_s") or 0) for e in by["batch"]),
        spans=tuple(_spans(by["launch"] + by["batch"])),
        errors=tuple(_error(e) for e in by["error"]),
        happened=tuple((e.at, _words(e)) for kind in ("resumed", "retest", "interrupted", "noisy") for e in by[kind]),
    )


def _spans(events: list[Event]) -> list[tuple[float, float, str, str]]:
    """Launches and batches one after the other; an event's time is its end."""
    timed = sorted(((_when(e) - _seconds(e), _seconds(e), e) for e in events if e.at), key=lambda item: item[:2])
    spans: list[tuple[float, float, str, str]] = []
    clock = previous = timed[0][0] if timed else 0.0
    origin = clock
    for begin, seconds, e in timed:
        clock += min(max(begin - previous, 0.0), PAUSE_S)
        css = "launch" if e.kind == "launch" else f"batch {e.detail.get('benchmark', '')}"
        name = f"launch {e.detail.get('number')}" if e.kind == "launch" else str(e.detail.get("config"))
        spans.append((clock - origin, clock - origin + seconds, css, f"{name}: {quantity(seconds, 's')}"))
        clock += seconds
        previous = begin + seconds
    return spans


def _error(event: Event) -> Error:
    detail = event.detail
    return Error(
        reason=str(detail.get("reason") or "no reason recorded"),
        config=str(detail.get("config") or f"launch {detail.get('launch', '')}"),
        attempt=int(detail.get("attempt") or 1),
        stack=str(detail.get("stack") or ""),
        log=f"logs/launch-{detail['launch']}" if "launch" in detail else "",
    )


def _words(event: Event) -> str:
    detail = event.detail
    by = f", by {detail['by']}" if detail.get("by") else ""
    if event.kind == "retest":
        return f"tested again: {detail.get('what', '')}{by}"
    if event.kind == "resumed":
        return f"resumed{by}"
    if event.kind == "noisy":
        return f"measured longer, too noisy to decide: {listed(detail.get('configs', []))}"
    return event.kind


def _seconds(event: Event) -> float:
    return float(event.detail.get("seconds") or 0.0)


def _when(event: Event) -> float:
    return datetime.fromisoformat(event.at).timestamp()


def shared_facts(
    environments: dict[str, Environment],
) -> tuple[list[tuple[str, str]], list[tuple[str, list[tuple[str, str]]]]]:
    """The facts that all nodes share, and for each that differs its values with the nodes that have them."""
    values: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for node, environment in environments.items():
        for name, value in flat(environment.facts):
            values[name][value].append(node)
    shared, differing = [], []
    for name, by_value in values.items():
        known = sum(len(nodes) for nodes in by_value.values())
        if len(by_value) == 1 and known == len(environments):
            shared.append((name, next(iter(by_value))))
        elif name != "hostname":
            absent = sorted(set(environments) - {node for nodes in by_value.values() for node in nodes})
            rows = [(value, listed(sorted(nodes))) for value, nodes in by_value.items()]
            differing.append((name, rows + ([("not known", listed(absent))] if absent else [])))
    return shared, differing


def flat(facts: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested facts as (dotted name, text); a list of devices becomes "8 x NAME".

    >>> flat({"torch": "2.13", "gpus": [{"name": "H100"}, {"name": "H100"}], "memory_bytes": 1073741824})
    [('torch', '2.13'), ('gpus', '2 x H100'), ('memory', '1 GiB')]
    """
    found = []
    for key, value in facts.items():
        name = prefix + key
        if isinstance(value, dict):
            found += flat(value, f"{name}.")
        elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            counts = Counter(str(item.get("name", item)) for item in value)
            found.append((name, ", ".join(f"{n} x {item}" for item, n in counts.items())))
        elif name.endswith("_bytes") and isinstance(value, int):
            found.append((name.removesuffix("_bytes"), quantity(value, "B")))
        elif isinstance(value, list):
            found.append((name, ", ".join(map(str, value))))
        else:
            found.append((name, str(value)))
    return found
