"""How fast more nodes would be, from fewer: a projection, which may fail a cluster and never passes one.

Weak scaling: every node brings the same bytes and files. What more of them reach is told by at least three doublings
that were measured, by the efficiency of the last one, and by ceilings; never further than one more doubling, since
behind it lies what nobody has seen (a full switch, a server's limit). Pure arithmetic, standard library only.

>>> round(project({1: 10.0, 2: 20.0, 4: 40.0, 8: 72.0}, nodes=16))
130
"""

from __future__ import annotations

import math
from collections.abc import Mapping

DOUBLINGS = 3


class ProjectionError(ValueError):
    """Nothing can be projected, and what would have to be measured."""


def doublings(nodes: int) -> tuple[int, ...]:
    """1, 2, 4 ... nodes, as far as there are nodes.

    >>> doublings(12)
    (1, 2, 4, 8)
    """
    return tuple(2**i for i in range(nodes.bit_length()))


def efficiency(rates: Mapping[int, float]) -> float:
    """Of the last doubling: the rate over twice the rate of half as many nodes; 1 is perfect.

    Raises ProjectionError where fewer than DOUBLINGS doublings were measured.
    """
    most = max(rates, default=0)
    wanted = [most // 2**i for i in range(DOUBLINGS + 1)]
    if most < 2**DOUBLINGS or any(nodes not in rates for nodes in wanted):
        raise ProjectionError(
            f"{DOUBLINGS} doublings must be measured, from 1 to at least {2**DOUBLINGS} nodes; there are {most} nodes"
        )
    return rates[most] / (2 * rates[most // 2])


def project(rates: Mapping[int, float], *, nodes: int, ceiling: float = math.inf) -> float:
    """The rate (B/s) of `nodes` nodes from those of fewer, {nodes: B/s}; never above `ceiling`.

    The efficiency of the last doubling holds once more, and is never taken as better than 1. Raises ProjectionError
    where too few doublings were measured or `nodes` is more than one further.
    """
    share = min(1.0, efficiency(rates))
    most = max(rates)
    if nodes > 2 * most:
        raise ProjectionError(
            f"{nodes} nodes are more than one doubling beyond the {most} measured: measure on {math.ceil(nodes / 2)} "
            "nodes or more"
        )
    steps = math.log2(nodes / most)
    return min(ceiling, rates[most] * math.pow(2 * share, steps))
