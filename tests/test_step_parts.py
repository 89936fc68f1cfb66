"""What a step's account is made of, without ranks: a GPU's timeline, closed forms of traffic, float8 products."""

import json
import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from benchmarks.measurement import Metric, Subject
from benchmarks.spec import Place
from benchmarks.training import trace
from benchmarks.training.account import Account, crossing
from benchmarks.training.calibration import element_wise
from benchmarks.training.observation import Observed
from benchmarks.training.run import refuse_what_cannot_be_read_or_multiplied, refuse_what_cannot_fit
from benchmarks.training.spec import Training
from benchmarks.training.timing import Timing
from benchmarks.training.traffic import closed_form
from reference_model.float8 import Float8Linear, scaled, use_float8, why_not
from reference_model.job import Job
from reference_model.layout import Layout
from reference_model.memory import block_activations, kept_activations
from reference_model.model import Transformer
from reference_model.packed import PackedTokens, pack
from reference_model.shape import SHAPES, Shape

NARROW = Shape(name="narrow", layers=2, dim=192, heads=8, kv_heads=8, ffn=256, vocab=64)


def kernel(name, begin, end, **arguments):
    return {"ph": "X", "cat": "kernel", "name": name, "ts": begin, "dur": end - begin, "args": arguments}


AXES = {(0, 1): "tp", "7": "tp", (0, 2): "dp", "9": "dp"}


class TestTimeline:
    """Microseconds; tp is the group of ranks 0 and 1, dp that of 0 and 2."""

    def read(self, *events):
        parts = trace.read(events, axes=AXES)
        return {
            name: ({k: round(v * 1e6, 6) for k, v in part.items()} if isinstance(part, dict) else round(part * 1e6, 6))
            for name, part in vars(parts).items()
        }

    def tp(self, begin, end):
        ranks = {"Process Group Ranks": "[0, 1]", "Process Group Name": "7"}
        return kernel("ncclDevKernel_AllGather_RING_LL", begin, end, **ranks)

    def dp(self, begin, end):  # a long list of ranks is cut short: the name is left
        ranks = {"Process Group Ranks": "[0, 2, ...", "Process Group Name": "9"}
        return kernel("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", begin, end, **ranks)

    def test_communication_behind_compute_is_hidden(self):
        parts = self.read(kernel("gemm", 0, 10), self.dp(2, 8))
        assert parts == {"compute": 10, "exposed": {"dp": 0}, "flown": {"dp": 6}, "idle": 0}

    def test_what_sticks_out_is_exposed(self):
        parts = self.read(kernel("gemm", 0, 10), self.tp(8, 15), kernel("gemm", 15, 20))
        assert parts == {"compute": 15, "exposed": {"tp": 5}, "flown": {"tp": 7}, "idle": 0}

    def test_time_is_given_once_where_two_axes_overlap(self):
        parts = self.read(kernel("gemm", 0, 2), self.tp(2, 6), self.dp(4, 10))
        assert parts["exposed"] == {"tp": 4, "dp": 4}
        assert parts["flown"] == {"tp": 4, "dp": 6}

    def test_gaps_are_idle_and_streams_are_joined(self):
        parts = self.read(kernel("a", 0, 2), kernel("b", 1, 4), kernel("c", 9, 10))
        assert (parts["compute"], parts["idle"]) == (5, 5)

    def test_an_unknown_group_is_kept_and_host_events_do_not_count(self):
        unknown = kernel("ncclDevKernel_SendRecv", 0, 3)
        host = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 100}
        assert self.read(unknown, host, {"ph": "M", "name": "process_name"})["exposed"] == {"other": 3}

    def test_no_kernel_is_no_time(self):
        assert self.read() == {"compute": 0, "exposed": {}, "flown": {}, "idle": 0}

    def test_the_longest_kernels_are_named(self):
        rows = trace.kernels([kernel("gemm", 0, 4), kernel("add", 4, 5), kernel("gemm", 5, 9)], most=1)
        assert [(name, count, round(s * 1e6)) for name, count, s in rows] == [("gemm", 2, 8)]


