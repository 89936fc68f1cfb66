"""How fast the reference model is beside a known one, what its timing costs, and how well bubbles are predicted.

    make bench                                     # the peer needs: pip install transformers
    pytest tests/bench_training.py -s

Peers alternate step by step in one process and are compared by the median of paired ratios: a busy machine
slows both. The bubbles are of stages that sleep, so that two cores suffice for four ranks. Numbers are printed,
not asserted.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from tabulate import tabulate
from torch import Tensor, nn

from benchmarks.training.timing import Timing
from benchmarks.world import World
from reference_model.job import Job
from reference_model.layout import Layout
from reference_model.ledger import Ledger
from reference_model.parallel import Grid, Stage, build_schedule
from reference_model.pipeline import Costs, orders, simulate
from reference_model.shape import SHAPES, Shape
from reference_model.trainer import Trainer
from tests.ranks import on_ranks

SHAPE = Shape(name="peer", layers=4, dim=512, heads=8, kv_heads=4, ffn=1536, vocab=8192)
ROUNDS = 7
NAP_S = 0.06  # what is done between two actions takes a millisecond or two: it must not count for much
NAPPING_STEPS = 3
LIMIT_S = 300.0


def job() -> Job:
    """One micro-batch of two sequences of 256 tokens."""
    return Job(shape=SHAPE, layout=Layout(), sequence=256, micro_batch=2, micro_batches=1)


@pytest.fixture
def trainer():
    """Our trainer on one rank."""
    Grid.open.cache_clear()
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
    yield Trainer(job(), Grid.open(Layout(), "cpu"), torch.device("cpu"), dtype=torch.float32)
    dist.destroy_process_group()


def test_a_step_beside_hugging_face(benchmark, trainer):
    """Same shape, same weights, same tokens, same clipping; the peer with the fused optimizer and with its default."""
    transformers = pytest.importorskip("transformers", reason="the peer needs: pip install transformers")
    peers = {name: peer(transformers, trainer, fused=fused) for name, fused in (("fused", True), ("foreach", False))}
    taken: dict[str, list[float]] = {name: [] for name in (*peers, "ours")}

    def peers_first() -> None:
        for name, step in peers.items():
            taken[name].append(seconds(step))

    benchmark.pedantic(
        lambda: taken["ours"].append(seconds(lambda: trainer.step(0))),
        setup=peers_first, rounds=ROUNDS, warmup_rounds=1,
    )  # fmt: skip
    own = taken["ours"][1:]
    rows = []
    for name in peers:
        other = taken[name][1:]
        paired = statistics.median(a / b for a, b in zip(own, other, strict=True))
        rows.append([f"ours / Hugging Face, {name}", paired, min(own) / min(other)])
        benchmark.extra_info[rows[-1][0]] = paired
    print("\n" + tabulate(rows, headers=["step time", "median of pairs", "best / best"], floatfmt=".3f"))


def peer(transformers, trainer: Trainer, *, fused: bool) -> Callable[[], None]:
    """A training step of LlamaForCausalLM with our weights, checked to compute our logits."""
    config = transformers.LlamaConfig(
        vocab_size=SHAPE.vocab, hidden_size=SHAPE.dim, intermediate_size=SHAPE.ffn, num_hidden_layers=SHAPE.layers,
        num_attention_heads=SHAPE.heads, num_key_value_heads=SHAPE.kv_heads, rms_norm_eps=1e-5,
        rope_theta=SHAPE.rope_theta, tie_word_embeddings=False, attn_implementation="sdpa", use_cache=False,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    model.load_state_dict({theirs(name): p.detach().clone() for name, p in trainer.parameters().items()})
    tokens, targets = trainer.data.rows(step=0, rows=range(2))
    with torch.no_grad():
        assert torch.allclose(model(tokens).logits, trainer.stages[0].module(tokens), atol=1e-4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=fused, foreach=not fused)

    def step() -> None:
        loss = nn.functional.cross_entropy(model(tokens).logits.flatten(0, 1), targets.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def theirs(name: str) -> str:
    """Our parameter's name in LlamaForCausalLM."""
    for ours, other in (
        ("embedding.", "model.embed_tokens."), ("head.", "lm_head."), ("layers.", "model.layers."),
        ("attention_norm", "input_layernorm"), ("ffn_norm", "post_attention_layernorm"),
        ("attention.wq", "self_attn.q_proj"), ("attention.wk", "self_attn.k_proj"),
        ("attention.wv", "self_attn.v_proj"), ("attention.wo", "self_attn.o_proj"),
        ("ffn.w1", "mlp.gate_proj"), ("ffn.w2", "mlp.down_proj"),
        ("ffn.w3", "mlp.up_proj"),
    ):  # fmt: skip
        name = name.replace(ours, other)
    return "model." + name if name.startswith("norm.") else name


