"""The collectives benchmark: what it promises it emits, its data are exact, and planted faults do not pass."""

from __future__ import annotations

import math
import random
import statistics
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.collectives.operations import SUMMED, result
from benchmarks.collectives.pattern import BLOCK, DTYPES, EXACT, PERIOD, SUM, Pattern
from benchmarks.collectives.repetition import Repetition, median_interval
from benchmarks.collectives.run import run
from benchmarks.collectives.spec import ITEM_BYTES, OPS, SPLIT, Collective
from benchmarks.spec import Place, from_config, to_config
from tests.ranks import on_ranks

QUICK: dict[str, Any] = {"budget_s": 0.02, "min_repetitions": 3, "max_repetitions": 40}


# -- the spec -------------------------------------------------------------------------------------------------------


@given(
    op=st.sampled_from(OPS), dtype=st.sampled_from(sorted(ITEM_BYTES)), members=st.integers(2, 600),
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


def test_sizes_that_become_equal_are_measured_once():
    spec = Collective(op="all_gather", sizes=(1, 8, 16, 17))
    assert spec.sweep(4) == [4, 8]


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
    ],
)
def test_a_wrong_spec_says_the_cure(fields, cure):
    with pytest.raises(ValueError, match=cure):
        Collective(**fields)


def test_a_collective_of_one_rank_is_refused():
    with pytest.raises(ValueError, match="at least 2 ranks"):
        Collective().emits(Place(ranks_per_node=1))


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
    for member in order:
        total += rows[member].to(DTYPES[dtype])
    assert pattern.wrong(total[None], rows=[SUM], start=0, iteration=0).count == 0


def test_the_bound_of_each_float_is_its_last_exact_whole_number():
    for dtype, exact in EXACT.items():
        if dtype.is_floating_point and dtype is not torch.float64:
            assert int(torch.tensor(float(exact)).to(dtype)) == exact
            assert int(torch.tensor(float(exact + 1), dtype=torch.float64).to(dtype)) != exact + 1


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
    for members, dtype in ((2, "fp32"), (300, "bf16"), (4, "int8")):
        pattern = Pattern(members=members, dtype=DTYPES[dtype], summed=True)
        buffer = torch.empty(1000, dtype=DTYPES[dtype])
        pattern.fill(buffer, row=SUM, start=0, iteration=4)
        assert pattern.wrong(buffer[None], rows=[SUM], start=0, iteration=5).count > 100


# -- what belongs where: against the definition, worked out the long way ----------------------------------------------


@given(op=st.sampled_from(OPS), members=st.integers(2, 6), share=st.integers(1, 5), root=st.integers(0, 5))
def test_segments_say_what_the_operation_is_defined_to_do(op, members, share, root):
    root %= members
    n = share * members
    data = {m: [f"{m}.{i}" for i in range(n)] for m in range(members)}
    total = [f"sum.{i}" for i in range(n)]
    for rank in range(members):
        defined = {
            "all_reduce": total,
            "reduce": total if rank == root else [],
            "broadcast": data[root],
            "reduce_scatter": total[rank * share : (rank + 1) * share],
            "all_gather": [x for m in range(members) for x in data[m][:share]],
            "all_to_all": [x for m in range(members) for x in data[m][rank * share : (rank + 1) * share]],
        }[op]
        said = [
            f"{'sum' if row == SUM else row}.{segment.offset + i}"
            for segment in result(op, rank=rank, members=members, num_elements=n, root=root)
            for row in segment.rows
            for i in range(segment.count)
        ]
        assert said == defined


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


def sweep_everything(world):
    """Every operation, three dtypes, odd sizes; what was yielded against what was promised."""
    got = []
    for op in OPS:
        for dtype in ("fp32", "bf16", "int64"):
            spec = Collective(op=op, dtype=dtype, sizes=(8, 40_000), root=1, **QUICK)
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
    """One rank's call takes 20 ms longer each time: the others' own durations are short, the result is not."""

    def work(world):
        original = dist.broadcast

        def slow(*args, **kwargs):
            work = original(*args, **kwargs)
            if world.rank == 1:
                time.sleep(0.02)
            return work

        dist.broadcast = slow
        try:
            spec = Collective(op="broadcast", sizes=(8,), budget_s=0.0, min_repetitions=3, max_repetitions=3)
            return list(run(spec, world))
        finally:
            dist.broadcast = original

    latency = next(m for m in on_ranks(2, work)[0] if m.metric.endswith("latency"))
    assert min(latency.samples) >= 0.02
    fast, late = latency.columns["median_s"]
    assert fast < 0.02 <= late


@pytest.mark.slow
def test_bus_bandwidth_is_what_the_formula_says():
    """all_reduce over 3 ranks: busbw = size / time x 2 (3 - 1) / 3, for every single repetition."""

    def work(world):
        return list(run(Collective(op="all_reduce", sizes=(30_000,), **QUICK), world))

    busbw, _, latency = on_ranks(3, work)[0]
    for rate, seconds in zip(busbw.samples, latency.samples, strict=True):
        assert rate == pytest.approx(30_000 / seconds * 4 / 3)
    assert statistics.median(latency.samples) > 0


def test_sums_are_named_once():
    assert set(SUMMED) < set(OPS)
