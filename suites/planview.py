"""The plan as text: what would run, where, in what order, at what cost at most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from tabulate import tabulate

from benchmarks.measurement import Config
from benchmarks.spec import from_config
from suites import searchplan
from suites.plan import Plan
from suites.progress import title


def render(plan: Plan, *, pending: Collection[str] | None = None, notes: Sequence[str] = ()) -> str:
    """The plan of a campaign: one row a benchmark in running order, then totals.

    Only those `pending` are run (None: all); what is expected of the run stays whole, whatever is selected.
    """
    configs = [c for c in plan.configs if pending is None or c.id in pending]
    numbers = Counter(e.config for e in plan.expected)
    rows, launch, place = [], 0, None
    for k, config in enumerate(configs, 1):
        launch += config.place != place
        place = config.place
        rows.append(
            [k, launch, title(config), _where(config), numbers[config.id], f"{config.limit_s:.0f}",
             _bytes(plan.bytes_written(config))]
        )  # fmt: skip
    head = ["", "launch", "benchmark", "where", "numbers", "limit s", "writes"]
    cluster, minutes = plan.cluster, plan.worst_case_of(configs) / 60
    written = sum(plan.bytes_written(c) for c in configs)
    now = sum(numbers[c.id] for c in configs)
    of = f" of the {len(plan.expected)}" if len(configs) < len(plan.configs) else ""
    return "\n".join(
        [
            f"plan: suite {plan.suite} on {cluster.name} ({cluster.path}), {cluster.nodes} node(s)",
            *(f"note: {line}" for line in cluster.contradictions),
            *(f"warning: {line}" for line in plan.warnings),
            tabulate(rows, headers=head, disable_numparse=True, tablefmt="simple", colalign=("right",) * 2),
            f"in all: {len(configs)} benchmarks, {now}{of} numbers expected, "
            f"{launch} launch(es) of at most {plan.start_limit_s:.0f} s",
            f"worst case: {minutes:.1f} minutes, {minutes / 60 * cluster.nodes:.2f} node-hours, "
            f"{_bytes(written) or 'nothing'} written",
            *notes,
            *searchplan.lines(configs, budget_s=float(cluster.setting("campaign", "budget_s", 0.0)) or None),
        ]
    )


def _where(config: Config) -> str:
    _, place = from_config(config)
    kind = "GPU" if place.device == "cuda" else "CPU"
    env = f" ({', '.join(place.env)})" if place.env else ""
    return f"{place.ranks} {kind} ranks, {place.backend}{env}"


def _bytes(count: int) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B" if count else ""
