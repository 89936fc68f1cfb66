"""The collectives benchmark: what it promises it emits, its data are exact, and planted faults do not pass."""

from __future__ import annotations

import math
import random
import sys
import time
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.collectives import run as measuring
from benchmarks.collectives.layout import SUM, SUMMED, away, must_travel, result, shares
from benchmarks.collectives.pattern import BLOCK, DTYPES, EXACT, PERIOD, Pattern
from benchmarks.collectives.repetition import Repetition, median_interval
from benchmarks.collectives.run import run
from benchmarks.collectives.spec import ITEM_BYTES, OPS, SPLIT, Collective
from benchmarks.collectives.spread import spread
from benchmarks.collectives.teams import members
from benchmarks.collectives.wire import sent_bytes
from benchmarks.measurement import params_key
from benchmarks.spec import Place, from_config, to_config
from clusters.loader import load
from suites.test_collectives import CORE, sweeps
from tests.ranks import on_ranks

MOVING = [op for op in OPS if op != "barrier"]
QUICK: dict[str, Any] = {"budget_s": 0.02, "min_repetitions": 3, "max_repetitions": 40}


# -- the spec -------------------------------------------------------------------------------------------------------


@given(
    op=st.sampled_from(MOVING), dtype=st.sampled_from(sorted(ITEM_BYTES)), members=st.integers(2, 600),
    size=st.integers(1, 1 << 34),
)  # fmt: skip
def test_a_size_becomes_whole_equal_shares_and_never_less_than_asked(op, dtype, members, size):
    spec = Collective(op=op, dtype=dtype, sizes=(size,))
    count = spec.elements(size, members)
    assert count * ITEM_BYTES[dtype] >= size
    step = ITEM_BYTES[dtype] * (members if op in SPLIT else 1)
    assert count * ITEM_BYTES[dtype] - size < step
    if op in SPLIT:
        assert count % members == 0


def test_params_name_the_size_that_was_asked_for_whatever_the_number_of_ranks():
    for ranks in (2, 24, 72):
        metrics = Collective(op="all_gather", sizes=(8 << 30, 8)).emits(Place(ranks_per_node=ranks))
        assert {m.params["bytes"] for m in metrics} == {8, 8 << 30}


def test_the_config_brings_the_spec_back():
    spec = Collective(op="all_to_all", sizes=(8, 4096), dtype="bf16")
    assert from_config(to_config(spec, Place(ranks_per_node=4)))[0] == spec


@pytest.mark.parametrize(
    ("fields", "cure"),
    [
        ({"op": "all_reduced"}, "there are all_reduce, all_gather"),
        ({"dtype": "float"}, "there are fp32, bf16"),
        ({"sizes": ()}, "positive bytes"),
        ({"sizes": (8, 0)}, "positive bytes"),
        ({"min_repetitions": 0}, "between 1 and"),
        ({"group": "rack"}, "there are world, node, rail"),
        ({"op": "reduce", "in_place": True}, "all_gather and reduce_scatter only"),
        ({"op": "all_gather", "uneven": True}, "all_to_all only"),
        ({"op": "barrier", "deferred": True}, "blocks the host"),
        ({"op": "send_recv", "deferred": True}, "leave deferred out"),
    ],
)
def test_a_wrong_spec_says_the_cure(fields, cure):
    with pytest.raises(ValueError, match=cure):
        Collective(**fields)


@pytest.mark.parametrize(
    ("fields", "place", "cure"),
    [
        ({}, Place(ranks_per_node=1), "at least 2 ranks"),
        ({"group": "node"}, Place(nodes=4), "a node has 1 here"),
        ({"group": "rail"}, Place(ranks_per_node=4), "a rail has 1 here"),
        ({"op": "broadcast", "root": 2}, Place(ranks_per_node=2), "root 2 is no member"),
        ({"group": "node", "root": 2}, Place(nodes=2, ranks_per_node=2), "root 2 is no member of a node of 2"),
        ({"graph": True}, Place(ranks_per_node=2), "needs GPUs"),
        ({"dtype": "fp8_e4m3"}, Place(ranks_per_node=2), "gloo moves no fp8"),
    ],
)
def test_what_cannot_run_there_is_refused_before_the_launch(fields, place, cure):
    with pytest.raises(ValueError, match=cure):
        Collective(**fields).emits(place)


