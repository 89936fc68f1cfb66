"""The controller: one conversation with living ranks, from the first config to the last verdict.

It starts ranks once per place, sends them one config after the other, appends what they send to the run
folder, and looks at the verdicts to decide what is measured again. It alone writes the run. What goes wrong
costs the benchmark it hit: the reason is written down for every number that is now missing, and the rest runs
on in a new launch. Judging is `reports.judge`'s, launching `suites.launching`'s.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.launch import LAUNCHERS
from benchmarks.measurement import (
    Config,
    Environment,
    Expected,
    Measurement,
    RecordError,
    Verdict,
    decode,
    now,
    params_key,
)
from benchmarks.spec import Place, from_config
from suites.allocation import Allocation
from suites.launching import Launch
from suites.plan import Plan
from suites.progress import Progress
from suites.runfolder import RunFolder
from suites.trouble import Trouble

GROUP_MARGIN_S = 60.0  # the process group gives up this much after the longest benchmark: we diagnose first
START_TRIES = 2  # launches in a row that may fail to come up before a place is given up
NOISY_TRIES = 2  # further attempts at a config whose verdict is noisy; their samples are pooled

UNFINISHED = ("missing", "error", "noisy")  # more measuring may settle these; a fail or an impossible wants --retest

Key = tuple[str, str, str]  # config, metric, params
FollowUp = Callable[[], Sequence[Config]]
Enough = Callable[[], str]


class NodesLostError(RuntimeError):
    """The scheduler took the nodes away: what is missing waits for --resume."""


class TimeUpError(RuntimeError):
    """No time is left for the next benchmark: what is missing waits for --resume."""


Judge = Callable[[], Sequence[Verdict]]


def group_timeout_s(plan: Plan) -> float:
    """Time-out of the process group: behind that of every benchmark."""
    return max(c.limit_s for c in plan.configs) + GROUP_MARGIN_S


def nested(plan: Plan) -> dict[str, Any]:
    """The time-outs of a plan, as `timeouts.lines` says them."""
    return {
        "longest_s": max(c.limit_s for c in plan.configs), "group_s": group_timeout_s(plan),
        "start_s": plan.start_limit_s, "backend": plan.backend,
    }  # fmt: skip


@dataclass(kw_only=True)
class Controller:
    """One campaign's conversation. `measure` may be called more than once."""

    plan: Plan
    folder: RunFolder
    judge: Judge  # the verdicts of all that is in the run folder
    progress: Progress
    held: Allocation  # where ranks run, and what starts them
    attempts: dict[str, int] = field(default_factory=dict)  # config id -> attempts so far
    kept: set[tuple[str, str, str]] = field(default_factory=set)  # (config, metric, params): not measured again
    launches: int = 0
    end: float = math.inf  # of the monotonic clock: no benchmark begins that might pass it
    _live: Launch | None = None
    _failed: set[Key] = field(default_factory=set)  # of the kept ones, those that no repetition can save
    _got: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    _heard: set[Key] = field(default_factory=set)  # numbers of this attempt that came, sound or not
    _given_up: dict[str, Trouble] = field(default_factory=dict)

    def measure(
        self, configs: Sequence[Config], follow_up: FollowUp = list, *, alone: int = 0, enough: Enough = str
    ) -> None:
        """Measure these configs in order, then the noisy ones again, then what `follow_up` asks for beyond the plan.

        After the first `alone` of them, the rest is left where `enough` says why. Ranks never outlive this call.
        """
        self._failed = beyond_repair(self.judge()) if self.kept else set()
        try:
            self._stage(configs[:alone])
            if why := enough():
                self._leave(configs[alone:], why)
            else:
                self._stage(configs[alone:])
                self._pass(follow_up(), pool=False)
            self._stop()
        finally:
            self._kill()
            self.folder.sync()

    def _stage(self, configs: Sequence[Config]) -> None:
        """Measure these configs, then those of them again that are too noisy to judge."""
        self._pass(configs, pool=False)
        for _ in range(NOISY_TRIES if configs else 0):
            verdicts = self.judge()
            noisy = {v.config for v in verdicts if v.status == "noisy" and v.mandatory}
            again = [c for c in configs if c.id in noisy]
            if not again:
                break
            self.kept |= settled(self.plan.expected, verdicts)
            self._failed |= beyond_repair(verdicts)
            self.progress.again(len(again))
            self.folder.event("noisy", configs=[c.id for c in again])
            self._pass(again, pool=True)

    def _leave(self, configs: Sequence[Config], why: str) -> None:
        """Write down why these are not measured."""
        for config in configs:
            attempt = self.attempts[config.id] = self.attempts.get(config.id, 0) + 1
            self._got = Counter()
            self._write_trouble(config, attempt, Trouble(kind="nodes", reason=why))

    def _pass(self, configs: Sequence[Config], *, pool: bool) -> None:
        for k, config in enumerate(configs, 1):
            if time.monotonic() + config.limit_s > self.end:
                raise TimeUpError(f"no time for {len(configs) - k + 1} more benchmark(s)")
            trouble = self._ensure_ranks(config)
            self.progress.begin(k, configs)
            begin = time.monotonic()
            trouble = self._one(config, trouble, pool=pool)
            self.progress.end(config, time.monotonic() - begin, trouble.reason if trouble else "")
            if trouble and trouble.kind == "died" and (why := self.held.lost()):
                raise NodesLostError(why)  # also after the last benchmark: the run is to be resumed, not judged whole

    def _one(self, config: Config, trouble: Trouble | None, *, pool: bool) -> Trouble | None:
        """One attempt at one config (none where there are no ranks for it); its trouble is written down."""
        attempt = self.attempts[config.id] = self.attempts.get(config.id, 0) + 1
        self._got, self._heard = Counter(), set()
        if trouble is None:
            assert self._live
            begin, measuring = time.monotonic(), Stopwatch()
            trouble = self._live.run(config, attempt, self._writer(config, attempt, measuring, pool=pool))
            seconds = time.monotonic() - begin
            self.folder.event(
                "batch", config=config.id, benchmark=config.benchmark, attempt=attempt, launch=self.launches,
                seconds=seconds, overhead_s=seconds - measuring.seconds,
            )  # fmt: skip
        if trouble is not None:
            self._write_trouble(config, attempt, trouble)
            self._kill()
        elif attempt > 1:
            self._write_silence(config, attempt)
        return trouble

    def _ensure_ranks(self, config: Config) -> Trouble | None:
        """Living ranks of the config's place, started if they are not there."""
        _, place = from_config(config)
        if self._live and self._live.job.place == place:
            return None
        self._stop()
        if str(place) in self._given_up:
            return self._given_up[str(place)]
        trouble = None
        for _ in range(START_TRIES):
            trouble = self._start(place)
            if trouble is None:
                return None
            if why := self.held.lost():
                raise NodesLostError(why)
            if trouble.kind == "nodes":
                break  # they will not be more alike the next time
        assert trouble
        self._given_up[str(place)] = trouble
        return trouble

    def _start(self, place: Place) -> Trouble | None:
        self.launches += 1
        self.progress.launching(place, self.launches)
        launch = Launch(
            number=self.launches,
            job=self.held.job(place, log_dir=str((self.folder.path / "logs" / f"launch-{self.launches}").resolve())),
            launcher=LAUNCHERS[self.held.launcher],
            group_timeout_s=group_timeout_s(self.plan),
        )
        self._live = launch
        trouble = launch.start(self.plan.start_limit_s)
        self.folder.event(
            "launch", number=self.launches, place=vars(place) | {"env": list(place.env)}, ranks=place.ranks,
            launcher=self.held.launcher, seconds=launch.start_s, import_s=launch.import_s, group_s=launch.group_s,
            outcome=trouble.reason if trouble else "ok",
        )  # fmt: skip
        for line in launch.environments:
            self.folder.environment(decode(Environment, line))
        if trouble is not None:
            self.folder.event("error", launch=self.launches, **trouble.detail())
            self._kill()
        return trouble

    def _writer(self, config: Config, attempt: int, measuring: Stopwatch, *, pool: bool) -> Callable[[int, str], None]:
        """What happens to a rank's record: checked, marked and appended; a kept measurement is not replaced.

        What must be right every time (wrong elements, say) is added to what is kept: seen wrong once, it is wrong.
        """

        def write(rank: int, line: str) -> None:
            measuring.lap()
            try:
                record = decode(Measurement, line)
            except RecordError as error:
                self.folder.event("error", config=config.id, attempt=attempt, rank=rank, reason=f"its record: {error}")
                return
            key = config.id, *record.key
            self._heard.add(key)
            exact = record.better == "equal" and record.outcome == "ok" and key not in self._failed
            if key in self.kept and not exact:
                return
            if record.subject.rank not in (None, rank):
                said = f"rank {rank} answers for rank {record.subject.rank}: {record.metric}"
                self.folder.event("error", config=config.id, attempt=attempt, rank=rank, reason=said)
                return
            notes = {**record.notes, "pool": True} if pool or key in self.kept else record.notes
            self.folder.measurement(replace(record, config=config.id, attempt=attempt, notes=notes))
            self._got[key] += record.outcome == "ok"

        return write

    def _write_trouble(self, config: Config, attempt: int, trouble: Trouble) -> None:
        """The reason, once as an event and once for every expected number that did not come."""
        self.folder.event("error", config=config.id, attempt=attempt, launch=self.launches, **trouble.detail())
        for expected in self._missing(config):
            self.folder.measurement(
                Measurement(
                    metric=expected.metric, unit=expected.unit, better=expected.better, params=expected.params,
                    config=config.id, attempt=attempt, outcome="error", reason=trouble.reason, started_at=now(),
                )
            )  # fmt: skip

    def _write_silence(self, config: Config, attempt: int) -> None:
        """A number that a new attempt should have brought and did not: the older one no longer stands for it."""
        spec, place = from_config(config)
        for metric in spec.emits(place):
            key = config.id, metric.name, params_key(metric.params)
            if key not in self._heard and key not in self.kept:
                said = f"attempt {attempt} came to its end and did not report it"
                missing = metric.measured(config=config.id, attempt=attempt, outcome="missing", reason=said)
                self.folder.measurement(replace(missing, started_at=now()))

    def _missing(self, config: Config) -> Iterable[Expected]:
        """Expected numbers that this attempt still owes: those that come a record a unit, if any unit is absent."""
        return [
            e for e in self.plan.expected
            if e.config == config.id and (e.config, *e.key) not in self.kept
            and self._got[e.config, *e.key] < (e.units if e.per in ("rank", "node") else 1)
        ]  # fmt: skip

    def _stop(self) -> None:
        if self._live:
            self._live.stop()
            self._report_leftovers()

    def _kill(self) -> None:
        if self._live:
            self._live.kill()
            self._report_leftovers()

    def _report_leftovers(self) -> None:
        assert self._live
        if left := self._live.leftovers():
            self.folder.event("leftover", launch=self.launches, what=left)
        self._live = None


def settled(expected: Iterable[Expected], verdicts: Iterable[Verdict]) -> set[Key]:
    """Numbers that more repetitions must not touch: those that failed, and those that nothing calls into question."""
    listed = list(verdicts)
    fixed = beyond_repair(listed)
    doubtful = {(v.config, v.metric, params_key(v.params)) for v in listed if v.status in UNFINISHED}
    return {key for e in expected if (key := (e.config, *e.key)) in fixed or key not in doubtful}


def beyond_repair(verdicts: Iterable[Verdict]) -> set[Key]:
    """Numbers that failed: only a new attempt that is asked for by name (--retest) may say otherwise."""
    return {(v.config, v.metric, params_key(v.params)) for v in verdicts if v.status in ("fail", "impossible")}


@dataclass
class Stopwatch:
    """Seconds from its making to the last lap: the part of a batch in which records came."""

    begin: float = field(default_factory=time.monotonic)
    seconds: float = 0.0

    def lap(self) -> None:
        """Note that a record came now."""
        self.seconds = time.monotonic() - self.begin
