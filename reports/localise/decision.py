"""The decision table for nodes: which pattern of slow sides means what.

One direction on one rail is that side of that NIC; both directions on one rail its NIC or cable; all rails
the host. Most hosts of a rack (or leaf, or with one firmware) slow alike: what they share, not each of them. More
than a fifth of all nodes slow with nothing in common: nobody; the software or the limit is to blame.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reports.localise.effects import certainty, probability_bad, spread
from reports.localise.fabric import FLOOR, MOST, SUSPECT_Z, Fabric
from reports.localise.pairs import FAILED_SHARE, Bools, Floats, Ints, PairTable
from reports.localise.sides import Sides
from reports.localise.suspects import DIRECTIONS, Suspect, percent
from reports.localise.topology import Topology

DEAD = 0.05  # of the speed: next to nothing came through
LATE = 0.1  # a round trip longer by less than this is a longer cable or one switch more
TOO_MANY = 0.2  # share of nodes
MIN_MANY = 4  # two faults among eight nodes are two faults
OF_ONE_NODE = ("nic", "host", "dead", "loss", "delay", "straggler")
MIN_MEMBERS = 3  # of a group, to name the group


@dataclass(frozen=True, kw_only=True)
class Ways:
    """Evidence per element and direction; arrays are (2, elements), transmit then receive."""

    effect: Floats
    z: Floats
    sure: Floats
    bad: Bools
    num_cells: Ints
    num_agree: Ints

    def suspect(self, at: int, **where: object) -> Suspect | None:
        """The suspect at one element, or None where neither direction is bad."""
        if not self.bad[:, at].any():
            return None
        worst = int(np.argmin(np.where(self.bad[:, at], self.effect[:, at], np.inf)))
        other = 1 - worst
        both = bool(self.bad[other, at] and self.effect[other, at] <= self.effect[worst, at] / 2)
        ways = [0, 1] if both else [worst]
        return Suspect(
            direction="both" if both else ("transmit", "receive")[worst],
            slower=-math.expm1(self.effect[worst, at]), z=float(self.z[worst, at]),
            num_cells=int(self.num_cells[ways, at].sum()), num_agree=int(self.num_agree[ways, at].sum()),
            confidence=float(self.sure[ways, at].max()), **where,  # type: ignore[arg-type]
        )  # fmt: skip


def node_suspects(fabric: Fabric, sides: Sides) -> list[Suspect]:
    """Hosts and NICs that are slow, one suspect each, before they are grouped."""
    table, rails = fabric.table, sides.num_rails
    nics, hosts = _nics(sides), _hosts(sides) if sides.num_rails > 1 else None
    suspects = []
    for node in _nodes_with(nics, hosts, rails):
        name = table.nodes[node]
        whole = hosts.suspect(node, kind="host", where=name, nodes=(name,)) if hosts else None
        single = [
            nics.suspect(node * rails + rail, kind="nic", where=name, rail=rail, nodes=(name,))
            for rail in range(rails)
        ]  # fmt: skip
        found = [whole, *(s for s in single if s and not (whole and _explains(whole, s)))]
        suspects += [_explained(s, table) for s in found if s and (not table.there_and_back or _late(s))]
    return suspects


def _late(s: Suspect) -> bool:
    return 1 / max(1 - s.slower, 1e-12) >= 1 + LATE


def _explains(whole: Suspect, single: Suspect) -> bool:
    """Whether a slow host accounts for one of its NICs: it is no worse than twice the host, and not slow elsewhere."""
    covered = whole.direction in ("both", single.direction) or not single.certain
    return covered and (single.slower <= 2 * whole.slower or not single.certain)


def _nodes_with(nics: Ways, hosts: Ways | None, rails: int) -> Iterator[int]:
    flagged = nics.bad.any(axis=0).reshape(-1, rails).any(axis=1)
    if hosts is not None:
        flagged = flagged | hosts.bad.any(axis=0)
    yield from np.flatnonzero(flagged).tolist()


def _nics(sides: Sides) -> Ways:
    sure, heard = zip(*(sides.confidence(way) for way in (0, 1)), strict=True)
    return Ways(
        effect=np.array([e.effect for e in sides.effects]), z=np.array([e.z for e in sides.effects]),
        sure=np.array(sure), bad=np.array(sides.candidate),
        num_cells=np.array([h.num_cells for h in heard]), num_agree=np.array([h.num_agree for h in heard]),
    )  # fmt: skip


def _hosts(sides: Sides) -> Ways:
    """Hosts as a whole: the middle of their rails' effects, where at least three quarters of the rails agree."""
    rails = sides.num_rails
    parts = []
    for way, effects in enumerate(sides.effects):
        effect = effects.effect.reshape(-1, rails)
        seen = np.isfinite(effect)
        num_seen = seen.sum(axis=1)
        middle = np.where(num_seen >= 2, np.nanmedian(np.where(seen, effect, np.inf), axis=1), np.nan)
        middle = np.where(np.isfinite(middle), middle, np.nan)
        z = np.where(seen, effects.z.reshape(-1, rails), 0).sum(axis=1) / np.sqrt(np.maximum(num_seen, 1))
        wider = max(1.0, spread(z[num_seen >= 2]))  # rails of one host have their moments together
        z = z / wider
        with np.errstate(invalid="ignore"):
            agree = (effect <= middle[:, None] / 2).sum(axis=1) >= MOST * num_seen
            bad = (middle <= -FLOOR) & (z <= SUSPECT_Z) & agree
        heard = sides.heard(way, np.repeat(np.where(bad, middle, np.nan), rails))
        odds, cells, slow = (
            x.reshape(-1, rails).sum(axis=1) for x in (heard.log_odds, heard.num_cells, heard.num_agree)
        )
        by_flows = probability_bad(odds / wider**2, cells, sides.noise.scale)
        sure = np.minimum(by_flows, certainty(z, 2 * len(z)))
        parts.append((middle, z, np.where(bad, sure, 0.0), bad, cells, slow))
    effect, z, sure, bad, cells, slow = (np.array(column) for column in zip(*parts, strict=True))
    return Ways(effect=effect, z=z, sure=sure, bad=bad, num_cells=cells, num_agree=slow)


