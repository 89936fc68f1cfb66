"""Which nodes a night tests: those that wait longest, in blocks that stay the same, without holding anybody up.

    pytest suites --cluster rack7.toml --suite nightly --nodes idle:8-32 --within-nights 7 --until 05:00

A block is always the same nodes (2, 8 or 32 neighbours of the partition), so that tonight's block has a baseline.
Of the blocks whose nodes are all idle, the one with the node that waits longest comes first; a node whose wait breaks
the promise of `--within-nights`, and that is not idle, is named. The history is what the run folders say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from reports import runs
from suites import nodes, slurm
from suites.nodes import NodesError

BLOCKS = (32, 8, 2)  # nodes; the largest that fits is taken
IDLE = re.compile(r"idle:(\d+)(?:-(\d+))?$")
NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Range:
    """How many idle nodes are wanted: `idle:MIN-MAX`."""

    least: int
    most: int

    @classmethod
    def parse(cls, text: str) -> Range | None:
        """The range of "idle:8-32" (or "idle:8"); None where it is no such thing. NodesError where it is empty."""
        found = IDLE.match(text)
        if not found:
            return None
        least, most = int(found[1]), int(found[2] or found[1])
        if not 1 <= least <= most:
            raise NodesError(f"--nodes {text}: from at least 1 node to no fewer")
        return cls(least=least, most=most)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Tonight's nodes and why."""

    nodes: tuple[str, ...]
    why: str
    overdue: tuple[str, ...] = ()  # not tested within the nights promised, and not among tonight's


def blocks(names: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """The partition in blocks of `size` neighbours, always the same; the last may be cut from the end of the list.

    >>> blocks(["n1", "n2", "n3"], 2)
    [('n1', 'n2'), ('n2', 'n3')]
    """
    if len(names) < size:
        return []
    starts = [*range(0, len(names) - size + 1, size)]
    if len(names) % size:
        starts.append(len(names) - size)
    return [tuple(names[start : start + size]) for start in starts]


def choose(
    names: Sequence[str], idle: Iterable[str], last: Mapping[str, datetime], wanted: Range, *,
    now: datetime, within_nights: int = 7,
) -> Choice:  # fmt: skip
    """Tonight's block of the partition `names`, of which `idle` are free; `last` is when each was last tested.

    Raises NodesError where no block of idle nodes is as large as the least that is wanted.
    """
    free, due = set(idle), now - timedelta(days=within_nights)
    sizes = [size for size in (*BLOCKS, wanted.least) if wanted.least <= size <= wanted.most]
    for size in dict.fromkeys(sizes):
        whole = [block for block in blocks(names, size) if free.issuperset(block)]
        if whole:
            best = min(whole, key=lambda block: _urgency(block, last))
            overdue = tuple(n for n in names if last.get(n, NEVER) < due and n not in best)
            oldest = min(last.get(n, NEVER) for n in best)
            since = f"{oldest:%Y-%m-%d}" if oldest > NEVER else "never"
            return Choice(
                nodes=best, overdue=overdue,
                why=f"{nodes.fold(best)}, idle; least recently tested: {since} ({len(whole)} idle blocks of {size})",
            )  # fmt: skip
    raise NodesError(
        f"no block of {wanted.least} to {wanted.most} idle nodes ({len(free)} of {len(names)} are idle): try later, or "
        f"a smaller --nodes idle:{BLOCKS[-1]}-{wanted.most}"
    )


def _urgency(block: Sequence[str], last: Mapping[str, datetime]) -> tuple[float, float, str]:
    """The block with the node that waits longest first, then the longest wait of all; by name, so that ties stay."""
    waits = [(last.get(n, NEVER) - NEVER).total_seconds() for n in block]
    return min(waits), sum(waits) / len(waits), block[0]


def last_tested(root: Path, cluster: str) -> dict[str, datetime]:
    """Node -> when a campaign of this cluster last measured on it, from the run folders under `root`."""
    found: dict[str, datetime] = {}
    for folder in sorted(root.glob("*/")):
        try:
            stored = runs.load(folder, measurements=False)
        except runs.RunError:
            continue  # not a run, or one that is being written
        if stored.run.cluster != cluster:
            continue
        when = runs.moment(stored.run.started_at)
        for node in {e.node for e in stored.environments}:
            found[node] = max(when, found.get(node, NEVER))
    return found


def idle_nodes(partition: str = "") -> tuple[tuple[str, ...], tuple[str, ...]]:
    """All nodes of a partition in Slurm's order, and those of them that nobody uses."""
    states = slurm.nodes(partition=partition)
    free = tuple(s.name for s in states if s.states[0] == "IDLE" and not s.trouble)
    return tuple(s.name for s in states), free


def seconds_until(clock: str, *, now: datetime) -> float:
    """Seconds until that time of day ("05:00", in the zone of `now`), today or tomorrow.

    Raises NodesError where it is no time of day.
    """
    try:
        at = datetime.strptime(clock, "%H:%M").time()
    except ValueError:
        raise NodesError(f"--until {clock}: a time of day, such as 05:00") from None
    end = now.replace(hour=at.hour, minute=at.minute, second=0, microsecond=0)
    return (end + timedelta(days=end <= now) - now).total_seconds()
