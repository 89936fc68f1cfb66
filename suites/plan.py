"""The plan: what a suite expects of a cluster, where each benchmark runs, in what order, at what cost.

A pure function of the cluster file, the suite and the machine's GPUs; nothing is started and torch is not
imported, so `--plan` answers at once. EXPECTED is made here, whole; a selection only says what is run now.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from benchmarks.inventory import InstalledGpu
from benchmarks.measurement import Config, Expected
from benchmarks.spec import Place, Spec, from_config, load_spec, to_config
from clusters.cluster import Cluster
from clusters.hardware import identify
from clusters.loader import known, load
from suites.needs import SUITES, Build, Check, checks
from suites.search import derived

Built = dict[Build, list[Spec]]
START_S = 60.0  # worst case of one launch, where the cluster file does not say


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Configs in the order they run, what is expected of them, and which check needs which."""

    cluster: Cluster
    suite: str
    configs: tuple[Config, ...]
    expected: tuple[Expected, ...]
    needed_by: dict[str, tuple[str, ...]]  # test -> config ids
    gpu_name: str = ""  # of the first GPU that this machine shows

    @property
    def sku(self) -> str:
        """What limits are scoped by where the cluster file names no GPU: "cpu", or the driver's name of the GPU."""
        return self.gpu_name if any(c.place["device"] == "cuda" for c in self.configs) else "cpu"

    @property
    def backend(self) -> str:
        """The backend of the collectives."""
        return "nccl" if any(c.place["backend"] == "nccl" for c in self.configs) else "gloo"

    @property
    def launches(self) -> int:
        """Launches of a healthy campaign: one per (environment, world)."""
        return len({str(c.place) for c in self.configs})

    @property
    def start_limit_s(self) -> float:
        """Seconds that one launch may take until all ranks are ready."""
        return float(self.cluster.setting("campaign", "start_limit_s", START_S))

    @property
    def worst_case_s(self) -> float:
        """Seconds if every benchmark and every launch takes as long as it may."""
        return self.worst_case_of(self.configs)

    def worst_case_of(self, configs: Sequence[Config]) -> float:
        """The same for some of its configs."""
        return sum(c.limit_s for c in configs) + len({str(c.place) for c in configs}) * self.start_limit_s

    @property
    def warnings(self) -> list[str]:
        """What will make a benchmark slow here though it was asked for, in the benchmark's words."""
        found = []
        for config in self.configs:
            spec, place = from_config(config)
            if said := spec.warning(place) if hasattr(spec, "warning") else "":
                found.append(f"{config.benchmark}: {said}")
        return found

    def bytes_written(self, config: Config) -> int:
        """Bytes that a config writes to storage, over all its ranks."""
        spec, place = from_config(config)
        return int(spec.bytes_written(place))

    def of(self, tests: Iterable[str]) -> list[Config]:
        """The configs these checks need, in running order."""
        wanted = {c for test in tests for c in self.needed_by.get(test, ())}
        return [c for c in self.configs if c.id in wanted]


def make_plan(
    cluster: Cluster, suite: str, wanted: Sequence[Check], gpus: Sequence[InstalledGpu], *, built: Built | None = None
) -> Plan:
    """The plan of a suite on a cluster whose machine shows `gpus` (none: CPU ranks over gloo).

    What each device does by itself comes first: what ranks do together is only trusted on nodes that are sound. `built`
    holds what checks asked for already, on this cluster: several checks may share what takes long to work out.

    Raises ValueError with the cure where the machine cannot be what the cluster file says, or a spec does not fit its
    place.
    """
    device, world = places(cluster, gpus)
    configs: dict[str, Config] = {}
    expected: dict[tuple[str, str, str], Expected] = {}
    needed_by: dict[str, tuple[str, ...]] = {}
    built = {} if built is None else built
    for check in wanted:
        ids = []
        for spec in _specs(check, cluster, built):
            for place in where(spec, device, world):
                config = to_config(spec, place)
                configs.setdefault(config.id, config)
                ids.append(config.id)
                for one in _expected(spec, place, config, check):
                    expected.setdefault((one.config, *one.key), one)
        needed_by[check.test] = tuple(dict.fromkeys(ids))
    if not configs:
        raise ValueError(f"suite {suite!r} has no checks: choose another with --suite")
    ordered = [c for _, group in _by_place(configs.values()) for c in group]
    return Plan(
        cluster=cluster, suite=suite, configs=tuple(ordered), expected=tuple(expected.values()), needed_by=needed_by,
        gpu_name=gpus[0].name if gpus else "",
    )  # fmt: skip