def _explained(s: Suspect, table: PairTable) -> Suspect:
    """The suspect with its sentence, and as `dead` where next to nothing came through."""
    rails, rate = table.num_rails, table.better == "higher"
    if table.there_and_back:
        s = replace(s, direction="either")
    left = max(1 - s.slower, 1e-12)  # of the speed
    dead = left <= (DEAD if rate else 2 * FAILED_SHARE)
    subject = s.where if s.kind == "host" else f"rail {s.rail} of {s.where}" if rails > 1 else s.where
    agree = f"{s.num_agree} of {s.num_cells} flows with healthy partners agree"
    slower = f"{percent(s.slower)} slower than its peers" if rate else f"{1 / left:.2f} times as late as its peers"
    said = f"{subject} {DIRECTIONS[s.direction]} {'next to nothing' if dead else slower}"
    cause = {
        ("host", "both"): "all its rails, both ways: the host",
        ("host", "transmit"): "all its rails: the host's sending side",
        ("host", "receive"): "all its rails: the host's receiving side",
        ("host", "either"): "all its rails: the host",
        ("nic", "both"): "both ways on this rail: its NIC or cable",
        ("nic", "transmit"): "one way on this rail: the sending side of that NIC or port",
        ("nic", "receive"): "one way on this rail: the receiving side of that NIC or port",
        ("nic", "either"): "measured there and back: the direction cannot be told",
    }[s.kind, s.direction]
    if rails == 1:
        cause += " (one rail: the host itself is not ruled out)"
    kind = "dead" if dead else "delay" if table.there_and_back else s.kind
    return replace(s, kind=kind, evidence=f"{said} ({agree}); {cause}")


def grouped(suspects: list[Suspect], nodes: Sequence[str], topology: Topology) -> tuple[list[Suspect], str]:
    """Suspects with groups in place of their members, and the common cause where there are too many.

    A group (rack, leaf, pod, firmware ...) is named where at least three quarters of its nodes are slow in the
    same way, it has at least three, and it is not the whole fleet. `nodes` are all nodes that were judged.
    """
    for kind, values in topology.groups(nodes).items():
        members: dict[str, list[str]] = {}
        for node, value in zip(nodes, values, strict=True):
            members.setdefault(value, []).append(node)
        for value, inside in members.items():
            if value and MIN_MEMBERS <= len(inside) < len(nodes):
                suspects = _named_once(suspects, kind, value, inside)
    slow = {s.where for s in suspects if s.kind in OF_ONE_NODE and s.certain}
    if len(slow) < MIN_MANY or len(slow) <= TOO_MANY * len(nodes):
        return suspects, ""
    kept = [s for s in suspects if s.kind not in OF_ONE_NODE]
    return kept, (
        f"{len(slow)} of {len(nodes)} nodes are slower than the rest and share no known rack, leaf or attribute: "
        f"suspect the software, a setting or the limit, not each node (first: {', '.join(sorted(slow)[:5])})"
    )


def _named_once(suspects: list[Suspect], kind: str, value: str, inside: list[str]) -> list[Suspect]:
    """`suspects` with one for the whole group, if most of its members are slow alike."""
    at = set(inside)
    mine = [s for s in suspects if s.where in at and s.kind in OF_ONE_NODE]
    if not mine:
        return suspects
    ((pattern, _),) = Counter((s.kind, s.rail) for s in mine).most_common(1)
    alike = [s for s in mine if (s.kind, s.rail) == pattern]
    if len(alike) < MOST * len(inside):
        return suspects
    ways = Counter(s.direction for s in alike)
    direction, most = ways.most_common(1)[0]
    direction = direction if most >= MOST * len(alike) else "both"
    slower = float(np.median([s.slower for s in alike]))
    group = Suspect(
        kind=kind, where=value, rail=pattern[1], direction=direction,
        nodes=tuple(sorted(inside)), slower=slower,
        z=float(np.median([s.z for s in alike])), num_cells=sum(s.num_cells for s in alike),
        num_agree=sum(s.num_agree for s in alike),
        waited=max(s.waited for s in alike), confidence=1 - math.prod(1 - s.confidence for s in alike),
        evidence=f"{len(alike)} of the {len(inside)} nodes of {kind} {value} are {percent(slower)} slower in the same "
                 f"way: what they share, not each of them",
    )  # fmt: skip
    return [s for s in suspects if s not in mine] + [group]
