"""A simulated fleet: what pair measurements of up to 10,000 hosts look like when known things are slow.

It judges the localiser, so it shares no code with it, only the form of the table: one row per round, pair,
direction (a -> b) and rail. The value of a row is the rate that the slowest part of its way allows, times noise:

    value = line rate x min(transmit of a, uplink of a's leaf to a spine, that spine's link down to b's leaf,
                            receive of b) x noise

Flows do not share links: who measures in disjoint pairs on a fabric that is not oversubscribed sees none of
that. Noise is drawn in logs: heavy-tailed per row, a part of it common to a leaf in a round, and a share of
outliers that are far too slow. Everything follows from the seed and the number of the round.

>>> fleet = Fleet(hosts=8, rails=1, hosts_per_leaf=4, noise=0.0, outliers=0.0)
>>> slow = fleet.with_defects(Defect(host=3, way="transmit", factor=0.9))
>>> slow.measure([3], [5], round=0).value.tolist()
[0.9, 1.0]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

WAYS = {"transmit": ("transmit",), "receive": ("receive",), "both": ("transmit", "receive")}
TAIL = 4  # degrees of freedom of Student's t: the fourth moment is infinite
DEEPEST = 0.3  # an outlier's rate as a share of the true one, at worst


@dataclass(frozen=True, kw_only=True)
class Defect:
    """A part that only reaches `factor` of the line rate. Of a host: its ports. Of a leaf: its uplinks.

    What is not said is every one: no rail is all rails, no spine is the uplinks to all spines. `way` is seen
    from the host or leaf.
    """

    factor: float
    host: int | None = None
    leaf: int | None = None
    spine: int | None = None
    rail: int | None = None
    way: str = "both"


@dataclass(frozen=True)
class Table:
    """Measurements, one row each: the columns are arrays of equal length."""

    round: NDArray[np.int64]
    a: NDArray[np.int64]  # sender
    b: NDArray[np.int64]  # receiver
    rail: NDArray[np.int64]
    value: NDArray[np.float64]  # bytes per second
    path: NDArray[np.int64]  # the spine it went over; -1 inside a leaf

    def __len__(self) -> int:
        return len(self.value)

    def columns(self) -> dict[str, NDArray[np.int64] | NDArray[np.float64]]:
        """Name -> array."""
        return {column.name: getattr(self, column.name) for column in fields(self)}

    def where(self, kept: NDArray[np.bool_]) -> Table:
        """The rows that `kept` marks."""
        return Table(*(column[kept] for column in self.columns().values()))

    @staticmethod
    def join(tables: Sequence[Table]) -> Table:
        """All rows of several tables."""
        return Table(*(np.concatenate([getattr(t, column.name) for t in tables]) for column in fields(Table)))


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Hosts in leaves of equal size under common spines, one such fabric per rail."""

    hosts: int
    rails: int = 8
    hosts_per_leaf: int = 32
    spines: int = 16
    line_rate: float = 1.0  # bytes per second; a fleet that is slow as a whole has a lower one
    noise: float = 0.03  # standard deviation of a row's logarithm, outliers apart
    leaf_share: float = 0.3  # of the noise's variance: common to all rows of a leaf, rail, direction and round
    outliers: float = 0.05  # share of rows
    seed: int = 0
    defects: tuple[Defect, ...] = field(default=())

    def with_defects(self, *defects: Defect) -> Fleet:
        """The same fleet with these defects on top."""
        return replace(self, defects=self.defects + defects)

    @property
    def leaves(self) -> int:
        """How many leaves there are; the last may be smaller."""
        return -(-self.hosts // self.hosts_per_leaf)

    def leaf_of(self) -> NDArray[np.int64]:
        """Leaf of every host."""
        return np.arange(self.hosts) // self.hosts_per_leaf

    def disjoint_pairs(self, round: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Every host in one random pair; with an odd number, one host in two."""
        order = np.random.default_rng([self.seed, round, 1]).permutation(self.hosts)
        if self.hosts % 2:
            order = np.append(order, order[0])
        return order[0::2], order[1::2]

    def screen(self, rounds: int) -> Table:
        """Rounds of random disjoint pairs."""
        return Table.join([self.measure(*self.disjoint_pairs(round), round=round) for round in range(rounds)])

    def measure(self, a: ArrayLike, b: ArrayLike, *, round: int) -> Table:
        """Both directions of every pair on every rail: rows a -> b first, then b -> a, rail by rail inside."""
        first, second = np.asarray(a, dtype=np.int64), np.asarray(b, dtype=np.int64)
        sender = np.repeat(np.concatenate([first, second]), self.rails)
        receiver = np.repeat(np.concatenate([second, first]), self.rails)
        rail = np.tile(np.arange(self.rails), 2 * len(first))
        draw = np.random.default_rng([self.seed, round, 2])
        leaf = self.leaf_of()
        crosses = leaf[sender] != leaf[receiver]
        path = np.where(crosses, draw.integers(self.spines, size=len(rail)), -1)
        value = (
            self.line_rate
            * self._share(sender, receiver, rail, path)
            * np.exp(self._noise(draw, sender, receiver, rail))
        )
        return Table(np.full(len(rail), round), sender, receiver, rail, value, path)

    def _share(
        self, a: NDArray[np.int64], b: NDArray[np.int64], rail: NDArray[np.int64], path: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """What the slowest part of each row's way leaves of the line rate."""
        ports = {way: np.ones((self.hosts, self.rails)) for way in WAYS["both"]}
        uplinks = {way: np.ones((self.leaves, self.rails, self.spines)) for way in WAYS["both"]}
        for defect in self.defects:
            for way in WAYS[defect.way]:
                rails = slice(None) if defect.rail is None else defect.rail
                if defect.host is not None:
                    ports[way][defect.host, rails] *= defect.factor
                else:
                    spines = slice(None) if defect.spine is None else defect.spine
                    uplinks[way][defect.leaf, rails, spines] *= defect.factor
        leaf = self.leaf_of()
        share = np.minimum(ports["transmit"][a, rail], ports["receive"][b, rail])
        over = np.minimum(uplinks["transmit"][leaf[a], rail, path], uplinks["receive"][leaf[b], rail, path])
        return np.where(path >= 0, np.minimum(share, over), share)

    def _noise(
        self, draw: np.random.Generator, a: NDArray[np.int64], b: NDArray[np.int64], rail: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Logarithm of each row's noise."""
        leaf = self.leaf_of()
        common = draw.normal(size=(2, self.leaves, self.rails)) / np.sqrt(2)  # as sender, as receiver
        own = draw.standard_t(TAIL, size=len(rail)) / np.sqrt(TAIL / (TAIL - 2))
        shared = common[0][leaf[a], rail] + common[1][leaf[b], rail]
        noise = self.noise * (np.sqrt(self.leaf_share) * shared + np.sqrt(1 - self.leaf_share) * own)
        slowed = np.log(draw.uniform(DEEPEST, 1.0, size=len(rail)))
        return noise + np.where(draw.random(len(rail)) < self.outliers, slowed, 0.0)


def random_ports(fleet: Fleet, count: int, factor: float) -> tuple[Defect, ...]:
    """Defects of one direction of one port at `count` different hosts."""
    draw = np.random.default_rng([fleet.seed, count, 3])
    hosts = draw.choice(fleet.hosts, size=count, replace=False)
    ways = draw.choice(["transmit", "receive"], size=count)
    rails = draw.integers(fleet.rails, size=count)
    return tuple(
        Defect(host=int(host), rail=int(rail), way=str(way), factor=factor)
        for host, rail, way in zip(hosts, rails, ways, strict=True)
    )


def slow_rack(fleet: Fleet, leaf: int, factor: float) -> tuple[Defect, ...]:
    """Defects of every host of a leaf, on all rails and both ways: its power or cooling, say."""
    return tuple(Defect(host=int(host), factor=factor) for host in np.flatnonzero(fleet.leaf_of() == leaf))
