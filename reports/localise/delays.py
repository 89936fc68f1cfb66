"""Slow, or only late? A delay on a wire takes bandwidth too, since the messages of a window wait for round trips.

A suspect that both tables show is accused of one thing: of the delay where the extra round trips explain the time that
its best repetition lost, else of being slow. Best repetitions and shortest round trips are compared, because whatever
else happens on the hosts only adds to either.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from reports.localise.pairs import Bools, Floats, PairTable
from reports.localise.suspects import Findings, Suspect, percent

NODE = ("nic", "host")


def told_apart(slow: Findings, late: Findings, *, bytes_at_once: float, round_trips: int) -> tuple[Findings, Findings]:
    """Each host in one of the two: `slow` without whom a delay explains, `late` without whom it does not.

    `slow` was screened from bandwidths in bytes/s, of repetitions that move `bytes_at_once` bytes and wait for at most
    `round_trips` of them; `late` from half round trips in seconds, of the same pairs. Where nobody knows how many
    bytes (0), a delay explains nothing.
    """
    sentences: dict[object, str] = {}  # of a delay: what it explains
    excused = set()
    for s in slow.suspects:
        for d in late.suspects:
            if d.kind == "delay" and _same_port(s, d) and _explains(
                d, s, late, slow, bytes_at_once=bytes_at_once, round_trips=round_trips
            ):  # fmt: skip
                excused.add(s.element)
                sentences[d.element] = f"{d.evidence}; that explains bandwidth {percent(s.slower)} lower"
    kept = tuple(s for s in slow.suspects if s.element not in excused)
    rest = tuple(
        replace(d, evidence=sentences.get(d.element, d.evidence))
        for d in late.suspects if not any(_same_port(s, d) or _wider(s, d) for s in kept)
    )  # fmt: skip
    return replace(slow, suspects=kept), replace(late, suspects=rest)


def _same_port(s: Suspect, d: Suspect) -> bool:
    """Whether both are about one host, and not about two different rails of it."""
    return s.kind in NODE and s.where == d.where and (None in (s.rail, d.rail) or s.rail == d.rail)


def _wider(s: Suspect, d: Suspect) -> bool:
    """Whether a suspect that is no host or NIC (a rack, what loses) says all about the nodes of another."""
    return s.kind not in NODE and bool(set(s.nodes) & set(d.nodes))


def _explains(
    delay: Suspect, slow: Suspect, late: Findings, slowed: Findings, *, bytes_at_once: float, round_trips: int
) -> bool:
    """Whether the extra round trips of a delay are as long as what the best repetition of a slow suspect lost."""
    if late.table is None or slowed.table is None or not bytes_at_once:
        return False
    here, elsewhere = _middles(delay, late.table, late.table.value)
    best = slowed.table.best if slowed.table.best is not None else slowed.table.value
    its, usual = _middles(slow, slowed.table, best)
    if not (its > 0 and usual > 0):
        return False
    return bytes_at_once * (1 / its - 1 / usual) <= round_trips * 2 * (here - elsewhere)


def _middles(s: Suspect, table: PairTable, values: Floats) -> tuple[float, float]:
    """The median of a suspect's flows, in its direction, and of all flows of which it is no end; 0 where none."""
    at = table.nodes.index(s.where) if s.where in table.nodes else -1
    sends, receives = table.a == at, table.b == at
    mine = sends if s.direction == "transmit" else receives if s.direction == "receive" else sends | receives
    if s.rail is not None:
        mine &= table.rail == s.rail
    return _middle(values[mine]), _middle(values[~(sends | receives)])


def _middle(values: Floats) -> float:
    good: Bools = np.isfinite(values) & (values > 0)
    return float(np.median(values[good])) if good.any() else 0.0
