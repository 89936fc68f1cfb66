"""A run folder, read back: its head, its cluster file, its records, and what they amount to.

    RUN/run.json            the Run: what was expected, written before anything is measured
    RUN/cluster.toml        the cluster file as it was; its hash is in the Run
    RUN/measurements.jsonl  one Measurement a line, appended as they come
    RUN/environments.jsonl  one Environment per node and launch
    RUN/events.jsonl        launches, batches, errors, the end

A line that was cut short by a crash can only be the last one: it is dropped and said so. Anything else
that does not read is a RunError. Nothing is ever written here.

>>> load("no/such/run")
Traceback (most recent call last):
reports.runs.RunError: no/such/run: no such run folder; list those there are: ls runs
"""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import json
import shlex
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.measurement import Environment, Event, Measurement, RecordError, Run, Verdict, decode
from clusters import loader
from clusters.cluster import Cluster
from reports.comparison import Baseline, Key, baseline_of, unpack
from reports.evidence import Evidence
from reports.judge import explain, judge
from reports.statistics import Estimate

HEAD, CLUSTER = "run.json", "cluster.toml"
MEASUREMENTS, ENVIRONMENTS, EVENTS = "measurements.jsonl", "environments.jsonl", "events.jsonl"
FILES = (HEAD, CLUSTER, MEASUREMENTS, ENVIRONMENTS, EVENTS)
FAILED = "failed"  # for --retest: whatever is not as it should be
SETTLED = ("pass", "waived", "not_applicable", "no_baseline")  # which that does not mean
CAMPAIGN = ("launch", "batch", "error", "selected", "interrupted", "resumed", "retest", "noisy", "ended")

T = TypeVar("T")
Kept = dict[Path, tuple[int, list[Any]]]
"""file -> how many of its bytes were read, and the records in them"""


class RunError(ValueError):
    """A folder that is no readable run; the message says which line and what to do."""


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """Everything a run folder holds."""

    run: Run
    cluster: Cluster
    measurements: tuple[Measurement, ...]
    environments: tuple[Environment, ...]
    events: tuple[Event, ...]
    warnings: tuple[str, ...]
    folder: Path

    def verdicts(self, *, today: date, baseline: Baseline | None = None) -> list[Verdict]:
        """The judge's verdicts on this run, by its own cluster file."""
        return judge(
            self.run,
            self.evidence,
            self.cluster.limits,
            waivers=self.cluster.waivers,
            exemptions=self.cluster.exemptions,
            baseline=self.baseline if baseline is None else baseline,
            today=today,
            excused=self.excused,
            again=lambda e, status: self.again(e.test, e.metric if status in SETTLED else FAILED),
        )

    def outcome(self, verdicts: Iterable[Verdict]) -> str:
        """REJECTED, INCOMPLETE, CONDITIONAL or ACCEPTED."""
        return self.explain(verdicts)[0]

    def explain(self, verdicts: Iterable[Verdict]) -> tuple[str, list[str]]:
        """The outcome and the reasons for it."""
        outcome, reasons = explain(
            verdicts, selected_all=self.selected_all, ended=self.ended, broken_checks=self.broken_checks
        )
        return outcome, [*reasons, *([] if self.selected_all else self.left_out)]

    def as_baseline(self) -> dict[Key, Estimate]:
        """What later runs are held against: every soundly measured number of this one."""
        configs = {config.id: config for config in self.run.configs}
        return baseline_of(self.run.expected, self.evidence, configs=configs, scope=self.run.scope)

    @functools.cached_property
    def evidence(self) -> Evidence:
        """The measurements, found again by what was expected."""
        return Evidence(self.measurements, self.errors)

    @functools.cached_property
    def baseline(self) -> Baseline | None:
        """What its campaigns were told to hold it against, kept in the run; None where nothing was."""
        kept = [event.detail["values"] for event in self.events if event.kind == "baseline"]
        return unpack(kept[0]) if kept else None

    @property
    def excused(self) -> frozenset[str]:
        """Nodes that its campaigns were told are known to be bad."""
        return frozenset(n for event in self.events if event.kind == "known_bad" for n in event.detail["excused"])

    def view(self, path: Path) -> Path:
        """`path` for a view of this run. RunError where it would write over the records themselves."""
        if path.name in FILES and path.resolve().parent == self.folder.resolve():
            raise RunError(f"{path} holds the run itself; write to another name with -o")
        return path

    @property
    def errors(self) -> list[Event]:
        """What befell whole configs: ranks that died, hung or raised."""
        return [event for event in self.events if event.kind == "error"]

    @property
    def selected_all(self) -> bool:
        """Whether any of its campaigns ran everything the suite holds; what still lacks is missing anyway."""
        return any(event.kind == "selected" and event.detail.get("all") is True for event in self.events)

    @property
    def left_out(self) -> list[str]:
        """What its last campaign left out, in words."""
        said = [str(event.detail.get("left_out", "")) for event in self.events if event.kind == "selected"]
        return [words for words in said[-1:] if words]

    @property
    def broken_checks(self) -> tuple[str, ...]:
        """Checks that failed in their own code, not by a verdict, and were not run again since."""
        broken: tuple[str, ...] = ()
        for event in self.events:
            if event.kind == "selected":
                broken = tuple(test for test in broken if test not in event.detail.get("tests", ()))
            elif event.kind == "checks":
                broken += tuple(event.detail.get("failed", ()))
        return broken

    @property
    def ended(self) -> bool:
        """Whether its last campaign came to its end."""
        campaign = [event.kind for event in self.events if event.kind in CAMPAIGN]
        return bool(campaign) and campaign[-1] == "ended"

    def again(self, check: str = "", what: str = FAILED) -> str:
        """The command that adds an attempt to this run: at what is wrong, or at `what` --retest names.

        `check` names one check of the suite. The run knows its cluster file and its suite.
        """
        if self.run.suite == "import":
            return "measure it again with the tool that printed it, and import that"
        words = [_pytest(), check or "suites", "--resume", str(self.folder), "--retest", what]
        return shlex.join(words)

    @functools.cached_property
    def latest_environments(self) -> dict[str, Environment]:
        """Per node, what it was in its last launch."""
        return {e.node: e for e in sorted(self.environments, key=lambda e: e.launch)}


