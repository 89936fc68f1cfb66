"""The plan: what is expected never depends on what is selected, and every place is one launch."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks.collectives.spec import Collective
from benchmarks.gemm.spec import Gemm
from benchmarks.inventory import InstalledGpu
from benchmarks.spec import BENCHMARKS, Place, from_config, load_spec, to_config
from benchmarks.training.spec import Training
from clusters.loader import load
from suites.needs import SUITES, Check, checks, needs
from suites.plan import make_plan, metrics, places
from suites.planview import render
from suites.test_checkpoint import SLOWEST, state

GPU = InstalledGpu(index=0, name="NVIDIA H100 80GB HBM3", serial="1", uuid="GPU-1", memory_bytes=80 << 30, driver="1")


@pytest.fixture
def local():
    return load("local")


def check(*specs, name="suites/test_x.py::test_x"):
    return Check(test=name, build=lambda _: list(specs))


@pytest.mark.parametrize("suite", SUITES)
def test_every_suite_has_a_plan_on_this_machine(local, suite):
    plan = make_plan(local, suite, checks(suite), [])
    assert plan.configs and plan.expected and plan.launches == 1
    assert {e.config for e in plan.expected} == {c.id for c in plan.configs}
    assert plan.worst_case_s >= sum(c.limit_s for c in plan.configs)


def test_no_gpu_means_cpu_ranks_over_gloo(local):
    device, world = places(local, [])
    assert device == world == Place(device="cpu", backend="gloo", nodes=1, ranks_per_node=4)


def test_one_gpu_measures_devices_on_it_and_the_world_on_gloo(local):
    device, world = places(local, [GPU])
    assert device == Place(device="cuda", backend="gloo", nodes=1, ranks_per_node=1)
    assert world == Place(device="cpu", backend="gloo", nodes=1, ranks_per_node=4)
    plan = make_plan(local, "acceptance", [check(Gemm(), Collective(op="all_reduce"))], [GPU])
    assert [c.place["device"] for c in plan.configs] == ["cuda", "cpu", "cpu"], "the CPU's own GEMM is there for ratios"
    assert plan.launches == 2 and plan.sku == GPU.name


def test_several_gpus_are_one_nccl_rank_each(local):
    device, world = places(local, [GPU] * 8)
    assert device == world == Place(device="cuda", backend="nccl", nodes=1, ranks_per_node=8)


@pytest.mark.parametrize(
    ("name", "number", "said"),
    [
        ("NVIDIA H200", 8, r"of h100-sxm, this machine has NVIDIA H200: .*--cluster h200-sxm-ndr400,.*\"h200-sxm\""),
        ("NVIDIA H100 80GB", 8, r"unknown GPU product 'NVIDIA H100 80GB' .*hardware.toml"),
        (GPU.name, 7, r"has 8 GPUs a node, this machine shows 7: more ranks than GPUs; .*gpus_per_node"),
        (GPU.name, 9, r"shows 9: some GPUs would not be tested; .*CUDA_VISIBLE_DEVICES, or correct gpus_per_node"),
    ],
)
def test_a_machine_with_other_gpus_than_its_file_says_is_refused(name, number, said):
    cluster = load("h100-sxm-ndr400", nodes=1)
    assert places(cluster, [GPU] * 8)[0].device == "cuda"
    gpus = [*[GPU] * (number - 1), dataclasses.replace(GPU, name=name)]
    with pytest.raises(ValueError, match=said):
        places(cluster, gpus)


def test_what_will_be_slow_though_it_was_asked_for_is_said_before_anything_starts():
    cluster = dataclasses.replace(load("local"), nodes=2, ranks_per_node=2)
    inside, across = Training(layout="tp2,dp2"), Training(layout="tp4", allow_tp_across_nodes=True)
    plan = make_plan(cluster, "acceptance", [check(Gemm(), inside, across)], [])
    (warning,) = plan.warnings
    assert "training: tensor parallel groups of 4 ranks cross nodes of 2" in warning
    assert f"warning: {warning}" in render(plan)


def test_configs_are_grouped_by_place_so_that_each_is_launched_once(local):
    plan = make_plan(local, "acceptance", [check(Collective(op="all_reduce"), Gemm(), Collective(op="reduce"))], [GPU])
    kinds = [c.place["device"] for c in plan.configs]
    assert kinds == sorted(kinds, key=kinds.index)


def test_two_checks_of_one_spec_measure_it_once(local):
    plan = make_plan(local, "acceptance", [check(Gemm(), name="a"), check(Gemm(), name="b")], [])
    assert len(plan.configs) == 1 and plan.needed_by["a"] == plan.needed_by["b"]
    assert plan.of(["a"]) == plan.of(["b"]) == list(plan.configs) and not plan.of([])


def test_a_config_comes_back_as_its_spec_and_place():
    spec, place = Collective(op="all_reduce", sizes=(8, 64)), Place(ranks_per_node=2, env=("NCCL_ALGO=Ring",))
    assert from_config(to_config(spec, place)) == (spec, place)


def test_the_id_of_a_config_tells_settings_and_place_but_not_the_time_out():
    ids = {to_config(Gemm(shapes=shapes), Place(ranks_per_node=n)).id for shapes in (("64",), ("128",)) for n in (1, 2)}
    assert len(ids) == 4
    assert to_config(Gemm(limit_s=1.0), Place()).id == to_config(Gemm(limit_s=9.0), Place()).id


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_field_of_a_spec_can_be_said_on_the_command_line(name):
    import benchmarks.__main__ as command

    parser = command._parser()
    required = ["--op", "all_reduce"] if name == "collectives" else []
    fields = vars(parser.parse_args([name, *required]))
    spec = {k: v for k, v in fields.items() if k not in ("benchmark", "device", "group_timeout")}
    assert load_spec(name)(**spec).benchmark == name


def test_metrics_of_all_suites_are_known_whatever_suite_runs(local):
    known = metrics(local, [])
    assert known["gemm.flops"] == ("FLOP/s", "higher")
    assert {e.metric for e in make_plan(local, "smoke", checks("smoke"), []).expected} <= set(known)


def test_needs_refuses_an_unknown_suite():
    with pytest.raises(ValueError, match="acceptance"):
        needs(lambda _: Gemm(), suites=("acceptence",))


def test_a_suite_without_checks_is_refused(local):
    with pytest.raises(ValueError, match="--suite"):
        make_plan(local, "node", [], [])


def test_a_module_that_skips_itself_is_refused(tmp_path, monkeypatch):
    folder = tmp_path / "skipping"
    folder.mkdir()
    (folder / "test_zz.py").write_text("import pytest\npytest.skip('not today', allow_module_level=True)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises((ValueError, pytest.skip.Exception)) as caught:  # a skip let through would skip this test
        checks("smoke", folder)
    assert isinstance(caught.value, ValueError)
    assert "skipping/test_zz.py skips itself (not today)" in str(caught.value)


def test_a_check_that_asks_for_nothing_is_refused(local):
    with pytest.raises(ValueError, match="measures nothing"):
        make_plan(local, "acceptance", [check()], [])


@pytest.mark.parametrize("name", ["h100-sxm-ndr400", "gb200-nvl72", "h100-512-reference"])
def test_a_checkpoint_has_time_for_the_bytes_that_it_moves(name):
    """1.01 TB written and 0.67 TB read in 120 s would be 14 GB/s of any storage: more than it is asked for."""
    cluster = load(name)
    spec, place = state(cluster), Place(nodes=cluster.nodes, ranks_per_node=cluster.gpus_per_node)
    accepted = 2 * SLOWEST if name != "h100-512-reference" else 33e9  # of a contract: its 30 s for 988 GB
    assert spec.bytes_written(place) / spec.limit_s < accepted
    assert state(dataclasses.replace(cluster, settings={"checkpoint": {"limit_s": 9.0}})).limit_s == 9.0
