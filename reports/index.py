"""What is kept of one run so that it need not be read again: an index file, never the truth.

`.index/RUN.npz` beside the run folders holds each number's medians and intervals, its units and who carries which
serial. It is believed only while every file of the run has the size, times and inode it had when the index was made;
else it is made again, and where it cannot be written, done without. Each run has a file of its own, written whole and
renamed: two nights that end at once lose nothing, and no database is shared between hosts.

    index.of(Path("runs/tonight")).head["started"]
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from benchmarks.measurement import PAIRS, Expected, Verdict, params_key
from reports import runs
from reports.bootstrap import FEW
from reports.campaign import flat
from reports.evidence import SHOWN, listed
from reports.ladder import PEERS, Floats, goodness, missing
from reports.numbers import Number, numbers, title
from reports.runs import StoredRun
from reports.serials import PARTS, Places, places
from reports.statistics import Estimates
from reports.units import Unit, Units, identities, labels, nodes, samples_of

VERSION = 4
FOLDER = ".index"
GRAY_SAMPLES = 10
BAD = ("fail", "impossible", "waived")
BROKEN = (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile)


@dataclass(frozen=True, kw_only=True)
class Names:
    """What units are called: lists that many numbers share, told by their place here."""

    labels: list[list[str]]
    nodes: list[list[str]]
    serials: list[list[str]]  # of the GPU or NIC that a unit is; "" where nothing is known
    lasting: list[list[str]]  # what each unit is called on every night
    identities: list[list[list[Any]]]
    places: dict[str, list[str]]  # serial -> node and slot


@dataclass(frozen=True, kw_only=True)
class Index:
    """One run's index in memory; what few ask for is read when it is asked for."""

    head: dict[str, Any]
    medians: Floats  # 2 x units of all numbers: medians, and what samples lack (ladder.missing)
    names: Names
    intervals: Floats  # 3 x units: both ends, and the number of samples
    samples: Floats  # of numbers with few units, one after the other


def path_of(folder: Path) -> Path:
    """Where the index of a run is."""
    return folder.parent / FOLDER / f"{folder.name}.npz"


def of(folder: Path) -> Index:
    """The index of a run, made first where it is not there or the run has changed. RunError for an unreadable run."""
    stamp = stamp_of(folder)  # before reading: a run that grows meanwhile does not match it
    return read(folder, stamp) or _made_anew(folder, stamp)


def _made_anew(folder: Path, stamp: Sequence[int]) -> Index:
    """The index of a run that is read for nothing else; its records are gone before anybody looks for cycles."""
    with runs.collector_paused():
        return write(runs.load(folder), stamp)


def stamp_of(folder: Path) -> list[int]:
    """What tells that a run changed since it was indexed."""
    stamp = [VERSION]
    for name in runs.FILES:
        try:
            s = (folder / name).stat()
        except OSError:
            stamp += [0, 0, 0, 0]
        else:
            stamp += [s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino]
    return stamp


def read(folder: Path, stamp: Sequence[int], *, whole: bool = False) -> Index | None:
    """The index file, intervals and samples only of the `whole`; None where it is absent, broken or of another run."""
    try:
        with np.load(path_of(folder)) as content:
            head = orjson.loads(content["head"].tobytes())
            if head["stamp"] != list(stamp):
                return None
            more = [content[name] if whole else np.zeros((3, 0)) for name in ("intervals", "samples")]
            names, medians = _names(content["names"].tobytes()), content["medians"]
            units = sum(s["count"] for s in head["series"])
            if medians.shape != (2, units) or (whole and more[0].shape != (3, units)):
                return None
            return Index(head=head, medians=medians, names=names, intervals=more[0], samples=more[1])
    except BROKEN:
        return None


@functools.lru_cache(maxsize=32)
def _names(text: bytes) -> Names:
    """Alike on most nights, so read once."""
    return Names(**orjson.loads(text))


def write(stored: StoredRun, stamp: Sequence[int], verdicts: Iterable[Verdict] | None = None) -> Index:
    """Make the index of a run and keep it, where that is possible."""
    made = _made(stored, stamp, verdicts)
    file = path_of(stored.folder)
    partial = file.with_suffix(f".{os.getpid()}.partial.npz")
    text = {"head": orjson.dumps(made.head), "names": orjson.dumps(vars(made.names))}
    columns: dict[str, Any] = {name: np.frombuffer(value, dtype=np.uint8) for name, value in text.items()}
    with contextlib.suppress(OSError):  # a folder of others, a full disk: it is only slower without
        file.parent.mkdir(exist_ok=True)
        try:
            columns |= {name: getattr(made, name) for name in ("medians", "intervals", "samples")}
            np.savez(partial, allow_pickle=False, **columns)
            partial.replace(file)
        finally:
            partial.unlink(missing_ok=True)
    return made


