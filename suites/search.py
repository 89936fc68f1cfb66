"""The search for a culprit: after the tournament, the suspects meet known-good partners, and what is left is accused.

Decides what is measured next (a re-test of some ranks in the living launch) and turns the findings into a number of
the run, `links.suspects`, which the cluster file's limit judges: a link that is 10 % slow passes every sensible floor,
and no healthy fabric has one. Who is a suspect is decided in `reports.culprits`, from the records.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from benchmarks.measurement import Config, Measurement, Metric, now
from benchmarks.spec import Place, Spec, from_config, to_config
from reports import culprits as blame
from reports.culprits import FOLLOW_UP, LEAST_NODES, Culprits, culprits
from reports.pairtables import seats_of
from reports.runs import StoredRun
from suites import rounds
from suites.runfolder import RunFolder

SUSPECTS = Metric(name=blame.SUSPECTS, unit="1", better="equal")
REPETITIONS = 16  # of every pair of a re-test: more than the tournament's, since there are few pairs


def derived(spec: Spec, place: Place) -> list[Metric]:
    """What the controller itself adds to what a benchmark emits: the suspects of a tournament between nodes."""
    return [SUSPECTS] if spec.benchmark == "links" and place.nodes >= LEAST_NODES else []


def retest(stored: StoredRun, configs: Sequence[Config], folder: RunFolder) -> list[Config]:
    """The re-test of a run's suspects, written down as an event; [] where there is none to make."""
    found = culprits(stored)
    if found is None or found.retested or not found.to_retest:
        return []
    screened = next((c for c in configs if c.id == found.config), None)
    if screened is None:
        return []
    config = _config(screened, _rank_rounds(found, stored))
    folder.event(
        FOLLOW_UP, config=config.id, of=screened.id, attempt=found.attempt, nodes=list(found.to_retest),
        spec=config.spec, why=[s.title for s in found.screened.suspects],
    )  # fmt: skip
    return [config]


def conclude(stored: StoredRun, attempts: Mapping[str, int]) -> Measurement | None:
    """The number of accused elements as a measurement of the screened config; None where none of these was screened.

    `attempts` are the configs measured in this session, with the attempt that each is at. An error where some
    nodes answered too little to be judged: nobody may call them healthy.
    """
    found = culprits(stored)
    if found is None or found.config not in attempts:
        return None
    said = {
        "suspects": [_plain(s) for s in found.accused],
        "cleared": [s.title for s in found.findings.cleared],
        "notes": list(found.findings.notes),
        "common_cause": found.findings.common_cause,
    }
    fields = {"config": found.config, "attempt": attempts[found.config], "notes": said, "started_at": now()}
    if found.findings.unjudged:
        nodes = ", ".join(found.findings.unjudged)
        return SUSPECTS.measured(outcome="error", reason=f"too few pairs to judge {nodes}", **fields)
    return SUSPECTS.measured(len(found.accused), **fields)


def _config(screened: Config, rank_rounds: tuple[str, ...]) -> Config:
    spec, place = from_config(screened)
    again = dataclasses.replace(
        spec, rounds=rank_rounds, passes=1, flows=(), congestion=False, both_ways=False,
        min_repetitions=max(REPETITIONS, spec.min_repetitions), max_repetitions=max(REPETITIONS, spec.max_repetitions),
    )  # fmt: skip
    return to_config(again, place)


def _rank_rounds(found: Culprits, stored: StoredRun) -> tuple[str, ...]:
    """Rounds of node pairs as the links benchmark reads them: all rails of a pair of nodes at once."""
    assert found.screened.table
    nodes = found.screened.table.nodes
    suspects = [nodes.index(n) for n in found.to_retest]
    healthy = [i for i in range(len(nodes)) if i not in suspects] or suspects
    ranks: dict[str, list[int]] = {}
    for rank, (node, _) in sorted(seats_of(stored).items()):
        ranks.setdefault(node, []).append(rank)
    planned = rounds.retest(suspects, healthy) if healthy != suspects else rounds.tournament(len(nodes))
    return tuple(
        " ".join(f"{a}-{b}" for i, j in turn for a, b in zip(ranks[nodes[i]], ranks[nodes[j]], strict=False))
        for made in planned for turn in made.turns
    )  # fmt: skip


def _plain(suspect: object) -> dict[str, object]:
    kept = ("kind", "where", "rail", "direction", "slower", "confidence", "evidence", "nodes", "title")
    return {name: list(v) if isinstance(v := getattr(suspect, name), tuple) else v for name in kept}
