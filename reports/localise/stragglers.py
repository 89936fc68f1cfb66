"""Stragglers: the GPU or host that the others wait for.

Compute (GEMM, a training step): the straggler is the slowest, judged by the fleet's own spread, since healthy
GPUs of one node differ by some 5 %. Collectives: the rank that arrives LATE shows the SHORTEST time, because
everybody else has waited for it. A fast node among slow ones is no suspect in either.

>>> slow_ranks([1.0, 1.01, 1.3, 1.0], nodes=["n0", "n0", "n1", "n1"], what="GEMM").suspects[0].title
'rank 2 on n1'
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reports.localise.decision import grouped
from reports.localise.effects import SMALLEST_NOISE, certainty, middle, spread
from reports.localise.pairs import Floats
from reports.localise.suspects import Findings, Suspect, ordered, percent
from reports.localise.topology import Topology

FLOOR = 0.05  # healthy GPUs differ by this much in compute
FEW = 15  # the spread of n ranks is widened by 1 + FEW / n: of few it is often too small by chance
MIN_RANKS = 3  # of two, neither can be called the slow one


def slow_ranks(
    times: Sequence[Any] | npt.NDArray[Any],
    *,
    nodes: Sequence[str],
    what: str = "compute",
    better: str = "lower",
    floor: float = FLOOR,
    step_s: float | None = None,
    topology: Topology | None = None,
) -> Findings:
    """Who is slower in its own work. `times` is (ranks,) or (ranks, repetitions), one rank per entry of `nodes`.

    Seconds, or with better="higher" a rate. The others wait for a straggler during 1 - typical / its time of its
    work; with `step_s`, the seconds of a whole step, that is a share of the step. A host is named where all
    its ranks (two or more) are slow. Raises ValueError where `nodes` and `times` differ in length.
    """
    seconds = _per_rank(times, nodes)
    seconds = seconds if better == "lower" else 1 / seconds
    typical = _typical(seconds)
    late = seconds - typical
    shares = late / (step_s if step_s is not None else seconds)
    off = -np.log(seconds / typical)
    sentence = f"{{who}} takes {{slower}} longer than its peers in {what}"
    return _named(off, shares, nodes, math.log1p(floor), sentence, topology)


def late_ranks(
    times: npt.NDArray[Any] | Sequence[Sequence[float]],
    *,
    nodes: Sequence[str],
    what: str = "collectives",
    floor: float = FLOOR,
    step_s: float | None = None,
    topology: Topology | None = None,
) -> Findings:
    """Who arrives late at collectives. `times` is (ranks, iterations) in seconds, of one synchronising operation.

    All-reduce, all-gather, reduce-scatter, all-to-all and barrier synchronise; a broadcast's root may leave early
    without being late. Lateness is how much shorter than the iteration's middle a rank's time is; the others
    wait that long, a share of `step_s` or of the collective itself. `floor` is the least share that counts.
    """
    table = np.atleast_2d(np.asarray(times, dtype=np.float64))
    if len(table) != len(nodes):
        raise ValueError(f"{len(table)} ranks' times for {len(nodes)} nodes: give one row and one node name per rank")
    table = np.where(np.isfinite(table) & (table > 0), table, np.nan)
    usual = np.array([_typical(column) for column in table.T])
    early = np.array([middle(row) if np.isfinite(row).any() else np.nan for row in table - usual])
    shares = -early / (step_s if step_s is not None else middle(usual))
    sentence = f"{{who}} arrives late in {what}: the shortest time is its own"
    return _named(np.log1p(-np.minimum(shares, 0.999)), shares, nodes, -math.log1p(-floor), sentence, topology)


def _per_rank(times: Sequence[Any] | npt.NDArray[Any], nodes: Sequence[str]) -> Floats:
    """The middle of each rank's repetitions; NaN for a rank without a usable one."""
    table = np.asarray(times, dtype=np.float64)
    table = table[:, None] if table.ndim == 1 else table
    if len(table) != len(nodes):
        raise ValueError(f"{len(table)} ranks' times for {len(nodes)} nodes: give one row and one node name per rank")
    table = np.where(np.isfinite(table) & (table > 0), table, np.nan)
    return np.array([np.median(row[np.isfinite(row)]) if np.isfinite(row).any() else np.nan for row in table])


def _typical(values: Floats) -> float:
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else math.nan


def _named(off: Floats, shares: Floats, nodes: Sequence[str], floor: float, sentence: str,
           topology: Topology | None) -> Findings:  # fmt: skip
    """Findings from how far each rank is off (negative is slow or late) and the share that the others wait."""
    where = topology or Topology()
    heard = np.isfinite(off)
    silent = tuple(sorted({node for node, h in zip(nodes, heard.tolist(), strict=True) if not h}))
    if heard.sum() < MIN_RANKS:
        note = f"{int(heard.sum())} ranks answered: with fewer than {MIN_RANKS} none can be told to be the slow one"
        return Findings(notes=(note,), unjudged=tuple(sorted(set(nodes))), topology=where)
    z = (off - middle(off)) / (max(spread(off), SMALLEST_NOISE) * (1 + FEW / int(heard.sum())))
    sure = np.where(heard & (off <= -floor), certainty(z, int(heard.sum())), 0.0)
    ranks_of: dict[str, list[int]] = {}
    for rank, node in enumerate(nodes):
        ranks_of.setdefault(node, []).append(rank)
    suspects = []
    for node, ranks in ranks_of.items():
        slow = [r for r in ranks if sure[r] > 0.5]
        whole = len(slow) == len(ranks) >= 2
        for who in [slow] if whole else [[r] for r in slow]:
            worst = min(who, key=lambda r: float(off[r]))
            name = node if whole or len(ranks) == 1 else f"rank {worst} on {node}"
            slower = abs(math.expm1(-off[worst]))
            suspects.append(Suspect(
                kind="straggler", where=node, rank=None if name == node else worst, nodes=(node,), slower=slower,
                waited=float(min(1.0, shares[worst])), z=float(z[worst]), num_cells=len(who), num_agree=len(who),
                confidence=float(max(sure[who])),
                evidence=f"{sentence.format(who=name, slower=percent(slower))}; the others wait "
                         f"{percent(float(shares[worst]))} of the time for it",
            ))  # fmt: skip
    judged = sorted({node for node, h in zip(nodes, heard.tolist(), strict=True) if h})
    suspects, cause = grouped(suspects, judged, where)
    return Findings(suspects=ordered(suspects), unjudged=silent, common_cause=cause, topology=where)
