"""The search for a culprit: after the tournament, the suspects meet known-good partners, and what is left is accused.

Decides what is measured next in the living launch (a re-test of some ranks, a probe of what leaves share) and turns
the findings into a number of the run, `links.suspects`, which the cluster file's limit judges: a link that is 10 %
slow passes every sensible floor, and no healthy fabric has one. Who is a suspect is decided in `reports.culprits`,
from the records.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from typing import Any, Protocol

from benchmarks.measurement import Config, Measurement, Metric, Verdict, now
from benchmarks.spec import Place, Spec, from_config, to_config
from clusters.cluster import Cluster
from reports import culprits as blame
from reports.culprits import FOLLOW_UP, LEAST_NODES, Culprits, culprits
from reports.localise.decision import OF_ONE_NODE
from reports.pairtables import seats_of
from reports.runs import StoredRun
from reports.slowranks import attempt_of, slow_devices
from suites import rounds, searchplan

SUSPECTS = Metric(name=blame.SUSPECTS, unit="1", better="equal")
WHOLE = ("collectives.*.busbw", "links.flows.bandwidth")  # what is slow when what nodes share is
ALONE = 4  # flows that a boundary probe measures one by one
TOGETHER = 4  # times that it measures all of them at once
REPETITIONS = 8  # of every pair of a re-test, in each of its rounds
SLOWER, SURE = 0.10, 0.9  # a NIC side this slow must be this likely to be seen before nobody is accused


class Notes(Protocol):
    """Where events are written down: a run folder."""

    def event(self, kind: str, **detail: Any) -> None:
        """Append one."""


def derived(spec: Spec, place: Place) -> list[Metric]:
    """What the controller itself adds to what a benchmark emits: the suspects of a tournament between nodes."""
    return [SUSPECTS] if spec.benchmark == "links" and place.nodes >= LEAST_NODES else []


def follow_up(
    stored: StoredRun, verdicts: Sequence[Verdict], configs: Sequence[Config], folder: Notes, cluster: Cluster
) -> list[Config]:
    """What is measured beyond the plan: the re-test of a run's suspects, of slow devices their work again, and where
    the whole is slow though all its parts are well, a probe of what leaves share. Written down as events."""
    by_id = {c.id: c for c in configs}
    asked: list[Config] = []
    for of in slow_devices(stored).to_repeat:
        if of in by_id:
            spec, place = from_config(by_id[of])
            count = "steps" if spec.benchmark == "training" else "repetitions"
            again = to_config(dataclasses.replace(spec, **{count: getattr(spec, count) + 2}), place)
            folder.event(FOLLOW_UP, config=again.id, of=of, attempt=attempt_of(stored, of), spec=again.spec)
            asked.append(again)
    found = culprits(stored)
    if found is None or found.retested or found.config not in by_id:
        return asked
    screened, boundary = by_id[found.config], _boundary(found, stored, verdicts)
    if not found.to_retest and not boundary:
        return asked
    num_rounds = _planned(screened, cluster).stages[3].num_rounds
    config = _config(screened, _rank_rounds(found, stored, num_rounds), boundary)
    folder.event(
        FOLLOW_UP, config=config.id, of=screened.id, attempt=found.attempt, nodes=list(found.to_retest),
        spec=config.spec, why=[s.title for s in found.screened.suspects],
    )  # fmt: skip
    return [*asked, config]


def conclude(stored: StoredRun, attempts: Mapping[str, int], cluster: Cluster) -> Measurement | None:
    """The number of accused elements as a measurement of the screened config; None where none of these was screened.

    `attempts` are the configs measured in this session, with the attempt that each is at. What many nodes have in
    common counts as one. An error where nobody is accused and a suspicion was not settled: nobody may call them
    healthy.
    """
    found = culprits(stored)
    if found is None or found.config not in attempts:
        return None
    slow, plan = slow_devices(stored), _plan(found, stored, cluster)
    accused = [*found.accused, *slow.accused]
    said: dict[str, Any] = {
        "suspects": [_plain(s) for s in accused],
        "cleared": [s.title for s in (*found.findings.cleared, *slow.cleared)],
        "notes": [*found.findings.notes, *slow.notes],
        "common_cause": found.findings.common_cause,
        "search": plan.said,
    }
    fields = {"config": found.config, "attempt": attempts[found.config], "notes": said, "started_at": now()}
    number = len(accused) + bool(found.findings.common_cause)
    why = found.unsettled or _nameless(found, stored) or _hidden(found, plan)
    if slow.to_repeat:
        why = why or "a device looked slow, and its work was not repeated on all ranks"
    if why:
        said |= {"judged": False, "notes": [*said["notes"], why]}
    if why and not number:
        return SUSPECTS.measured(outcome="error", reason=why, **fields)
    return SUSPECTS.measured(number, **fields)


def _nameless(found: Culprits, stored: StoredRun) -> str:
    """Why some ranks were not searched at all: hosts of one name are one; "" where every rank has its node."""
    _, place = from_config(next(c for c in stored.run.configs if c.id == found.config))
    lost = sorted(set(range(place.ranks)) - set(seats_of(stored)))
    return f"no node of its own for rank {', '.join(map(str, lost[:8]))}: do two hosts share a name?" if lost else ""


def _plan(found: Culprits, stored: StoredRun, cluster: Cluster) -> rounds.Campaign:
    """How many rounds the search had, and how likely they name a slow NIC at the scatter that is usual."""
    screened = next(c for c in stored.run.configs if c.id == found.config)
    return _planned(screened, cluster)


def _hidden(found: Culprits, plan: rounds.Campaign) -> str:
    """Why a slow NIC may have gone unseen: this run's own scatter hides it; "" where it does not."""
    num_rounds, scatter = plan.stages[2].num_rounds, found.screened.scatter
    sure = rounds.power(num_rounds, slower=SLOWER, noise=scatter)
    if sure >= SURE:
        return ""
    return (
        f"a flow scatters by {scatter:.0%}: in {num_rounds} rounds a NIC side {SLOWER:.0%} slow is seen with "
        f"probability {sure:.2f} only; find what else uses the hosts or links, then --resume"
    )


