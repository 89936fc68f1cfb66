"""The plan of a checkpoint is exact: every byte of every parameter is saved by exactly one rank."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.checkpoint.shards import RANDOM_STATE_BYTES, rank_shards, stage_parameters, total_bytes
from benchmarks.checkpoint.spec import Checkpoint
from benchmarks.spec import Place, from_config, to_config
from clusters.physics import checkpoint_bytes
from reference_model.layout import Layout
from reference_model.shape import SHAPES

layouts = st.builds(
    lambda tp, pp, dp, shard: Layout(tp=tp, pp=pp, dp=dp, shard=shard if shard and dp % shard == 0 else 0),
    tp=st.sampled_from([1, 2, 4]), pp=st.integers(1, 4), dp=st.integers(1, 6), shard=st.integers(0, 3),
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(layout=layouts, contents=st.sampled_from(["weights", "mixed", "fp32"]))
def test_the_ranks_together_save_every_byte_once(layout: Layout, contents: str):
    covered: dict[str, int] = defaultdict(int)
    regions: dict[str, list[tuple]] = defaultdict(list)
    for rank in range(layout.ranks):
        for shard in rank_shards(SHAPES["tiny"], layout, rank, contents):
            if shard.saved_here:
                covered[shard.name] += math.prod(shard.shape)
                regions[shard.name].append((shard.offset, shard.shape, shard.whole))
    for name, parts in regions.items():
        assert covered[name] == math.prod(parts[0][2])
        for (offset, shape, _), (other, extent, _) in itertools.combinations(parts, 2):
            apart = any(a + n <= b or b + m <= a for a, n, b, m in zip(offset, shape, other, extent, strict=True))
            assert apart, f"{name}: two ranks save the same part"


@settings(max_examples=40, deadline=None)
@given(layout=layouts, contents=st.sampled_from(["weights", "mixed", "fp32"]))
def test_the_total_is_the_sum_of_what_ranks_save(layout: Layout, contents: str):
    shards = [s for r in range(layout.ranks) for s in rank_shards(SHAPES["tiny"], layout, r, contents)]
    assert sum(s.bytes for s in shards if s.saved_here) == total_bytes(SHAPES["tiny"], layout, contents)


@pytest.mark.parametrize(
    ("model", "contents", "size"),
    [
        ("70b", "weights", 141_107_412_992),
        ("70b", "mixed", 987_751_890_944),
        ("70b", "fp32", 846_644_477_952),
        ("8b", "mixed", 8_030_261_248 * 14),
        ("405b", "mixed", 405_853_388_800 * 14),
    ],
)
def test_the_parameters_of_known_models_have_known_sizes(model: str, contents: str, size: int):
    layout = Layout(tp=8, pp=2, dp=4)
    rest = 8 + layout.ranks * RANDOM_STATE_BYTES
    assert total_bytes(SHAPES[model], layout, contents) - rest == size
    assert checkpoint_bytes(parameters=SHAPES[model].parameters, contents=contents) == size


@pytest.mark.parametrize("model", sorted(SHAPES))
def test_the_stages_hold_every_parameter_once(model: str):
    for pp in (1, 3, 4):
        names = [p.name for stage in range(pp) for p in stage_parameters(SHAPES[model], Layout(pp=pp), stage)]
        assert len(names) == len(set(names)) == 9 * SHAPES[model].layers + 3


def test_one_rank_of_the_70b_layout_by_hand():
    shards = {s.name: s for s in rank_shards(SHAPES["70b"], Layout(tp=8, pp=4, dp=16), 9, "mixed")}
    wq = shards["optimizer.master.layers.0.attention.wq.weight"]  # rank 9: tp 1, dp 1, stage 0
    assert wq.shape == (8192 // 8 // 16, 8192)
    assert wq.offset == (1024 + 64, 0)
    w2 = shards["model.layers.0.ffn.w2.weight"]
    assert (w2.shape, w2.offset) == ((512, 3584), (512, 3584))
    assert not shards["model.layers.0.ffn_norm.weight"].saved_here  # tensor parallel rank 0 saves it
    assert "model.layers.20.attention.wq.weight" not in shards  # of the next stage


def test_uneven_rows_leave_the_last_ranks_with_less():
    layout = Layout(dp=5)
    rows = [
        sum(
            s.shape[0]
            for s in rank_shards(SHAPES["tiny"], layout, rank, "weights")
            if s.name.endswith("0.ffn_norm.weight")
        )
        for rank in range(5)
    ]
    assert rows == [52, 52, 52, 52, 48]


def test_what_tensor_parallelism_does_not_divide_is_refused():
    with pytest.raises(ValueError, match="tp3 does not divide"):
        rank_shards(SHAPES["tiny"], Layout(tp=3), 0, "weights")


def test_the_spec_says_what_it_will_write_and_survives_the_plan():
    spec, place = Checkpoint(contents="weights", repetitions=3), Place(ranks_per_node=4)
    assert spec.bytes_written(place) == 9 * spec.state_bytes(place)
    assert from_config(to_config(spec, place)) == (spec, place)
    assert {m.params.get("bytes", spec.state_bytes(place)) for m in spec.emits(place)} == {spec.state_bytes(place)}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": "7b"}, "there are tiny"),
        ({"contents": "all"}, "there are weights"),
        ({"layout": "tp2pp2"}, "write it as"),
        ({"repetitions": 0}, "at least one"),
        ({"writers": ("fast",)}, "there are stock"),
    ],
)
def test_a_spec_that_cannot_be_saved_is_refused(fields: dict, message: str):
    with pytest.raises(ValueError, match=message):
        Checkpoint(**fields)


def test_a_layout_of_fewer_ranks_is_refused_and_one_of_more_is_a_part_of_the_job():
    with pytest.raises(ValueError, match="needs 2 ranks, there are 4"):
        Checkpoint(layout="tp2").emits(Place(ranks_per_node=4))
    assert Checkpoint(layout="tp8").partial(Place(ranks_per_node=4))
    assert not Checkpoint(layout="tp4").partial(Place(ranks_per_node=4))