def test_every_metric_of_a_sweep_has_a_key_of_its_own():
    place = Place(nodes=3, ranks_per_node=4)
    for group, units in (("world", 1), ("node", 3), ("rail", 1)):
        metrics = Collective(group=group, sizes=(8, 4096)).emits(place)
        keys = {(m.name, params_key(m.params)) for m in metrics}
        assert len(keys) == len(metrics) == 2 * 3 * (4 if group == "rail" else 1)
        assert {place.units(m.per) for m in metrics} == {units}


def test_what_is_measured_another_way_is_never_compared_with_the_usual_way():
    usual = Collective(op="all_gather").params(1024)
    for fields in ({"in_place": True}, {"deferred": True}, {"graph": True}, {"together": False}):
        assert Collective(op="all_gather", **fields).params(1024) != usual


# -- the data -------------------------------------------------------------------------------------------------------


@given(dtype=st.sampled_from(sorted(DTYPES)), members=st.integers(2, 700), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_every_partial_sum_is_exact_in_the_dtype(dtype, members, seed):
    exact = EXACT[DTYPES[dtype]]
    pattern = Pattern(members=members, dtype=DTYPES[dtype], summed=True, seed=seed)
    rows = torch.stack([pattern._numbers(member) for member in range(members)])
    assert rows.min() >= 0
    assert rows.sum(0).max() <= exact  # whole numbers >= 0: no partial sum is above the full one
    assert torch.equal(rows, rows.to(DTYPES[dtype]).to(torch.int64))
    order = random.Random(seed).sample(range(members), members)
    total = torch.zeros(PERIOD, dtype=DTYPES[dtype])
    wide = torch.float32 if dtype.startswith("fp8") else DTYPES[dtype]  # torch adds no fp8 on a CPU
    for member in order:
        total = (total.to(wide) + rows[member].to(wide)).to(DTYPES[dtype])  # rounds after every step
    assert pattern.wrong(total[None], rows=[SUM], start=0, iteration=0).count == 0


def test_the_bound_of_each_float_is_its_last_exact_whole_number():
    for dtype, exact in EXACT.items():
        if dtype.is_floating_point and dtype is not torch.float64:
            assert int(torch.tensor(float(exact)).to(dtype)) == exact
            assert int(torch.tensor(float(exact + 1), dtype=torch.float64).to(dtype)) != exact + 1
            assert all(int(torch.tensor(float(i)).to(dtype)) == i for i in range(min(exact, 300) + 1))


@given(
    count=st.integers(1, 3 * PERIOD), start=st.integers(0, 2 * PERIOD), iteration=st.integers(0, 10_000),
    at=st.integers(0, 3 * PERIOD),
)  # fmt: skip
def test_one_changed_element_is_found_and_named(count, start, iteration, at):
    pattern = Pattern(members=3, dtype=torch.float32, summed=True)
    buffer = torch.empty(count)
    pattern.fill(buffer, row=1, start=start, iteration=iteration)
    assert pattern.wrong(buffer[None], rows=[1], start=start, iteration=iteration).count == 0
    right = buffer[at % count].item()
    buffer[at % count] += 1
    wrong = pattern.wrong(buffer[None], rows=[1], start=start, iteration=iteration)
    assert wrong.count == 1
    assert wrong.first == {"element": at % count, "expected": right, "got": right + 1, "iteration": iteration}


def test_a_buffer_longer_than_a_block_is_compared_to_its_end():
    pattern = Pattern(members=2, dtype=torch.uint8, summed=False)
    buffer = torch.empty(2 * BLOCK + 5, dtype=torch.uint8)
    pattern.fill(buffer, row=0, start=7, iteration=3)
    assert pattern.wrong(buffer[None], rows=[0], start=7, iteration=3).count == 0
    buffer[-1] ^= 1
    buffer[BLOCK] ^= 1
    wrong = pattern.wrong(buffer[None], rows=[0], start=7, iteration=3)
    assert (wrong.count, wrong.first["element"]) == (2, BLOCK)


def test_minus_zero_and_nan_are_wrong():
    pattern = Pattern(members=2, dtype=torch.float32, summed=False)
    zero = int((pattern._numbers(0) == 0).nonzero()[0]) if (pattern._numbers(0) == 0).any() else None
    buffer = torch.empty(PERIOD)
    pattern.fill(buffer, row=0, start=0, iteration=0)
    buffer[0] = math.nan
    if zero is not None:
        buffer[zero] = -0.0
    assert pattern.wrong(buffer[None], rows=[0], start=0, iteration=0).count == 1 + (zero is not None)


def test_the_data_of_the_last_iteration_are_wrong_in_this_one():
    for count, dtype in ((2, "fp32"), (300, "bf16"), (4, "int8")):
        pattern = Pattern(members=count, dtype=DTYPES[dtype], summed=True)
        buffer = torch.empty(1000, dtype=DTYPES[dtype])
        pattern.fill(buffer, row=SUM, start=0, iteration=4)
        assert pattern.wrong(buffer[None], rows=[SUM], start=0, iteration=5).count > 100


# -- what belongs where: against the definition, worked out the long way ----------------------------------------------


@given(op=st.sampled_from(MOVING), members=st.integers(2, 6), share=st.integers(1, 5), root=st.integers(0, 5))
def test_segments_say_what_the_operation_is_defined_to_do(op, members, share, root):
    root %= members
    n = share * members
    data = {m: [f"{m}.{i}" for i in range(n)] for m in range(members)}
    total = [f"{SUM}.{i}" for i in range(n)]
    for rank in range(members):
        mine = slice(rank * share, (rank + 1) * share)
        first_shares = [x for m in range(members) for x in data[m][:share]]
        defined = {
            "all_reduce": total,
            "reduce": total if rank == root else [],
            "broadcast": data[root],
            "reduce_scatter": total[mine],
            "all_gather": first_shares,
            "gather": first_shares if rank == root else [],
            "scatter": data[root][mine],
            "all_to_all": [x for m in range(members) for x in data[m][mine]],
            "send_recv": data[(rank - 1) % members],
        }[op]
        assert spelled_out(result(op, rank=rank, members=members, num_elements=n, root=root)) == defined


def spelled_out(segments):
    return [f"{row}.{s.offset + i}" for s in segments for row in s.rows for i in range(s.count)]


@given(members=st.integers(2, 9), n=st.integers(1, 2000))
def test_uneven_shares_lose_nothing_and_give_every_rank_as_much(members, n):
    sent = [shares(rank=r, members=members, num_elements=n) for r in range(members)]
    assert all(sum(row) == n for row in sent)
    assert all(sum(column) == n for column in zip(*sent, strict=True))
    arrived = [
        x
        for rank in range(members)
        for s in result("all_to_all", rank=rank, members=members, num_elements=n, root=0, uneven=True)
        for x in spelled_out([s])
    ]
    assert sorted(arrived) == sorted(f"{m}.{i}" for m in range(members) for i in range(n))


def test_uneven_shares_by_hand():
    assert shares(rank=0, members=4, num_elements=100) == [10, 20, 30, 40]
    assert shares(rank=1, members=4, num_elements=100) == [40, 10, 20, 30]
    assert away(members=4) == pytest.approx(0.9)


def test_what_must_travel_by_hand():
    """Four ranks, 1200 bytes: an all_reduce cannot send less than 3 x 1200 in and 3 x 1200 out."""
    said = {op: must_travel(op, members=4, size=1200) for op in MOVING}
    assert said == {
        "all_reduce": 7200, "all_gather": 3600, "reduce_scatter": 3600, "all_to_all": 3600, "broadcast": 3600,
        "reduce": 3600, "gather": 900, "scatter": 900, "send_recv": 4800,
    }  # fmt: skip
    assert must_travel("all_to_all", members=4, size=1200, uneven=True) == pytest.approx(4320)


@given(
    op=st.sampled_from([op for op in MOVING if op not in SUMMED]), members=st.integers(2, 7), share=st.integers(1, 9)
)
def test_what_must_travel_is_what_the_definition_gives_to_others(op, members, share):
    n = members * share
    given_by_others = sum(
        s.count
        for rank in range(members)
        for s in result(op, rank=rank, members=members, num_elements=n, root=0)
        for row in s.rows
        if row != rank
    )
    assert must_travel(op, members=members, size=n) == pytest.approx(given_by_others)


# -- who works together -------------------------------------------------------------------------------------------


@given(nodes=st.integers(1, 6), per_node=st.integers(1, 8))
def test_nodes_and_rails_are_two_ways_to_cut_the_world(nodes, per_node):
    names = [f"n{rank // per_node}" for rank in range(nodes * per_node)]
    by_node, by_rail = members("node", names), members("rail", names)
    for cut in (by_node, by_rail, members("world", names)):
        assert sorted(rank for ranks in cut for rank in ranks) == list(range(len(names)))
    assert all(len(set(a) & set(b)) == 1 for a in by_node for b in by_rail)


def test_rails_over_unequal_nodes_are_refused():
    with pytest.raises(RuntimeError, match="a 2, b 1"):
        members("rail", ["a", "a", "b"])


# -- when to stop ---------------------------------------------------------------------------------------------------


def test_the_interval_of_the_median_covers_it_as_often_as_it_says():
    random_ = random.Random(5)
    for n in (6, 9, 20, 51):
        inside = 0
        for _ in range(2000):
            low, high = median_interval([random_.lognormvariate(0, 1) for _ in range(n)])
            inside += low <= 1.0 <= high  # the median of this distribution is 1
        assert inside / 2000 > 0.94


def test_hand_worked_interval():
    assert median_interval([5.0] * 5) == (-math.inf, math.inf)
    assert median_interval(list(range(1, 7))) == (1, 6)
    assert median_interval(list(range(1, 101))) == (40, 61)


def test_the_rule_names_why_it_stops():
    rule = Repetition(fewest=6, most=50, budget_s=1.0)
    assert rule.stopped([1.0] * 5, 99.0) == ""
    assert rule.stopped([1.0] * 6, 0.0) == "precise"
    noisy = [1.0, 2.0] * 5
    assert rule.stopped(noisy, 0.5) == ""
    assert rule.stopped(noisy, 1.0) == "budget"
    assert rule.stopped(noisy * 5, 0.5) == "most"


# -- on real ranks --------------------------------------------------------------------------------------------------


OTHER_DTYPES = ("fp16", "fp64", "int8", "uint8", "int32", "int64")
USUAL = tuple({"op": op} for op in MOVING)
VARIANTS: tuple[dict[str, Any], ...] = (
    *({"op": op, "dtype": "bf16", "sizes": (30_000,)} for op in MOVING),
    *({"op": "all_reduce", "dtype": dtype, "sizes": (3_000,)} for dtype in OTHER_DTYPES),
    {"op": "barrier"},
    {"op": "all_to_all", "uneven": True},
    {"op": "all_gather", "in_place": True},
    {"op": "reduce_scatter", "in_place": True, "deferred": True},
    {"op": "broadcast", "deferred": True},
)


def sweep_everything(world):
    """Every operation, dtype and variant, odd sizes; what was yielded against what was promised."""
    got = []
    for variant in USUAL + (VARIANTS if world.size > 2 else ()):
        spec = Collective(**{"sizes": (8, 40_000), "root": 1, **QUICK, **variant})
        measurements = list(run(spec, world))
        promised = [(m.name, m.params) for m in spec.emits(world.place)] if world.is_first else []
        assert [(m.metric, m.params) for m in measurements] == promised
        got += measurements
    return got


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])
def test_every_operation_is_right_and_complete(ranks):
    by_rank = on_ranks(ranks, sweep_everything)
    assert not any(by_rank[1:])  # results of the world come from rank 0 only
    for m in by_rank[0]:
        assert all(math.isfinite(s) for s in m.samples)
        assert m.columns["rank"] == list(range(ranks))
        if m.metric.endswith("wrong_elements"):
            assert m.samples == (0.0,)
            assert m.notes["verified"] >= QUICK["min_repetitions"]
        else:
            assert len(m.samples) >= QUICK["min_repetitions"]
            assert min(m.samples) > 0
        if m.params.get("bytes", 0) > 8 and sys.platform == "linux":
            assert m.notes["sent_bytes"] >= m.notes["must_travel_bytes"] > 0


