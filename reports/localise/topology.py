"""What hangs where: nodes, racks, leaves, rails and cables, read from a file.

Three readers give one Topology: our TOML, Slurm's topology.conf, and the output of `ibnetdiscover`. Without
a file the fabric is taken as flat: every node on one switch. Nothing here measures.

>>> slurm("SwitchName=leaf1 Nodes=n[1-2]").leaf
{'n1': ('leaf1',), 'n2': ('leaf1',)}
"""

from __future__ import annotations

import itertools
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from reports.localise.pairs import Ints


@dataclass(frozen=True, kw_only=True)
class Cable:
    """One cable between two ports: (device, port) each, in a fixed order."""

    ends: tuple[tuple[str, str], tuple[str, str]]

    @classmethod
    def between(cls, one: tuple[str, str], other: tuple[str, str]) -> Cable:
        """The cable of two ports, whichever is named first."""
        return cls(ends=(min(one, other), max(one, other)))

    def __str__(self) -> str:
        return " -- ".join(f"{device}:{port}" for device, port in self.ends)


@dataclass(frozen=True, kw_only=True)
class Topology:
    """Where each node sits. A node may be missing from any of these."""

    leaf: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # node -> its leaf, or one leaf per rail
    rack: Mapping[str, str] = field(default_factory=dict)
    pod: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # node -> {"firmware": "28.39"}
    cables: frozenset[Cable] = frozenset()
    source: str = "none given: taken as flat"

    def leaves(self, nodes: Sequence[str], num_rails: int) -> tuple[Ints, tuple[str, ...]]:
        """Leaf of every node and rail, shape (nodes, rails), as an index into the returned names.

        A node without a leaf has -1. A node with one leaf has it on every rail.
        """
        names: dict[str, int] = {}
        at = np.full((len(nodes), max(num_rails, 1)), -1, dtype=np.int64)
        for i, node in enumerate(nodes):
            mine = self.leaf.get(_plain(node, self.leaf), ())
            for rail in range(at.shape[1]):
                leaf = mine[0] if len(mine) == 1 else mine[rail] if rail < len(mine) else ""
                if leaf:
                    at[i, rail] = names.setdefault(leaf, len(names))
        return at, tuple(names)

    def groups(self, nodes: Sequence[str]) -> dict[str, list[str]]:
        """What nodes can have in common: kind ("rack", "leaf", "pod", "firmware" ...) -> value per node or ""."""
        single = {node: leaves[0] for node, leaves in self.leaf.items() if len(set(leaves)) == 1}
        kinds: dict[str, Mapping[str, str]] = {"rack": self.rack, "leaf": single, "pod": self.pod}
        for kind in sorted({kind for facts in self.attributes.values() for kind in facts}):
            kinds[kind] = {node: facts[kind] for node, facts in self.attributes.items() if kind in facts}
        return {
            kind: [values.get(_plain(node, values), "") for node in nodes] for kind, values in kinds.items() if values
        }


def _plain(node: str, known: Mapping[str, object]) -> str:
    """A host's own name, without the number that tells two of one name apart."""
    return node if node in known else re.sub(r"#\d+$", "", node)


def read(text: str, *, source: str = "") -> Topology:
    """The topology in `text`, whichever of the three forms it has. ValueError says what was looked for."""
    if re.search(r'^\s*(Switch|Ca)\s+\d+\s+"', text, re.MULTILINE):
        return ibnetdiscover(text, source=source or "ibnetdiscover")
    if re.search(r"^\s*(SwitchName|BlockName)\s*=", text, re.MULTILINE | re.IGNORECASE):
        return slurm(text, source=source or "topology.conf")
    if re.search(r"^\s*\[", text, re.MULTILINE):
        return toml(text, source=source or "topology file")
    raise ValueError(
        f"{source or 'topology'}: neither TOML ([nodes.NAME] tables), nor a Slurm topology.conf (SwitchName=...), "
        'nor ibnetdiscover output (Switch 40 "S-...")'
    )


