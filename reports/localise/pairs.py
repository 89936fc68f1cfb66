"""The pair table: what was measured between whom, one row per flow.

A table has rounds x pairs rows, never nodes x nodes: ten thousand hosts in fifteen rounds are a million
rows, not a hundred million cells. Reading it never fails on bad numbers: a zero, negative, NaN or infinite
value is a pair that moved nothing, and is kept as such. Nothing here judges.

>>> table = PairTable.of(a=["n0", "n1"], b=["n1", "n0"], value=[1e9, 2e9])
>>> table.nodes
('n0', 'n1')
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

FAILED_SHARE = 1e-3  # a pair that moved nothing counts as this share of the median: far below any slow link


@dataclass(frozen=True, kw_only=True, eq=False)
class PairTable:
    """One row per flow from node `a` to node `b`; all columns have the same length."""

    round: Ints
    a: Ints  # index into nodes: who sends
    b: Ints  # index into nodes: who receives
    rail: Ints  # 0, 1, ...: which NIC of the node
    value: Floats  # of one quantity, in any unit: only ratios count
    nodes: tuple[str, ...]
    better: str = "higher"  # higher: bandwidth; lower: latency or time
    there_and_back: bool = False  # half a round trip: the direction cannot be told
    path: Ints | None = None  # index into paths: which spine or uplink it took; -1 unknown
    paths: tuple[str, ...] = ()
    load: Ints | None = None  # flows over the same boundary at the same time; 1 = alone, -1 unknown
    best: Floats | None = None  # best repetition, where value is the mean: tells loss from slowness
    retransmits: Floats | None = None  # counted by the sender during this flow
    wrong: Floats | None = None  # elements that arrived wrong

    def __post_init__(self) -> None:
        for name in COLUMNS:
            column = getattr(self, name)
            if column is not None and len(column) != len(self.value):
                raise ValueError(
                    f"pair table: column {name} has {len(column)} rows, value has {len(self.value)}: "
                    "give every column one entry per flow"
                )
        for name in ("a", "b"):
            column = getattr(self, name)
            if len(column) and not 0 <= column.min() <= column.max() < len(self.nodes):
                raise ValueError(f"pair table: column {name} points outside the {len(self.nodes)} nodes it names")
        if len(self.rail) and self.rail.min() < 0:
            raise ValueError("pair table: rails are numbered from 0")
        if self.path is not None and len(self.path) and self.path.max() >= len(self.paths):
            raise ValueError(f"pair table: column path points outside the {len(self.paths)} paths it names")
        if self.better not in ("higher", "lower"):
            raise ValueError(f"pair table: better is 'higher' or 'lower', not {self.better!r}")

    @classmethod
    def of(
        cls,
        *,
        a: Sequence[Any] | npt.NDArray[Any],
        b: Sequence[Any] | npt.NDArray[Any],
        value: Sequence[float] | npt.NDArray[Any],
        round: Sequence[int] | npt.NDArray[Any] | int = 0,
        rail: Sequence[int] | npt.NDArray[Any] | int = 0,
        nodes: Sequence[str] = (),
        path: Sequence[Any] | npt.NDArray[Any] | None = None,
        paths: Sequence[str] = (),
        **columns: Any,
    ) -> PairTable:
        """A table from plain columns.

        `a` and `b` are node names, or integers (indexes into `nodes`; without it, ranks that name
        themselves). `path` is names or integers likewise; -1 and "" are unknown. Host names that occur
        twice in `nodes` get a number: two machines with one name are two suspects.
        Raises ValueError where columns differ in length or point outside.
        """
        values = np.asarray(value, dtype=np.float64)
        names = told_apart(nodes)
        ends, names = _coded(np.concatenate([np.asarray(a), np.asarray(b)]) if len(values) else np.empty(0, int), names)
        senders = len(np.asarray(a))
        ways, way_names = (None, ()) if path is None else _coded(np.asarray(path), tuple(paths))
        plain: dict[str, Any] = {k: v for k, v in columns.items() if k in ("better", "there_and_back")}
        for name in set(columns) - set(plain):
            if name not in COLUMNS:
                raise ValueError(f"pair table: no column {name!r} (there are {', '.join(COLUMNS)})")
            kind = np.int64 if name == "load" else np.float64
            plain[name] = None if columns[name] is None else np.asarray(columns[name], dtype=kind)
        return cls(
            round=_filled(round, len(values)), rail=_filled(rail, len(values)), value=values,
            a=ends[:senders], b=ends[senders:], nodes=names, path=ways, paths=way_names, **plain,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.value)

    @property
    def num_rails(self) -> int:
        """Rails in the table: the highest number seen plus one."""
        return int(self.rail.max()) + 1 if len(self) else 0

    def rows(self, which: Bools | Ints) -> PairTable:
        """The same table with only these rows, in this order."""
        cut = {name: getattr(self, name)[which] for name in COLUMNS if getattr(self, name) is not None}
        return replace(self, **cut)

    def followed_by(self, other: PairTable) -> PairTable:
        """Both tables as one; rounds of `other` are numbered after these. Nodes are matched by name.

        Raises ValueError where the two do not measure the same thing.
        """
        if (self.better, self.there_and_back) != (other.better, other.there_and_back):
            raise ValueError("pair tables of different quantities cannot be joined: re-test what was screened")
        nodes, at = _merged(self.nodes, other.nodes)
        paths, way = _merged(self.paths, other.paths)
        ways = None if other.path is None else np.where(other.path < 0, -1, np.append(way, -1)[other.path])
        first_free = int(self.round.max()) + 1 if len(self) else 0
        moved = replace(other, round=other.round + first_free, a=at[other.a], b=at[other.b], nodes=nodes,
                        path=ways, paths=paths)  # fmt: skip
        joined = {name: _joined(getattr(self, name), getattr(moved, name), len(self), len(other)) for name in COLUMNS}
        return replace(moved, **joined)


COLUMNS = tuple(f.name for f in fields(PairTable) if f.name not in ("nodes", "better", "there_and_back", "paths"))


def told_apart(nodes: Sequence[str]) -> tuple[str, ...]:
    """Host names with a number where a name occurs more than once: ('n1#1', 'n1#2')."""
    count, seen = Counter(nodes), Counter[str]()
    names = []
    for node in nodes:
        seen[node] += 1
        names.append(f"{node}#{seen[node]}" if count[node] > 1 else node)
    return tuple(names)


def logs(table: PairTable) -> tuple[Floats, Bools]:
    """Natural logs of the values, oriented so that higher is better, and which pairs moved nothing.

    A pair that moved nothing stands at FAILED_SHARE of the median, so that a dead host is the slowest host.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        y = np.log(table.value)
    failed = ~np.isfinite(y)
    y = y if table.better == "higher" else -y
    alive = y[~failed]
    y[failed] = (np.median(alive) if alive.size else 0.0) + np.log(FAILED_SHARE)
    return y, failed


