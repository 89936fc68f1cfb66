"""The units of a number: ranks, pairs, nodes or the world, each with its samples.

A record holds one unit, or a table of very many. A table's rows stay the lists that were read; a Unit is made only when
it is asked for, and what concerns all units at once is asked of `Units.samples`, one array.

>>> units = Units("rank", [(0,), (1,)], ["n1", "n1"], [[7.0, 8.0], [9.0, 9.0]])
>>> units[1].label, units.samples.shape
('rank 1', (2, 2))
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from benchmarks.measurement import PAIRS, Measurement

IDENTITY = {"rank": ("rank",), "pair": ("a", "b"), "neighbour": ("a", "b"), "meeting": ("a", "b"), "node": ("node",),
            "nic": ("node", "nic")}  # fmt: skip
"""per -> the columns of a table that name its units"""
NUMBERS = {float, int}  # not bool

Identity = tuple[Any, ...]


class Unit(NamedTuple):
    """One rank, pair, node or world with its samples."""

    identity: Identity
    label: str
    node: str
    samples: tuple[float, ...]


class Units(Sequence[Unit]):
    """The units of one table, as columns; all of one length. Without `rows` the samples are left out."""

    def __init__(
        self,
        per: str,
        identities: Sequence[Identity],
        nodes: Sequence[str],
        rows: Sequence[Sequence[float]] | None,
        labels: Sequence[str] | None = None,
    ) -> None:
        self.per, self.identities, self.nodes, self._rows, self._labels = per, identities, nodes, rows, labels

    def __len__(self) -> int:
        return len(self.identities)

    @overload
    def __getitem__(self, index: int) -> Unit: ...
    @overload
    def __getitem__(self, index: slice) -> list[Unit]: ...
    def __getitem__(self, index: int | slice) -> Unit | list[Unit]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        samples = () if self._rows is None else tuple(self._rows[index])
        return Unit(self.identities[index], self.labels[index], self.nodes[index], samples)

    @functools.cached_property
    def labels(self) -> Sequence[str]:
        """The one name of each unit in every table."""
        return [label(self.per, i) for i in self.identities] if self._labels is None else self._labels

    @functools.cached_property
    def samples(self) -> npt.NDArray[np.float64] | None:
        """Units x samples; None where they differ in length, there are none, or one is no number."""
        if not self._rows or not self._rows[0] or len(set(map(len, self._rows))) > 1:
            return None
        if not NUMBERS.issuperset(map(type, chain.from_iterable(self._rows))):
            return None
        try:
            flat = np.fromiter(chain.from_iterable(self._rows), np.float64, len(self._rows) * len(self._rows[0]))
            return flat.reshape(len(self._rows), -1)
        except OverflowError:  # a whole number that no float holds
            return None


def without_samples(units: Sequence[Unit]) -> Sequence[Unit]:
    """The same units, their samples forgotten."""
    if isinstance(units, Units):
        return Units(units.per, units.identities, units.nodes, None, units.labels)
    return [unit._replace(samples=()) for unit in units]


def samples_of(units: Sequence[Unit]) -> npt.NDArray[np.float64] | list[tuple[float, ...]]:
    """The samples of each unit: one array where they are one, else a row each."""
    if isinstance(units, Units) and (found := units.samples) is not None:
        return found
    return [unit.samples for unit in units]


def units_of(per: str, m: Measurement) -> Sequence[Unit]:
    """The units of one record of a metric emitted per world, node, rank or pair: its table's rows, or itself."""
    if "samples" not in m.columns:
        subject = m.subject
        of = {"rank": (subject.rank,), "node": (subject.node,), "nic": (subject.node, subject.nic)}
        identity = tuple(subject.link) if per in PAIRS else of.get(per, ())
        return [Unit(identity, subject.label, subject.node, m.samples)]
    columns = [tuple(m.columns[name]) for name in IDENTITY[per]]
    try:
        names = _named(per, *columns)
    except TypeError:  # a record that nobody has checked may call a row by a list
        names = _named.__wrapped__(per, *columns)
    rows = m.columns["samples"]
    nodes = m.columns.get("node") or [m.subject.node] * len(rows)
    whole = min(len(names.identities), len(nodes), len(rows))
    if whole == len(names.identities):
        return Units(per, names.identities, nodes[:whole], rows[:whole], names.labels)
    return Units(per, names.identities[:whole], nodes[:whole], rows[:whole])


class _Names(NamedTuple):
    """What the rows of a table are called."""

    identities: tuple[Identity, ...]
    labels: tuple[str, ...]


@functools.lru_cache(maxsize=4)
def _named(per: str, *columns: tuple[Any, ...]) -> _Names:
    """The tables of one run mostly have the same rows."""
    found = tuple(zip(*columns, strict=True))
    return _Names(found, tuple(label(per, i) for i in found))


@functools.lru_cache(maxsize=4)
def distinct(named: tuple[Identity, ...]) -> frozenset[Identity]:
    """Identities without repetition."""
    return frozenset(named)


def label(per: str, identity: Identity) -> str:
    """The name of a unit.

    >>> label("pair", (0, 1))
    '0->1'
    """
    if per in PAIRS:
        return f"{identity[0]}->{identity[1]}"
    return f"rank {identity[0]}" if per == "rank" else " ".join(map(str, identity))


def identities(units: Iterable[Unit]) -> Sequence[Identity]:
    """What names each unit."""
    return units.identities if isinstance(units, Units) else [unit.identity for unit in units]


def labels(units: Iterable[Unit]) -> Sequence[str]:
    """The one name of each unit in every table."""
    return units.labels if isinstance(units, Units) else [unit.label for unit in units]


def nodes(units: Iterable[Unit]) -> Sequence[str]:
    """The node of each unit, "" where it has none."""
    return units.nodes if isinstance(units, Units) else [unit.node for unit in units]