def _made(stored: StoredRun, stamp: Sequence[int], verdicts: Iterable[Verdict] | None) -> Index:
    if verdicts is None:
        verdicts = stored.verdicts(today=date.today())
    failed = {(v.config, v.metric, params_key(v.params)) for v in verdicts if v.mandatory and v.status in BAD}
    order = {(e.config, *e.key): i for i, e in enumerate(stored.run.expected)}
    serial_of = places(stored.latest_environments.values())
    tables = _Tables()
    series, medians, intervals, samples, place = [], [np.zeros((2, 0))], [np.zeros((3, 0))], [np.zeros(0)], 0
    for n in numbers(stored):
        e, lacking = n.expected, _lacking(n)
        few = len(n.units) <= FEW
        series.append(
            {
                "key": n.key, "metric": e.metric, "title": title(e), "unit": e.unit, "better": e.better, "per": e.per,
                "test": e.test, "passed": (e.config, *e.key) not in failed, "place": place, "count": len(n.units),
                "gray": lacking is not None, "expected": order[e.config, *e.key], "few": few,
                **tables.add(n, serial_of),
            }
        )  # fmt: skip
        medians.append(np.stack([n.estimates.median, np.zeros(len(n.units)) if lacking is None else lacking]))
        intervals.append(np.stack([n.estimates.low, n.estimates.high, n.estimates.n]))
        samples += [np.array(unit.samples, dtype=np.float64) for unit in n.units] if few else []
        place += len(n.units)
    head = {
        "stamp": list(stamp), "run": stored.run.id, "started": stored.run.started_at, "cluster": stored.run.cluster,
        "suite": stored.run.suite, "nodes": stored.run.nodes, "facts": _facts(stored), "series": series,
        "expected": [[*e.key, e.unit, e.better] for e in stored.run.expected],
    }  # fmt: skip
    return Index(
        head=orjson.loads(orjson.dumps(head)),  # as it will be read
        medians=np.concatenate(medians, axis=1),
        names=tables.names(serial_of),
        intervals=np.concatenate(intervals, axis=1),
        samples=np.concatenate(samples),
    )


class _Tables:
    """Lists of names, each kept once."""

    def __init__(self) -> None:
        self.lists: dict[str, dict[tuple[Any, ...], int]] = {
            "labels": {},
            "nodes": {},
            "serials": {},
            "lasting": {},
            "identities": {},
        }
        self.same: dict[tuple[str, int], dict[str, int]] = {}  # of a table, labels and serials follow from these

    def add(self, n: Number, where: Places) -> dict[str, int]:
        """Where each list of a number is."""
        per, named = n.expected.per, tuple(identities(n.units))
        found = {"identities": self._place("identities", named), "nodes": self._place("nodes", tuple(nodes(n.units)))}
        table = per, found["identities"]
        if table not in self.same or not isinstance(n.units, Units):
            per_unit = list(zip(named, labels(n.units), strict=True))
            lists = {
                "labels": tuple(label for _, label in per_unit),
                "serials": tuple(where.of(per, identity) for identity in named),
                "lasting": tuple(where.lasting(per, identity, label) for identity, label in per_unit),
            }
            self.same[table] = {name: self._place(name, each) for name, each in lists.items()}
        return found | self.same[table]

    def _place(self, name: str, found: tuple[Any, ...]) -> int:
        return self.lists[name].setdefault(found, len(self.lists[name]))

    def names(self, serial_of: Places) -> Names:
        """All of them."""
        return Names(places=serial_of.by_serial, **{name: list(map(list, found)) for name, found in self.lists.items()})


def numbers_of(folder: Path) -> list[Number]:
    """The sound numbers of a run, as `numbers.numbers` finds them; samples only of those with few units."""
    stamp = stamp_of(folder)
    found = read(folder, stamp, whole=True) or _made_anew(folder, stamp)
    return list(_numbers(found, runs.head(folder).expected))


def _numbers(found: Index, expected: Sequence[Expected]) -> Iterator[Number]:
    at = 0
    for s in found.head["series"]:
        columns = slice(s["place"], s["place"] + s["count"])
        low, high, counts = found.intervals[:, columns]
        n = counts.astype(np.int64)
        names = [tuple(identity) for identity in found.names.identities[s["identities"]]]
        labels, nodes = found.names.labels[s["labels"]], found.names.nodes[s["nodes"]]
        units: Sequence[Unit] = Units(s["per"], names, nodes, None, labels)
        if s["few"]:
            rows = np.split(found.samples[at : at + n.sum()], np.cumsum(n)[:-1])
            units = [unit._replace(samples=tuple(row.tolist())) for unit, row in zip(units, rows, strict=True)]
            at += n.sum()
        estimates = Estimates(found.medians[0, columns], low, high, n)
        yield Number(expected=expected[s["expected"]], key=tuple(s["key"]), units=units, estimates=estimates)


def _lacking(number: Number) -> Floats | None:
    """What the samples of each unit lack; None for few samples, few units, or no goodness."""
    e, fewest = number.expected, int(number.estimates.n.min())
    if fewest < GRAY_SAMPLES or len(number.units) < PEERS or e.per in PAIRS or e.better == "equal" or e.unit == "1":
        return None
    samples = samples_of(number.units)
    whole = samples if isinstance(samples, np.ndarray) else np.array([row[:fewest] for row in samples])
    return missing(goodness(whole, e.better))


def _facts(stored: StoredRun) -> dict[str, str]:
    """Of the environment; values that differ between nodes in one line, very many as some of them and a digest."""
    values: dict[str, set[str]] = {"revision": {stored.run.revision}, "cluster file": {stored.run.cluster_sha256[:12]}}
    for environment in stored.latest_environments.values():
        for name, value in flat({k: v for k, v in environment.facts.items() if k not in PARTS}):
            if name != "hostname":
                values.setdefault(name, set()).add(value)
    told = {}
    for name, found in values.items():
        ordered = sorted(found)
        digest = hashlib.sha256("\0".join(ordered).encode()).hexdigest()[:8] if len(found) > SHOWN else ""
        told[name] = listed(ordered) + (f" ({digest})" if digest else "")
    return told
