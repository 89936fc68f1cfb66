"""Plans: parameters, memory and traffic against what torch really does, predictions against published steps."""

import dataclasses
import math
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.training.plan import class_of, count, main, representatives
from benchmarks.training.prediction import Efficiency, Figures, Machine, Passes, predict
from benchmarks.training.traffic import closed_form
from clusters.loader import load
from clusters.physics import Llama
from reference_model.job import Job
from reference_model.layout import Layout
from reference_model.memory import block_activations, local_parameters, memory_of
from reference_model.model import Transformer, initialise
from reference_model.shape import SHAPES, Shape


def job(layout, shape=SHAPES["70b"], **fields):
    return Job(**{"shape": shape, "layout": Layout.parse(layout), "sequence": 8192, "micro_batch": 1, **fields})


def h100():
    return Machine.of(load("h100-sxm-ndr400"))


class TestMemory:
    @pytest.mark.parametrize(
        ("layout", "fields"),
        [
            ("tp8,pp8,dp8", {"micro_batches": 8}),
            ("dp512", {}),
            ("tp4,pp4,dp4,cp2", {"micro_batches": 8, "schedule": "interleaved", "stages_per_rank": 5}),
            ("tp8,pp4,dp16,shard4", {"micro_batches": 8, "schedule": "zbv", "stages_per_rank": 2}),
            ("tp8,pp16,dp7", {"micro_batches": 16}),
        ],
    )
    def test_parameters_of_a_rank_are_those_that_torch_leaves_it(self, layout, fields):
        this = job(layout, **fields)
        counted = [sum(local_parameters(this, stage=s) for s in this.stages_of(r)) for r in range(this.layout.pp)]
        assert [most for most, _ in count(this)] == counted

    def test_ranks_hold_between_them_every_parameter_once(self):
        """Uneven: 128256 rows and 8192 columns over seven shards."""
        this = job("tp8,pp16,dp7", micro_batches=16)
        for (most, least), held in zip(count(this), range(16), strict=True):
            whole = sum(local_parameters(this, stage=s, shards=1) for s in this.stages_of(held))
            assert least < most
            assert 6 * most + least >= whole

    @pytest.mark.parametrize(
        ("layout", "classes"),
        # embedding, between, head; with dp128 the ends are uneven, with dp6 everything is
        [("tp8,pp8,dp8", 3), ("tp8,pp16,dp128", 5), ("tp8,pp4,dp12,shard6", 6), ("pp3,tp2", 3), ("tp8", 1)],
    )
    def test_every_rank_is_in_a_class_that_is_built(self, layout, classes):
        this = job(layout, micro_batches=16)
        built = representatives(this)
        assert len(built) == classes
        assert {class_of(this, rank) for rank in range(this.layout.ranks)} == set(built)

    def test_nothing_is_lost_in_the_cutting(self):
        this = job("tp8,pp8,dp8", micro_batches=8)
        norms = sum((2 * len(this.layers_of(s)) + (s == 7)) * this.shape.dim for s in range(8))  # on every tp rank
        cut = sum(local_parameters(this, stage=s, shards=1) for s in range(8))
        assert 8 * (cut - norms) + norms == this.shape.parameters

    def test_activations_are_what_autograd_keeps_of_a_real_block(self):
        shape = Shape(name="", layers=1, dim=256, heads=8, kv_heads=2, ffn=768, vocab=64)
        model = Transformer(shape)
        initialise(model, seed=0)
        x = torch.randn(2, 64, 256, requires_grad=True)
        places = model.places(64, x)
        known = {t.untyped_storage().data_ptr() for t in (*model.parameters(), places.cos, places.sin)}
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
            model.layers["0"](x, places)
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in kept}
        found = sum(size for place, size in storages.items() if place not in known)
        unit = x.numel() * x.element_size()
        found -= 3 * unit  # only on a CPU: two norms keep a normed copy, and the attention's output is copied once
        # the formula is for two bytes an element, this block has four
        assert found == pytest.approx(2 * block_activations(job("tp1", shape=shape), 128), rel=0.01)

    def test_recomputation_keeps_little(self):
        plain, full = (job("tp8,pp8,dp8", recompute=r, micro_batches=8) for r in ("none", "full"))
        assert memory_of(full, 0, alive=8).activations < memory_of(plain, 0, alive=8).activations / 4

    def test_a_replicated_70b_is_refused_with_what_would_fit(self, capsys):
        code = main(["--dry-run", "--cluster", "h100-512-reference", "--layout", "dp64,shard1", "--batch", "128"])
        shown = capsys.readouterr().out
        assert code == 3
        assert "It does not fit. What would:" in shown
        assert "tokens/s/GPU" in shown.split("What would:")[1]