def test_what_the_ledger_costs(benchmark, trainer):
    """One span, many times; and what a step's spans are of a step."""
    ledger = Ledger(torch.device("cpu"))

    def span() -> None:
        with ledger.span("nothing"):
            pass

    benchmark.pedantic(span, setup=ledger.clear, rounds=2000)
    step = min(seconds(lambda: trainer.step(0)) for _ in range(3))
    count = sum(map(len, trainer.ledger.seconds().values()))
    share = count * benchmark.stats.stats.median / step
    benchmark.extra_info["share of a step"] = share
    print(f"\n{count} spans cost {share:.5%} of a step of {step:.2f} s")


CASES = [
    (p, m, schedule, stages)
    for p, counts in ((2, (4, 8, 16)), (4, (4, 8, 16)))
    for m in counts
    for schedule, stages in (
        ("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("looped-bfs", 2),
        ("zero-bubble", 2), ("zbv", 2), ("dualpipev", 2),
    )
    if not (schedule in ("zbv", "dualpipev") and m < 2 * p)
] + [(8, 16, "1f1b", 1)]  # fmt: skip  # four stages against eight, at as many micro-batches


@pytest.mark.parametrize(("p", "m"), [(2, 4), (2, 8), (2, 16), (4, 4), (4, 8), (4, 16), (8, 16)])
def test_bubbles_of_sleeping_stages(benchmark, p, m):
    """Measured on every rank, beside the schedule played with even costs and with the costs of this very run."""
    cases = [case for case in CASES if case[:2] == (p, m)]
    timings: list[Timing] = []

    def every_case() -> None:
        timings.extend(on_ranks(p, lambda world: [timing_of(world, case) for case in cases], deadline_s=LIMIT_S)[0])

    benchmark.pedantic(every_case, rounds=1)
    rows = []
    for case, timing in zip(cases, timings, strict=True):
        theory = simulate(timing.job, orders(timing.job), Costs.even(timing.job.stages)).bubble
        measured = min(timing.bubbles)  # the step that others on this machine disturbed least
        rows.append([*case, theory, timing.predicted().bubble, measured, 100 * (measured - theory)])
    print(f"\nnaps of {1e3 * NAP_S:.0f} ms, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(tabulate(rows, headers=["p", "m", "schedule", "v", "theory", "own", "measured", "points"], floatfmt=".3f"))
    benchmark.extra_info["worst difference, points"] = max(abs(row[-1]) for row in rows)


def sleeping_job(p: int, m: int, schedule: str, stages: int) -> Job:
    """A pipeline of p ranks; the shape only has to have enough layers."""
    return Job(
        shape=SHAPES["70b"], layout=Layout(pp=p), sequence=1, micro_batch=1, micro_batches=m, schedule=schedule,
        stages_per_rank=stages,
    )  # fmt: skip


class Nap(torch.autograd.Function):
    """Sleeps on the way forward and on the way back."""

    @staticmethod
    def forward(ctx, x: Tensor, forward_s: float, backward_s: float) -> Tensor:
        """The same values, later."""
        ctx.backward_s = backward_s
        time.sleep(forward_s)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None, None]:
        """The same gradient, later."""
        time.sleep(ctx.backward_s)
        return gradient.clone(), None, None


class Sleeper(nn.Module):
    """A stage whose forward, gradients of inputs and gradients of weights each take one nap."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, 1))
        self.nap_s = 0.0

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 1] to the same."""
        return Nap.apply(x, self.nap_s, self.nap_s) + Nap.apply(self.weight, 0.0, self.nap_s)


def timing_of(world: World, case: tuple[int, int, str, int]) -> Timing:
    """Timed steps of one case, on every rank, after one in which nobody sleeps (torch infers shapes in it)."""
    this, device = sleeping_job(*case), torch.device("cpu")
    ledger, grid, last = Ledger(device), Grid.open(this.layout, "cpu"), this.stages - 1
    stages = [Stage(index=i, module=Sleeper(), first=i == 0, last=i == last) for i in this.stages_of(world.rank)]

    def loss(y: Tensor, _: Tensor) -> Tensor:
        with ledger.span("loss"):
            return y.sum()

    schedule = build_schedule(this, grid, stages, loss, device, ledger)
    x = torch.zeros(this.micro_batches, 1, requires_grad=True)
    targets = {"target": x.detach(), "losses": []} if any(s.last for s in stages) else {}
    spans = []
    for _ in range(1 + NAPPING_STEPS):
        ledger.clear()
        world.barrier()
        with ledger.span("passes"):
            schedule.step(*((x,) if stages[0].first else ()), return_outputs=False, **targets)
        spans.append(ledger.seconds())
        for stage in stages:
            stage.module.nap_s = NAP_S
    everyone = world.gather(spans[1:])
    times = [[sum(step["passes"]) for step in rank] for rank in everyone]
    return Timing(job=this, times=times, spans=everyone, losses=[], norms=[], observed=[], peak_bytes=[])


def seconds(work: Callable[[], object]) -> float:
    """How long `work` takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
