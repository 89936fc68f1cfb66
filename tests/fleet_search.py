"""A search for culprits in a simulated fleet: the rounds that a campaign would measure, and what is named.

The fleet plays the ranks; rounds and localiser are the project's own, used only by what they say in public.

    found = search(Fleet(hosts=1024).with_defects(Defect(host=3, rail=1, way="transmit", factor=0.9)))
    [suspect.title for suspect in found.accused]    # ["node3 rail 1 transmit"]

Ten rounds of screening and five of re-test: fifteen, whatever the number of hosts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reports.localise import Findings, PairTable, Topology, confirm, screen
from suites import rounds
from tests.fleet import Defect, Fleet, Table

SCREENING, RETEST = 10, 5  # rounds


def search(
    fleet: Fleet, *, with_paths: bool = False, screening: int = SCREENING, retest: int = RETEST, flat: bool = False
) -> Findings:
    """Screen the fleet, re-test whoever is suspected against the others, and say who is left.

    `with_paths`: the spine that each flow took is known. `flat`: nobody knows the leaves.
    """
    leaf = fleet.leaf_of().tolist()
    topology = None if flat else fabric(fleet)
    plan = rounds.screening(fleet.hosts, screening, leaf=None if flat else leaf, seed=fleet.seed)
    found = screen(measured(fleet, plan, with_paths=with_paths), topology=topology)
    suspected = {node for suspect in found.suspects for node in suspect.nodes}
    if not suspected or not retest:
        return found
    inside = [host for host in range(fleet.hosts) if name(host) in suspected]
    outside = [host for host in range(fleet.hosts) if name(host) not in suspected]
    again = rounds.retest(inside, outside, retest, leaf=None if flat else leaf, seed=fleet.seed)
    return confirm(found, measured(fleet, again, first=screening, with_paths=with_paths))


def fabric(fleet: Fleet) -> Topology:
    """Where the hosts sit: on each rail under a leaf switch of its own, and all rails of a host in one rack."""
    at = fleet.leaf_of().tolist()
    leaves = {name(host): tuple(f"leaf{at[host]}r{rail}" for rail in range(fleet.rails)) for host in range(fleet.hosts)}
    racks = {name(host): f"rack{at[host]}" for host in range(fleet.hosts)}
    return Topology(leaf=leaves, rack=racks, source="simulated")


def measured(fleet: Fleet, plan: Sequence[rounds.Round], *, first: int = 0, with_paths: bool = False) -> PairTable:
    """What the fleet's flows show in these rounds, numbered from `first`."""
    tables = []
    for number, planned in enumerate(plan, start=first):
        a, b = np.array(planned.pairs, dtype=np.int64).T
        tables.append(fleet.measure(a, b, round=number))
    joined = Table.join(tables)
    spines = {"path": joined.path, "paths": [f"spine{spine}" for spine in range(fleet.spines)]} if with_paths else {}
    return PairTable.of(
        a=joined.a, b=joined.b, rail=joined.rail, round=joined.round, value=joined.value,
        nodes=[name(host) for host in range(fleet.hosts)], **spines,
    )  # fmt: skip


def name(host: int) -> str:
    """A host's name."""
    return f"node{host}"


def title(defect: Defect) -> str:
    """What a suspect must be called to name one port's defect rightly."""
    assert defect.host is not None
    return f"{name(defect.host)} rail {defect.rail} {defect.way}"
