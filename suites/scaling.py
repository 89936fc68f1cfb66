"""Training on 1, 2, 4 ... nodes: what a rank keeps of its rate, measured through a campaign's own launchers.

    python -m suites.scaling --cluster site/rack7.toml --nodes 1 2 4 8 --layouts tp8 tp8,pp2:zbv:2
    python -m suites.scaling --cluster local --nodes 2 --ranks-per-node 4 --layouts tp4 tp8 --allow-tp-across-nodes

A layout leaves out dp: its replicas fill the nodes, each with the same batch. The job is the cluster file's [training];
an option changes it. Every point is a launch of its own on the first so many nodes, is proven before it is timed,
and costs only itself where it fails. Nothing is judged. `kept` is the rate of a rank over its rate on the fewest nodes
that the layout fits. OUT holds records.jsonl and the ranks' logs.
Exit: 0 measured, 1 a point is wrong or failed, 4 usage.
"""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from tabulate import tabulate

from benchmarks.__main__ import add_fields
from benchmarks.inventory import DriverError
from benchmarks.launch import LAUNCHERS
from benchmarks.measurement import Measurement, decode, encode
from benchmarks.spec import Place, to_config
from benchmarks.training.spec import Training
from benchmarks.training.sweep import COLUMNS, row, series, spec_of
from clusters.cluster import Cluster
from clusters.loader import ClusterError, load
from reference_model.layout import Layout
from suites.allocation import AUTO, Allocation, Wish, describe, hold
from suites.controller import GROUP_MARGIN_S
from suites.launching import Launch
from suites.lock import CampaignLock, LockedError
from suites.nodes import expand
from suites.plan import START_S, places
from suites.preparation import installed
from suites.slurm import SlurmError
from suites.test_training import training

RATE = "training.tokens_rate"


@dataclass(frozen=True, kw_only=True)
class Point:
    """One layout on so many nodes, or why it does not run there."""

    nodes: int
    layout: str
    place: Place
    spec: Training | None = None
    reason: str = ""


def main(words: Sequence[str] | None = None) -> int:
    """The command line."""
    lock = None
    try:
        options, cluster = options_of(list(sys.argv[1:] if words is None else words))
        wish = wish_of(options, cluster)
        points = list(points_of(options, world_of(options, cluster, wish)))
        lock = CampaignLock(cluster)
        lock.acquire(str(options.out))
        wish = replace(wish, seconds=worst_case_s(points, cluster))
        with hold(wish, say=lambda text: print(text, end="", flush=True)) as held:
            print("\n".join(describe(held)))
            return int(measure(points, held, options.out, start_limit_s=start_limit_s(cluster)))
    except SystemExit as end:  # argparse's own status for usage is 2
        raise SystemExit(4 if end.code == 2 else end.code) from None
    except (ClusterError, DriverError, LockedError, SlurmError, ValueError, OSError) as error:
        print(f"python -m suites.scaling: {error}", file=sys.stderr)
        return 4
    finally:
        if lock:
            lock.release()


def options_of(words: Sequence[str]) -> tuple[argparse.Namespace, Cluster]:
    """The options, where the cluster file's [training] is the default of each field, and that cluster."""
    made = parser()
    named = made.parse_args(words)
    cluster = load(named.cluster, nodes=max(named.nodes))
    made.set_defaults(**dataclasses.asdict(training(cluster)))
    return made.parse_args(words), cluster


