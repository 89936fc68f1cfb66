"""Many nights, read fast: each run of a folder as the medians of its units, from an index that can be thrown away.

The run folders are the truth; reports/index.py keeps what the ladder and the trends need of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

from reports import index, runs
from reports.comparison import Key
from reports.ladder import Floats
from reports.runs import RunError

KEPT = ("metric", "title", "unit", "better", "per", "test", "passed", "place", "gray")


@dataclass(frozen=True, kw_only=True)
class Series:
    """One number on one night: what it is, and of which units."""

    key: Key
    metric: str
    title: str
    unit: str
    better: str
    per: str
    test: str
    passed: bool  # no mandatory limit failed it that night: it may serve as what others are held against
    labels: Sequence[str]  # of the units
    nodes: Sequence[str]
    serials: Sequence[str]  # of the part that each unit is; "" where nothing is known
    lasting: Sequence[str]  # what each unit is called on every night
    place: int  # where its units begin in the night's columns
    gray: bool  # whether it is known what its samples lack


@dataclass(frozen=True, kw_only=True)
class Night:
    """One run as the archive knows it; medians are read when asked for."""

    run: str
    folder: Path
    started: datetime
    cluster: str
    suite: str
    nodes: int
    facts: dict[str, str]  # of the environment, joined where nodes differ
    series: tuple[Series, ...]  # what was soundly measured
    expected: tuple[tuple[str, ...], ...]  # what should have been: metric, params, unit, better
    places: Mapping[str, Sequence[str]]  # serial of a part -> node and slot
    columns: Floats  # medians, and what samples lack: one after the other, of all units of all series

    @cached_property
    def by_key(self) -> dict[Key, Series]:
        """The series of this night by their comparison key."""
        return {s.key: s for s in self.series}

    def medians(self, series: Series) -> Floats:
        """The median of each unit, in the order of `series.labels`."""
        return self.columns[0, series.place : series.place + len(series.labels)]

    def missing(self, series: Series) -> Floats | None:
        """What each unit's samples lack against the typical unit's (ladder.missing); None where there are too few."""
        return self.columns[1, series.place : series.place + len(series.labels)] if series.gray else None


def nights(root: Path, *, cluster: str = "", suite: str = "") -> list[Night]:
    """The runs of a folder, oldest first. RunError where the folder is none, or a run of it cannot be read."""
    if not root.is_dir():
        raise RunError(f"{root}: no such folder of runs; name it with --history")
    found: dict[str, Night] = {}
    for folder in sorted(path for path in root.iterdir() if runs.is_run(path)):
        night = read_night(folder)
        if night.run in found:
            raise RunError(
                f"{found[night.run].folder} and {folder} are two runs with one id ({night.run}): one is a copy"
            )
        if cluster in ("", night.cluster) and suite in ("", night.suite):
            found[night.run] = night
    return sorted(found.values(), key=lambda night: (night.started, night.run))


def up_to(folder: Path, root: Path) -> list[Night]:
    """A run and the earlier ones of its cluster and suite in `root`, oldest first, for its trends."""
    own = read_night(folder)
    before = nights(root, cluster=own.cluster, suite=own.suite)
    return [*(night for night in before if night.started < own.started and night.run != own.run), own]


def read_night(folder: Path) -> Night:
    """One run from its index (reports/index.py)."""
    found = index.of(folder)
    head, names = found.head, found.names
    series = tuple(
        Series(
            **{name: s[name] for name in KEPT},
            key=tuple(s["key"]),
            labels=names.labels[s["labels"]],
            nodes=names.nodes[s["nodes"]],
            serials=names.serials[s["serials"]],
            lasting=names.lasting[s["lasting"]],
        )
        for s in head["series"]
    )
    return Night(
        run=head["run"],
        folder=folder,
        started=runs.moment(head["started"]),
        cluster=head["cluster"],
        suite=head["suite"],
        nodes=head["nodes"],
        facts=head["facts"],
        series=series,
        expected=tuple(tuple(e) for e in head["expected"]),
        places=names.places,
        columns=found.medians,
    )
