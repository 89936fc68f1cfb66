"""Sweeps beside the usual one, told apart everywhere: NCCL pinned, ranges of sizes, graphs; and links by themselves."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest
import torch

from benchmarks.collectives.operations import Operation
from benchmarks.collectives.pattern import Pattern
from benchmarks.collectives.rounds import Sweep
from benchmarks.collectives.run import report
from benchmarks.collectives.spec import VARIANTS, Collective
from benchmarks.collectives.teams import Team
from benchmarks.hardware.spec import PERFTEST, Hardware
from benchmarks.inventory import InstalledGpu
from benchmarks.launch import LAUNCHERS, Job
from benchmarks.measurement import Environment, decode, params_key
from benchmarks.spec import Place, to_config
from clusters.loader import load
from suites.launching import Launch
from suites.needs import checks
from suites.plan import make_plan
from suites.progress import title
from suites.test_collectives import PINNED, pinned, sweeps
from suites.test_hardware import tools

GPUS = Place(device="cuda", backend="nccl", nodes=4, ranks_per_node=8)


def plan_of(name: str, *, nodes: int) -> Any:
    cluster = load(name, nodes=nodes)
    gpu = InstalledGpu(index=0, name=cluster.gpu.names[0], serial="", uuid="", memory_bytes=1, driver="")
    return make_plan(cluster, "acceptance", checks("acceptance"), (gpu,) * cluster.gpus_per_node)


# -- ranges of sizes ------------------------------------------------------------------------------------------------


def test_a_factor_makes_a_range_that_ends_with_the_largest_size():
    assert Collective(sizes=(8, 128), factor=2).sweep() == [8, 16, 32, 64, 128]
    assert Collective(sizes=(100, 8), factor=4).sweep() == [8, 32, 100]
    whole = Collective(sizes=(8, 16 << 30), factor=2).sweep()
    assert (whole[0], whole[-1], len(whole)) == (8, 16 << 30, 32)
    assert Collective(sizes=(64, 8)).sweep() == [8, 64]


@pytest.mark.parametrize("fields", [{"factor": 1}, {"factor": -2}, {"factor": 2, "sizes": (8,)}, {"factor": 2}])
def test_a_factor_that_makes_no_range_is_refused(fields):
    with pytest.raises(ValueError, match="the smallest and the largest"):
        Collective(**fields)


# -- NCCL pinned ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "cure"),
    [
        ({"variant": "rings"}, "there are ring, tree, network"),
        ({"variant": "tree", "op": "all_gather"}, "tree does all_reduce, not all_gather"),
        ({"variant": "ring", "op": "all_to_all"}, "not all_to_all"),
    ],
)
def test_what_nccl_cannot_be_pinned_to_is_refused(fields, cure):
    with pytest.raises(ValueError, match=cure):
        Collective(**fields)


def test_gloo_has_nothing_to_pin():
    with pytest.raises(ValueError, match="leave variant out"):
        Collective(variant="ring").emits(Place(ranks_per_node=2))


def test_a_variant_has_metrics_of_its_own():
    usual, ring = (Collective(variant=v, sizes=(1 << 30,)).emits(GPUS) for v in ("", "ring"))
    assert [m.name for m in ring] == ["collectives.all_reduce.ring.busbw", "collectives.all_reduce.ring.wrong_elements"]
    assert {m.name for m in usual}.isdisjoint(m.name for m in ring)


def test_every_variant_is_one_launch_with_its_own_environment():
    plan = plan_of("h100-sxm-ndr400", nodes=4)
    launched = [tuple(config.place["env"]) for config in plan.configs]
    runs = [env for i, env in enumerate(launched) if i == 0 or env != launched[i - 1]]
    assert Counter(runs) == Counter([(), *VARIANTS.values()])  # each once: neighbours share a launch
    assert plan.launches == 1 + len(VARIANTS)
    for config in plan.configs:
        assert tuple(config.place["env"]) == VARIANTS.get(config.spec.get("variant", ""), ())


@pytest.mark.slow
def test_the_ranks_of_a_launch_have_its_environment(tmp_path):
    place = Place(env=VARIANTS["ring"])
    launch = Launch(
        number=1, job=Job(place=place, log_dir=str(tmp_path)), launcher=LAUNCHERS["torchrun"], group_timeout_s=60.0
    )
    try:
        assert launch.start(60.0) is None
    finally:
        launch.kill()
    (line,) = launch.environments
    assert decode(Environment, line).facts["env"]["NCCL_ALGO"] == "Ring"


def test_one_node_and_cpus_have_no_variants_and_shared_nics_no_network_alone():
    assert pinned(load("h100-sxm-ndr400", nodes=1)) == []
    assert pinned(load("local")) == []
    assert {spec.variant for spec in pinned(load("h100-ethernet-100g", nodes=2))} == {v for _, v in PINNED}
    assert {spec.variant for spec in pinned(load("h100-sxm-ndr400", nodes=2))} == set(VARIANTS)


@pytest.mark.parametrize("name", ["a100-sxm-hdr200", "h100-sxm-ndr400", "h200-sxm-ndr400", "b200-sxm-ndr400", "mi300x"])
def test_only_limits_that_name_a_variant_judge_how_fast_it_is(name):
    cluster = load(name, nodes=4)
    usual = [limit for limit in cluster.limits if limit.metric.endswith(".busbw") and limit.metric.count(".") == 2]
    assert usual
    for spec in pinned(cluster):
        for metric in spec.emits(GPUS):
            assert not any(limit.covers(metric.name, metric.params) for limit in usual)
            judged = [limit for limit in cluster.limits if limit.covers(metric.name, metric.params)]
            assert judged, metric.name


def test_the_titles_of_a_plan_tell_its_sweeps_apart():
    config = to_config(Collective(op="all_reduce", dtype="bf16", group="rail", together=False), GPUS)
    assert title(config) == "collectives all_reduce bf16 rail in turn"
    assert title(to_config(Collective(variant="ring"), GPUS)) == "collectives all_reduce fp32 world ring"
    assert title(to_config(Hardware(tool="ib_write_lat"), GPUS)) == "hardware ib_write_lat"
    for suite in (sweeps, pinned):
        titles = [title(to_config(spec, GPUS)) for spec in suite(load("h100-sxm-ndr400"))]
        assert len(set(titles)) == len(titles)


# -- bytes on the wire -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "backend", "outcome"), [(3000, "gloo", "ok"), (100, "gloo", "error"), (0, "nccl", "ok")]
)
def test_calls_that_sent_less_than_any_algorithm_must_are_no_bandwidth(sent, backend, outcome):
    """Over gloo: 10 all_reduces of 100 B on two ranks send 2 x 100 B each at least. NVLink is counted by nobody."""
    team = Team(kind="world", index=0, ranks=(0, 1), place=0)
    sweep = Sweep(
        teams=[team.ranks], seconds={0: [1e-3] * 10, 1: [1e-3] * 10}, first_call_s={0: 1.0, 1: 1.0},
        stopped={team.ranks: "most"}, sent_bytes=sent,
    )  # fmt: skip
    spec = Collective(sizes=(100,))
    found = {m.metric.rpartition(".")[2]: m for m in report(spec, 100, team, sweep, backend=backend)}
    assert {found[kind].outcome for kind in ("busbw", "latency")} == {outcome}
    assert found["wrong_elements"].outcome == "ok"
    if outcome == "error":
        assert found["busbw"].reason == "100 B were sent in 10 calls that must send 2,000 B"


# -- CUDA graphs ----------------------------------------------------------------------------------------------------


def test_a_captured_call_is_replayed_and_never_called_again(monkeypatch):
    """A graph on a CPU: capturing calls once and keeps the call; replaying does what was kept."""
    captured: list[Any] = []

    class Graph:
        def replay(self) -> None:
            self.work()

    class Capture:
        def __init__(self, graph: Graph) -> None:
            captured.append(graph)

        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: Any) -> None:
            pass

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", Capture)
    team = Team(kind="world", index=0, ranks=(0, 1), place=0)
    operation = Operation(
        op="all_reduce", team=team, num_elements=4, num_slots=3,
        pattern=Pattern(members=2, dtype=torch.float32, summed=True),
    )  # fmt: skip
    calls = Counter[int]()
    for i, slot in enumerate(operation.slots):
        slot.call = lambda i=i: calls.update([i])
    operation.capture()
    assert calls == {0: 1, 1: 1, 2: 1}
    for graph in captured:
        graph.work = lambda graph=graph: calls.update([10 + captured.index(graph)])
    for slot in operation.slots:
        slot.call()
    assert calls == {0: 1, 1: 1, 2: 1, 10: 1, 11: 1, 12: 1}


# -- the links themselves -------------------------------------------------------------------------------------------


def asked(name: str, **changes: Any) -> list[str]:
    return [spec.tool for spec in tools(dataclasses.replace(load(name), **changes))]


def test_tools_are_asked_for_where_the_cluster_file_has_such_links():
    nvlink = ["symmetric_memory", "nvbandwidth"]
    assert asked("h100-sxm-ndr400") == [*nvlink, *PERFTEST]
    assert asked("h100-sxm-ndr400", nodes=1) == nvlink
    assert asked("h100-ethernet-100g") == nvlink
    assert asked("mi300x") == list(PERFTEST)
    assert asked("local") == []


def test_a_rack_on_one_nvlink_is_one_domain():
    cluster = load("gb200-nvl72")
    spec = next(spec for spec in tools(cluster) if spec.tool == "symmetric_memory")
    place = Place(device="cuda", backend="nccl", nodes=18, ranks_per_node=4)
    assert {m.units for m in spec.emits(place)} == {72 * 71}


def test_what_the_tools_measure_is_expected_of_every_unit():
    plan = plan_of("h100-sxm-ndr400", nodes=4)
    units = {
        (e.metric, e.params["tool"]): e.units for e in plan.expected if e.metric.startswith("links.hardware.")
    }  # fmt: skip
    assert units["links.hardware.latency", "symmetric_memory"] == 4 * 8 * 7
    assert units["links.hardware.latency_p99", "ib_write_lat"] == 4 * 8
    keys = [(e.config, e.metric, params_key(e.params)) for e in plan.expected]
    assert len(set(keys)) == len(keys)