def _planned(screened: Config, cluster: Cluster) -> rounds.Campaign:
    spec, place = from_config(screened)
    budget_s = float(cluster.setting("campaign", "budget_s", 0.0)) or None
    return searchplan.campaign(spec, nodes=place.nodes, per_node=place.ranks_per_node, budget_s=budget_s)


def _config(screened: Config, rank_rounds: tuple[str, ...], flow_sets: tuple[str, ...]) -> Config:
    spec, place = from_config(screened)
    again = dataclasses.replace(
        spec, rounds=rank_rounds, passes=1, flows=(), flow_sets=flow_sets, congestion=False, both_ways=False,
        meet="nodes", screening=0, leaves=(), pods=(),
        min_repetitions=max(REPETITIONS, spec.min_repetitions), max_repetitions=max(REPETITIONS, spec.max_repetitions),
    )  # fmt: skip
    return to_config(again, place)


def _rank_rounds(found: Culprits, stored: StoredRun, num_rounds: int) -> tuple[str, ...]:
    """Rounds of node pairs as the links benchmark reads them: all rails of a pair of nodes at once."""
    assert found.screened.table
    nodes = found.screened.table.nodes
    suspects = [nodes.index(n) for n in found.to_retest]
    healthy = [i for i in range(len(nodes)) if i not in suspects] or suspects
    topology = found.screened.topology
    leaf = [str(codes) for codes in topology.leaves(nodes, 1)[0][:, 0]] if topology and topology.leaf else None
    if not suspects:
        planned = rounds.tournament(len(nodes))[:1]
    elif healthy == suspects and len(nodes) <= rounds.TOURNAMENT_UP_TO:
        planned = rounds.tournament(len(nodes))
    elif healthy == suspects:
        planned = rounds.screening(len(nodes), num_rounds, leaf=leaf, seed=1)
    else:
        planned = rounds.retest(suspects, healthy, num_rounds, leaf=leaf)
    ranks = _ranks(stored)
    return tuple(
        " ".join(f"{a}-{b}" for i, j in turn for a, b in zip(ranks[nodes[i]], ranks[nodes[j]], strict=False))
        for made in planned for turn in made.turns
    )  # fmt: skip


def _ranks(stored: StoredRun) -> dict[str, list[int]]:
    """The ranks of every node, one a rail."""
    found: dict[str, list[int]] = {}
    for rank, (node, _) in sorted(seats_of(stored).items()):
        found.setdefault(node, []).append(rank)
    return found


def _boundary(found: Culprits, stored: StoredRun, verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    """Flows across leaves, alone and together, and as many inside leaves beside them; () where nobody need ask.

    Asked where the whole is slow (collectives, many flows at once) though no node or NIC is, and leaves are known.
    """
    if any(s.kind in OF_ONE_NODE for s in found.screened.suspects):
        return ()
    together = any(s.kind in ("oversubscription", "uplink") for s in found.findings.suspects)
    slow = any(v.status == "fail" and fnmatch(v.metric, pattern) for v in verdicts for pattern in WHOLE)
    topology, table = found.screened.topology, found.screened.table
    if not (together or slow) or topology is None or table is None:
        return ()
    leaf_of, names = topology.leaves(table.nodes, 1)
    members = [
        [node for node, at in zip(table.nodes, leaf_of[:, 0], strict=True) if at == i] for i in range(len(names))
    ]
    return boundary_sets(members, _ranks(stored))


def boundary_sets(leaves: Sequence[Sequence[str]], ranks: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
    """Sets of flows: some across leaves one by one, all across at once, and the same inside the leaves.

    >>> sets = boundary_sets([["a", "b"], ["c", "d"]], {"a": [0], "b": [1], "c": [2], "d": [3]})
    >>> list(dict.fromkeys(sets))
    ['0-2', '1-3', '0-2 1-3', '0-1', '2-3', '0-1 2-3']
    """
    leaves = [nodes for nodes in leaves if len(nodes) > 1]
    half = len(leaves) // 2
    across = [pair for i in range(half) for pair in zip(leaves[i], leaves[i + half], strict=False)]
    inside = [pair for nodes in leaves for pair in zip(nodes[::2], nodes[1::2], strict=False)]
    num = min(len(across), len(inside))
    if num < 2:
        return ()
    sets: list[str] = []
    for pairs in (across[:num], inside[:num]):
        flows = [f"{a}-{b}" for one, other in pairs for a, b in zip(ranks[one], ranks[other], strict=False)]
        sets += [*flows[:: max(1, len(flows) // ALONE)][:ALONE], *[" ".join(flows)] * TOGETHER]
    return tuple(sets)


def _plain(suspect: object) -> dict[str, object]:
    kept = ("kind", "where", "rail", "direction", "slower", "confidence", "evidence", "nodes", "title")
    return {name: list(v) if isinstance(v := getattr(suspect, name), tuple) else v for name in kept}
