"""Which GPU and which network adapter was where: by its serial, so that a part is followed through repairs and moves.

A part is named by what its maker wrote into it: a GPU's serial (its UUID where the board has none), an adapter's serial
or GUID. Read from the environments of a run; what they do not say is "".

>>> found = places([Environment(node="n1", ranks=(0, 1), facts={"rank_gpu_uuids": ["GPU-a", "GPU-b"],
...     "gpu_uuids": ["GPU-b", "GPU-a"], "gpu_serials": ["165", "164"], "nics": {"mlx5_0": "MT77"}})])
>>> found.by_serial["164"], found.of_rank[1], found.of_nic["n1", "mlx5_0"]
(['n1', 'gpu0'], '165', 'MT77')
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.measurement import PAIRS, Environment
from reports.units import Identity

PARTS = ("gpu_serials", "gpu_uuids", "rank_gpu_uuids", "nics")
"""facts that name parts, not versions: they differ from node to node"""


@dataclass(frozen=True, kw_only=True)
class Places:
    """The parts of one night."""

    by_serial: dict[str, list[str]]  # serial -> [node, slot]
    of_rank: dict[int, str]
    of_nic: dict[Identity, str]  # of (node, port)
    rank_at: dict[int, str]  # rank -> node and slot

    def of(self, per: str, identity: Identity) -> str:
        """The serial of the part that a unit is; "" for what is no single part."""
        if per == "rank" and identity:
            return self.of_rank.get(identity[0], "")
        return self.of_nic.get(identity, "") if per == "nic" else ""

    def lasting(self, per: str, identity: Identity, label: str) -> str:
        """What a unit is called on every night: its part's serial, else its node and slot, else its label.

        Ranks are numbered anew whenever other nodes take part, so a rank's number names nothing from night to night.
        """
        if serial := self.of(per, identity):
            return serial
        if per == "rank" and identity:
            return self.rank_at.get(identity[0], label)
        if per in PAIRS and all(end in self.rank_at for end in identity):
            return "->".join(self.rank_at[end] for end in identity)
        return label


def places(environments: Iterable[Environment]) -> Places:
    """The parts of these nodes."""
    by_serial: dict[str, list[str]] = {}
    of_rank: dict[int, str] = {}
    of_nic: dict[Identity, str] = {}
    rank_at: dict[int, str] = {}
    for e in environments:
        serial_of = dict(zip(_words(e.facts, "gpu_uuids"), _words(e.facts, "gpu_serials"), strict=False))
        for slot, (rank, uuid) in enumerate(zip(e.ranks, _words(e.facts, "rank_gpu_uuids"), strict=False)):
            if serial := serial_of.get(uuid) or uuid:
                by_serial[serial] = [e.node, f"gpu{slot}"]
                of_rank[rank] = serial
        rank_at |= {rank: f"{e.node}/{slot}" for slot, rank in enumerate(e.ranks)}
        nics = e.facts.get("nics")
        for name, serial in nics.items() if isinstance(nics, dict) else ():
            by_serial[str(serial)] = [e.node, str(name)]
            of_nic[e.node, str(name)] = str(serial)
    return Places(by_serial=by_serial, of_rank=of_rank, of_nic=of_nic, rank_at=rank_at)


def _words(facts: dict[str, Any], name: str) -> list[str]:
    found = facts.get(name)
    return [str(word) for word in found] if isinstance(found, list) else []
