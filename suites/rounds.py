"""Who meets whom, and what it costs: rounds of disjoint pairs for the search for a culprit.

Up to 128 nodes a full tournament, above that a few random rounds (`benchmarks.links.meetings` draws both). Planning
is pure: nothing here measures or judges, and the same seed gives the same rounds.

>>> print(plan_campaign(1024, turn_s=4.0).stages[2].line)
screening: 10 rounds, 0.7 min, 11.4 node-hours
"""

from __future__ import annotations

import math
import random
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from benchmarks.links.meetings import Pair, Round, screening, sorted_pair, tournament

__all__ = ["Campaign", "Round", "Stage", "plan_campaign", "power", "retest", "screening", "tournament"]

TOURNAMENT_UP_TO = 128  # nodes: seconds to minutes, and every pair is seen
SCREENING_ROUNDS = 10
LEAST_ROUNDS = 3
RETEST_ROUNDS = 5
LEAST_RETESTS = 2  # two confirmations must agree
CONTROL_PAIRS = 8  # healthy pairs beside the suspects, to tell a slow moment from a slow node


def retest(
    suspects: Sequence[int],
    healthy: Sequence[int],
    num_rounds: int = RETEST_ROUNDS,
    *,
    leaf: Sequence[Hashable] | None = None,
    num_controls: int = CONTROL_PAIRS,
    seed: int = 0,
) -> list[Round]:
    """Each suspect against a known-good partner, a new one each round, on another leaf where there is one.

    Where suspects outnumber the healthy they take turns, so there are more rounds than asked for. Healthy pairs
    fill up to `num_controls`. Raises ValueError where nobody is healthy.
    """
    if not suspects:
        return []
    if not healthy:
        raise ValueError("no known-good node to re-test the suspects against: screen again, or judge by the limits")
    dice, met = random.Random(seed), set[Pair]()
    rounds = []
    batches = [suspects[i : i + len(healthy)] for i in range(0, len(suspects), len(healthy))]
    for _ in range(num_rounds):
        for batch in batches:
            free = dice.sample(list(healthy), len(healthy))
            groups = []
            for suspect in batch:
                partner = _partner(suspect, free, met, leaf)
                free.remove(partner)
                met.add(sorted_pair((suspect, partner)))
                groups.append((suspect, partner))
            groups += [(free[i], free[i + 1]) for i in range(0, min(len(free) - 1, 2 * num_controls), 2)]
            rounds.append(Round(kind="retest", groups=tuple(groups)))
    return rounds


def _partner(suspect: int, free: Sequence[int], met: set[Pair], leaf: Sequence[Hashable] | None) -> int:
    """The first free node that is new to the suspect and on another leaf; failing that, new; failing that, any."""
    new = (node for node in free if sorted_pair((suspect, node)) not in met)
    away = (node for node in new if leaf is None or leaf[node] != leaf[suspect])
    found = next(away, None)
    if found is None:
        found = next((node for node in free if sorted_pair((suspect, node)) not in met), free[0])
    return found


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage of the campaign and its price."""

    name: str
    num_rounds: int
    seconds: float
    num_nodes: int

    @property
    def node_hours(self) -> float:
        """All nodes are held while the stage runs."""
        return self.num_nodes * self.seconds / 3600

    @property
    def line(self) -> str:
        """'screening: 10 rounds, 0.7 min, 11.4 node-hours'."""
        rounds = f"{self.num_rounds} round{'s' * (self.num_rounds != 1)}"
        return f"{self.name}: {rounds}, {self.seconds / 60:.1f} min, {self.node_hours:.1f} node-hours"


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """All stages, and how likely a slow NIC is found with that many rounds."""

    stages: tuple[Stage, ...]
    full: bool  # the screening is a full tournament
    confidence: float
    said: str

    @property
    def seconds(self) -> float:
        """Of all stages together; the boundary probe only runs where needed, and counts."""
        return sum(stage.seconds for stage in self.stages)


def plan_campaign(
    num_nodes: int,
    *,
    turn_s: float,
    local_s: float = 0.0,
    rail_s: float = 0.0,
    boundary_s: float = 0.0,
    num_rails: int = 1,
    budget_s: float | None = None,
    slower: float = 0.10,
    noise: float = 0.03,
) -> Campaign:
    """The stages with their cost, kept within `budget_s` by fewer rounds.

    `turn_s` is the time of one pair on all its rails; an odd number of nodes needs three turns in a random round.
    `slower` and `noise` are the fault to be found and the scatter of one measurement, as shares. Raises
    ValueError where even three rounds of screening and two of re-test do not fit.
    """
    all_rounds = num_nodes - 1 + num_nodes % 2 if num_nodes > 1 else 0
    wanted = all_rounds if num_nodes <= TOURNAMENT_UP_TO else SCREENING_ROUNDS
    turns = 3 if num_nodes % 2 else 1

    def stages(screen: int, again: int) -> tuple[Stage, ...]:
        full = screen == all_rounds
        rows = (
            ("node-local checks", 1, local_s),
            ("all nodes by rail", num_rails, rail_s * num_rails),
            ("full tournament" if full else "screening", screen, turn_s * screen * (1 if full else turns)),
            ("re-test of suspects", again, turn_s * again),
            ("boundary probing, if needed", 1, boundary_s),
        )
        return tuple(Stage(name=name, num_rounds=n, seconds=s, num_nodes=num_nodes) for name, n, s in rows)

    choices = [(screen, stages(screen, again)) for screen, again in _shrinking(wanted, all_rounds)]
    fits = (c for c in choices if budget_s is None or sum(stage.seconds for stage in c[1]) <= budget_s)
    screen, chosen = next(fits, (0, ()))
    if not chosen:
        least = sum(stage.seconds for stage in choices[-1][1])
        raise ValueError(
            f"a budget of {(budget_s or 0) / 60:.1f} min is too short to search {num_nodes} nodes: {LEAST_ROUNDS} "
            f"rounds and {LEAST_RETESTS} re-tests take {least / 60:.1f} min; give that much, or fewer nodes"
        )
    sure = power(screen, slower=slower, noise=noise)
    said = f"{screen} of {wanted} rounds: a NIC side {slower:.0%} slow is found with probability {sure:.3f}"
    return Campaign(stages=chosen, full=screen == all_rounds, confidence=sure, said=said)


def _shrinking(wanted: int, all_rounds: int) -> Iterator[tuple[int, int]]:
    """Rounds of screening and re-test, best first: screening gives way down to three, then the re-test to two."""
    least = min(LEAST_ROUNDS, all_rounds)
    for screen in range(wanted, least - 1, -1):
        yield screen, RETEST_ROUNDS
    for again in range(RETEST_ROUNDS - 1, LEAST_RETESTS - 1, -1):
        yield least, again


def power(num_rounds: int, *, slower: float = 0.10, noise: float = 0.03, z: float = 3.0) -> float:
    """Probability that one side `slower` (share) passes the screening's threshold of `z` after `num_rounds`.

    Normal approximation: its effect, -ln(1 - slower), is the mean of `num_rounds` measurements with a scatter of
    `noise` each, at the biweight's efficiency of 0.95. Real tails are heavier, so it never claims more than 0.999.
    """
    if num_rounds < 1:
        return 0.0
    error = max(noise, 1e-9) / math.sqrt(0.95 * num_rounds)
    return min(0.999, NormalDist().cdf(-math.log1p(-slower) / error - z))
