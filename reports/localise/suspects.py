"""What the localiser says: suspects, each with its evidence, and what could not be judged.

A suspect names one element (a side of a NIC, a host, an uplink, a rack ...), how much slower it is, and the
probability that it is really at fault. Nothing here computes; `screening` fills these.

>>> Suspect(kind="nic", where="n17", rail=3, direction="transmit", slower=0.1).title
'n17 rail 3 transmit'
"""

from __future__ import annotations

from dataclasses import dataclass

from reports.localise.pairs import PairTable
from reports.localise.topology import Topology

CERTAIN = 0.95  # at least this confident, or it is only worth a re-test

DIRECTIONS = {
    "transmit": "sends",
    "receive": "receives",
    "both": "sends and receives",
    "either": "answers",  # measured there and back
    "out": "lets out",
    "in": "lets in",
    "": "is",
}


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """One element that may be at fault.

    `kind` is one of: nic (one rail of a host: the NIC, its port or its cable), host (all its rails), pair (one cell:
    a path collision), uplink (a leaf's whole uplink; with `peer`, the trunk to that leaf), path (one of a
    leaf's uplinks), spine, leaf, rack, pod, rail, oversubscription, loss, corruption, straggler, dead (nothing
    came through), delay (messages arrive late), or the name of an attribute that the slow nodes share ("firmware").
    """

    kind: str
    where: str  # node, leaf, rack, spine or attribute value; "" for the whole fabric
    rail: int | None = None
    direction: str = ""  # transmit | receive | both (node); out | in | both (leaf); either (cannot be told)
    peer: str = ""  # pair: the receiver; uplink between two leaves: the other leaf
    path: str = ""  # path: which
    rank: int | None = None  # straggler: which, where it is not the whole host
    nodes: tuple[str, ...] = ()  # whom to re-test
    slower: float = 0.0  # share: 0.10 is ten percent slower than its peers
    waited: float = 0.0  # straggler: share of the time that the others wait for it
    z: float = 0.0  # in standard deviations of the fleet
    num_cells: int = 0  # measurements that bear on it
    num_agree: int = 0  # of them, how many are slow by more than half its effect
    confidence: float = 0.0
    confirmed: bool = False  # a re-test agreed
    evidence: str = ""  # one sentence

    @property
    def element(self) -> tuple[str, str, int | None, int | None, str, str]:
        """What is accused, whatever the symptom: matches a suspect with itself in a re-test."""
        kind = "nic" if self.kind in ("loss", "dead", "delay") and self.rail is not None else self.kind
        kind = "host" if kind in ("loss", "dead", "delay") else kind
        return kind, self.where, self.rail, self.rank, self.peer, self.path

    @property
    def certain(self) -> bool:
        """Whether it may be accused, or only re-tested."""
        return self.confidence >= CERTAIN

    @property
    def title(self) -> str:
        """'n17 rail 3 transmit', 'leaf leaf4 uplink out', 'rack r7'."""
        if self.kind == "straggler":
            return self.where if self.rank is None else f"rank {self.rank} on {self.where}"
        place = self.where if self.kind in ("nic", "host", "dead", "loss", "delay", "corruption", "pair") else ""
        parts = [place or f"{self.kind} {self.where}".strip()]
        parts += [f"to {self.peer}"] if self.peer else []
        parts += [f"via {self.path}"] if self.path else []
        parts += [f"rail {self.rail}"] if self.rail is not None and self.kind != "rail" else []
        direction = "" if self.peer and self.direction == "out" else self.direction
        return " ".join([*parts, direction]).strip()


@dataclass(frozen=True, kw_only=True)
class Findings:
    """The suspects of one table, best founded first, and what must be said beside them."""

    suspects: tuple[Suspect, ...] = ()
    cleared: tuple[Suspect, ...] = ()  # suspects that a re-test did not confirm
    notes: tuple[str, ...] = ()  # bad input, a flat topology, what cannot be separated
    unjudged: tuple[str, ...] = ()  # nodes with too few measurements: never a pass
    retested: bool = False
    common_cause: str = ""  # set where too many are slow to accuse each: software or limit
    scatter: float = 0.0  # of one flow about what its ends explain, as a share; 0 where none could be told
    table: PairTable | None = None
    topology: Topology | None = None

    @property
    def accused(self) -> tuple[Suspect, ...]:
        """The suspects that are certain; after a re-test, only those that it confirmed."""
        return tuple(s for s in self.suspects if s.certain and (s.confirmed or not self.retested))


def ordered(suspects: list[Suspect]) -> tuple[Suspect, ...]:
    """Best founded first; ties by the larger effect, then by name."""
    return tuple(sorted(suspects, key=lambda s: (-round(s.confidence, 3), -s.slower, s.title)))


def percent(share: float) -> str:
    """0.1034 -> '10.3 %'."""
    return f"{100 * share:.1f} %"