class TestPrediction:
    @pytest.mark.parametrize(
        ("published", "layout", "fields"),
        [
            # tokens/s/GPU, bf16, sequence 8192: NVIDIA's Llama 3.1 70B recipe, 64 and 2048 H100 (release v25.02.02)
            (1121, "tp4,pp4,cp2,dp2", {"micro_batches": 64, "schedule": "interleaved", "stages_per_rank": 5}),
            (1104, "tp4,pp4,cp2,dp64", {"micro_batches": 64, "schedule": "interleaved", "stages_per_rank": 5}),
            # MosaicML's MPT-70B (64.9 G parameters, no grouped queries): FSDP with recomputation, 128 to 512 H100
            (1058, "dp128", {"micro_batch": 8, "micro_batches": 1, "sequence": 2048, "recompute": "full"}),
            (1035, "dp256", {"micro_batch": 8, "micro_batches": 1, "sequence": 2048, "recompute": "full"}),
            (1007, "dp512", {"micro_batch": 8, "micro_batches": 1, "sequence": 2048, "recompute": "full"}),
        ],
    )
    def test_one_set_of_constants_lands_near_published_steps(self, published, layout, fields):
        mpt = Shape(name="mpt", layers=80, dim=8192, heads=64, kv_heads=64, ffn=21_845, vocab=50_432)
        shape = mpt if fields.get("sequence") == 2048 else SHAPES["70b"]
        assert predict(job(layout, shape=shape, **fields), h100()).tokens_rate == pytest.approx(published, rel=0.2)

    def test_a_faster_machine_is_never_predicted_slower(self):
        base, this = h100(), job("tp8,pp4,dp2", micro_batches=8)
        for figure in ("flops", "memory_bandwidth", "inside", "between"):
            faster = Machine(**{**vars(base), figure: 2 * getattr(base, figure)})
            assert predict(this, faster).step <= predict(this, base).step

    def test_the_traffic_of_fsdp_hsdp_and_ddp_is_what_their_definitions_say(self):
        whole = 4 * SHAPES["70b"].parameters
        found = {
            layout: {(c.name, c.count): c.bytes for c in predict(job(layout, micro_batches=3), h100()).collectives}
            for layout in ("dp64", "dp64,shard8", "dp64,shard1")
        }
        assert found["dp64"] == {("weights", 6): whole // 2, ("gradients", 3): whole}
        assert found["dp64,shard8"] == {**found["dp64"], ("gradients of the copies", 6): whole // 8}
        assert found["dp64,shard1"] == {("gradients of the copies", 6): whole}

    def test_perfect_code_without_traffic_reaches_the_peak(self):
        fast = Machine(**{**vars(h100()), "memory_bandwidth": 1e20})
        perfect = predict(job("dp1"), fast, Efficiency(gemm=1.0, attention=1.0, memory=1.0, link=1.0))
        # flash attention computes its forward products once more in the backward pass: half of 2 / 7 of attention
        assert 0.95 < perfect.mfu < 1.0

    def test_nodes_without_gpus_cannot_be_planned_for(self):
        with pytest.raises(ValueError, match="names no GPU"):
            Machine.of(load("local"))

    def test_two_closed_forms_agree(self):
        s = SHAPES["70b"]
        llama = Llama(layers=s.layers, width=s.dim, ffn=s.ffn, heads=s.heads, kv_heads=s.kv_heads, vocabulary=s.vocab)
        assert llama.parameters == s.parameters
        assert llama.flops_per_token(sequence=8192) == s.flops_per_token(8192)


class TestCommand:
    @pytest.mark.parametrize(
        ("nodes", "layout", "held"), [(64, "tp8,pp8,dp8", "150,130,688"), (2048, "tp8,pp16,dp128", "")]
    )
    def test_a_plan_of_512_and_of_16384_gpus_takes_under_a_minute_and_four_gigabytes(self, nodes, layout, held):
        command = f"-m benchmarks training --dry-run --model 70b --layout {layout} --cluster h100-512-reference"
        command += f" --nodes {nodes}"
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, *command.split()],
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
            timeout=280,
        )
        assert done.returncode == 0, done.stderr
        after = resource.getrusage(resource.RUSAGE_CHILDREN)  # of the processor: other work here does not count
        assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 60
        for what in (held, "pipeline rank 7", "tokens/s/GPU", "Bubble", "Checkpoint 988 GB"):
            assert what in done.stdout
        assert float(done.stdout.split(" with ")[-1].split(" GB")[0]) < 4

    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ("--layout tp3,dp8", "heads 64 is not divisible by tp 3"),
            ("--layout tp16,dp4", "would cross nodes of 8"),
            ("--layout tp8,dp1000", "needs 8000 GPUs and the cluster has 512"),
            ("--layout pp8,dp8 --micro-batches 4", "use 8 or more"),
            ("--layout tp8,dp8 --batch 100", "no multiple of micro-batch"),
            ("", "say --layout"),
            ("--cluster local --layout tp8", "names no GPU"),
        ],
    )
    def test_what_cannot_run_is_refused(self, options, reason, capsys):
        assert main(["--cluster", "h100-512-reference", *options.split()]) == 4
        assert reason in capsys.readouterr().err


