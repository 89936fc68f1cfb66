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

from benchmarks.inventory import DriverError, InstalledGpu, gpus
from benchmarks.launch import LAUNCHERS
from benchmarks.measurement import Config, Run, Verdict, now
from benchmarks.spec import to_place
from clusters import knownbad
from clusters.cluster import Cluster
from clusters.knownbad import KnownBad, KnownBadError
from clusters.loader import ClusterError, check_metrics, check_settings, load
from reports import index, page, runs
from reports.before import BASELINE, keep
from reports.culprits import told
from suites import continuation, nightly, overhead, places, search, storageplace
from suites.allocation import OF_SLURM, Allocation, Say, Wish, hold
from suites.controller import UNFINISHED, Controller, NodesLostError, TimeUpError, group_timeout_s
from suites.lock import CampaignLock, LockedError
from suites.needs import checks
from suites.nodes import NodesError, fold
from suites.options import Options, UsageError
from suites.plan import Plan, make_plan, metrics
from suites.progress import Progress
from suites.runfolder import RunFolder, RunFolderError
from suites.slurm import SlurmError

ROOT = Path(__file__).parent.parent
CAMPAIGN_SETTINGS = ("lock", "start_limit_s", *places.SETTINGS)


def plan_for(options: Options) -> Plan:
    """The plan of a cluster file and a suite. UsageError where either is wrong."""
    try:
        cluster = storageplace.under_test(load(options.cluster, nodes=options.nodes), options.checkpoint_dir)
        cluster = places.with_places(cluster, options)
        installed = _installed(cluster, options.wish)
        check_metrics(cluster, metrics(cluster, installed))
        plan = make_plan(cluster, options.suite, checks(options.suite), installed)
        check_settings(cluster, {"campaign": CAMPAIGN_SETTINGS, **cluster.asked})
        return plan
    except (ClusterError, DriverError, ValueError) as error:
        raise UsageError(str(error)) from None


@dataclass(kw_only=True)
class Campaign:
    """A run being measured, resumed or tested again."""

    options: Options
    plan: Plan
    folder: RunFolder
    lock: CampaignLock
    held: Allocation
    pending: tuple[str, ...]  # config ids that this session measures
    resumed: runs.StoredRun | None = None
    today: date = field(default_factory=date.today)
    measured: bool = False  # the controller came to its end
    trouble: str = ""  # why measuring stopped early, for the terminal
    _verdicts: list[Verdict] | None = None
    _final: runs.StoredRun | None = None
    _kept: runs.Kept = field(default_factory=dict)  # of the run folder, so that judging decodes only what is new

    @classmethod
    def open(cls, options: Options, selected: Sequence[str], say: Say = lambda _: None) -> Campaign:
        """Everything ready to measure what the `selected` checks need. UsageError, and nothing was written."""
        path = continuation.older(options)
        with contextlib.ExitStack() as undo:
            try:
                stored = runs.load(path) if path else None
                baseline = continuation.baseline(options, stored)
                options = _tonight(continuation.as_before(options, stored), say)
                options = places.of_cluster(places.as_before(options, stored) if stored else options)
                bad = knownbad.load(options.known_bad) if options.known_bad else ()
                plan = plan_for(options)
                if stored:
                    continuation.check_same(stored, plan, options)
                storageplace.refuse_results_on(plan.cluster, path or options.runs)
                run = stored.run if stored else _new_run(plan)
                lock = CampaignLock(plan.cluster)
                undo.callback(lock.release)
                lock.acquire(str(path or options.runs / run.id))
                held = undo.enter_context(hold(_wish(plan, options), say=say))
                _check_launcher(plan, held)
                folder = RunFolder.reopen(path) if path else RunFolder.create(options.runs, run, plan.cluster.text)
            except (LockedError, RunFolderError, runs.RunError, NodesError, KnownBadError, SlurmError) as error:
                raise UsageError(str(error)) from None
            wanted = [c.id for c in plan.of(selected)]
            campaign = cls(
                options=options, plan=plan, folder=folder, lock=lock, held=held, pending=tuple(wanted), resumed=stored,
            )  # fmt: skip
            if stored:
                campaign._choose_again(wanted, stored)
            undo.pop_all()
        campaign._write_nodes(bad)
        places.keep(options, folder, stored)
        left_out = _left_out(plan, options, selected)
        if baseline is not None:
            folder.event(BASELINE, **keep(options.baseline, baseline))
        folder.event("selected", tests=list(selected), all=not left_out, left_out=left_out)
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
            controller.measure(configs, lambda: self._follow_up(configs))
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
            if self.measured:
                self.folder.event("ended")
        except RunFolderError as error:
            self.trouble = str(error)
        self.folder.close()
        try:
            self._final = self.stored()
            page.write(self._final, self.verdicts_once())
            index.write(self._final, index.stamp_of(self.folder.path), self.verdicts_once())
        except OSError as error:
            self.trouble = self.trouble or f"cannot write the page: {error}"
        self.held.release()
        self.lock.release()

    @property
    def timeouts(self) -> str:
        """How the time-outs of this campaign nest, in one line."""
        return overhead.timeouts(
            longest_s=max(c.limit_s for c in self.plan.configs), group_s=group_timeout_s(self.plan),
            start_s=self.plan.start_limit_s, slurmd_s=self.held.slurmd_timeout(),
        )  # fmt: skip

    @property
    def outcome(self) -> str:
        """ACCEPTED, CONDITIONAL, INCOMPLETE or REJECTED, of the run folder as it is."""
        return self.stored().outcome(self.verdicts_once())

    def _write_nodes(self, bad: Sequence[KnownBad]) -> None:
        """Which nodes this session measures, who starts ranks on them, and which are known to be bad."""
        if bad:
            excused = knownbad.excused(bad, self.held.hosts, today=self.today)
            self.held.notes += [entry.line(self.today) for entry in bad]
            self.folder.event("known_bad", excused=list(excused), lines=[entry.line(self.today) for entry in bad])
        held = self.held
        self.folder.event(
            "nodes", launcher=held.launcher, why=held.why, hosts=list(held.hosts), left_out=list(held.left_out),
            notes=held.notes, slurm_job=held.slurm_job,
        )  # fmt: skip

    def _configs(self) -> list[Config]:
        return [c for c in self.plan.configs if c.id in self.pending]

    def _choose_again(self, wanted: Sequence[str], stored: runs.StoredRun) -> None:
        """Of the configs wanted, those a resume finishes or a retest repeats."""
        verdicts = stored.verdicts(today=self.today)
        if self.options.retest:
            chosen = {v.config for v in verdicts if continuation.matches(v, self.options.retest, told(stored))}
            if not chosen:
                self.folder.close()
                meaning = "failed or is missing" if self.options.retest == "failed" else f"has {self.options.retest}"
                raise UsageError(f"nothing to test again: no check of {self.folder.path} {meaning}")
            self.folder.event("retest", what=self.options.retest, configs=sorted(chosen))
        else:
            chosen = {v.config for v in verdicts if v.status in UNFINISHED}
            self.folder.event("resumed", configs=sorted(chosen))
        self.pending = tuple(c for c in wanted if c in chosen)


