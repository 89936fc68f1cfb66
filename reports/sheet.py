"""The sign-off sheet: outcome, results, criteria and signatures of a run on one printed page, whatever its size.

    sheet(stored, verdicts)        # what the page prints

So many lines fit on A4 and on Letter; what was beyond the limits comes first, and what is left out is counted. The
sheet names the digest of the records, so that a signature is under these numbers and no others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.measurement import Verdict
from reports.findings import Criterion, Findings, criteria
from reports.runs import MEASUREMENTS, StoredRun

LINES = 24  # of results, suspects and criteria together
RESULTS, SUSPECTS, LEAST_CRITERIA = 10, 3, 6


@dataclass(frozen=True, kw_only=True)
class Result:
    """One line of what is not as it should be."""

    status: str
    what: str
    verdict: Verdict | None = None  # none for many numbers with one cause


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """The lines of the sheet, cut to one page."""

    results: tuple[Result, ...]
    results_left: int
    suspects: tuple[dict[str, Any], ...]
    suspects_left: int
    criteria: tuple[Criterion, ...]
    criteria_left: int
    digest: str  # of the measurements, "" where the records are not at hand


def sheet(stored: StoredRun, verdicts: Sequence[Verdict], blame: dict[str, Any]) -> Sheet:
    """What the sheet of a run says; `blame` is what its search for culprits concluded."""
    results, suspects, held = _results(Findings.of(verdicts)), list(blame.get("suspects", [])), criteria(verdicts)
    kept, accused = results[:RESULTS], suspects[:SUSPECTS]
    room = max(LEAST_CRITERIA, LINES - len(kept) - 2 * len(accused))
    return Sheet(
        results=tuple(kept),
        results_left=len(results) - len(kept),
        suspects=tuple(accused),
        suspects_left=len(suspects) - len(accused),
        criteria=tuple(held[:room]),
        criteria_left=max(0, len(held) - room),
        digest=_digest(stored),
    )


def _results(found: Findings) -> list[Result]:
    """Everything that is no plain pass, the gravest first."""
    lines = [Result(status=v.status, what=v.metric, verdict=v) for v in found.failures]
    for trouble in found.troubles:
        num = len(trouble.verdicts)
        what = trouble.verdicts[0].metric if num == 1 else f"{num:,} numbers"
        lines.append(Result(status=trouble.status, what=f"{what}: {trouble.reason}"))
    lines += [Result(status=v.status, what=v.metric, verdict=v) for v in (*found.noisy, *found.waived)]
    return lines


def _digest(stored: StoredRun) -> str:
    file = stored.folder / MEASUREMENTS
    if not file.is_file():
        return ""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
