"""The reference model in one process: its arithmetic, its layouts, what it refuses, what it computes."""

import itertools
import re
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from reference_model.context import head_tail
from reference_model.job import SCHEDULES, Job, gate_job
from reference_model.layout import Layout
from reference_model.ledger import Ledger
from reference_model.model import Places, Transformer, initialise, rope_angles, rotate
from reference_model.parallel import UnpairedDualPipeV
from reference_model.pipeline import Costs, orders, simulate
from reference_model.shape import SHAPES, Shape, shape_of
from reference_model.tokens import SyntheticTokens

SMALL = Shape(name="small", layers=2, dim=32, heads=4, kv_heads=2, ffn=48, vocab=64)


def small_model(seed=0):
    model = Transformer(SMALL).double()
    initialise(model, seed=seed)
    return model


class TestShape:
    def test_the_70b_numbers_worked_by_hand(self):
        shape = SHAPES["70b"]
        assert shape.block_matmul_parameters == 150_994_944 + 704_643_072  # attention, feed-forward
        assert shape.matmul_parameters == 69_501_714_432
        assert shape.parameters == 70_553_706_496
        assert shape.flops_per_token(8192) == pytest.approx(449.22e9, rel=1e-4)
        assert shape.flops_per_token(8192, causal=False) == pytest.approx(481.43e9, rel=1e-4)
        assert shape.flops_per_token(8192) + shape.recomputed_flops_per_token(8192) == pytest.approx(559.28e9, rel=1e-4)

    @pytest.mark.parametrize("name", SHAPES)
    def test_parameters_are_those_of_the_model_that_is_built(self, name):
        with torch.device("meta"):
            model = Transformer(SHAPES[name].cut(2))
        assert sum(p.numel() for p in model.parameters()) == SHAPES[name].cut(2).parameters

    def test_flops_are_those_that_torch_counts(self):
        model, tokens = small_model(), torch.zeros(3, 16, dtype=torch.long)
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            model(tokens).sum().backward()
        # torch counts attention's full square: the causal half is a convention, not what this kernel does
        assert counter.get_total_flops() == tokens.numel() * SMALL.flops_per_token(16, causal=False)

    def test_a_cut_model_says_so(self):
        assert SHAPES["70b"].cut(4).label == "70b (4 of 80 layers)"
        assert SHAPES["70b"].cut(80).label == "70b"
        with pytest.raises(ValueError, match="must be 1 to 80"):
            SHAPES["70b"].cut(81)

    def test_an_unknown_model_is_refused_with_the_known_ones(self):
        with pytest.raises(ValueError, match="tiny, 8b, 70b, 405b"):
            shape_of("7b")


class TestLayout:
    @given(tp=st.integers(1, 64), pp=st.integers(1, 64), dp=st.integers(1, 64))
    def test_text_and_layout_are_the_same_thing(self, tp, pp, dp):
        layout = Layout(tp=tp, pp=pp, dp=dp)
        assert Layout.parse(str(layout)) == layout
        assert layout.ranks == tp * pp * dp

    @given(st.integers(1, 4096))
    def test_auto_uses_every_rank(self, ranks):
        assert Layout.auto(ranks).ranks == ranks

    def test_auto_exercises_what_the_ranks_allow(self):
        assert [str(Layout.auto(n)) for n in (1, 2, 3, 4, 12)] == [
            "tp1,pp1,dp1", "tp2,pp1,dp1", "tp1,pp1,dp3", "tp2,pp2,dp1", "tp2,pp2,dp3",
        ]  # fmt: skip

    @pytest.mark.parametrize("text", ["", "tp2,tp4", "dp", "tp2;pp2", "tp2,ep2", "tp0", "dp4,shard3"])
    def test_what_is_no_layout_is_refused(self, text):
        with pytest.raises(ValueError, match="layout"):
            Layout.parse(text)

    def test_shard_tells_ddp_hsdp_and_fsdp_apart(self):
        assert [Layout.parse(t).copies for t in ("dp4,shard1", "dp4,shard2", "dp4")] == [4, 2, 1]


def job(layout="tp2,pp2,dp1", shape=SHAPES["tiny"], sequence=128, **fields):
    return Job(shape=shape, layout=Layout.parse(layout), sequence=sequence, **fields)


