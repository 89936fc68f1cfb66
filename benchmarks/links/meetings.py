"""Rounds of disjoint pairs of nodes: everybody meets everybody, or, of many nodes, a few others at random.

A full tournament meets every pair in N-1 rounds (circle method); of many nodes, a few random rounds name a slow NIC
just as well, since each round measures every node. Pure: the same seed gives the same rounds. No torch here.

>>> [r.groups for r in tournament(4, seed=None)][0]
((0, 3), (1, 2))
>>> sorted(by_rank((0, 1), ranks=[[0, 1], [2, 3]]))
[(0, 2), (1, 3)]
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

WITHIN_EVERY = 5  # one round in five pairs nodes of one leaf: it tells an uplink from a rack
TRIES = 50  # swaps tried for one unsuitable pair

Pair = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Round:
    """Disjoint groups of nodes that measure at the same time: pairs, and of an odd number one group of three."""

    kind: str  # tournament | across | within | retest
    groups: tuple[tuple[int, ...], ...]

    @property
    def turns(self) -> tuple[tuple[Pair, ...], ...]:
        """The pairs of each turn. A group of three needs three turns; the pairs measure in the first."""
        first = tuple((group[0], group[1]) for group in self.groups)
        threes = [group for group in self.groups if len(group) == 3]
        if not threes:
            return (first,)
        return first, tuple((g[1], g[2]) for g in threes), tuple((g[2], g[0]) for g in threes)

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """All pairs of the round, whichever turn they have."""
        return tuple(pair for turn in self.turns for pair in turn)


def tournament(num_nodes: int, *, seed: int | None = 0) -> list[Round]:
    """Every pair exactly once, by the circle method, in random order (seed None: in the method's own).

    An odd number takes one round more, and every node rests in one of them. Under two nodes: no rounds.
    """
    if num_nodes < 2:
        return []
    seats = list(range(num_nodes)) + [-1] * (num_nodes % 2)
    rounds = []
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        pairs = zip(seats[:half], reversed(seats[half:]), strict=True)
        rounds.append(Round(kind="tournament", groups=tuple((a, b) for a, b in pairs if -1 not in (a, b))))
        seats = [seats[0], seats[-1], *seats[1:-1]]
    if seed is not None:
        random.Random(seed).shuffle(rounds)
    return rounds


def num_rounds(num_nodes: int) -> int:
    """Rounds of a tournament: one less than nodes, of an odd number as many."""
    return num_nodes - 1 + num_nodes % 2 if num_nodes > 1 else 0


def screening(
    num_nodes: int,
    num_rounds: int,
    *,
    leaf: Sequence[Hashable] | None = None,
    pod: Sequence[Hashable] | None = None,
    seed: int = 0,
) -> list[Round]:
    """Random disjoint pairs, no pair twice while that can be had; of an odd number one group of three.

    With `leaf` (one entry per node), partners are on other leaves, and of other pods in half of these rounds
    where `pod` is given; every fifth round, the second first, pairs nodes of the same leaf.
    """
    if num_nodes < 2:
        return []
    dice, met = random.Random(seed), set[Pair]()
    many = leaf is not None and len(set(leaf)) > 1
    rounds = []
    for i in range(num_rounds):
        within = many and i % WITHIN_EVERY == 1
        order = _by_leaf(leaf, dice) if within and leaf is not None else dice.sample(range(num_nodes), num_nodes)
        apart = None if within or not many else pod if pod is not None and len(set(pod)) > 1 and i % 2 == 0 else leaf
        order = _improved(order, apart, met, dice, keep=within)
        groups = [tuple(order[j : j + 2]) for j in range(0, num_nodes - num_nodes % 2, 2)]
        if num_nodes % 2:
            groups[-1] = (*groups[-1], order[-1])
        made = Round(kind="within" if within else "across", groups=tuple(groups))
        met.update(sorted_pair(pair) for pair in made.pairs)
        rounds.append(made)
    return rounds


def by_rank(pair: Pair, *, ranks: Sequence[Sequence[int]]) -> list[Pair]:
    """The pairs of ranks by which two nodes meet: rank i of the one with rank i of the other, one rail each."""
    return list(zip(ranks[pair[0]], ranks[pair[1]], strict=False))


def inside(ranks: Sequence[Sequence[int]]) -> list[list[Pair]]:
    """Rounds in which every pair of ranks of a node meets, on all nodes at once."""
    seats = max(len(own) for own in ranks)
    return [
        [(own[a], own[b]) for own in ranks for a, b in planned.pairs if max(a, b) < len(own)]
        for planned in tournament(seats, seed=None)
    ]


def sorted_pair(pair: Pair) -> Pair:
    return min(pair), max(pair)


def _by_leaf(leaf: Sequence[Hashable], dice: random.Random) -> list[int]:
    """All nodes, neighbours on one leaf; the odd one of each leaf goes to the end."""
    members: dict[Hashable, list[int]] = {}
    for node in dice.sample(range(len(leaf)), len(leaf)):
        members.setdefault(leaf[node], []).append(node)
    paired = [node for nodes in members.values() for node in nodes[: len(nodes) // 2 * 2]]
    return paired + [nodes[-1] for nodes in members.values() if len(nodes) % 2]


def _improved(order: list[int], apart: Sequence[Hashable] | None, met: set[Pair], dice: random.Random, *,
              keep: bool) -> list[int]:  # fmt: skip
    """`order` with unsuitable pairs (met before, or not `apart`) swapped away where a few tries manage it."""
    if keep:
        return order

    def suits(a: int, b: int) -> bool:
        return sorted_pair((a, b)) not in met and (apart is None or apart[a] != apart[b])

    last = len(order) // 2 * 2
    for i in range(0, last, 2):
        tries = TRIES
        while not suits(order[i], order[i + 1]) and tries:
            tries -= 1
            j = dice.randrange(0, last, 2)
            if j != i and suits(order[i], order[j + 1]) and suits(order[j], order[i + 1]):
                order[i + 1], order[j + 1] = order[j + 1], order[i + 1]
    return order
