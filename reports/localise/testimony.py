"""What some flows of a table say about one suspect: which flows run through it, and whether they agree.

Used on the rows of a re-test, which had no part in raising the suspicion.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from reports.localise.effects import (
    Noise,
    certainty,
    middle,
    probability_bad,
    shared_weight,
    spread,
    sums,
    upper_median,
)
from reports.localise.levels import without_levels
from reports.localise.pairs import Bools, Floats, Ints
from reports.localise.screening import Analysis
from reports.localise.suspects import Suspect
from reports.localise.symptoms import retransmits_of

NODE_KINDS = ("nic", "host", "dead", "loss", "delay")
MIN_CONFIRMATIONS = 2
REFUTED = -3.0  # log odds: the flows fit a healthy element twenty times better
PRIOR_SUSPECT = 0.02  # share of generously chosen suspects that are really bad
SOME, MANY = 20, 200  # flows that tell the scale of the noise, and its shape
MEDIAN_VARIANCE = math.pi / 2  # of a median of n, times n / noise²


@dataclass(frozen=True, kw_only=True)
class Heard:
    """What the flows of one suspect say. A pair counts once a round, however many rails it has."""

    num_pairs: int
    num_agree: int  # pairs that are slow by more than half the suspect's effect
    log_odds: float  # how much better all fit a slow element than a healthy one
    z: float = 0.0  # of the middle of its pairs
    confidence: float = 0.0  # by these flows alone, before it is asked how many suspects there were
    usual: float | None = None  # where only a share of its flows can be slow: the share of all others that are

    @property
    def agrees(self) -> bool:
        """Two confirmations at least, and all flows together do not speak against it."""
        return self.num_agree >= MIN_CONFIRMATIONS and self.log_odds > REFUTED

    @property
    def said(self) -> str:
        """'the re-test agrees in 4 of 5 pairs'."""
        if self.usual is not None:
            share = f"{self.num_agree} of {self.num_pairs} of its flows"
            return f"in the re-test {share} are as slow, of all others {100 * self.usual:.1f} %"
        return f"the re-test agrees in {self.num_agree} of {self.num_pairs} pairs"


class Witnesses:
    """Some rows of an analysed table, ready to be asked about any suspect."""

    def __init__(self, analysis: Analysis, rows: Ints, suspects: tuple[Suspect, ...]) -> None:
        self.analysis, self.rows = analysis, rows
        table = analysis.fabric.table
        self.index = {name: i for i, name in enumerate(table.nodes)}
        self.by_sender, self.by_receiver = (np.argsort(end[rows], kind="stable") for end in (table.a, table.b))
        self.senders, self.receivers = table.a[rows][self.by_sender], table.b[rows][self.by_receiver]
        sides = analysis.sides
        quiet = ~sides.candidate[0][sides.row[0][rows]] & ~sides.candidate[1][sides.row[1][rows]]
        self.noise = _noise(sides.cells[rows[quiet]], sides.noise)
        self.level = self._about_healthy(suspects)

    def heard(self, s: Suspect) -> Heard:
        """The testimony about one suspect."""
        table, sides, num = self.analysis.fabric.table, self.analysis.sides, len(self.index)
        rows = self.concerned(s)
        pairs, pair = np.unique((table.round[rows] * num + table.a[rows]) * num + table.b[rows], return_inverse=True)
        pair = pair.astype(np.int64)
        if s.kind == "corruption":
            wrong = np.zeros(len(rows)) if table.wrong is None else np.nan_to_num(table.wrong[rows])
            agree = int((sums(wrong, pair, len(pairs)) > 0).sum())
            return Heard(num_pairs=len(pairs), num_agree=agree, log_odds=0.0)
        if s.kind == "loss" and table.retransmits is not None:
            count, many = retransmits_of(table, rows)
            agree = int((sums(count, pair, len(pairs)) >= many).sum())
            return Heard(num_pairs=len(pairs), num_agree=agree, log_odds=0.0 if 2 * agree > len(pairs) else -math.inf)
        if s.kind == "path" and not s.path:
            return self._share(s, rows)
        effect = math.log1p(-min(s.slower, 1 - 1e-12))
        cells = self._cells(s)[rows]
        by_pair = upper_median(cells, pair, len(pairs))
        agree = int((by_pair <= effect / 2).sum())
        if s.kind not in NODE_KINDS or not len(rows):
            return Heard(num_pairs=len(pairs), num_agree=agree, log_odds=0.0 if 2 * agree > len(pairs) else -math.inf)
        odds = sides.weight * float(self.noise.log_odds(by_pair, np.full(len(by_pair), effect)).sum())
        num_pairs = np.array([len(pairs)])
        error = math.sqrt(MEDIAN_VARIANCE * self.noise.scale**2 / (sides.weight * len(pairs)) + sides.spread**2)
        alone = odds / shared_weight(num_pairs, sides.spread, self.noise.scale)
        sure = probability_bad(alone, num_pairs, self.noise.scale, prior=PRIOR_SUSPECT)
        return Heard(num_pairs=len(pairs), num_agree=agree, log_odds=odds, z=min(0.0, middle(by_pair)) / error,
                     confidence=float(sure[0]))  # fmt: skip

    def _cells(self, s: Suspect) -> Floats:
        """Logs of all flows about what they would be if the suspect were well."""
        if s.kind == "rail":  # its own level is what it is accused of
            return without_levels(self.analysis.fabric, self.analysis.raw, but_rail=s.rail)
        return self.analysis.sides.cells if s.kind in NODE_KINDS else self.level

    def _share(self, s: Suspect, rows: Ints) -> Heard:
        """One uplink of several, which one is not known: a share of the leaf's flows is slow, more than elsewhere.

        The log odds are binomial: the share that the screening saw, against the share of all other flows.
        """
        depth, rest = math.log1p(-s.slower) / 2, self.analysis.sides.rest
        across = self.analysis.fabric.across
        others = np.setdiff1d(self.rows[across[self.rows]], rows, assume_unique=True)
        slow, num = int((rest[rows] <= depth).sum()), len(rows)
        usual = (int((rest[others] <= depth).sum()) + 0.5) / (len(others) + 1)
        claimed = max(s.num_agree / max(s.num_cells, 1), usual)
        odds = slow * math.log(claimed / usual) + (num - slow) * math.log((1 - claimed + 1e-9) / (1 - usual))
        return Heard(num_pairs=num, num_agree=slow, log_odds=odds if odds > 0 else -math.inf, usual=usual)

    def concerned(self, s: Suspect) -> Ints:
        """The rows that run through the suspect."""
        if len(s.nodes) == 1 and not s.peer and s.kind not in ("uplink", "path"):
            return self._of_node(s)
        use = self.rows
        return use[runs_through(self.analysis, s, use)]

    def _of_node(self, s: Suspect) -> Ints:
        """As `runs_through`, by index: for hundreds of suspects among ten thousand nodes."""
        at = self.index.get(s.nodes[0], -1)
        found = []
        for order, ends, skipped in (
            (self.by_sender, self.senders, "receive"),
            (self.by_receiver, self.receivers, "transmit"),
        ):
            if s.direction != skipped:
                first, last = np.searchsorted(ends, [at, at + 1])
                found.append(self.rows[order[first:last]])
        rows = np.concatenate(found)
        return rows if s.rail is None else rows[self.analysis.fabric.table.rail[rows] == s.rail]

    def _about_healthy(self, suspects: tuple[Suspect, ...]) -> Floats:
        """Logs of all flows of the table about the middle of those that run through no leaf or group in question."""
        y = without_levels(self.analysis.fabric, self.analysis.raw)
        everything = np.arange(len(y))
        healthy = np.ones(len(y), dtype=bool)
        for s in suspects:
            if s.kind not in (*NODE_KINDS, "pair", "corruption"):
                healthy &= ~runs_through(self.analysis, s, everything)
        about: Floats = y - middle(y[healthy])
        return about


def _noise(quiet: Floats, screened: Noise) -> Noise:
    """The noise of these rows themselves where they are many, else the screening's, widened to theirs.

    A re-test has few flows beside the suspects', so its weather is harder to take out and stays in its noise.
    """
    scale = max(screened.scale, spread(quiet, 0.0)) if len(quiet) >= SOME else screened.scale
    return Noise.of(quiet, scale) if len(quiet) >= MANY else replace(screened, scale=scale)


def certain_among(heard: Heard, num_suspects: int) -> float:
    """Confidence by the re-test alone, where `num_suspects` were re-tested and the worst of them is looked at."""
    return min(heard.confidence, float(certainty(np.array([heard.z]), max(num_suspects, 1))[0]))


def runs_through(analysis: Analysis, s: Suspect, use: Ints) -> Bools:
    """Which of the rows `use` run through the suspect."""
    fabric = analysis.fabric
    table = fabric.table
    a, b = table.a[use], table.b[use]
    here: Bools = np.ones(len(a), dtype=bool) if s.rail is None else table.rail[use] == s.rail
    if s.kind == "rail":
        return here
    if s.kind in ("uplink", "path", "spine", "oversubscription"):
        here &= _through_fabric(analysis, s, use)
        return here
    index = {name: i for i, name in enumerate(table.nodes)}
    if s.peer:
        here &= (a == index.get(s.where, -1)) & (b == index.get(s.peer, -1))
        return here
    if s.kind == "leaf" and s.where in fabric.leaves:  # of several leaves of its hosts, only this one
        at = fabric.leaves.index(s.where)
        sends, receives = fabric.leaf_a[use] == at, fabric.leaf_b[use] == at
    else:
        mine = np.array([index[n] for n in s.nodes if n in index], dtype=np.int64)
        sends, receives = np.isin(a, mine), np.isin(b, mine)
    here &= sends if s.direction == "transmit" else receives if s.direction == "receive" else sends | receives
    return here


def _through_fabric(analysis: Analysis, s: Suspect, use: Ints) -> Bools:
    """Flows across leaves by the suspect's uplink, path or spine; those under load for an oversubscription."""
    fabric = analysis.fabric
    across, table = fabric.across[use], fabric.table
    if s.kind == "oversubscription":
        across &= fabric.load[use] == fabric.load.max()
        return across
    if table.path is not None and (s.path or s.kind == "spine"):
        across &= table.path[use] == table.paths.index(s.path or s.where)
    if s.kind == "spine":
        return across
    at = fabric.leaves.index(s.where)
    out, into = fabric.leaf_a[use] == at, fabric.leaf_b[use] == at
    if s.peer:
        out, into = (
            out & (fabric.leaf_b[use] == fabric.leaves.index(s.peer)),
            into & (fabric.leaf_a[use] == fabric.leaves.index(s.peer)),
        )
    across &= out if s.direction == "out" else into if s.direction == "in" else out | into
    return across
