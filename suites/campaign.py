"""One campaign from the options to the outcome: what the pytest plugin and nothing else drives.

`open` checks everything that can be known before a rank starts and makes the run folder (or reopens one);
`measure` runs the controller; `close` writes the end and the views. Each wrong input is a UsageError with
one line and its cure, and leaves every older run as it was.
"""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from pathlib import Path

from benchmarks.launch import LAUNCHERS
from benchmarks.measurement import Config, Run, Verdict, now
from benchmarks.spec import to_place
from clusters import knownbad
from reports import index, page, runs
from reports.before import BASELINE, keep
from suites import continuation, nightly, places, search, storageplace, timeouts, withoutfailed
from suites.allocation import Allocation, Say, hold
from suites.controller import Controller, NodesLostError, TimeUpError, nested
from suites.lock import CampaignLock, LockedError
from suites.nodes import NodesError, fold
from suites.options import Options, UsageError
from suites.plan import Plan
from suites.preparation import Prepared, known_bad, left_out, plan_for, prepare, wish_of
from suites.progress import Progress
from suites.runfolder import RunFolder, RunFolderError
from suites.slurm import SlurmError

ROOT = Path(__file__).parent.parent


@dataclass(kw_only=True)
class Campaign:
    """A run being measured, resumed or tested again."""

    options: Options
    plan: Plan
    folder: RunFolder
    lock: CampaignLock
    held: Allocation
    pending: tuple[str, ...]  # config ids that this session measures
    selected: tuple[str, ...] = ()  # checks
    resumed: runs.StoredRun | None = None
    today: date = field(default_factory=date.today)
    measured: bool = False  # the controller came to its end
    trouble: str = ""  # why measuring stopped early, for the terminal
    left: tuple[str, ...] = ()  # hosts that go on in a run of their own, since others failed by themselves
    _verdicts: list[Verdict] | None = None
    _final: runs.StoredRun | None = None
    _kept: runs.Kept = field(default_factory=dict)  # of the run folder, so that judging decodes only what is new

    @classmethod
    def open(cls, options: Options, selected: Sequence[str], say: Say = lambda _: None) -> Campaign:
        """Everything ready to measure what the `selected` checks need. UsageError, and nothing was written."""
        made = prepare(options, say)
        options, plan, path = made.options, made.plan, made.path
        pending = continuation.chosen(plan, selected, made.stored, options.retest)
        with contextlib.ExitStack() as undo:
            try:
                storageplace.refuse_results_on(plan.cluster, path or options.runs)
                run = made.stored.run if made.stored else _new_run(plan, options.by)
                lock = CampaignLock(plan.cluster)
                undo.callback(lock.release)
                lock.acquire(str(path or options.runs / run.id))
                held = undo.enter_context(hold(wish_of(plan, options), say=say))
                _check_launcher(plan, held)
                if options.continue_without_failed and len(held.hosts) < 2:
                    raise UsageError("--continue-without-failed needs several nodes, by name or from Slurm")
                folder = RunFolder.reopen(path) if path else RunFolder.create(options.runs, run, plan.cluster.text)
            except (LockedError, RunFolderError, NodesError, SlurmError) as error:
                raise UsageError(str(error)) from None
            undo.pop_all()
        campaign = cls(
            options=options, plan=plan, folder=folder, lock=lock, held=held, pending=pending, resumed=made.stored,
            selected=tuple(selected),
        )  # fmt: skip
        campaign._write_beginning(made, selected)
        return campaign

    def measure(self, progress: Progress) -> None:
        """Run the controller over what is pending. Trouble with the folder or an interrupt leaves a valid run."""
        controller = Controller(
            plan=self.plan, folder=self.folder, judge=self.verdicts, progress=progress, held=self.held
        )
        if self.options.until:
            controller.end = time.monotonic() + nightly.seconds_until(
                self.options.until, now=datetime.now().astimezone()
            )
        if self.resumed:
            controller.launches = continuation.launches(self.resumed)
            controller.attempts = continuation.attempts(self.resumed)
            controller.kept = set() if self.options.retest else continuation.sound(self.resumed)
        try:
            configs = self._configs()
            alone = withoutfailed.alone(configs) if self.options.continue_without_failed else []
            ordered = alone + [c for c in configs if c not in alone]
            controller.measure(ordered, lambda: self._follow_up(configs), alone=len(alone), enough=self._failed)
            self._conclude({c.id: controller.attempts[c.id] for c in configs})
            self.measured = True
        except (RunFolderError, NodesLostError, TimeUpError) as error:
            self.trouble = str(error)
            with contextlib.suppress(RunFolderError):
                self.folder.event("stopped", reason=self.trouble)
        except KeyboardInterrupt:
            self.trouble = "interrupted"
            with contextlib.suppress(RunFolderError):
                self.folder.event("interrupted")
            raise

    def rest(self) -> Campaign:
        """The campaign of the nodes that are left: a new run in the same allocation, over all that was selected.

        Raises UsageError where so many nodes cannot be measured together as the cluster file says.
        """
        wish = replace(self.options.wish, nodelist=self.left, exclude=())
        options = replace(self.options, nodes=len(self.left), wish=wish, continue_without_failed=False)
        options = replace(options, resume="", retest="", baseline="", idle=None)
        plan = plan_for(options)
        gone = tuple(host for host in self.held.hosts if host not in self.left)
        notes = [f"{fold(gone)} left out: failed by itself in run {self.folder.path.name}"]
        held = replace(self.held, hosts=self.left, left_out=(*self.held.left_out, *gone), notes=notes, holder=None)
        _check_launcher(plan, held)
        try:
            run = _new_run(plan, options.by)
            run = replace(run, id=f"{run.id}-without-{len(gone)}")
            folder = RunFolder.create(options.runs, run, plan.cluster.text)
        except RunFolderError as error:
            raise UsageError(str(error)) from None
        pending = continuation.chosen(plan, self.selected, None, "")
        campaign = Campaign(
            options=options, plan=plan, folder=folder, lock=self.lock, held=held, pending=pending,
            selected=self.selected,
        )  # fmt: skip
        campaign._write_beginning(Prepared(options=options, plan=plan, bad=known_bad(options)), self.selected)
        return campaign

    def _failed(self) -> str:
        """Why nothing more is measured over all nodes: some failed by themselves; `left` has the others. Else ""."""
        alone = withoutfailed.alone(self.plan.configs) if self.options.continue_without_failed else []
        if not alone:
            return ""
        stored = self.stored()
        why = withoutfailed.failed(stored.verdicts(today=self.today), stored.errors, {c.id for c in alone})
        ranks = stored.latest_environments.values()
        per_node = to_place(alone[0].place).ranks_per_node
        called = {self.held.hosts[e.ranks[0] // per_node]: e.node for e in ranks}
        self.left = withoutfailed.without(why, self.held.hosts, called)
        if not self.left:
            return ""
        self.folder.event("continued", without=sorted(why), why=dict(why), hosts=list(self.left))
        return withoutfailed.reason(why)

    def _follow_up(self, configs: Sequence[Config]) -> list[Config]:
        """What the search for a culprit asks for beyond the plan."""
        stored = self.stored()
        verdicts = stored.verdicts(today=self.today)
        return search.follow_up(stored, verdicts, configs, self.folder, self.plan.cluster)

    def _conclude(self, attempts: Mapping[str, int]) -> None:
        """Write down what follows from the measurements alone: who is to blame for slow links."""
        if found := search.conclude(self.stored(), attempts, self.plan.cluster):
            self.folder.measurement(found)

    def verdicts(self) -> list[Verdict]:
        """The verdicts of all that is in the run folder by now."""
        return self.stored().verdicts(today=self.today)

    def verdicts_once(self) -> list[Verdict]:
        """The same after measuring, judged once: what every check asserts."""
        if self._verdicts is None:
            self._verdicts = self.verdicts()
        return self._verdicts

    def stored(self) -> runs.StoredRun:
        """The run folder as anybody else would read it; once closed, it does not change and is read once."""
        return self._final or runs.load(self.folder.path, kept=self._kept)

    def close(self, broken: Sequence[str]) -> None:
        """Write the end and the page; give the lock back. `broken` checks failed in their own code."""
        try:
            if broken:
                self.folder.event("checks", failed=list(broken))
            self.folder.sync()
            if self.measured and not self.folder.full:
                self.folder.event("ended")
        except RunFolderError as error:
            self.trouble = str(error)
        self.folder.close()
        self.trouble = self.trouble or self.folder.full
        try:
            self._final = self._read_back()
            page.write(self._final, self.verdicts_once())
            index.write(self._final, index.stamp_of(self.folder.path), self.verdicts_once())
        except OSError as error:
            self.trouble = self.trouble or f"cannot write the page: {error}"
        finally:
            self.held.release()
            self.lock.release()

    def _read_back(self) -> runs.StoredRun:
        """The run as it lies on the disk; judged again where that is not what was kept of it meanwhile."""
        kept, found = self.stored(), runs.load(self.folder.path)
        if found.measurements != kept.measurements:
            self._verdicts = None
        return found

    @property
    def timeouts(self) -> list[str]:
        """How the time-outs of this campaign nest, and those of the cluster that could end it."""
        job, worst_s = self.held.slurm_job, self.plan.worst_case_s
        cluster = timeouts.of_slurm(job, worst_s=worst_s, now=datetime.now()) if job else []
        return timeouts.lines(**nested(self.plan), cluster=cluster)

    @property
    def outcome(self) -> str:
        """ACCEPTED, CONDITIONAL, INCOMPLETE or REJECTED, of the run folder as it is."""
        found = self.stored().outcome(self.verdicts_once())
        return "INCOMPLETE" if self.folder.full and found != "REJECTED" else found

    def _write_beginning(self, made: Prepared, selected: Sequence[str]) -> None:
        """What this session goes on with, on which nodes, by what time-outs, against what, and what it leaves out."""
        held, folder, options = self.held, self.folder, self.options
        if made.stored:
            what = {"by": options.by, **({"what": options.retest} if options.retest else {})}
            folder.event("retest" if options.retest else "resumed", configs=sorted(self.pending), **what)
        if made.bad:
            excused = knownbad.excused(made.bad, held.hosts, today=self.today)
            lines = [entry.line(self.today) for entry in made.bad]
            held.notes += lines
            folder.event("known_bad", excused=list(excused), lines=lines)
        folder.event(
            "nodes", launcher=held.launcher, why=held.why, hosts=list(held.hosts), left_out=list(held.left_out),
            notes=held.notes, slurm_job=held.slurm_job,
        )  # fmt: skip
        folder.event("timeouts", lines=self.timeouts)
        places.keep(options, folder, made.stored)
        if made.baseline is not None:
            folder.event(BASELINE, **keep(options.baseline, made.baseline))
        without = left_out(self.plan, options, selected)
        folder.event("selected", tests=list(selected), all=not without, left_out=without)

    def _configs(self) -> list[Config]:
        return [c for c in self.plan.configs if c.id in self.pending]


def _check_launcher(plan: Plan, held: Allocation) -> None:
    """Whether the launcher can start what the plan needs on the nodes that are held."""
    try:
        for config in plan.configs:
            job = held.job(to_place(config.place), log_dir="")
            LAUNCHERS[held.launcher].command(job)
            LAUNCHERS[held.launcher].address(job)
    except ValueError as error:
        raise UsageError(f"{plan.cluster.name} cannot be started by {held.launcher}: {error}") from None


def _new_run(plan: Plan, by: str) -> Run:
    started = now()
    stamp = started.replace("-", "").replace(":", "").replace("T", "-").partition(".")[0]
    cluster = plan.cluster
    return Run(
        id=f"{stamp}-{cluster.name}-{plan.suite}", suite=plan.suite, cluster=cluster.name,
        cluster_sha256=cluster.sha256, started_at=started, revision=revision(), nodes=cluster.nodes,
        scope={"sku": cluster.gpu.sku if cluster.gpu else plan.sku, "nodes": cluster.nodes, "backend": plan.backend},
        command=shlex.join(["pytest", *sys.argv[1:]]), by=by, configs=plan.configs, expected=plan.expected,
    )  # fmt: skip


def revision() -> str:
    """The checkout's commit, "+dirty" where tracked files differ; "" outside a checkout."""
    try:
        said = subprocess.run(
            ["git", "describe", "--always", "--dirty=+dirty", "--abbrev=12"], cwd=ROOT, capture_output=True,
            text=True, timeout=10, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stdout.strip() if said.returncode == 0 else ""
