"""An older run that is gone on with: which one, whether it may be, and what of it stays as it is.

A run is only continued where it would expect the very same numbers of the very same nodes; anything else is a
UsageError with the cure, and leaves the run as it was.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.measurement import Verdict
from clusters.cluster import Cluster
from clusters.loader import load
from reports import runs
from reports.culprits import SUSPECTS, told
from suites import storageplace
from suites.controller import UNFINISHED, settled
from suites.options import Options, UsageError
from suites.plan import Plan


def baseline(options: Options, stored: runs.StoredRun | None) -> runs.StoredRun | None:
    """What the run is held against: chosen once, and never the run itself."""
    if not options.baseline:
        return None
    earlier = runs.load(options.baseline)
    if stored is not None and stored.baseline is not None:
        raise UsageError(f"{stored.folder} has its baseline already: leave --baseline away, or start a new run")
    if stored is not None and stored.run.id == earlier.run.id:
        raise UsageError(f"{stored.folder} cannot be its own baseline: name an earlier run")
    return earlier


def as_before(options: Options, stored: runs.StoredRun | None) -> Options:
    """A run is finished on as many nodes as it was begun on, and where it names them, on the same ones."""
    if stored is None:
        return options
    if options.nodes not in (None, stored.run.nodes):
        raise UsageError(f"{stored.folder} is a run over {stored.run.nodes} node(s): leave --nodes away")
    before = next((tuple(e.detail["hosts"]) for e in stored.events if e.kind == "nodes"), ())
    wish = options.wish
    if before and not (wish.nodelist or wish.exclude):
        wish = replace(wish, nodelist=before)
    place = options.checkpoint_dir or storageplace.before(stored)
    return replace(options, nodes=stored.run.nodes, wish=wish, checkpoint_dir=place)


def older(options: Options) -> Path | None:
    """The folder to continue: --resume's, or for --retest the cluster's newest run."""
    if options.resume:
        return find_run(options.resume, options.runs)
    if options.retest:
        newest = runs.newest(options.runs, cluster=load(options.cluster).name)
        if newest is None:
            raise UsageError(f"--retest needs a run: there is none of {options.cluster} under {options.runs}/")
        return newest
    return None


def find_run(name: str, root: Path) -> Path:
    """The run folder of that path, or of that name under `root`. UsageError where there is none."""
    for path in (Path(name), root / name):
        if path.is_dir():
            return path
    raise UsageError(f"no run folder {name!r}, nor under {root}/")


def check_same(stored: runs.StoredRun, plan: Plan, options: Options) -> None:
    """Only the very same expectation can be finished."""
    cluster: Cluster = plan.cluster
    if stored.run.cluster_sha256 != cluster.sha256:
        raise UsageError(
            f"{stored.folder} was measured with another version of {cluster.path} (cluster {stored.run.cluster}): "
            f"resume it with --cluster {stored.folder / 'cluster.toml'}, or start a new run"
        )
    if stored.run.suite != options.suite:
        raise UsageError(f"{stored.folder} is a run of suite {stored.run.suite}: add --suite {stored.run.suite}")
    started_by = [e.detail["launcher"] for e in stored.events if e.kind == "nodes"]
    here, there = socket.gethostname(), set(stored.latest_environments)
    if "torchrun" in started_by and there and here not in there:
        raise UsageError(f"{stored.folder} was measured on {', '.join(sorted(there))}, this is {here}: start a new run")
    if stored.run.expected != plan.expected:
        raise UsageError(
            f"{stored.folder} expects other numbers than this checkout does on this machine "
            f"(revision {stored.run.revision}): start a new run"
        )


def chosen(plan: Plan, selected: Sequence[str], stored: runs.StoredRun | None, retest: str) -> tuple[str, ...]:
    """The configs of the selected checks that a session measures: all; or what a resume lacks; or what is tested again.

    UsageError where --retest means none of them.
    """
    wanted = tuple(config.id for config in plan.of(selected))
    if stored is None:
        return wanted
    verdicts = stored.verdicts(today=date.today())
    if not retest:
        meant = {v.config for v in verdicts if v.status in UNFINISHED}
    elif not (meant := _meant(stored, verdicts, retest)):
        meaning = "failed or is missing" if retest == "failed" else f"has {retest}"
        raise UsageError(f"nothing to test again: no check of {stored.folder} {meaning}")
    return tuple(config for config in wanted if config in meant)


def _meant(stored: runs.StoredRun, verdicts: Sequence[Verdict], what: str) -> set[str]:
    """The configs that --retest WHAT means: by a verdict, or by the name of a metric, judged or not."""
    named = {e.config for e in stored.run.expected if e.metric == what}
    return named | {v.config for v in verdicts if matches(v, what, told(stored))}


def launches(stored: runs.StoredRun) -> int:
    """How many launches it has had."""
    return max((int(e.detail["number"]) for e in stored.events if e.kind == "launch"), default=0)


def attempts(stored: runs.StoredRun) -> dict[str, int]:
    """Config id -> its latest attempt."""
    latest: dict[str, int] = {}
    for m in stored.measurements:
        latest[m.config] = max(latest.get(m.config, 0), m.attempt)
    return latest


def sound(stored: runs.StoredRun) -> set[tuple[str, str, str]]:
    """Numbers that were measured, whatever they amount to: a resume does not replace them."""
    return settled(stored.run.expected, stored.verdicts(today=date.today()))


def matches(verdict: Verdict, what: str, blame: Mapping[str, Any]) -> bool:
    """Whether --retest WHAT means this verdict: "failed", or the name of its subject, its node or an accused node."""
    if what == "failed":
        return verdict.status in ("fail", "impossible", *UNFINISHED)
    if verdict.metric == SUSPECTS:
        return any(what in (s["title"], *s["nodes"]) for s in blame.get("suspects", ()))
    names = {verdict.subject, *verdict.subject.split(), str(verdict.evidence.get("node", ""))}
    return what in names