class TestNetworkShare:
    def timing(self, *flown, **exposed):
        """Two ranks of one observed step each, with so much communication on their timelines."""
        seen = [[Observed(seconds=1.0, sent={}, exposed=exposed, flown=each)] for each in flown]
        spans = [[{"passes": [1.0], "optimizer": [1.0]}] for _ in flown]
        return Timing(
            job=job("dp2"), times=[[2.0] for _ in flown], spans=spans, losses=[1.0], norms=[1.0], observed=seen,
            peak_bytes=[0 for _ in flown],
        )  # fmt: skip

    def account(self, timing):
        account = object.__new__(Account)
        account.timing, account.job = timing, timing.job
        account.world = SimpleNamespace(size=2, nodes=("a", "b"), all=Subject)
        return account.network_share(Metric(name="training.network_share", unit="1", better="lower"))

    def test_a_profiler_that_records_nothing_has_not_seen_that_nobody_waits(self):
        found = self.account(self.timing({"dp": 0.2}, {}))
        assert found.outcome == "error"
        assert found.reason.startswith("rank 1 on b (1 of 2 ranks): no communication along dp")

    def test_time_that_no_axis_claims_is_the_network_s(self):
        found = self.account(self.timing({"other": 0.4}, {"other": 0.4}, other=0.4))
        assert found.samples == pytest.approx([0.2])  # 0.4 of the passes, which are half of the step

    def test_where_only_a_pipeline_crosses_the_stages_own_clocks_tell(self):
        assert self.timing({}, {}).unseen({"pp"}) == []


def job(layout, **fields):
    layout = Layout.parse(layout)
    return Job(**{"shape": SHAPES["70b"], "layout": layout, "sequence": 8192, "micro_batch": 1, **fields})


class TestTraffic:
    """By hand, for the 70B shape; tests/test_layouts.py counts what really happens."""

    def test_tensor_parallel(self):
        sent = closed_form(job("tp8", micro_batches=1), pp_rank=0, element=2)
        assert sent["tp", "all_gather"] == (4 * 80 + 2, (4 * 80 + 2) * 2 * 8192 * 8192)
        assert sent["tp", "all_gather"] == sent["tp", "reduce_scatter"]

    def test_fsdp(self):
        sent = closed_form(job("dp64", micro_batches=3), pp_rank=0, element=2)
        whole = SHAPES["70b"].parameters
        assert sent["dp", "reduce_scatter"].bytes == 3 * 4 * whole
        assert sent["dp", "all_gather"].bytes == 3 * 2 * (2 * whole - 8192 * (128_256 + 1))

    def test_a_pipeline_sends_what_the_next_rank_receives(self):
        this = job("pp4,dp2", micro_batches=8, schedule="zbv", stages_per_rank=2)
        sent = [closed_form(this, pp_rank=r, element=2) for r in range(4)]
        assert [s["pp", "send"].calls for s in sent] == [16, 32, 32, 16]  # the last rank holds two neighbours
        assert sum(s["pp", "send"].bytes for s in sent) == sum(s["pp", "recv"].bytes for s in sent)

    def test_one_rank_sends_nothing(self):
        assert closed_form(job("tp1", micro_batches=2), pp_rank=0, element=2) == {}


class TestElementWise:
    def test_a_block_moves_about_what_its_operations_add_up_to(self):
        """By hand in tokens x dim: two norms 18, rotation 10, SwiGLU 6 x ffn/dim, residuals 6, a copy or two."""
        this = job("tp1", shape=SHAPES["tiny"], sequence=128)
        moved = element_wise(this, torch.device("cpu"), torch.float32)
        unit = 4 * 128 * 256
        assert 45 < moved["forward"] / unit < 60
        assert 2 < moved["backward"] / moved["forward"] < 2.5

    def test_tensor_parallelism_cuts_it(self):
        whole, half = (
            element_wise(job(layout, shape=SHAPES["tiny"], sequence=128), torch.device("cpu"), torch.float32)
            for layout in ("tp1", "tp2")
        )
        assert half["forward"] == whole["forward"] / 2

    def test_a_compiled_block_moves_less(self):
        plain, fused = (
            element_wise(job("tp1", shape=SHAPES["tiny"], sequence=64, compile=c), torch.device("cpu"), torch.float32)
            for c in ("", "inductor")
        )
        assert fused["forward"] < plain["forward"]


