"""What the search for a culprit costs on a cluster: its stages in rounds, minutes and node-hours, within a budget.

The plan prints it, the check of links takes its number of rounds from it, the re-test its own, and the page says
what confidence they leave.

>>> from benchmarks.links.spec import Links
>>> campaign(Links(), nodes=64, per_node=8).stages[2].line
'full tournament: 63 rounds, 0.6 min, 0.7 node-hours'
"""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.collectives.spec import Collective
from benchmarks.links.spec import Links
from benchmarks.measurement import Config
from benchmarks.spec import from_config
from suites import rounds


def campaign(
    spec: Links, *, nodes: int, per_node: int, budget_s: float | None = None, local_s: float = 0.0, rail_s: float = 0.0
) -> rounds.Campaign:
    """The stages by a spec's own budgets. ValueError, with what it would take, where the budget is too short."""
    return rounds.plan_campaign(
        nodes, turn_s=turn_s(spec), local_s=local_s, rail_s=rail_s, boundary_s=boundary_s(spec), num_rails=per_node,
        budget_s=budget_s,
    )  # fmt: skip


def turn_s(spec: Links) -> float:
    """Seconds of one meeting of two nodes, both directions, all passes together."""
    budgets = [spec.latency_budget_s if kind == "latency" else spec.bandwidth_budget_s for kind, _ in spec.kinds()]
    return 2 * sum(budgets)


def boundary_s(spec: Links) -> float:
    """Seconds of the boundary probe: four flows alone and four times all together, inside and across, both ways."""
    return 16 * 2 * spec.bandwidth_budget_s


def lines(configs: Iterable[Config], *, budget_s: float | None = None) -> list[str]:
    """The stages of a plan's search as text; [] where it has none between three or more nodes."""
    specs = [from_config(config) for config in configs]
    searched = [(spec, place) for spec, place in specs if isinstance(spec, Links) and place.nodes > 2]
    if not searched:
        return []
    spec, place = searched[0]
    rails = [s for s, _ in specs if isinstance(s, Collective) and s.group == "rail"]
    made = campaign(
        spec, nodes=place.nodes, per_node=place.ranks_per_node, budget_s=None,
        local_s=sum(s.limit_s for s, _ in specs if s.scope == "device"),
        rail_s=sum(s.limit_s for s in rails) / place.ranks_per_node,
    )  # fmt: skip
    within = campaign(spec, nodes=place.nodes, per_node=place.ranks_per_node, budget_s=budget_s)
    stages = [*made.stages[:2], *within.stages[2:]]
    said = [f"  {stage.line}" for stage in stages if stage.seconds]
    kept = f" (budget {budget_s / 60:g} min for the last three)" if budget_s else ""
    return [f"the search for a culprit{kept}:", *said, f"  {within.said}"]