class TestJob:
    @given(layers=st.integers(1, 130), stages=st.integers(1, 16))
    def test_stages_share_the_layers_evenly_and_lose_none(self, layers, stages):
        spread = job(f"pp{stages}", shape=Shape(name="", layers=layers, dim=8, heads=1, kv_heads=1, ffn=8, vocab=8))
        parts = [list(spread.layers_of(s)) for s in range(stages)]
        assert [layer for part in parts for layer in part] == list(range(layers))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1

    @pytest.mark.parametrize("schedule", SCHEDULES)
    def test_every_stage_is_on_one_rank(self, schedule):
        spread = job("pp4", schedule=schedule, stages_per_rank=1 if schedule in ("gpipe", "1f1b") else 2)
        assert sorted(s for r in range(4) for s in spread.stages_of(r)) == list(range(spread.stages))

    @pytest.mark.parametrize(
        ("broken", "reason"),
        [
            ({"layout": "tp8"}, "kv_heads 4 is not divisible by tp 8"),
            ({"layout": "tp4", "sequence": 126}, "sequence 126 is not divisible by 4"),
            ({"layout": "pp8", "micro_batches": 8}, "leaves stages without one"),
            ({"layout": "pp4", "micro_batches": 3}, "3 micro-batches cannot fill 4 stages; use 4 or more"),
            ({"schedule": "dualpipe"}, "no schedule 'dualpipe': there are gpipe"),
            ({"schedule": "interleaved"}, "needs several stages a rank"),
            ({"stages_per_rank": 2}, "has one stage a rank"),
            ({"schedule": "zbv", "stages_per_rank": 2, "micro_batches": 3}, "3 micro-batches cannot fill 4 stages"),
            ({"schedule": "zero-bubble", "stages_per_rank": 2, "compile": "inductor"}, "splits the backward pass"),
            ({"schedule": "zbv", "stages_per_rank": 2, "recompute": "full"}, "up to 11 forward passes"),
            ({"layout": "tp2,dp2,shard1"}, "DDP under tensor parallelism gives no gradients"),
            ({"layout": "pp2,dp2,shard1"}, "DDP in a pipeline keeps the gradients"),
            ({"schedule": "interleaved", "stages_per_rank": 2, "micro_batches": 5}, "use a multiple of 2, not 5"),
            ({"micro_batch": 0}, "micro_batch must be 1 or more"),
        ],
    )  # fmt: skip
    def test_what_cannot_run_is_refused_with_the_reason(self, broken, reason):
        with pytest.raises(ValueError, match=reason):
            job(**broken).check()

    @pytest.mark.parametrize("layout", ["tp1", "tp2,pp2,dp1", "tp4,dp2", "dp4,shard2", "dp4,shard1"])
    def test_the_small_job_of_a_proof_fits_the_same_layout(self, layout):
        gate_job(job(layout)).check()


def pipeline(p, m, schedule, v, **costs):
    this = job(f"pp{p}", shape=SHAPES["70b"], micro_batches=m, schedule=schedule, stages_per_rank=v)
    return this, simulate(this, orders(this), Costs.even(this.stages, **costs))


