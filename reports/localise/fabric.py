"""The fabric between the nodes: which leaf each flow leaves and enters, and the weather of one round.

What all flows of a round, or of a leaf in a round, share is weather: it is taken out before a node is judged,
and accuses nobody. Without a topology all nodes hang on one leaf. What they share in every round is a
finding: see `levels` and `blocks`.

>>> weather(np.zeros(20), np.zeros(20, int), np.ones(20, bool)).any()
np.False_
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from reports.localise.effects import middle, spread, upper_median
from reports.localise.pairs import Bools, Floats, Ints, PairTable
from reports.localise.topology import Topology

FLOOR = 0.03  # effects under 3 % accuse nobody
SUSPECT_Z = -3.0
MIN_HOSTS = 2  # a leaf with one host is that host
MIN_FLOWS = 6  # of one leaf in one round, to speak of its weather
MOST = 0.75  # share of a group that must agree before the group is named


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """Where every flow of a table runs. Leaf codes are 0 for all where the topology says nothing."""

    table: PairTable
    topology: Topology
    leaf_a: Ints
    leaf_b: Ints
    leaves: tuple[str, ...]
    hosts: tuple[tuple[str, ...], ...]  # per leaf

    @classmethod
    def of(cls, table: PairTable, topology: Topology) -> Fabric:
        """The table's flows over the topology's leaves (racks, where it knows no leaves).

        Nodes without a leaf share one of their own.
        """
        if not topology.leaf:
            topology = replace(topology, leaf={node: (rack,) for node, rack in topology.rack.items()})
        at, leaves = topology.leaves(table.nodes, table.num_rails)
        if (at < 0).any():
            at, leaves = np.where(at < 0, len(leaves), at), (*leaves, "" if not leaves else "unknown leaf")
        seen = np.unique(np.concatenate([table.a, table.b]))
        hosts: list[set[str]] = [set() for _ in leaves]
        for node in seen.tolist():
            for leaf in set(at[node].tolist()):
                hosts[leaf].add(table.nodes[node])
        return cls(
            table=table, topology=topology, leaf_a=at[table.a, table.rail], leaf_b=at[table.b, table.rail],
            leaves=leaves, hosts=tuple(tuple(sorted(h)) for h in hosts),
        )  # fmt: skip

    @property
    def across(self) -> Bools:
        """Flows between two leaves."""
        different: Bools = self.leaf_a != self.leaf_b
        return different

    @property
    def one_level_each(self) -> bool:
        """Whether flows inside a leaf and across are not to be compared: latencies, or several loads."""
        return self.table.better == "lower" or self.table.load is not None

    @property
    def load(self) -> Ints:
        """Which of the load levels each flow ran at."""
        if self.table.load is None:
            return np.zeros(len(self.table), dtype=np.int64)
        return np.unique(self.table.load, return_inverse=True)[1].astype(np.int64)


def weather(y: Floats, group: Ints, clean: Bools) -> Floats:
    """What the flows of one group (a round, or a leaf in a round) share, shape (flows,), judged by clean flows.

    The groups' medians are shrunk by how much of their scatter mere sampling explains (variance of a median
    of n: pi/2 noise²/n): where there is no weather, next to nothing is taken out.
    """
    num = int(group.max()) + 1 if len(group) else 0
    count = np.bincount(group[clean], minlength=num)
    known = count >= MIN_FLOWS
    if not known.any():
        return np.zeros(len(y))
    centre = upper_median(y[clean], group[clean], num)
    off = np.where(known, centre - middle(centre[known]), 0.0)
    sampling = math.pi / 2 * spread(y[clean]) ** 2 / float(np.median(count[known]))
    seen = spread(off[known], 0.0) ** 2
    trust = max(0.0, 1 - sampling / seen) if seen > 0 else 0.0
    shared: Floats = (trust * off)[group]
    return shared
