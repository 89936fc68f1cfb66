"""Where the nodes of a campaign sit: the topology file it is given, kept with the run and asked for partners.

The file is named by `--topology`, or by [campaign] topology of the cluster file (beside that file). `--cabling` names
what was found plugged (the output of ibnetdiscover), to be held against it. Both are copied into the run folder, so
that a page can be built again; a resumed run goes on with its own. Nothing is measured or judged here.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from clusters.cluster import Cluster
from clusters.loader import ClusterError, load
from reports import cabling
from reports.localise import Topology
from reports.runs import StoredRun
from suites.options import Options, UsageError
from suites.runfolder import RunFolder

SETTINGS = ("topology", "cabling", "budget_s")  # of [campaign]
BUDGET = "budget"  # the event that keeps --budget: {"seconds"}


def of_cluster(options: Options) -> Options:
    """The options, with what the cluster file says where the command line says nothing. UsageError for a bad file."""
    try:
        cluster = load(options.cluster)
    except ClusterError as error:
        raise UsageError(str(error)) from None
    beside = Path(cluster.path).parent
    named = {key: str(cluster.setting("campaign", key, "")) for key in ("topology", "cabling")}
    return replace(
        options,
        topology=options.topology or (beside / named["topology"] if named["topology"] else None),
        cabling=options.cabling or (beside / named["cabling"] if named["cabling"] else None),
        budget_s=options.budget_s or float(cluster.setting("campaign", "budget_s", 0.0)) or None,
    )  # fmt: skip


def as_before(options: Options, stored: StoredRun) -> Options:
    """A run that is gone on with keeps its topology and its budget. UsageError where it is given others."""
    kept = next((e.detail for e in stored.events if e.kind == cabling.EVENT), {})
    for given, which in ((options.topology, "plan"), (options.cabling, "found")):
        if given and which in kept:
            raise UsageError(f"{stored.folder} has its topology already: leave --topology and --cabling away")
    budget = next((float(e.detail["seconds"]) for e in stored.events if e.kind == BUDGET), None)
    if options.budget_s and options.budget_s != budget:
        raise UsageError(f"{stored.folder} was planned with another budget: leave --budget away, or start a new run")
    plan, found = (stored.folder / str(kept[w]["file"]) if w in kept else None for w in ("plan", "found"))
    return replace(
        options, topology=options.topology or plan, cabling=options.cabling or found, budget_s=budget
    )  # fmt: skip


def with_places(cluster: Cluster, options: Options) -> Cluster:
    """The cluster with the leaves, pods and budget that its rounds are planned by. UsageError for a bad file."""
    try:
        topology = cabling.read(options.topology) if options.topology else Topology()
        if options.cabling:
            cabling.read(options.cabling)
    except ValueError as error:
        raise UsageError(str(error)) from None
    first = {node: leaves[0] for node, leaves in topology.leaf.items() if leaves} or dict(topology.rack)
    links: dict[str, Any] = {"leaves": _listed(first.items()), "pods": _listed(topology.pod.items())}
    own = cluster.settings.get("links", {})
    settings = {**cluster.settings, "links": {**{k: v for k, v in links.items() if v}, **own}}
    if options.budget_s:
        settings["campaign"] = {**cluster.settings.get("campaign", {}), "budget_s": options.budget_s}
    return replace(cluster, settings=settings)


def keep(options: Options, folder: RunFolder, kept: StoredRun | None) -> None:
    """Copy the files into the run folder and write down which they were, once a run."""
    events = {e.kind for e in kept.events} if kept else set()
    found: dict[str, Any] = {}
    for path, which, name in ((options.topology, "plan", cabling.PLAN), (options.cabling, "found", cabling.FOUND)):
        if path and path.resolve().parent != folder.path.resolve():
            shutil.copyfile(path, folder.path / name)
            found[which] = {"file": name, "source": str(path), "sha256": cabling.digest(path)}
    if found:
        folder.event(cabling.EVENT, **found)
    if options.budget_s and BUDGET not in events:
        folder.event(BUDGET, seconds=options.budget_s)


def _listed(places: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The nodes of each place, one text a place: ("n1 n2", "n3")."""
    members: dict[str, list[str]] = {}
    for node, place in places:
        members.setdefault(place, []).append(node)
    return tuple(" ".join(nodes) for nodes in members.values())