def parser() -> argparse.ArgumentParser:
    """Nodes, layouts, what starts ranks; and the training benchmark's own options."""
    assert __doc__
    made = argparse.ArgumentParser(
        prog="python -m suites.scaling", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--cluster", required=True, help="a shipped cluster file's name, or a path")
    made.add_argument("--nodes", nargs="+", type=at_least_one, required=True, metavar="N", help="numbers of nodes")
    made.add_argument("--ranks-per-node", type=at_least_one, metavar="N", help="fewer than the cluster file says")
    made.add_argument("--layouts", nargs="+", required=True, metavar="LAYOUT", help="tp8, tp8,pp2:zbv:2, tp1,shard1")
    made.add_argument("--out", type=Path, default=Path("runs", f"scaling-{datetime.now():%Y%m%d-%H%M%S}"))
    made.add_argument("--launcher", default=AUTO, choices=[AUTO, *sorted(LAUNCHERS)])
    made.add_argument("--nodelist", default="", metavar="n[1-4]")
    made.add_argument("--partition", default="")
    made.add_argument("--launcher-options", default="", metavar="WORDS")
    made.add_argument("--salloc-options", default="", metavar="WORDS")
    add_fields(made, Training)
    return made


def at_least_one(text: str) -> int:
    """A number of nodes."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r}: a number of nodes is 1 or more")
    return int(text)


def wish_of(options: argparse.Namespace, cluster: Cluster) -> Wish:
    """As many nodes as the largest point needs."""
    return Wish(
        launcher=options.launcher, nodes=max(options.nodes), nodelist=expand(options.nodelist),
        partition=options.partition, options=tuple(shlex.split(options.launcher_options)),
        salloc=tuple(shlex.split(options.salloc_options)), gpus_per_node=cluster.gpus_per_node or 0,
    )  # fmt: skip


def world_of(options: argparse.Namespace, cluster: Cluster, wish: Wish) -> Place:
    """Where all ranks run together on the most nodes. ValueError where more ranks a node are asked for than it has."""
    world = places(cluster, installed(cluster, wish))[1]
    ranks = options.ranks_per_node or world.ranks_per_node
    if ranks > world.ranks_per_node:
        raise ValueError(f"--ranks-per-node {ranks}: a node of {cluster.name} has {world.ranks_per_node}")
    return replace(world, ranks_per_node=ranks)


def points_of(options: argparse.Namespace, world: Place) -> Iterator[Point]:
    """Every layout on every number of nodes, fewest first. ValueError where a layout runs on none of them."""
    fields = {f.name: getattr(options, f.name) for f in dataclasses.fields(Training)}
    found = [
        point_of(layout, replace(world, nodes=nodes), fields)
        for nodes in sorted(set(options.nodes))
        for layout in options.layouts
    ]
    for layout in options.layouts:
        mine = [point for point in found if point.layout == layout]
        if not any(point.spec for point in mine):
            raise ValueError(mine[-1].reason)
    yield from found


def point_of(text: str, place: Place, fields: Mapping[str, Any]) -> Point:
    """A layout with the replicas that fill a place."""
    layout, colon, schedule = text.partition(":")
    try:
        spec = spec_of(f"{filled(layout, place.ranks)}{colon}{schedule}", fields)
        spec.check(place)
    except ValueError as error:
        return Point(nodes=place.nodes, layout=text, place=place, reason=str(error))
    return Point(nodes=place.nodes, layout=text, place=replace(place, env=(*place.env, *spec.env)), spec=spec)


def filled(layout: str, ranks: int) -> str:
    """The layout with as many replicas as `ranks` allow. ValueError where it does not fit.

    >>> filled("tp8", 32)
    'tp8,dp4'
    """
    parts = [part for part in layout.split(",") if not part.strip().startswith("shard")]
    if any(part.strip().startswith("dp") for part in parts):
        raise ValueError(f"layout {layout}: leave dp out, replicas fill the nodes")
    one = Layout.parse(",".join(parts) or "tp1").ranks
    if ranks % one:
        raise ValueError(f"layout {layout} needs {one} ranks for a replica: {ranks} ranks hold no whole number of them")
    return f"{layout},dp{ranks // one}"


def start_limit_s(cluster: Cluster) -> float:
    """Seconds that one launch may take."""
    return float(cluster.setting("campaign", "start_limit_s", START_S))


def worst_case_s(points: Sequence[Point], cluster: Cluster) -> float:
    """Seconds if every launch and every point takes as long as it may."""
    return sum(point.spec.limit_s + start_limit_s(cluster) for point in points if point.spec)


def measure(points: Sequence[Point], held: Allocation, out: Path, *, start_limit_s: float) -> bool:
    """Run every point, keep its records, print the table. Returns whether a point is wrong or failed."""
    out.mkdir(parents=True, exist_ok=True)
    rows, notes, first, bad = [], [], dict[str, float](), False
    able = [point for point in points if point.spec]
    for point in points:
        layout, found, reason = point.layout, dict[str, Measurement](), point.reason
        if point.spec:
            layout, number = point.spec.layout, able.index(point) + 1
            print(f"{number} of {len(able)}: {layout} on {point.nodes} node(s)", flush=True)
            if warning := point.spec.warning(point.place):
                print(f"warning: {warning}", flush=True)
            found, reason = launched(point, held, out / f"launch-{number}", number, start_limit_s=start_limit_s)
            with (out / "records.jsonl").open("a", encoding="utf-8") as file:
                file.writelines(encode(m) + "\n" for m in found.values())
            reason = reason or next((m.reason for m in found.values() if m.outcome != "ok"), "")
            bad |= bool(reason)
        notes += [f"{layout} on {point.nodes} node(s): {reason}"] * bool(reason)
        if not found.get(RATE) or not found[RATE].samples:
            rows.append([point.nodes, layout, *[None] * (len(COLUMNS) - 1)])
            continue
        first.setdefault(point.layout, median(found[RATE].samples) / point.place.ranks)
        rows.append([point.nodes, *row(found, {series(found[RATE]): first[point.layout]})])
    print(tabulate(rows, headers=("nodes", *COLUMNS), floatfmt=".4g", missingval="-"))
    print("\n".join([*notes, f"records and logs: {out}"]))
    return bad


def launched(
    point: Point, held: Allocation, logs: Path, number: int, *, start_limit_s: float
) -> tuple[dict[str, Measurement], str]:
    """The measurements of one point by metric, and why they are not complete ("" where they are)."""
    assert point.spec
    config, found = to_config(point.spec, point.place), dict[str, Measurement]()
    job = replace(held, hosts=held.hosts[: point.nodes]).job(point.place, log_dir=str(logs.resolve()))
    launch = Launch(
        number=number, job=job, launcher=LAUNCHERS[held.launcher], group_timeout_s=config.limit_s + GROUP_MARGIN_S
    )

    def keep(_rank: int, line: str) -> None:
        record = decode(Measurement, line)
        found[record.metric] = record

    try:
        trouble = launch.start(start_limit_s) or launch.run(config, 1, keep)
        if trouble is None:
            launch.stop()
    finally:
        launch.kill()
    for what in launch.leftovers():
        print(f"left behind: {what}", file=sys.stderr)
    promised = {metric.name for metric in point.spec.emits(point.place)}
    missing = ", ".join(sorted(promised - set(found)))
    return found, trouble.reason if trouble else f"never reported: {missing}" if missing else ""


if __name__ == "__main__":
    sys.exit(main())
