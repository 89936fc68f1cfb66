"""The reason of a verdict in one sentence: who, how much, against what, and who says so.

Every view shows this sentence as it is; nothing is decided here.
"""

from __future__ import annotations

from clusters.limits import Limit, Waiver
from reports.bounds import Judged
from reports.evidence import Attempt, listed
from reports.quantities import quantity


def ratio_of(limit: Limit) -> str:
    """What the value is a ratio to, in words."""
    return {"metric": str(limit.ratio_to), "peers": "its peers", "baseline": "the baseline"}[limit.of]


def told(
    limit: Limit,
    attempt: Attempt,
    worst: Judged,
    alike: list[Judged],
    waiver: Waiver | None,
    expired: Waiver | None,
) -> str:
    """One sentence: who, how much, against what, says who."""
    value = worst.estimate
    ratio = f" of {ratio_of(limit)}" if limit.of != "value" else ""
    equal = limit.bound == "equal"
    said = f"{worst.unit}: " if worst.unit else ""
    said += f"{'worst sample' if equal else 'median'} {quantity(value.median, limit.unit)}{ratio} (n={value.n}), "
    said += f"{'must be' if equal else limit.bound} {quantity(limit.value, limit.unit)}"
    said += f" from {limit.source} [{limit.name}]"
    if worst.status == "error":
        said += "; that is no finite number: nothing can be said of it"
    if worst.status == "noisy":
        said += f"; the limit lies inside {quantity(value.low, limit.unit)} to {quantity(value.high, limit.unit)}"
    if worst.status == "impossible":
        said += "; that is beyond what is physically possible: the measurement is broken"
    if len(alike) > 1:
        said += f"; {len(alike)} of {len(attempt.units)} units: {listed([j.unit for j in alike])}"
    if attempt.says and worst.status != "pass":
        said += f"; {attempt.says}"
    if waiver and worst.status == "waived":
        said += f"; waived by {waiver.approver} until {waiver.expires} ({waiver.id}: {waiver.reason})"
    if expired and worst.status == "fail":
        said += f"; waiver {expired.id} of {expired.approver} expired on {expired.expires}"
    return said
