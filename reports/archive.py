"""Many nights, read fast: each run of a folder as the medians of its units, from an index that can be thrown away.

The run folders are the truth. `.index/RUN.npz` beside them holds what the ladder and the trends need of one run and
is made again when the run changed or the index is of another version. Each run has its own file, written whole and
then renamed, so two nights that end at once lose nothing and no database is shared.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measurement import PAIRS, Verdict, params_key
from reports import runs
from reports.campaign import flat
from reports.comparison import Key
from reports.ladder import PEERS, Floats, goodness, missing
from reports.numbers import Number, numbers, title
from reports.runs import RunError, StoredRun

VERSION = 2
INDEX = ".index"
GRAY_SAMPLES = 10
BAD = ("fail", "impossible", "waived")


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
    labels: tuple[str, ...]  # of the units
    nodes: tuple[str, ...]
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
    facts: dict[str, str]  # of the environment, joined where nodes differ
    series: tuple[Series, ...]
    _columns: Floats  # medians, and what samples lack: one after the other, of all units of all series

    @cached_property
    def by_key(self) -> dict[Key, Series]:
        """The series of this night by their comparison key."""
        return {s.key: s for s in self.series}

    def medians(self, series: Series) -> Floats:
        """The median of each unit, in the order of `series.labels`."""
        return self._columns[0, series.place : series.place + len(series.labels)]

    def missing(self, series: Series) -> Floats | None:
        """What each unit's samples lack against the typical unit's (ladder.missing); None where there are too few."""
        return self._columns[1, series.place : series.place + len(series.labels)] if series.gray else None


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


def read_night(folder: Path) -> Night:
    """One run from the index, which is made or made again first where it must be."""
    file = folder.parent / INDEX / f"{folder.name}.npz"
    stamp = stamp_of(folder)
    head, columns = _read(file) or ({"stamp": None}, np.zeros((2, 0)))
    if head["stamp"] != stamp:
        head, columns = write_index(runs.load(folder), file, stamp)
    labels = [tuple(names) for names in head["labels"]]
    series = tuple(
        Series(**{**each, "key": tuple(each["key"]), "labels": labels[each["labels"]], "nodes": labels[each["nodes"]]})
        for each in head["series"]
    )
    kept = {name: head[name] for name in ("run", "cluster", "suite", "facts")}
    return Night(folder=folder, started=_moment(head["started"]), series=series, _columns=columns, **kept)


def _moment(text: str) -> datetime:
    """A time of a record; one without a zone is UTC, as all records are written."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def stamp_of(folder: Path) -> list[int]:
    """What tells that a run changed since it was indexed."""
    sizes = []
    for name in runs.FILES:
        path = folder / name
        sizes += [path.stat().st_size, path.stat().st_mtime_ns] if path.is_file() else [0, 0]
    return [VERSION, *sizes]


def _read(file: Path) -> tuple[dict[str, Any], Floats] | None:
    """An index file; None where it is absent or broken (then it is made again)."""
    try:
        with np.load(file) as content:
            return json.loads(str(content["head"])), content["columns"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def write_index(stored: StoredRun, file: Path, stamp: list[int]) -> tuple[dict[str, Any], Floats]:
    """Write the index of one run. RunError where that is not possible."""
    failed = {(v.config, v.metric, params_key(v.params)) for v in _bad(stored)}
    labels: dict[tuple[str, ...], int] = {}
    columns: list[Floats] = []
    series, place = [], 0
    for n in numbers(stored):
        names = tuple(unit.label for unit in n.units), tuple(unit.node for unit in n.units)
        e = n.expected
        series.append(
            {
                "key": n.key, "metric": e.metric, "title": title(e), "unit": e.unit, "better": e.better, "per": e.per,
                "test": e.test, "passed": (e.config, *e.key) not in failed, "place": place,
                "labels": labels.setdefault(names[0], len(labels)), "nodes": labels.setdefault(names[1], len(labels)),
            }
        )  # fmt: skip
        lacking = _lacking(n)
        series[-1]["gray"] = lacking is not None
        columns.append(np.stack([n.estimates.median, np.zeros(len(n.units)) if lacking is None else lacking]))
        place += len(n.units)
    head = {
        "stamp": stamp, "run": stored.run.id, "started": stored.run.started_at, "cluster": stored.run.cluster,
        "suite": stored.run.suite, "facts": _facts(stored), "series": series, "labels": list(labels),
    }  # fmt: skip
    text, whole = json.dumps(head), np.concatenate(columns, axis=1) if columns else np.zeros((2, 0))
    try:
        file.parent.mkdir(exist_ok=True)
        partial = file.with_suffix(f".{os.getpid()}.partial.npz")
        np.savez(partial, allow_pickle=False, head=np.array(text), columns=whole)
        partial.replace(file)
    except OSError as error:
        raise RunError(f"cannot write the index {file.parent}: {error.strerror}; copy the runs where you may") from None
    return json.loads(text), whole


def _lacking(number: Number) -> Floats | None:
    """What the samples of each unit lack; None for few samples, few units, or no goodness."""
    e, fewest = number.expected, int(number.estimates.n.min())
    if fewest < GRAY_SAMPLES or len(number.units) < PEERS or e.per in PAIRS or e.better == "equal" or e.unit == "1":
        return None
    return missing(goodness([unit.samples[:fewest] for unit in number.units], e.better))


def _bad(stored: StoredRun) -> Iterator[Verdict]:
    return (v for v in stored.verdicts(today=date.today()) if v.mandatory and v.status in BAD)


def _facts(stored: StoredRun) -> dict[str, str]:
    values: dict[str, set[str]] = {"revision": {stored.run.revision}, "cluster file": {stored.run.cluster_sha256[:12]}}
    for environment in stored.latest_environments.values():
        for name, value in flat(environment.facts):
            if name != "hostname":
                values.setdefault(name, set()).add(value)
    return {name: " | ".join(sorted(found)) for name, found in values.items()}