class TestPipeline:
    @pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (4, 16), (8, 32)])
    @pytest.mark.parametrize(("schedule", "v"), [("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("looped-bfs", 2)])
    def test_the_bubble_is_the_textbooks(self, p, m, schedule, v):
        assert pipeline(p, m, schedule, v)[1].bubble == pytest.approx((p - 1) / (v * m + p - 1))

    @pytest.mark.parametrize("schedule", ["zero-bubble", "zbv", "dualpipev"])
    @pytest.mark.parametrize(("p", "m", "bubble"), [(4, 8, 0.0588), (8, 32, 0.0352)])
    def test_splitting_the_backward_pass_shrinks_it(self, schedule, p, m, bubble):
        assert pipeline(p, m, schedule, 2)[1].bubble == pytest.approx(bubble, abs=1e-4)

    def test_a_result_is_sent_before_anything_else_is_done(self):
        """torch's own DualPipeV sends what the forward of a pair made only after the backward beside it."""
        this, _ = pipeline(4, 8, "dualpipev", 2)
        ran = get_schedule_ops(UnpairedDualPipeV, 4, 8, 2, with_comms=True)
        for planned, actions in zip(orders(this), ran, strict=True):
            words = list(map(str, actions))
            work = [word for word in words if re.fullmatch(r"\d+[FBIW]\d+", word)]
            assert work == [f"{a.stage}{a.kind}{a.micro_batch}" for a in planned]
            sent = [(before, word) for before, word in itertools.pairwise(words) if "SEND_" in word]
            assert len(sent) >= 8
            assert [pair for pair in sent if pair[0].replace("I", "B") != pair[1].replace("SEND_", "")] == []

    @pytest.mark.parametrize(
        ("schedule", "v", "alive"),
        [
            ("gpipe", 1, (16, 16, 16, 16)),
            ("1f1b", 1, (4, 3, 2, 1)),
            ("interleaved", 2, (11, 9, 7, 5)),
            ("zbv", 2, (8, 8, 8, 8)),
        ],
    )
    def test_how_many_micro_batches_are_alive(self, schedule, v, alive):
        assert pipeline(4, 16, schedule, v)[1].alive == alive

    @settings(deadline=None, max_examples=25)
    @given(data=st.data(), schedule=st.sampled_from(SCHEDULES), p=st.sampled_from([2, 4]), rounds=st.integers(2, 4))
    def test_every_action_is_done_once_and_the_step_holds_the_busiest_rank(self, data, schedule, p, rounds):
        v = 1 if schedule in ("gpipe", "1f1b") else 2
        this, _ = pipeline(p, p * rounds, schedule, v)
        plan = orders(this)
        forwards = [a for rank in plan for a in rank if a.kind == "F"]
        backwards = [a for rank in plan for a in rank if a.kind in "BW"]
        assert len(forwards) == len(set(forwards)) == len(backwards) == this.stages * this.micro_batches
        cost = st.lists(st.floats(0.1, 10.0), min_size=this.stages, max_size=this.stages).map(tuple)
        costs = Costs(forward=data.draw(cost), inputs=data.draw(cost), weights=data.draw(cost))
        timeline = simulate(this, plan, costs)
        assert timeline.step >= max(timeline.busy)
        assert timeline.step <= sum(timeline.busy) + 1e-9

    def test_a_slow_hop_lengthens_the_step(self):
        this, _ = pipeline(4, 8, "1f1b", 1)
        costs = Costs.even(4)
        far = Costs(forward=costs.forward, inputs=costs.inputs, weights=costs.weights, hop=0.5)
        assert simulate(this, orders(this), far).step > simulate(this, orders(this), costs).step

    def test_orders_that_wait_for_each_other_are_an_error(self):
        this, _ = pipeline(2, 2, "1f1b", 1)
        backwards_first = [sorted(rank, key=lambda a: a.kind == "F") for rank in orders(this)]
        with pytest.raises(ValueError, match="waits for itself"):
            simulate(this, backwards_first, Costs.even(2))


class TestLedger:
    def test_spans_of_one_name_add_up_and_clear_forgets_them(self):
        ledger = Ledger(torch.device("cpu"))
        for _ in range(2):
            with ledger.span("nap"):
                time.sleep(0.01)
        assert len(ledger.seconds()["nap"]) == 2
        assert min(ledger.seconds()["nap"]) >= 0.01
        ledger.clear()
        assert ledger.seconds() == {}


class TestModel:
    def test_a_token_sees_no_later_token(self):
        model, tokens = small_model(), torch.arange(16)[None] % SMALL.vocab
        changed = tokens.clone()
        changed[0, 10] = 63
        one, two = model(tokens), model(changed)
        assert torch.equal(one[0, :10], two[0, :10])
        assert not torch.equal(one[0, 10:], two[0, 10:])

    def test_positions_matter_only_relative_to_each_other(self):
        """Rotary scores depend on the distance of two tokens: rotating both by the same amount changes nothing."""

        def at(position):
            angles = rope_angles(torch.tensor([position]), 8, 10_000.0)
            return Places(cos=angles.cos(), sin=angles.sin())

        q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)
        score = [(rotate(q, at(i)) * rotate(k, at(i - 5))).sum() for i in (7, 50)]
        assert torch.allclose(score[0], score[1], rtol=1e-12)

    def test_stages_in_a_row_are_the_whole_model(self):
        tokens = torch.arange(8)[None]
        parts = [
            Transformer(SMALL, layers=[0], last=False).double(),
            Transformer(SMALL, layers=[1], first=False).double(),
        ]
        for part in parts:
            initialise(part, seed=0)
        assert torch.equal(parts[1](parts[0](tokens)), small_model()(tokens))

    def test_another_seed_is_another_model(self):
        assert torch.equal(small_model(0).head.weight, small_model(0).head.weight)
        assert not torch.equal(small_model(0).head.weight, small_model(1).head.weight)


class TestContext:
    @given(size=st.integers(1, 8), piece=st.integers(1, 8))
    def test_every_token_is_on_one_rank_and_the_causal_work_is_equal(self, size, piece):
        length = 2 * size * piece
        parts = [head_tail(length, size=size, index=i) for i in range(size)]
        assert sorted(torch.cat(parts).tolist()) == list(range(length))
        assert len({(part + 1).sum().item() for part in parts}) == 1


class TestTokens:
    data = SyntheticTokens(vocab=50, sequence=16, seed=3)

    def test_rows_do_not_depend_on_who_asks(self):
        whole, _ = self.data.rows(step=2, rows=range(8))
        part, _ = self.data.rows(step=2, rows=range(3, 5))
        assert torch.equal(whole[3:5], part)

    def test_targets_are_the_next_tokens(self):
        tokens, targets = self.data.rows(step=0, rows=range(4))
        assert torch.equal(tokens[:, 1:], targets[:, :-1])
        assert tokens.min() >= 0
        assert targets.max() < 50

    def test_steps_and_rows_differ(self):
        tokens, _ = self.data.rows(step=0, rows=range(2))
        later, _ = self.data.rows(step=1, rows=range(2))
        assert not torch.equal(tokens[0], tokens[1])
        assert not torch.equal(tokens, later)
