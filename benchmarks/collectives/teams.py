"""Who works together: the whole world, the ranks of each node, or a rail (the same place on every node).

    with teams("rail", world) as found:            # opens the process groups, and closes them again
        mine = next(team for team in found if world.rank in team.ranks)

Point-to-point pairs need no group of their own: the links benchmark runs them on the world's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from benchmarks.measurement import Subject
from benchmarks.world import World


@dataclass(frozen=True, kw_only=True)
class Team:
    """The ranks of one group, seen from one rank."""

    kind: str  # world | node | rail
    index: int  # which node or rail
    ranks: tuple[int, ...]  # in the world
    place: int  # this rank's place among them; -1: not a member
    node: str = ""
    group: Any = None  # process group; None: the world's

    @property
    def rail(self) -> int | None:
        """Which rail it is; None if it is none."""
        return self.index if self.kind == "rail" else None

    @property
    def subject(self) -> Subject:
        """The team as the subject of a measurement."""
        return Subject(
            group=self.kind, node=self.node, ranks=len(self.ranks), gpu=self.rail,
        )  # fmt: skip

    def neighbour(self, distance: int) -> int:
        """The world rank of the member `distance` places further on."""
        return self.ranks[(self.place + distance) % len(self.ranks)]


def members(kind: str, nodes: Sequence[str]) -> list[tuple[int, ...]]:
    """The ranks of every team of a kind, where `nodes` is the node of every rank.

    Raises RuntimeError where nodes differ in their number of ranks: a rail would then miss some.

    >>> members("rail", ["a", "a", "b", "b"])
    [(0, 2), (1, 3)]
    """
    if kind == "world":
        return [tuple(range(len(nodes)))]
    by_node = [tuple(r for r, at in enumerate(nodes) if at == node) for node in dict.fromkeys(nodes)]
    if len({len(ranks) for ranks in by_node}) > 1:
        counts = ", ".join(f"{nodes[ranks[0]]} {len(ranks)}" for ranks in by_node)
        raise RuntimeError(f"collectives: nodes differ in their number of ranks ({counts}); start as many on each")
    return by_node if kind == "node" else list(zip(*by_node, strict=True))


@contextmanager
def teams(kind: str, world: World) -> Iterator[list[Team]]:
    """All teams of a kind, with their process groups. Every rank must call it.

    After an error the groups are left as they are: closing one can block on members that are stuck in it.
    """
    opened = []
    for index, ranks in enumerate(members(kind, world.nodes)):
        group = None if kind == "world" else dist.new_group(list(ranks), backend=world.place.backend)
        place = ranks.index(world.rank) if world.rank in ranks else -1
        node = world.nodes[ranks[0]] if kind == "node" else ""
        opened.append(Team(kind=kind, index=index, ranks=ranks, place=place, node=node, group=group))
    yield opened
    for team in opened:
        if team.group is not None and team.place >= 0:
            dist.destroy_process_group(team.group)
