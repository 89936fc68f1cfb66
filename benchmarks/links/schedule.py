"""The rounds of a links benchmark: which pairs of ranks measure at the same time.

Pairs of ranks in a tournament of all; or pairs of nodes, all their rails at once, in a tournament or in a few random
rounds, and inside each node every pair of its ranks; or the rounds that a re-test names. No torch here.

>>> schedule(Links(meet="nodes", passes=1), nodes=["a", "a", "b", "b"])
[[(0, 2), (1, 3)], [(0, 1), (2, 3)]]
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.links import meetings
from benchmarks.links.spec import Links, read_round
from benchmarks.links.tournament import seated, tournament

Pair = tuple[int, int]


def schedule(spec: Links, *, nodes: Sequence[str], cores: Sequence[int] = ()) -> list[list[Pair]]:
    """The rounds of all passes, `nodes` being the node of every rank.

    `cores`, per rank, are given where ranks run on CPUs: no more pairs of a node at once than it has cores for.
    """
    if spec.rounds:
        rounds = [read_round(pairs) for pairs in spec.rounds] * spec.passes
    elif spec.meet == "nodes":
        rounds = [pairs for i in range(spec.passes) for pairs in of_nodes(spec, nodes, seed=spec.seed + i)]
    else:
        rounds = [pairs for i in range(spec.passes) for pairs in tournament(len(nodes), seed=spec.seed + i)]
    if not cores:
        return rounds
    return [part for pairs in rounds for part in seated(pairs, nodes=nodes, cores=cores)]


def num_rounds(spec: Links, *, nodes: int, per_node: int) -> int:
    """How many rounds `schedule` makes of so many nodes, before CPU cores cut them.

    >>> num_rounds(Links(meet="nodes", passes=1), nodes=2, per_node=2)
    2
    """
    if spec.rounds:
        return len(spec.rounds) * spec.passes
    if spec.meet != "nodes":
        return meetings.num_rounds(nodes * per_node) * spec.passes
    across = spec.screening * (3 if nodes % 2 else 1) if spec.screening else meetings.num_rounds(nodes)
    return (across + meetings.num_rounds(per_node)) * spec.passes


def of_nodes(spec: Links, nodes: Sequence[str], *, seed: int) -> list[list[Pair]]:
    """One pass of pairs of nodes. The partners of a screening are the same in every pass."""
    ranks: dict[str, list[int]] = {}
    for rank, node in enumerate(nodes):
        ranks.setdefault(node, []).append(rank)
    seats = list(ranks.values())
    if spec.screening:
        leaf, pod = (_groups(listed, list(ranks)) for listed in (spec.leaves, spec.pods))
        planned = meetings.screening(len(seats), spec.screening, leaf=leaf, pod=pod, seed=spec.seed)
    else:
        planned = meetings.tournament(len(seats), seed=seed)
    across = [
        sorted(meetings.sorted_pair(p) for pair in turn for p in meetings.by_rank(pair, ranks=seats))
        for made in planned for turn in made.turns
    ]  # fmt: skip
    return across + meetings.inside(seats)


def _groups(listed: Sequence[str], nodes: Sequence[str]) -> list[str] | None:
    """The group of every node, where `listed` has the nodes of one group each; None where it has none of them."""
    at = {name: str(i) for i, names in enumerate(listed) for name in names.split()}
    found = [at.get(node, at.get(node.partition(".")[0], "")) for node in nodes]
    return found if any(found) else None