def as_nodes(world, per_node):
    """The same ranks on pretended nodes."""
    nodes = tuple(f"node{rank // per_node}" for rank in range(world.size))
    place = replace(world.place, nodes=world.size // per_node, ranks_per_node=per_node)
    return replace(world, nodes=nodes, node=nodes[world.rank], place=place)


def sweep_groups(world):
    world = as_nodes(world, 2)
    return [
        m
        for group in ("node", "rail")
        for together in (True, False)
        for op in ("all_reduce", "gather", "send_recv", "barrier")
        for m in run(Collective(op=op, group=group, together=together, root=1, sizes=(64,), **QUICK), world)
    ]


@pytest.mark.slow
def test_nodes_and_rails_each_have_their_own_result():
    found = on_ranks(4, sweep_groups)[0]
    place = Place(nodes=2, ranks_per_node=2)
    for group, cut in (("node", [[0, 1], [2, 3]]), ("rail", [[0, 2], [1, 3]])):
        for together in (True, False):
            for op in ("all_reduce", "gather", "send_recv", "barrier"):
                spec = Collective(op=op, group=group, together=together, root=1, sizes=(64,))
                for metric in spec.emits(place):
                    units = [m for m in found if (m.metric, m.params) == (metric.name, metric.params)]
                    assert len(units) == place.units(metric.per)
                    for m in units:
                        index = metric.params["rail"] if group == "rail" else int(m.subject.node.removeprefix("node"))
                        assert m.columns["rank"] == cut[index]
                        assert m.subject.ranks == 2
    assert {m.samples for m in found if m.metric.endswith("wrong_elements")} == {(0.0,)}


def spoil(world, op, rank, nth):
    """Measure with a library whose nth call changes one element of one rank's result."""
    name = {"all_reduce": "all_reduce", "all_gather": "all_gather_into_tensor"}[op]
    original, calls = getattr(dist, name), [0]

    def lying(output, *args, **kwargs):
        work = original(output, *args, **kwargs)
        calls[0] += 1
        if calls[0] == nth and world.rank == rank:
            output[3] += 1
        return work

    setattr(dist, name, lying)
    try:
        return list(run(Collective(op=op, sizes=(4096,), **QUICK), world))
    finally:
        setattr(dist, name, original)


@pytest.mark.slow
def test_one_wrong_element_on_one_rank_is_counted_and_named():
    def work(world):
        return spoil(world, "all_reduce", rank=1, nth=33) + spoil(world, "all_gather", rank=0, nth=2)

    found = [m for m in on_ranks(2, work)[0] if m.metric.endswith("wrong_elements")]
    for m, rank, iteration in zip(found, (1, 0), (32, 1), strict=True):
        assert m.samples == (1.0,)
        assert m.columns["wrong_elements"][rank] == 1
        first = m.notes["first_wrong"]
        assert (first["rank"], first["element"], first["iteration"]) == (rank, 3, iteration)
        assert first["got"] == first["expected"] + 1


@pytest.mark.slow
def test_an_iteration_takes_as_long_as_the_slowest_rank():
    """One rank's call takes longer each time: the others' own durations are short, the result is not."""
    late_s = 0.1

    def work(world):
        original = dist.broadcast

        def slow(*args, **kwargs):
            work = original(*args, **kwargs)
            if world.rank == 1:
                time.sleep(late_s)
            return work

        dist.broadcast = slow
        try:
            spec = Collective(op="broadcast", sizes=(4 << 20,), budget_s=0.0, min_repetitions=3, max_repetitions=3)
            return list(run(spec, world))
        finally:
            dist.broadcast = original

    busbw = on_ranks(2, work)[0][0]
    assert max(busbw.samples) <= (4 << 20) / late_s
    fast, late = busbw.columns["median_s"]
    assert fast < late_s <= late


def check_formula(measurements, factor):
    """Bus bandwidth of every repetition against size / time x factor."""
    busbw, _, latency = measurements
    for rate, seconds in zip(busbw.samples, latency.samples, strict=True):
        assert rate == pytest.approx(busbw.notes["moved_bytes"] / seconds * factor)


@pytest.mark.slow
def test_bus_bandwidth_is_what_the_formula_says():
    """all_reduce over 3 ranks: busbw = size / time x 2 (3 - 1) / 3. With n for n - 1 the check fails."""

    def work(world):
        right = list(run(Collective(op="all_reduce", sizes=(30_000,), **QUICK), world))
        measuring.bus_factor = lambda _, n: 2 * n / n
        return right, list(run(Collective(op="all_reduce", sizes=(30_000,), **QUICK), world))

    right, planted = on_ranks(3, work)[0]
    check_formula(right, 4 / 3)
    with pytest.raises(AssertionError):
        check_formula(planted, 4 / 3)


@pytest.mark.slow
def test_a_call_that_is_not_waited_for_gives_wrong_elements():
    """The planted fault looks 1000 times faster than the machine; the data give it away."""

    def work(world):
        original, started = dist.all_reduce, []

        def hasty(*args, **kwargs):
            started.append(original(*args, **{**kwargs, "async_op": True}))

        dist.all_reduce = hasty
        try:
            spec = Collective(op="all_reduce", sizes=(32 << 20,), budget_s=0.0, min_repetitions=1)
            measured = list(run(spec, world))
        finally:
            for each in started:
                each.wait()
            dist.all_reduce = original
        return measured

    busbw, wrong = on_ranks(2, work)[0]
    assert wrong.samples[0] > 0
    assert "first_wrong" in busbw.notes


@pytest.mark.slow
def test_the_first_call_is_no_sample():
    def work(world):
        original, calls = dist.all_reduce, [0]

        def lazy(*args, **kwargs):
            calls[0] += 1
            if calls[0] == 1:
                time.sleep(0.3)
            return original(*args, **kwargs)

        dist.all_reduce = lazy
        try:
            return list(run(Collective(op="all_reduce", sizes=(8,), **QUICK), world))
        finally:
            dist.all_reduce = original

    latency = on_ranks(2, work)[0][-1]
    assert latency.notes["first_call_s"] >= 0.3
    assert max(latency.samples) < 0.3


@pytest.mark.slow
def test_a_barrier_that_lets_others_through_is_caught():
    def work(world):
        original, control = dist.barrier, world.control
        dist.barrier = lambda group=None: original(group=group) if group is control else None
        try:
            return list(run(Collective(op="barrier", **QUICK), world))
        finally:
            dist.barrier = original

    wrong = on_ranks(2, work)[0][0]
    assert wrong.metric == "collectives.barrier.wrong_elements"
    assert wrong.samples[0] > 0
    assert wrong.notes["first_wrong"]["came"] < wrong.notes["first_wrong"]["of"] == 2


# -- how the times are spread -----------------------------------------------------------------------------------------


def test_percentiles_appear_with_the_samples_that_carry_them():
    assert set(spread([1.0] * 99)) == {"min", "p50", "mad", "cv"}
    assert set(spread([1.0] * 100)) == {"min", "p50", "p95", "mad", "cv"}
    assert set(spread([1.0] * 500)) == {"min", "p50", "p95", "p99", "mad", "cv"}


def test_spread_by_hand():
    found = spread([float(i) for i in range(1, 501)])
    assert found == {"min": 1.0, "p50": 250.5, "p95": 475.0, "p99": 495.0, "mad": 125.0, "cv": 0.576}


def test_bytes_sent_are_read_from_both_kinds_of_counters(tmp_path):
    assert sent_bytes(tmp_path) is None
    (tmp_path / "proc/net").mkdir(parents=True)
    row = " {}: 11 1 0 0 0 0 0 0 {} 2 0 0 0 0 0 0\n"
    (tmp_path / "proc/net/dev").write_text("head\nhead\n" + row.format("lo", 100) + row.format("eth0", 23))
    assert sent_bytes(tmp_path) == 123
    port = tmp_path / "sys/class/infiniband/mlx5_0/ports/1/counters"
    port.mkdir(parents=True)
    (port / "port_xmit_data").write_text("1000\n")
    assert sent_bytes(tmp_path) == 4123


def test_sums_are_named_once():
    assert set(SUMMED) < set(OPS)


# -- what the suites ask for ----------------------------------------------------------------------------------------


def test_this_machine_gets_the_six_core_operations_over_all_ranks():
    asked = sweeps(load("local"))
    assert [spec.op for spec in asked] == list(CORE)
    assert {spec.group for spec in asked} == {"world"}


def test_a_cluster_gets_every_operation_every_node_and_every_rail():
    cluster = load("h100-sxm-ndr400")
    asked = sweeps(cluster)
    assert {spec.op for spec in asked if spec.group == "world"} == set(OPS)
    assert {spec.op for spec in asked if spec.group == "node"} == set(CORE)
    assert {(spec.op, spec.together) for spec in asked if spec.group == "rail"} == {
        (op, together) for op in ("all_reduce", "send_recv") for together in (True, False)
    }
    place = Place(device="cuda", backend="nccl", nodes=cluster.nodes, ranks_per_node=cluster.gpus_per_node)
    keys = [(to_config(spec, place).id, m.name, params_key(m.params)) for spec in asked for m in spec.emits(place)]
    assert len(set(keys)) == len(keys)


def test_a_setting_of_the_cluster_file_reaches_every_sweep_and_its_time_out():
    cluster = replace(
        load("h100-sxm-ndr400"), settings={"collectives": {"sizes": [8, 1 << 33, 1 << 34], "dtype": "fp16"}}
    )
    asked = sweeps(cluster)
    assert {spec.dtype for spec in asked} == {"fp16"}
    assert {spec.sizes for spec in asked if spec.group == "world"} == {(8, 1 << 33, 1 << 34)}
    assert {spec.sizes for spec in asked if spec.group != "world"} == {(1 << 33, 1 << 34)}
    alone = [spec for spec in asked if not spec.together]
    assert min(spec.limit_s for spec in alone) > max(spec.limit_s for spec in asked if spec.together)