def load(folder: str | Path, *, measurements: bool = True, kept: Kept | None = None) -> StoredRun:
    """Read a run folder; without its measurements for what looks at everything else.

    Who reads a growing run again and again gives the same dict as `kept`: then only new lines are decoded.

    Raises RunError for a folder that is none, is empty, was written by a newer version, or holds a line
    that does not read; and where the kept cluster file is not the one the run was started with.
    """
    path = Path(folder)
    run = head(path)
    warnings: list[str] = []
    with collector_paused():
        return StoredRun(
            run=run,
            cluster=_cluster(path, run),
            measurements=_records(Measurement, path / MEASUREMENTS, warnings, kept) if measurements else (),
            environments=_records(Environment, path / ENVIRONMENTS, warnings, kept),
            events=_records(Event, path / EVENTS, warnings, kept),
            warnings=tuple(warnings),
            folder=path,
        )


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run."""
    return (folder / HEAD).is_file()


def _pytest() -> str:
    """The pytest of this environment as it is typed here: .venv/bin/pytest in a checkout, else plain pytest."""
    own = Path(sys.prefix) / "bin" / "pytest"
    inside = own.is_file() and own.is_relative_to(Path.cwd())
    return str(own.relative_to(Path.cwd())) if inside else "pytest"


def newest(root: str | Path, *, cluster: str = "") -> Path | None:
    """The run folder under `root` that was started last (of one cluster); None where there is none."""
    found = []
    for file in Path(root).glob(f"*/{HEAD}"):
        with contextlib.suppress(RunError):
            run = head(file.parent)
            if not cluster or run.cluster == cluster:
                found.append((moment(run.started_at), str(file.parent)))
    return Path(max(found)[1]) if found else None


def moment(text: str) -> datetime:
    """A time of a record; one without a zone is UTC, as all records are written. RunError where it is none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise RunError(f"{text!r} is no time: a run begins at one such as 2026-12-01T02:00:00Z") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def head(path: Path) -> Run:
    """The Run at the head of a folder, alone. RunError where there is none or it does not read."""
    if not path.is_dir():
        raise RunError(f"{path}: no such run folder; list those there are: ls {path.parent}")
    file = path / HEAD
    if not file.is_file():
        what = "an empty folder" if not any(path.iterdir()) else f"no run folder: it holds no {HEAD}"
        raise RunError(f"{path}: {what}; name the folder that pytest suites printed at its end")
    try:
        return decode(Run, file.read_bytes())
    except RecordError as error:
        raise RunError(f"{file}: {error}; the head of a run is never rewritten: measure again if it was cut") from None


def _cluster(path: Path, run: Run) -> Cluster:
    """The cluster file kept in the run, proven to be the one it was started with."""
    kept = path / CLUSTER
    if not kept.is_file():
        raise RunError(f"{path}: {CLUSTER} is gone, so nothing says what the limits were; put back {run.cluster}")
    digest = hashlib.sha256(kept.read_bytes()).hexdigest()
    if digest != run.cluster_sha256:
        raise RunError(
            f"{kept}: not the file this run was started with (sha256 {digest[:12]}, run.json says "
            f"{run.cluster_sha256[:12]}); put back the copy of {run.cluster}"
        )
    try:
        return loader.load(str(kept), nodes=run.nodes)
    except loader.ClusterError as error:
        raise RunError(f"{error}; judge it with the version of this suite that measured it ({run.revision})") from None


def _records(cls: type[T], path: Path, warnings: list[str], kept: Kept | None = None) -> tuple[T, ...]:
    """The records of one file; a last line without its end is dropped with a warning."""
    if not path.is_file():
        return ()
    begin, records = (kept or {}).get(path, (0, []))
    if path.stat().st_size < begin:  # cut back since: nothing of before holds
        begin, records = 0, []
    if kept is not None:
        records = list(records)
    end, cut = begin, False
    with path.open("rb") as file:  # a line at a time: a large file never lies in memory twice
        file.seek(begin)
        for number, line in enumerate(file, len(records) + 1):
            try:
                records.append(decode(cls, line))
            except RecordError as error:
                last = not line.endswith(b"\n") or end + len(line) == path.stat().st_size
                if not line.strip() and last:
                    break
                if not (last and _is_cut(line)):
                    raise RunError(f"{path}:{number}: {error}; move that line out of the file and look at it") from None
                warnings.append(f"{path.name}: line {number} was cut short and is dropped ({len(line.rstrip())} bytes)")
                cut = True
            end += len(line)
            cut |= not line.endswith(b"\n")
    if kept is not None and not cut:
        kept[path] = end, records
    return tuple(records)


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """No garbage collection inside: records hold no cycles, and looking for some takes as long as reading."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _is_cut(line: bytes) -> bool:
    """Whether a line is no JSON at all, as a writer leaves it that is stopped inside it."""
    try:
        json.loads(line)
    except ValueError:
        return True
    return False