class TestFloat8:
    def test_products_differ_by_rounding_only(self):
        torch.manual_seed(0)
        x = torch.randn(2, 32, 64, dtype=torch.bfloat16, requires_grad=True)
        layer = nn.Linear(64, 48, bias=False).bfloat16()
        layer.__class__ = Float8Linear
        y, gradient = layer(x), torch.randn(2, 32, 48, dtype=torch.bfloat16)
        y.backward(gradient)
        weight, g = layer.weight.detach().float(), gradient.float()
        for got, want in (
            (y, x.detach().float() @ weight.T),
            (x.grad, g @ weight),
            (layer.weight.grad, g.flatten(0, 1).T @ x.detach().float().flatten(0, 1)),
        ):
            error = ((got.float() - want).norm() / want.norm()).item()
            assert 1e-3 < error < 0.08, "float8 has 3 bits of fraction forward and 2 backward"

    def test_scales_use_the_whole_range_and_keep_what_is_no_number(self):
        low, scale = scaled(torch.tensor([[1e-6, -4e-6]]), torch.float8_e4m3fn)
        assert low.float().abs().max() == torch.finfo(torch.float8_e4m3fn).max
        assert low.float()[0, 1] * scale == pytest.approx(-4e-6)
        assert math.isnan((scaled(torch.tensor([[1.0, math.nan]]), torch.float8_e4m3fn)[0].float()).sum())
        assert scaled(torch.zeros(1, 2), torch.float8_e4m3fn)[0].float().sum() == 0

    def test_only_the_blocks_are_changed_and_names_stay(self):
        with torch.device("meta"):
            model = Transformer(SHAPES["tiny"])
        names = [name for name, _ in model.named_parameters()]
        use_float8(model)
        changed = [name for name, m in model.named_modules() if isinstance(m, Float8Linear)]
        assert len(changed) == 7 * SHAPES["tiny"].layers
        assert "head" not in changed
        assert [name for name, _ in model.named_parameters()] == names

    @pytest.mark.parametrize(("capability", "reason"), [((8, 0), "8.0"), ((8, 9), ""), ((9, 0), "")])
    def test_a_gpu_without_it_is_told_so(self, capability, reason):
        assert reason in why_not(torch.device("cuda"), capability)
        assert bool(why_not(torch.device("cuda"), capability)) == bool(reason)

    def test_a_cpu_is_refused_before_and_after_ranks_start(self):
        assert "use bf16" in why_not(torch.device("cpu"))
        with pytest.raises(ValueError, match="use bf16"):
            Training(dtype="fp8").check(Place(ranks_per_node=4))
        Training(dtype="fp8").check(Place(device="cuda", ranks_per_node=4))

    @pytest.mark.parametrize(
        ("layout", "fields", "reason"),
        [
            ("tp8", {"shape": NARROW}, "dim 192 by tp 8 is no multiple"),
            ("dp8", {"compile": "inductor"}, "with compiled blocks is not proven"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, layout, fields, reason):
        with pytest.raises(ValueError, match=reason):
            job(layout, fp8=True, **{"sequence": 64, **fields}).check()


class TestRecomputation:
    def test_selective_keeps_less_than_all_and_more_than_the_input(self):
        full, selective, none = (
            kept_activations(job("tp8", recompute=how), 8192) for how in ("full", "selective", "none")
        )
        assert full < selective < none == block_activations(job("tp8"), 8192)

    def test_it_is_refused_where_the_backward_pass_is_split(self):
        with pytest.raises(ValueError, match="once for the inputs"):
            job("pp4", schedule="zbv", stages_per_rank=2, micro_batches=8, recompute="selective").check()


def test_the_metrics_of_a_place_follow_from_what_it_can_have(tmp_path):
    names = {m.name for m in Training().emits(Place(ranks_per_node=4))}
    assert "training.network_share" not in names
    two = {m.name for m in Training().emits(Place(nodes=2, ranks_per_node=2))}
    assert two - names == {"training.network_share"}
    file = {m.name for m in Training(data=str(tmp_path / "t")).emits(Place(ranks_per_node=4))}
    assert file - names == {"training.data_share"}
    assert json.dumps([m.params for m in Training().emits(Place(ranks_per_node=4))])


class TestTiming:
    """Four ranks, tp2 x dp2, one step of a second, of which 0.8 s are passes."""

    def timing(self, *, exposed=({"tp": 0.08, "dp": 0.16},) * 4, passes=0.8):
        spans = {"data": [0.1], "passes": [passes], "optimizer": [0.05], "report": [0.03]}
        return Timing(
            job=job("tp2,dp2", shape=SHAPES["tiny"], sequence=64, micro_batches=1), times=[[1.0]] * 4,
            spans=[[spans]] * 4, losses=[], norms=[], peak_bytes=[0] * 4,
            observed=[[Observed(seconds=0.8, sent={}, exposed=own)] for own in exposed],
        )  # fmt: skip

    def test_shares_add_up_and_each_part_is_where_it_belongs(self):
        split = self.timing().split
        parts = {"compute": 0.56, "tp": 0.08, "dp": 0.16, "data": 0.1, "optimizer": 0.05, "report": 0.03, "other": 0.02}
        assert split == pytest.approx(parts)
        assert sum(split.values()) == pytest.approx(1.0)

    def test_the_network_has_the_share_of_axes_that_cross_nodes(self):
        assert self.timing().network({"dp"}) == pytest.approx([0.16])
        assert self.timing().network({"tp", "dp"}) == pytest.approx([0.24])
        assert self.timing().network(set()) == [0.0]

    def test_who_waits_least_is_whom_the_others_wait_for(self):
        exposed = [{"tp": 0.3}, {"tp": 0.3}, {"tp": 0.1}, {"tp": 0.3}]
        share, rank = self.timing(exposed=exposed).straggling
        assert rank == 2
        assert share == pytest.approx(1 - (0.5 * 3 + 0.7) / 4 / 0.7)

    def test_even_ranks_wait_for_nobody(self):
        assert self.timing().straggling[0] == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("layout", "nodes", "axes"),
    [
        ("tp2,dp2", "aabb", ["dp"]),
        ("tp4", "aabb", ["tp"]),
        ("tp2,pp2", "aabb", ["pp"]),
        ("tp2,pp2,dp2", "aaaabbbb", ["pp"]),
        ("tp2,pp2,dp2", "aabbccdd", ["dp", "pp"]),
        ("cp2,tp2", "aaaa", []),
    ],
)
def test_axes_that_cross_nodes(layout, nodes, axes):
    assert crossing(Layout.parse(layout), nodes) == axes


class TestRefusedByRanks:
    """What only a rank can know ends all of them with the same words."""

    def world(self, said=()):
        return SimpleNamespace(
            device=torch.device("cuda"),
            nodes=("n1", "n2"),
            gather=lambda value: [value, *said] if said else [value] * 2,
        )

    def test_weights_that_do_not_fit_the_smallest_gpu(self, monkeypatch):
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=80e9))
        with pytest.raises(ValueError, match=r"needs 1\d\d\d GB a GPU .* --dry-run --search says what fits"):
            refuse_what_cannot_fit(job("dp64,shard1"), self.world())
        refuse_what_cannot_fit(job("tp8,pp8,dp8", micro_batches=8), self.world())

    def test_a_token_file_that_one_rank_cannot_read(self, tmp_path):
        this = job("dp2", shape=SHAPES["tiny"], sequence=64, data=str(tmp_path / "absent"))
        with pytest.raises(ValueError, match=r"rank 0 on n1: token file .* every rank must see it"):
            refuse_what_cannot_be_read_or_multiplied(this, self.world())
        pack(tmp_path / "absent", [torch.arange(2000)], vocab=2048)
        with pytest.raises(ValueError, match="rank 1 on n2: token file"):
            refuse_what_cannot_be_read_or_multiplied(this, self.world(said=("token file x",)))
        refuse_what_cannot_be_read_or_multiplied(this, self.world())

    def test_a_token_file_that_is_another_one_on_some_node(self, tmp_path):
        (tmp_path / "n1").mkdir()
        prints = []
        for path, count in ((tmp_path / "t", 2000), (tmp_path / "n1" / "t", 2000), (tmp_path / "n1" / "u", 2001)):
            pack(path, [torch.arange(count) % 1999], vocab=2048)
            tokens = PackedTokens.open(str(path), vocab=2048, sequence=64, batch=1)
            prints.append(tokens.fingerprint())
            tokens.close()
        assert prints[0] == prints[1] != prints[2]
        world = self.world()
        world.gather = lambda value: [prints[2] if value == prints[0] else "", value]
        this = job("dp2", shape=SHAPES["tiny"], sequence=64, data=str(tmp_path / "t"))
        with pytest.raises(ValueError, match=r"rank 1 on n2: token file .* is another one there than on n1"):
            refuse_what_cannot_be_read_or_multiplied(this, world)

    def test_a_gpu_without_float8(self, monkeypatch):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
        with pytest.raises(ValueError, match=r"rank 0 on n1: this GPU \(compute capability 8.0\)"):
            refuse_what_cannot_be_read_or_multiplied(job("tp1", fp8=True), self.world())
