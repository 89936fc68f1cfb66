"""What every collective is defined to do, as data: which elements belong where, and what must travel.

An operation's result is a list of Segments: "from here on, so many elements of each of these members". The
call, the verification and the tests go by the same table. Nothing here touches torch or a clock.

>>> [s.rows for s in result("all_gather", rank=0, members=2, num_elements=6, root=0)]
[range(0, 2)]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SUM = -1  # the row that holds the sum of all members' rows
SUMMED = ("all_reduce", "reduce_scatter", "reduce")


@dataclass(frozen=True, kw_only=True)
class Segment:
    """The output from element `start` on: `count` elements of each of the members `rows`, from their `offset` on."""

    start: int
    rows: Sequence[int]  # members, or (SUM,)
    count: int
    offset: int


def result(op: str, *, rank: int, members: int, num_elements: int, root: int, uneven: bool = False) -> list[Segment]:
    """What the output of member `rank` must hold. Empty: nothing is promised (a reduce, except at the root)."""
    n, share = num_elements, num_elements // members
    everybody = range(members)
    if uneven:
        return _uneven(rank=rank, members=members, num_elements=num_elements)
    table = {
        "all_reduce": Segment(start=0, rows=(SUM,), count=n, offset=0),
        "reduce": Segment(start=0, rows=(SUM,), count=n, offset=0),
        "broadcast": Segment(start=0, rows=(root,), count=n, offset=0),
        "reduce_scatter": Segment(start=0, rows=(SUM,), count=share, offset=rank * share),
        "all_gather": Segment(start=0, rows=everybody, count=share, offset=0),
        "all_to_all": Segment(start=0, rows=everybody, count=share, offset=rank * share),
        "gather": Segment(start=0, rows=everybody, count=share, offset=0),
        "scatter": Segment(start=0, rows=(root,), count=share, offset=rank * share),
        "send_recv": Segment(start=0, rows=((rank - 1) % members,), count=n, offset=0),
    }
    if op not in table:
        raise ValueError(f"no operation {op!r}: there are {', '.join(table)}")
    return [] if op in ("reduce", "gather") and rank != root else [table[op]]


def shares(*, rank: int, members: int, num_elements: int) -> list[int]:
    """Elements that `rank` sends to each member in an uneven all_to_all: the farther the member, the more.

    The member d places further gets d + 1 of n(n + 1)/2 parts, rounded so that the sum is exact. Every rank
    sends and receives `num_elements` in all.
    """
    parts = members * (members + 1)
    ends = [num_elements * d * (d + 1) // parts for d in range(members + 1)]
    by_distance = [ends[d + 1] - ends[d] for d in range(members)]
    return [by_distance[(member - rank) % members] for member in range(members)]


def _uneven(*, rank: int, members: int, num_elements: int) -> list[Segment]:
    segments, start = [], 0
    for sender in range(members):
        sent = shares(rank=sender, members=members, num_elements=num_elements)
        segments.append(Segment(start=start, rows=(sender,), count=sent[rank], offset=sum(sent[:rank])))
        start += sent[rank]
    return segments


def must_travel(op: str, *, members: int, size: int, uneven: bool = False) -> float:
    """Bytes that all ranks together cannot avoid sending, whatever the algorithm, short of reducing in the network.

    Whoever has something that another lacks must hand it on: a measurement with less on the wire did not do the
    work. Sums over the ranks of what each must send, or of what each must be given.
    """
    n = members
    if uneven:
        return n * size * away(members=n)
    return {
        "all_reduce": 2 * (n - 1) * size, "all_gather": (n - 1) * size, "reduce_scatter": (n - 1) * size,
        "all_to_all": (n - 1) * size, "broadcast": (n - 1) * size, "reduce": (n - 1) * size,
        "gather": (n - 1) / n * size, "scatter": (n - 1) / n * size, "send_recv": n * size,
    }[op]  # fmt: skip


def away(*, members: int) -> float:
    """The share of its data that a rank sends to others in an uneven all_to_all: all but 1 of n(n + 1)/2 parts."""
    return 1 - 2 / (members * (members + 1))