NOWHERE = Machine(
    flops=math.nan, memory_bytes=math.nan, memory_bandwidth=1e12, inside=math.nan, between=math.nan, gpus_per_node=8
)
OWN = Figures(
    block=Passes(forward=0.010, inputs=0.012, weights=0.008), head=Passes(forward=0.004, inputs=0.003, weights=0.003),
    again=0.002, last_product=0.001, links={"tp": 1e11, "dp": 1e10, "pp": 1e10}, machine=NOWHERE,
    efficiency=Efficiency(gemm=1.0, attention=1.0, memory=1.0, link=1.0), element=2, bytes={},
)  # fmt: skip


class TestOwnFigures:
    """The prediction that judges a cluster rests on what this run measured; a data sheet's figure would be NaN here."""

    def test_one_rank_worked_by_hand(self):
        one = job("tp1", SHAPES["8b"], micro_batches=4)
        optimizer = 32 * SHAPES["8b"].parameters / 1e12
        assert predict(one, NOWHERE, figures=OWN).step == pytest.approx(4 * (32 * 0.030 + 0.010) + optimizer)

    def test_tensor_parallel_traffic_is_all_that_a_step_sends(self):
        """Of two layers: four collectives each, on the way forward and back; one at each end. Bytes, too."""
        two = job("tp2", dataclasses.replace(SHAPES["8b"], layers=2), micro_batches=3)
        of_tp = [c for c in predict(two, NOWHERE, figures=OWN).collectives if c.axis == "tp"]
        sent = closed_form(two, pp_rank=0, element=2)
        wanted = [sent["tp", name] for name in ("all_gather", "reduce_scatter")]
        assert sum(c.count for c in of_tp) == sum(w.calls for w in wanted) == 3 * 2 * (2 * 4 + 2)
        assert sum(c.count * c.bytes for c in of_tp) == sum(w.bytes for w in wanted)
        without = dataclasses.replace(OWN, links={**OWN.links, "tp": math.inf})
        spent = [predict(two, NOWHERE, figures=f).step for f in (OWN, without)]
        assert spent[0] - spent[1] == pytest.approx(sum(c.seconds for c in of_tp))

    @pytest.mark.parametrize(
        "slower",
        [
            {"block": Passes(forward=0.020, inputs=0.012, weights=0.008)},
            {"head": Passes(forward=0.008, inputs=0.003, weights=0.003)},
            {"machine": dataclasses.replace(NOWHERE, memory_bandwidth=5e11)},
            *({"links": {**OWN.links, axis: OWN.links[axis] / 2}} for axis in OWN.links),
        ],
    )
    def test_each_of_them_counts(self, slower):
        spread = job("tp2,pp2,dp2", SHAPES["8b"], micro_batches=4)
        usual, changed = (predict(spread, f.machine, figures=f).step for f in (OWN, dataclasses.replace(OWN, **slower)))
        assert changed > usual > 0