def mirrored(table: PairTable) -> PairTable:
    """The table with every row also the other way round: for values measured there and back."""
    back = replace(table, a=table.b, b=table.a)
    return replace(
        back, **{name: _joined(getattr(table, name), getattr(back, name), len(table), len(table)) for name in COLUMNS}
    )


def _coded(column: npt.NDArray[Any], names: tuple[str, ...]) -> tuple[Ints, tuple[str, ...]]:
    """A column of names or integers as integers into `names` (which grow by unknown names)."""
    if column.dtype.kind in "iu":
        codes = column.astype(np.int64)
        top = int(codes.max(initial=-1)) + 1
        return codes, names or tuple(str(i) for i in range(top))
    found, codes = np.unique(column.astype(str), return_inverse=True)
    index = {name: i for i, name in enumerate(names)}
    for name in found.tolist():
        if name:
            index.setdefault(name, len(index))
    at = np.array([index.get(name, -1) for name in found.tolist()], dtype=np.int64)
    return at[codes] if len(codes) else codes.astype(np.int64), tuple(index)


def _filled(column: Any, rows: int) -> Ints:
    return np.full(rows, column, dtype=np.int64) if np.ndim(column) == 0 else np.asarray(column, dtype=np.int64)


def _merged(mine: tuple[str, ...], other: tuple[str, ...]) -> tuple[tuple[str, ...], Ints]:
    """All names, and where each of `other` stands among them."""
    index = {name: i for i, name in enumerate(mine)}
    at = np.array([index.setdefault(name, len(index)) for name in other], dtype=np.int64)
    return tuple(index), at


def _joined(first: Any, second: Any, rows_first: int, rows_second: int) -> Any:
    """Two columns one after the other; where only one table has the column, the other's part is unknown."""
    if first is None and second is None:
        return None
    kind = (first if first is not None else second).dtype
    unknown = -1 if kind.kind == "i" else np.nan
    parts = [np.full(rows, unknown, dtype=kind) if column is None else column
             for column, rows in ((first, rows_first), (second, rows_second))]  # fmt: skip
    return np.concatenate(parts)