def _installed(cluster: Cluster, wish: Wish) -> tuple[InstalledGpu, ...]:
    """The GPUs of a node: this machine's, or where ranks will surely run elsewhere, those that the file promises."""
    elsewhere = wish.launcher in (*OF_SLURM, "ssh") or wish.nodelist or wish.partition
    if not (elsewhere and cluster.gpu):
        return gpus()
    gpu = cluster.gpu
    return tuple(
        InstalledGpu(index=i, name=gpu.names[0], serial="", uuid="", memory_bytes=gpu.memory_bytes, driver="")
        for i in range(cluster.gpus_per_node or 0)
    )


def _left_out(plan: Plan, options: Options, selected: Sequence[str]) -> str:
    """What this session leaves out of what the suite and the cluster file ask for; "" where nothing."""
    if missing := [test for test in plan.needed_by if test not in set(selected)]:
        return f"{len(missing)} of {len(plan.needed_by)} checks were deselected"
    nodes, wanted = plan.cluster.nodes, load(options.cluster).nodes
    if options.suite == "acceptance" and nodes < wanted:
        return f"only {nodes} of the {wanted} nodes of {plan.cluster.name} were measured"
    return ""


def _wish(plan: Plan, options: Options) -> Wish:
    """The nodes that a plan needs, and for how long at most."""
    return replace(
        options.wish, nodes=plan.cluster.nodes, gpus_per_node=plan.cluster.gpus_per_node or 0,
        seconds=plan.worst_case_s,
    )  # fmt: skip


def _tonight(options: Options, say: Say) -> Options:
    """The nodes of a night, where it is idle ones that are asked for. NodesError where there are too few."""
    if options.until:
        nightly.seconds_until(options.until, now=datetime.now().astimezone())
    if options.idle is None or options.nodes is not None:
        return options
    names, free = nightly.idle_nodes(options.wish.partition)
    last = nightly.last_tested(options.runs, load(options.cluster).name)
    chosen = nightly.choose(
        names, free, last, options.idle, now=datetime.now().astimezone(), within_nights=options.within_nights
    )
    say(f"tonight: {chosen.why}\n")
    if chosen.overdue:
        say(f"not tested within {options.within_nights} nights: {fold(chosen.overdue)}\n")
    return replace(options, nodes=len(chosen.nodes), wish=replace(options.wish, nodelist=chosen.nodes))


def _check_launcher(plan: Plan, held: Allocation) -> None:
    """Whether the launcher can start what the plan needs on the nodes that are held."""
    try:
        for config in plan.configs:
            job = held.job(to_place(config.place), log_dir="")
            LAUNCHERS[held.launcher].command(job)
            LAUNCHERS[held.launcher].address(job)
    except ValueError as error:
        raise UsageError(f"{plan.cluster.name} cannot be started by {held.launcher}: {error}") from None


def _new_run(plan: Plan) -> Run:
    started = now()
    stamp = started.replace("-", "").replace(":", "").replace("T", "-").partition(".")[0]
    cluster = plan.cluster
    return Run(
        id=f"{stamp}-{cluster.name}-{plan.suite}", suite=plan.suite, cluster=cluster.name,
        cluster_sha256=cluster.sha256, started_at=started, revision=revision(), nodes=cluster.nodes,
        scope={"sku": cluster.gpu.sku if cluster.gpu else plan.sku, "nodes": cluster.nodes, "backend": plan.backend},
        command=shlex.join(["pytest", *sys.argv[1:]]), configs=plan.configs, expected=plan.expected,
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
