"""Who meets whom when: every pair once, in as few rounds as there can be.

With an odd number one rank rests in every round, so nobody is left out. The pairs of a round are disjoint: they measure
at the same time without sharing an end (they may share the fabric between, which the k-flow sweep looks at on purpose).

>>> tournament(4, seed=None)
[[(0, 3), (1, 2)], [(0, 2), (1, 3)], [(0, 1), (2, 3)]]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from benchmarks.links import meetings


def tournament(num_ranks: int, *, seed: int | None = 1) -> list[list[tuple[int, int]]]:
    """Rounds of disjoint pairs (a, b), a < b: n - 1 rounds for an even number of ranks, n for an odd one.

    The order of the rounds is shuffled by `seed` (None: left as it is), so that neighbours in rank are not
    also neighbours in time. Drawn as the meetings of nodes are (`meetings.tournament`).
    """
    drawn = meetings.tournament(num_ranks, seed=seed)
    return [sorted((min(pair), max(pair)) for pair in made.pairs) for made in drawn]


def seated(pairs: list[tuple[int, int]], *, nodes: Sequence[str], cores: Sequence[int]) -> list[list[tuple[int, int]]]:
    """A round cut into sub-rounds in which no node has more busy ranks than cores.

    `nodes` and `cores` are every rank's node and its number of usable cores. For ranks on CPUs: two ends that
    wait for one core measure the scheduler, not the link. A pair is never dropped: one alone always sits.

    >>> seated([(0, 3), (1, 2)], nodes="aaaa", cores=[2, 2, 2, 2])
    [[(0, 3)], [(1, 2)]]
    """
    waiting, rounds = list(pairs), []
    while waiting:
        busy: Counter[str] = Counter()
        now: list[tuple[int, int]] = []
        for pair in waiting:
            ends = Counter(nodes[rank] for rank in pair)
            if not now or all(busy[nodes[r]] + ends[nodes[r]] <= cores[r] for r in pair):
                now.append(pair)
                busy += ends
        rounds.append(now)
        waiting = [pair for pair in waiting if pair not in now]
    return rounds


def partner(pairs: list[tuple[int, int]], rank: int) -> int | None:
    """Whom `rank` meets in this round; None: a bye."""
    for a, b in pairs:
        if rank in (a, b):
            return b if rank == a else a
    return None