def toml(text: str, *, source: str = "topology file") -> Topology:
    """Our own form.

    [nodes."n[001-032]"]          # a Slurm host list, or one name
    rack = "r1"
    leaf = "leaf1"                # or one per rail: ["leaf1-0", "leaf1-1"]
    firmware = "28.39.1002"       # any further key is an attribute that nodes may share
    [[cables]]
    from = "n001:mlx5_0"
    to = "leaf1:1"
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{source}: not TOML ({error})") from None
    places: dict[str, dict[str, str]] = {"rack": {}, "pod": {}}
    leaf: dict[str, tuple[str, ...]] = {}
    attributes: dict[str, dict[str, str]] = {}
    for names, facts in document.get("nodes", {}).items():
        if not isinstance(facts, dict):
            raise ValueError(f'{source}: [nodes."{names}"] must be a table with rack, leaf, ...')
        for node in expand(names):
            for kind, value in facts.items():
                if kind == "leaf":
                    leaf[node] = tuple(map(str, value)) if isinstance(value, list) else (str(value),)
                elif kind in places:
                    places[kind][node] = str(value)
                else:
                    attributes.setdefault(node, {})[kind] = str(value)
    cables = frozenset(_toml_cable(cable, source) for cable in document.get("cables", []))
    return Topology(leaf=leaf, rack=places["rack"], pod=places["pod"], attributes=attributes, cables=cables,
                    source=source)  # fmt: skip


def _toml_cable(cable: Mapping[str, str], source: str) -> Cable:
    ends = []
    for key in ("from", "to"):
        device, colon, port = cable.get(key, "").rpartition(":")
        if not colon:
            raise ValueError(f'{source}: [[cables]] needs {key} = "device:port", not {cable.get(key)!r}')
        ends.append((device, port))
    return Cable.between(*ends)


def slurm(text: str, *, source: str = "topology.conf") -> Topology:
    """Slurm's topology.conf: a switch with Nodes is a leaf, the switch above it a pod; a block is a leaf."""
    leaf: dict[str, tuple[str, ...]] = {}
    above: dict[str, str] = {}
    for line in re.sub(r"\\\s*\n", " ", text).splitlines():
        fields = {k.lower(): v for k, v in re.findall(r"(\w+)\s*=\s*(\S+)", line.split("#")[0])}
        name = fields.get("switchname") or fields.get("blockname")
        if not name:
            continue
        for node in expand(fields.get("nodes", "")):
            leaf[node] = (name,)
        for child in expand(fields.get("switches", "")):
            above.setdefault(child, name)
    if not leaf:
        raise ValueError(f"{source}: no line with SwitchName= or BlockName= and Nodes=")
    pods = {node: above[leaves[0]] for node, leaves in leaf.items() if leaves[0] in above}
    return Topology(leaf=leaf, pod=pods if len(set(pods.values())) > 1 else {}, source=source)


def expand(names: str) -> list[str]:
    """A Slurm host list as single names: 'n[08-10,12],login' -> n08 n09 n10 n12 login.

    Raises ValueError for an unclosed bracket or a range that runs backwards.
    """
    if names.count("[") != names.count("]"):
        raise ValueError(f"host list {names!r}: a bracket is not closed")
    nodes: list[str] = []
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", names):
        pieces = [_choices(piece, names) for piece in re.findall(r"\[[^\]]*\]|[^\[]+", part.strip())]
        nodes += ["".join(choice) for choice in itertools.product(*pieces)]
    return nodes


def _choices(piece: str, names: str) -> list[str]:
    """What one bracket (or plain text) of a host list stands for."""
    if not piece.startswith("["):
        return [piece]
    found: list[str] = []
    for span in piece[1:-1].split(","):
        first, _, last = span.partition("-")
        if not first.isdigit() or (last and not (last.isdigit() and int(first) <= int(last))):
            raise ValueError(f"host list {names!r}: {span!r} is no range such as 08-10")
        found += [str(i).zfill(len(first)) for i in range(int(first), int(last or first) + 1)]
    return found


