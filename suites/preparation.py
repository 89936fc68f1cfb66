"""All that is known before a node is asked for: which run, which nodes, which plan; for a campaign and for `--plan`.

Nothing is started, held or written here. Each wrong input is a UsageError with one line and its cure.

    prepare(Options(cluster="local"), say=print).plan.configs
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from benchmarks.inventory import DriverError, InstalledGpu, gpus
from benchmarks.spec import Spec
from clusters import knownbad
from clusters.cluster import Cluster
from clusters.knownbad import KnownBad, KnownBadError
from clusters.loader import ClusterError, check_metrics, check_settings, load
from reports import runs
from suites import continuation, nightly, places, storageplace
from suites.allocation import OF_SLURM, Say, Wish
from suites.needs import Build, checks
from suites.nodes import NodesError, fold
from suites.options import Options, UsageError
from suites.plan import Plan, make_plan, metrics
from suites.slurm import SlurmError

SETTINGS = ("lock", "start_limit_s", "known_bad", *places.SETTINGS)  # of [campaign]


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A campaign before it has nodes."""

    options: Options  # what was asked, with what an older run and the night decide
    plan: Plan
    path: Path | None = None  # the run that is gone on with
    stored: runs.StoredRun | None = None
    baseline: runs.StoredRun | None = None
    bad: tuple[KnownBad, ...] = ()


def prepare(options: Options, say: Say) -> Prepared:
    """Everything that can be known beforehand. UsageError where something is wrong."""
    path = continuation.older(options)
    try:
        stored = runs.load(path) if path else None
        baseline = continuation.baseline(options, stored)
        options = _tonight(continuation.as_before(options, stored), say)
        options = places.of_cluster(places.as_before(options, stored) if stored else options)
        bad = known_bad(options)
        plan = plan_for(options)
        if stored:
            continuation.check_same(stored, plan, options)
    except (runs.RunError, NodesError, KnownBadError, SlurmError) as error:
        raise UsageError(str(error)) from None
    return Prepared(options=options, plan=plan, path=path, stored=stored, baseline=baseline, bad=bad)


def plan_for(options: Options) -> Plan:
    """The plan of a cluster file and a suite. UsageError where either is wrong."""
    built: dict[Build, list[Spec]] = {}
    try:
        cluster = storageplace.under_test(load(options.cluster, nodes=options.nodes), options.checkpoint_dir)
        cluster = places.with_places(cluster, options)
        found = installed(cluster, options.wish)
        check_metrics(cluster, metrics(cluster, found, built=built))
        plan = make_plan(cluster, options.suite, checks(options.suite), found, built=built)
        check_settings(cluster, {"campaign": SETTINGS, **cluster.asked})
        return plan
    except (ClusterError, DriverError, ValueError) as error:
        raise UsageError(str(error)) from None


def known_bad(options: Options) -> tuple[KnownBad, ...]:
    """The nodes known to be bad: of --known-bad, else of the file that [campaign] known_bad names beside the cluster's.

    So nobody has to remember the option. KnownBadError where the file cannot be read.
    """
    if options.known_bad:
        return knownbad.load(options.known_bad)
    try:
        cluster = load(options.cluster)
    except ClusterError as error:
        raise UsageError(str(error)) from None
    named = cluster.setting("campaign", "known_bad", "")
    return knownbad.load(Path(cluster.path).parent / str(named)) if named else ()


def wish_of(plan: Plan, options: Options) -> Wish:
    """The nodes that a plan needs, and for how long at most."""
    return replace(
        options.wish, nodes=plan.cluster.nodes, gpus_per_node=plan.cluster.gpus_per_node or 0,
        seconds=plan.worst_case_s,
    )  # fmt: skip


def left_out(plan: Plan, options: Options, selected: Sequence[str]) -> str:
    """What a session leaves out of what the suite and the cluster file ask for; "" where nothing."""
    if missing := [test for test in plan.needed_by if test not in set(selected)]:
        return f"{len(missing)} of {len(plan.needed_by)} checks were deselected"
    nodes, wanted = plan.cluster.nodes, load(options.cluster).nodes
    if options.suite == "acceptance" and nodes < wanted:
        return f"only {nodes} of the {wanted} nodes of {plan.cluster.name} were measured"
    return ""


def installed(cluster: Cluster, wish: Wish) -> tuple[InstalledGpu, ...]:
    """The GPUs of a node: this machine's, or where ranks will surely run elsewhere, those that the file promises."""
    elsewhere = wish.launcher in (*OF_SLURM, "ssh") or wish.nodelist or wish.partition
    if not (elsewhere and cluster.gpu):
        return gpus()
    gpu = cluster.gpu
    return tuple(
        InstalledGpu(index=i, name=gpu.names[0], serial="", uuid="", memory_bytes=gpu.memory_bytes, driver="")
        for i in range(cluster.gpus_per_node or 0)
    )


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