def metrics(
    cluster: Cluster, gpus: Sequence[InstalledGpu], *, built: Built | None = None
) -> dict[str, tuple[str, str]]:
    """Metric -> (unit, better), over the checks of all suites: what a limit of this cluster may speak of."""
    device, world = places(cluster, gpus)
    found: dict[str, tuple[str, str]] = {}
    built = {} if built is None else built
    for check in {c.build: c for suite in SUITES for c in checks(suite)}.values():
        for spec in _specs(check, cluster, built):
            for place in where(spec, device, world):
                found |= {m.name: (m.unit, m.better) for m in (*spec.emits(place), *derived(spec, place))}
    return found


def _specs(check: Check, cluster: Cluster, built: Built) -> list[Spec]:
    if check.build not in built:
        built[check.build] = check.specs(cluster)
    return built[check.build]


def places(cluster: Cluster, gpus: Sequence[InstalledGpu]) -> tuple[Place, Place]:
    """Where device benchmarks and where world benchmarks run.

    No GPU: CPU ranks over gloo for both. One GPU in one node: devices on it, the world on CPU ranks over gloo.
    More: one NCCL rank a GPU for both. Raises ValueError where the GPUs are not those that the file says.
    """
    wanted = len(gpus) if cluster.gpus_per_node is None else cluster.gpus_per_node
    if cluster.nodes == 1:
        _check_gpus(cluster, wanted, gpus)
    cpu = Place(device="cpu", backend="gloo", nodes=cluster.nodes, ranks_per_node=cluster.ranks_per_node)
    if not wanted:
        return cpu, cpu
    if wanted * cluster.nodes == 1:
        return Place(device="cuda", backend="gloo", nodes=1, ranks_per_node=1), cpu
    many = Place(device="cuda", backend="nccl", nodes=cluster.nodes, ranks_per_node=wanted)
    return many, many


def _check_gpus(cluster: Cluster, wanted: int, gpus: Sequence[InstalledGpu]) -> None:
    """Refuse a machine whose GPUs are others, more or fewer than the file of a single node says."""
    if cluster.gpu:
        for name in sorted({gpu.name for gpu in gpus}):
            sku = identify(name).sku
            if sku != cluster.gpu.sku:
                fitting = [file for file in known() if (model := load(file).gpu) and model.sku == sku]
                cure = f"run it with --cluster {' or '.join(fitting)}" if fitting else "run it on such a node"
                raise ValueError(
                    f"{cluster.name} is of {cluster.gpu.sku}, this machine has {name}: its limits are of other GPUs; "
                    f'{cure}, or correct gpu in {cluster.path}: gpu = "{sku}"'
                )
    if wanted != len(gpus):
        what = "more ranks than GPUs" if wanted > len(gpus) else "some GPUs would not be tested"
        cure = "run it on such a node" if wanted > len(gpus) else "name the ones meant in CUDA_VISIBLE_DEVICES"
        raise ValueError(
            f"{cluster.name} has {wanted} GPUs a node, this machine shows {len(gpus)}: {what}; {cure}, "
            f"or correct gpus_per_node in {cluster.path}"
        )


def where(spec: Spec, device: Place, world: Place) -> list[Place]:
    """The places of a spec: world benchmarks run on the world; device benchmarks on the devices, and on the world
    too where that is of another kind (its ratios need a rate of the same device). One that needs variables of its own
    (`env`) has a place, and so a launch, of its own."""
    if spec.scope == "world":
        return [replace(world, env=(*world.env, *getattr(spec, "env", ())))]
    return [device] if device.device == world.device else [device, world]


def _expected(spec: Spec, place: Place, config: Config, check: Check) -> list[Expected]:
    return [
        Expected(
            metric=m.name, unit=m.unit, better=m.better, params=m.params, per=m.per,
            units=m.units or place.units(m.per), config=config.id, test=check.test,
        )
        for m in (*spec.emits(place), *derived(spec, place))
    ]  # fmt: skip


def _by_place(configs: Iterable[Config]) -> list[tuple[str, list[Config]]]:
    """Configs grouped by place, what devices do alone first, else in order of first use: one launch each."""
    listed = sorted(configs, key=lambda c: load_spec(c.benchmark).scope != "device")
    first = {str(c.place): i for i, c in reversed(list(enumerate(listed)))}
    ordered = sorted(listed, key=lambda c: first[str(c.place)])
    return [(key, list(group)) for key, group in itertools.groupby(ordered, key=lambda c: str(c.place))]
