"""Node sets: names written short and long, chosen and left out. ClusterShell does the folding.

Names keep the order they are given in, which is the order of ranks; where a set is written as a range, that is the
natural one (n9 before n10, also in two dimensions).

>>> expand("n[9-11],login1")
('n9', 'n10', 'n11', 'login1')
>>> fold(["n10", "n9", "n11"])
'n[9-11]'
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ClusterShell.NodeSet import NodeSet, NodeSetException


class NodesError(ValueError):
    """Nodes that cannot be had as asked; one line with the cure."""


def expand(text: str) -> tuple[str, ...]:
    """The nodes of "n[1-3],n7" in the order written. NodesError where it cannot be read or names a node twice."""
    found: list[str] = []
    for part in split(text):
        try:
            found += list(NodeSet(part, resolver=None))
        except NodeSetException as error:
            raise NodesError(f"{part!r} names no nodes: {error}; write n[1-4,7] or n1,n2") from None
    twice = sorted({name for name in found if found.count(name) > 1}) if len(set(found)) < len(found) else []
    if twice:
        raise NodesError(f"{fold(twice)} named twice in {text!r}: each node once")
    return tuple(found)


def split(text: str) -> list[str]:
    """A list at its commas, except those inside brackets: "n[1,3],n7" has two parts."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "[") - (character == "]")
        if character in ", \n\t" and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part for part in parts if part]


def fold(names: Iterable[str]) -> str:
    """The names written short, for people: "n[1-3],n7"."""
    return str(NodeSet.fromlist(list(names), resolver=None))


def choose(allocated: Sequence[str], *, nodelist: Sequence[str] = (), exclude: Sequence[str] = ()) -> tuple[str, ...]:
    """Of the nodes held, those to measure, in the order of the allocation.

    Raises NodesError where --nodelist or --exclude names a node that is not held, or nothing is left.
    """
    for option, names in (("--nodelist", nodelist), ("--exclude", exclude)):
        if strange := [name for name in names if name not in set(allocated)]:
            raise NodesError(f"{option}: {fold(strange)} not among the nodes at hand ({fold(allocated)})")
    chosen = tuple(n for n in allocated if (not nodelist or n in set(nodelist)) and n not in set(exclude))
    if not chosen:
        raise NodesError(f"no node is left of {fold(allocated) or 'none'} after --nodelist and --exclude")
    return chosen
