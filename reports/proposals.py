"""`limits RUN...`: limits for a cluster file, proposed from accepted runs, as a diff for review.

Proposed is the 5 % quantile of all units of all runs (for times the 95 % quantile), worse by the noise of one
measurement: a healthy machine passes, a unit below the fleet's own worst twentieth does not. Each proposal names its
source and date. Numbers with an absolute limit already are left alone. Nothing is changed; the diff goes to stdout.

    python -m reports limits runs/a runs/b runs/c > proposed.diff
"""

from __future__ import annotations

import argparse
import difflib
import json
import math
import re
from collections import defaultdict
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import numpy as np

from benchmarks.measurement import Expected, Scalar
from reports import runs
from reports.numbers import Number, numbers
from reports.pins import GOOD
from reports.runs import CLUSTER, RunError, StoredRun

QUANTILE = 0.05


def propose(stored: Sequence[StoredRun], *, today: date) -> str:
    """New [limits.*] tables as TOML, "" where every number has a limit. RunError for runs that prove nothing."""
    _check(stored, today)
    found: dict[tuple[str, str], list[Number]] = defaultdict(list)
    for each in stored:
        for number in numbers(each):
            found[number.name].append(number)
    latest = stored[-1]
    names: set[str] = {limit.name for limit in latest.cluster.limits}
    tables = []
    for group in found.values():
        e = group[-1].expected
        if e.better == "equal" or e.unit == "1" or _has_limit(latest, e):
            continue
        name = _name(e, names)
        names.add(name)
        tables.append(_table(name, group, latest.run.scope, runs=len(stored), today=today))
    return "\n".join(tables)


def diff(stored: Sequence[StoredRun], *, today: date) -> str:
    """The proposal as a unified diff of the last run's cluster file."""
    old = stored[-1].cluster.text
    new = old.rstrip("\n") + "\n\n" + proposed if (proposed := propose(stored, today=today)) else old
    path = f"{stored[-1].run.cluster}.toml"
    lines = difflib.unified_diff(old.splitlines(True), new.splitlines(True), f"a/{path}", f"b/{path}")
    return "".join(lines)


def _check(stored: Sequence[StoredRun], today: date) -> None:
    for each in stored:
        outcome = each.outcome(each.verdicts(today=today))
        if outcome not in GOOD:
            raise RunError(f"{each.folder} is {outcome}: limits are proposed from accepted runs only")
    scopes = {json.dumps(each.run.scope, sort_keys=True) for each in stored}
    if len(scopes) > 1:
        raise RunError(f"these runs are of different machines: {', '.join(sorted(scopes))}; propose for one at a time")


def _has_limit(stored: StoredRun, e: Expected) -> bool:
    """Whether a limit on the value itself, other than what physics allows, covers it."""
    return any(x.of == "value" and not x.physical and x.covers(e.metric, e.params) for x in stored.cluster.limits)


def _name(e: Expected, taken: set[str]) -> str:
    words = [e.metric, *(str(v) for _, v in sorted(e.params.items()))]
    name = re.sub(r"[^a-z0-9]+", "_", "_".join(["measured", *words]).lower()).strip("_")
    return name if name not in taken else f"{name}_{len(taken)}"


def _table(name: str, group: Sequence[Number], scope: dict[str, Scalar], *, runs: int, today: date) -> str:
    """One [limits.NAME] table."""
    e = group[-1].expected
    medians = np.concatenate([n.estimates.median for n in group])
    noise = float(np.median([n.typical.noise for n in group]))
    if e.better == "higher":
        bound, value = "floor", float(np.quantile(medians, QUANTILE)) * (1 - min(noise, 0.5))
    else:
        bound, value = "ceiling", float(np.quantile(medians, 1 - QUANTILE)) * (1 + noise)
    counted = f"{runs} {'run' if runs == 1 else 'runs'}, {len(medians)} values"
    lines = {
        "metric": e.metric,
        "unit": e.unit,
        bound: _rounded(value, down=bound == "floor"),
        "where": e.params,
        "scope": {k: v for k, v in scope.items() if k in ("sku", "backend")},
        "source": f"measured on {today}: {counted}, {QUANTILE:.0%} quantile worse by its noise of {noise:.1%}",
    }
    body = "".join(f"{key} = {_toml(value)}\n" for key, value in lines.items() if value != {})
    return f"[limits.{name}]\n{body}date = {today}\n"


def _rounded(value: float, *, down: bool) -> float:
    """Three significant digits, to the lenient side."""
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    units = math.floor(value / step) if down else math.ceil(value / step)
    return float(f"{units * step:.3g}")


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(str(k))} = {_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, float):
        return f"{value:.3g}" if value < 1e3 else f"{value:.2e}"
    return json.dumps(value, ensure_ascii=False)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register `limits`."""
    words = f"propose limits from accepted runs, as a diff of {CLUSTER}"
    parser = commands.add_parser("limits", help=words, description=words)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="accepted runs of one machine, oldest first")
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    text = diff([runs.load(path) for path in options.runs], today=date.today())
    print(text or "every number has a limit already")
    return 0