_HEAD = re.compile(r'^(Switch|Ca|Rt)\s+\d+\s+"([^"]+)"\s*#\s*"([^"]*)"')
_LINK = re.compile(r'^\[(\d+)\](?:\[[^\]]*\])?(?:\([0-9a-fA-Fx]+\))?\s+"([^"]+)"\[(\d+)\]')


def ibnetdiscover(text: str, *, source: str = "ibnetdiscover") -> Topology:
    """What `ibnetdiscover` prints: a switch with hosts is a leaf; HCAs of a host are its rails in name order.

    A host's name is the first word of its HCA's NodeDescription ("n001 mlx5_0"). In `cables` that end is
    n001:mlx5_0 (n001:mlx5_0/2 for a second port), a switch its description, or its GUID where two share one.
    """
    kinds: dict[str, str] = {}
    words: dict[str, str] = {}
    links: set[frozenset[tuple[str, str]]] = set()
    here = ""
    for line in text.splitlines():
        if head := _HEAD.match(line):
            kind, here, description = head.groups()
            kinds[here], words[here] = kind, description
        elif here and (link := _LINK.match(line)):
            port, peer, peer_port = link.groups()
            links.add(frozenset([(here, port), (peer, peer_port)]))
        elif not line.strip():
            here = ""
    if not kinds:
        raise ValueError(f'{source}: no Switch or Ca line (expected: Switch 40 "S-..." # "name" ...)')
    return _fabric(kinds, words, links, source)


def _fabric(kinds: dict[str, str], words: dict[str, str], links: set[frozenset[tuple[str, str]]],
            source: str) -> Topology:  # fmt: skip
    """Leaves and cables of a discovered fabric: `kinds` and `words` (descriptions) per GUID, ports per link."""
    described = Counter(words.values())

    def name(guid: str) -> str:
        return words[guid] if described[words[guid]] == 1 else guid

    rails: dict[str, dict[str, str]] = defaultdict(dict)
    cables = set()
    for link in links:
        ends = sorted(link)
        if len(ends) != 2 or any(guid not in kinds for guid, _ in ends):
            continue
        named = []
        for (guid, port), (peer, _) in (ends, ends[::-1]):
            if kinds[guid] != "Ca":
                named.append((name(guid), port))
                continue
            host, _, hca = words[guid].partition(" ")
            socket = hca if port == "1" else f"{hca}/{port}"
            named.append((host, socket))
            if kinds[peer] == "Switch":
                rails[host][socket] = name(peer)
        cables.add(Cable.between(*named))
    leaf = {host: tuple(hcas[hca] for hca in sorted(hcas, key=_natural)) for host, hcas in sorted(rails.items())}
    return Topology(leaf=leaf, cables=frozenset(cables), source=source)


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort key by which mlx5_10 comes after mlx5_9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def miscabled(*, plan: Topology, found: Topology) -> list[str]:
    """One sentence per port that is not cabled as planned; nothing where either knows no cables."""
    if not plan.cables or not found.cables:
        return []
    planned = {end: cable for cable in plan.cables for end in cable.ends}
    actual = {end: cable for cable in found.cables for end in cable.ends}
    said = [f"{cable}: planned, {_instead(cable, actual)}" for cable in plan.cables - found.cables]
    said += [
        f"{cable}: found, not in the plan"
        for cable in found.cables - plan.cables
        if not any(end in planned for end in cable.ends)
    ]
    return sorted(said)


def _instead(cable: Cable, actual: Mapping[tuple[str, str], Cable]) -> str:
    there = {str(actual[end]) for end in cable.ends if end in actual}
    return f"found {' and '.join(sorted(there))}" if there else "no cable found"
