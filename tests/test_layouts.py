"""Every layout family computes what one process computes: losses, every gradient, the norm, three steps.

All in float64, over one global batch of one small model, so that one oracle serves all cases. Run as a
script with a number of ranks, this file is the ranks' program: one process that forks them.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

import pytest

from reference_model.job import SCHEDULES, SPLIT_BACKWARD, Job
from reference_model.layout import Layout
from reference_model.shape import Shape

SHAPE = Shape(name="small", layers=2, dim=64, heads=8, kv_heads=4, ffn=96, vocab=128)
SEQUENCE, BATCH, STEPS = 32, 8, 3
TOLERANCE = 1e-12  # of gradients, relative
LIMIT_S = 420
TWO = {"stages_per_rank": 2}
CASES = {
    4: [
        ("dp4,shard1", {}),
        ("dp4,shard1", {"recompute": "selective"}),
        ("dp4,shard1", {"recompute": "full", "compile": "aot_eager"}),
        ("dp4", {}),
        ("dp4", {"recompute": "full"}),
        ("dp4,shard2", {}),
        ("dp4,shard2", {"recompute": "full"}),
        ("dp4,shard2", {"recompute": "selective", "compile": "aot_eager"}),
        ("tp4", {}),
        ("tp2,dp2", {"compile": "aot_eager"}),
        ("cp4", {"recompute": "full"}),
        ("cp2,dp2", {"recompute": "selective"}),
        ("pp2,cp2", {"schedule": "1f1b", "recompute": "selective", "compile": "aot_eager"}),
        ("pp4", {"schedule": "gpipe"}),
        ("pp4", {"schedule": "1f1b"}),
        ("pp4", {"schedule": "interleaved", **TWO}),
        ("pp4", {"schedule": "looped-bfs", **TWO}),
        ("pp4", {"schedule": "zero-bubble", **TWO}),
        ("pp4", {"schedule": "zbv", **TWO}),
        ("pp4", {"schedule": "dualpipev", **TWO}),
        ("pp2,tp2", {"schedule": "gpipe", "recompute": "selective"}),
        ("pp2,tp2", {"schedule": "interleaved", "recompute": "full", **TWO}),
        ("pp2,cp2", {"schedule": "zbv", **TWO}),
    ],
    8: [
        ("tp2,pp2,dp2", {"schedule": "1f1b"}),
        ("tp2,pp2,dp2", {"schedule": "zbv", **TWO}),
        ("tp2,dp4,shard2", {}),
        ("cp2,dp4,shard2", {}),
        ("pp2,dp4,shard2", {"schedule": "looped-bfs", **TWO}),
        ("pp2,dp4,shard2", {"schedule": "zero-bubble", **TWO}),
        ("pp2,cp2,tp2", {"schedule": "interleaved", **TWO}),
    ],
}  # fmt: skip
FAMILIES = {  # each alone, as small as it gets
    "ddp": ("dp2,shard1", {}), "fsdp": ("dp2", {}), "hsdp": ("dp4,shard2", {}), "tp": ("tp2", {}), "cp": ("cp2", {}),
    "pipeline": ("pp2", {}), "split backward": ("pp2", {"schedule": "zbv", **TWO}),
    "selective": ("", {"recompute": "selective"}), "full": ("", {"recompute": "full"}),
    "compile": ("", {"compile": "aot_eager"}),
}  # fmt: skip
ONE_OF = ({"ddp", "fsdp", "hsdp"}, {"pipeline", "split backward"}, {"selective", "full"})


RESUMED = ["tp2,dp2", "dp4", "pp4", "tp4", "cp2,dp2"]
COUNTED = ["tp4", "dp4", "dp4,shard2", "tp2,dp2", "cp2,tp2", "pp2,dp2"]  # collectives, against the closed form
RECOMPUTED = {"tp2,pp2": "selective", "cp4": "full"}  # and with what is computed again
FLOAT8 = ["tp2,dp2"]
CURVES = ["dp4", "tp4", "pp2,dp2"]  # of 50 steps, beside those that are stored
STORED = Path(__file__).with_name("loss_curves.json")
PLANTED = ["gathers without a gradient", "never drained", "embedding not copied"]  # wrong steps, on four ranks


def label(layout, fields):
    return ",".join([layout, *map(str, fields.values())])


def job(layout, fields):
    layout = Layout.parse(layout)
    stages = layout.pp * fields.get("stages_per_rank", 1)
    count = min(max(4, stages), BATCH // layout.dp) if layout.pp > 1 else 2
    return Job(
        shape=dataclasses.replace(SHAPE, layers=max(SHAPE.layers, stages)), layout=layout, sequence=SEQUENCE,
        micro_batch=BATCH // (count * layout.dp), micro_batches=count, **fields,
    )  # fmt: skip


@pytest.fixture(scope="module")
def compared():
    """Worst errors by number of ranks and case; each number of ranks is launched once, when first asked for."""
    launched = {}

    def launch(ranks):
        if ranks not in launched:
            launched[ranks] = None  # a launch that fails is not tried again for the next test
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
            done = subprocess.run(
                [sys.executable, __file__, str(ranks)],
                env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr[-3000:]
            launched[ranks] = json.loads(done.stdout.splitlines()[-1])
        assert launched[ranks] is not None, f"the launch of {ranks} ranks failed: see the first test that needed it"
        return launched[ranks]

    return launch


@pytest.mark.slow
@pytest.mark.parametrize("ranks", CASES)
@pytest.mark.parametrize("what", ["loss", "norm", "gradient", "parameter"])
def test_layouts_agree_with_one_process(compared, ranks, what):
    errors = {label(*case): compared(ranks)[label(*case)] for case in CASES[ranks]}
    bound = TOLERANCE if what == "gradient" else 1e-10
    assert {k: e for k, e in errors.items() if not e[what] <= bound} == {}


@pytest.mark.slow
@pytest.mark.parametrize("resumed", RESUMED)
def test_a_saved_layout_resumes_in_another(compared, resumed):
    """Two steps and a save in tp2,dp2; the third step's loss and norm are those of the run that went on."""
    assert compared(4)["resumed"][resumed] <= 1e-10


@pytest.mark.slow
@pytest.mark.parametrize("layout", [*COUNTED, *RECOMPUTED])
def test_collectives_are_as_many_and_as_large_as_the_closed_form_says(compared, layout):
    """On every rank, to the byte, in the passes of one step."""
    differences = compared(4)["collectives"][layout]
    assert differences == []


@pytest.mark.slow
@pytest.mark.parametrize("layout", CURVES)
def test_the_loss_of_fifty_steps_is_the_stored_one(compared, layout):
    """All follow one curve. Where a change is meant: `python tests/test_layouts.py 4` prints them last."""
    stored, got = json.loads(STORED.read_text())[layout], compared(4)["curves"][layout]
    assert len(got) == 50
    assert got == pytest.approx(stored, rel=1e-9)
    assert got == pytest.approx(compared(4)["curves"]["one process"], rel=1e-9)
    assert got[-1] < got[0] - 0.1


@pytest.mark.slow
@pytest.mark.parametrize("layout", FLOAT8)
def test_float8_agrees_up_to_its_rounding_and_a_lost_sum_does_not(compared, layout):
    right, wrong = compared(4)["float8"][layout]
    assert 1e-3 < right < 0.3
    assert not wrong <= 0.3


def families(layout, fields):
    """The families that a case belongs to."""
    this = Layout.parse(layout) if layout else Layout()
    of_data = {1: "fsdp", this.dp: "ddp"}.get(this.copies, "hsdp") if this.dp > 1 else None
    split = fields.get("schedule") in SPLIT_BACKWARD
    found = {of_data, fields.get("recompute"), "tp" if this.tp > 1 else None, "cp" if this.cp > 1 else None}
    found |= {("split backward" if split else "pipeline") if this.pp > 1 else None}
    return found | {"compile" if fields.get("compile") else None} - {None}


def test_every_pair_of_families_that_can_run_has_a_case():
    """Those of one kind exclude each other; those that a job refuses are no pair."""
    covered = [families(*case) for cases in CASES.values() for case in cases]
    missing = []
    for one, other in itertools.combinations(FAMILIES, 2):
        if any({one, other} <= kind for kind in ONE_OF) or any({one, other} <= case for case in covered):
            continue
        (layout, fields), (second, more) = FAMILIES[one], FAMILIES[other]
        with contextlib.suppress(ValueError):
            job(",".join(filter(None, (layout, second))) or "tp1", {**fields, **more}).check()
            missing.append((one, other))
    assert missing == []
    assert set().union(*covered) >= set(FAMILIES)


def test_every_schedule_has_a_case():
    assert {fields.get("schedule") for _, fields in CASES[4]} >= set(SCHEDULES)


@pytest.mark.slow
@pytest.mark.parametrize("wrong", PLANTED)
def test_a_wrong_step_is_told_from_a_right_one(compared, wrong):
    """The losses of the planted steps are right: only the gradients show them."""
    errors = compared(4)[wrong]
    assert errors["gradient"] > 0.1
    assert errors["first loss"] < TOLERANCE


@functools.cache
class Oracle:
    """Losses, norms, the first gradients and the parameters after the last step, in one process."""

    def __init__(self, shape):
        import torch
        from torch.nn.functional import cross_entropy

        from reference_model.model import Transformer, initialise
        from reference_model.tokens import SyntheticTokens

        model = Transformer(shape).double()
        initialise(model, seed=0)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
        self.losses, self.norms, self.gradients = [], [], {}
        for step in range(STEPS):
            tokens, targets = SyntheticTokens(vocab=SHAPE.vocab, sequence=SEQUENCE, seed=0).rows(
                step=step, rows=range(BATCH)
            )
            loss = cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
            loss.backward()
            self.losses.append(loss.item())
            self.gradients = self.gradients or {name: p.grad.clone() for name, p in model.named_parameters()}
            self.norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
            optimizer.step()
            optimizer.zero_grad()
        self.parameters = {name: p.detach() for name, p in model.named_parameters()}


def compare(layout, fields):
    """This rank's worst relative errors in three steps of one case."""
    import torch

    from benchmarks.training.proof import relative
    from reference_model.parallel import Grid
    from reference_model.trainer import Trainer, whole

    this = job(layout, fields)
    oracle = Oracle(this.shape)
    trainer = Trainer(this, Grid.open(this.layout, "cpu"), torch.device("cpu"), dtype=torch.float64)
    errors = {"loss": 0.0, "norm": 0.0, "gradient": 0.0, "parameter": 0.0, "first loss": 0.0}
    for number in range(STEPS):
        loss = trainer.global_loss(trainer.forward_backward(number))
        errors["loss"] = max(errors["loss"], abs(loss / oracle.losses[number] - 1))
        if number == 0:
            errors["first loss"] = errors["loss"]
            for name, gradient in trainer.gradients().items():
                errors["gradient"] = max(errors["gradient"], relative(gradient, oracle.gradients[name]))
        errors["norm"] = max(errors["norm"], abs(trainer.update().item() / oracle.norms[number] - 1))
    for name, parameter in trainer.parameters().items():
        errors["parameter"] = max(errors["parameter"], relative(whole(parameter.detach()), oracle.parameters[name]))
    return errors


def resume(folder):
    """Relative errors of the third step, by the layout that resumes a save of tp2,dp2."""
    import torch
    import torch.distributed.checkpoint as dcp

    from reference_model.parallel import Grid
    from reference_model.trainer import Trainer

    def trainer(layout):
        this = dataclasses.replace(job(layout, {}), shape=dataclasses.replace(SHAPE, layers=4))
        return Trainer(this, Grid.open(this.layout, "cpu"), torch.device("cpu"), dtype=torch.float64)

    first = trainer("tp2,dp2")
    for number in range(2):
        first.step(number)
    dcp.save(first.state(), checkpoint_id=folder)
    third, errors = first.step(2), {}
    for layout in RESUMED:
        other = trainer(layout)
        dcp.load(other.state(), checkpoint_id=folder)
        step = other.step(2)
        errors[layout] = max(abs(step.loss / third.loss - 1), abs(step.gradient_norm / third.gradient_norm - 1))
    return errors


def collectives(layout):
    """This rank's collectives of one step that differ from the closed form: axis, operation, counted, planned."""
    import torch

    from benchmarks.training.traffic import closed_form
    from benchmarks.training.watch import Watch
    from reference_model.parallel import Grid
    from reference_model.trainer import Trainer

    this = job(layout, {"recompute": RECOMPUTED.get(layout, "none")})
    grid = Grid.open(this.layout, "cpu")
    trainer = Trainer(this, grid, torch.device("cpu"), dtype=torch.float64)
    trainer.step(0)  # the first also infers shapes
    trainer.ledger.clear()
    with Watch(grid) as watch:
        trainer.forward_backward(1)
    planned = {k: tuple(v) for k, v in closed_form(this, pp_rank=grid.index("pp"), element=8, reduced=8).items()}
    counted = {k: (seen.count, seen.bytes) for k, seen in watch.seen.items()}
    assert counted
    keys = {k for k in {*planned, *counted} if planned.get(k) != counted.get(k)}
    return [[*k, counted.get(k), planned.get(k)] for k in sorted(keys)]


def curve(layout):
    """The losses of fifty steps."""
    import torch

    from reference_model.parallel import Grid
    from reference_model.trainer import Trainer

    layout = Layout.parse(layout)
    count = 4 if layout.pp > 1 else 1
    this = Job(
        shape=SHAPE, layout=layout, sequence=SEQUENCE, micro_batch=BATCH // (count * layout.dp), micro_batches=count
    )  # fmt: skip
    trainer = Trainer(this, Grid.open(this.layout, "cpu"), torch.device("cpu"), dtype=torch.float64)
    return [trainer.step(number).loss for number in range(50)]


def curve_of_one_process():
    """The same losses by plain autograd."""
    import torch
    from torch.nn.functional import cross_entropy

    from reference_model.model import Transformer, initialise
    from reference_model.tokens import SyntheticTokens

    model = Transformer(SHAPE).double()
    initialise(model, seed=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    data, losses = SyntheticTokens(vocab=SHAPE.vocab, sequence=SEQUENCE, seed=0), []
    for step in range(50):
        tokens, targets = data.rows(step=step, rows=range(BATCH))
        losses.append(cross_entropy(model(tokens).flatten(0, 1), targets.flatten()))
        losses[-1].backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return [loss.item() for loss in losses]


def float8(layout):
    """Gradient error of the float8 path, and of one whose columns' gradients are not summed over tp."""
    import torch
    import torch.distributed as dist
    from torch.distributed.tensor import Replicate

    from benchmarks.spec import Place
    from benchmarks.training.proof import prove
    from benchmarks.world import World
    from reference_model import float8 as products
    from reference_model.job import gate_job
    from reference_model.parallel import Grid

    ranks = dist.get_world_size()
    world = World(
        rank=dist.get_rank(), size=ranks, local_rank=dist.get_rank(), place=Place(ranks_per_node=ranks),
        device=torch.device("cpu"), node="here", nodes=("here",) * ranks,
    )  # fmt: skip
    this = gate_job(dataclasses.replace(job(layout, {}), fp8=True))
    grid = Grid.open(this.layout, "cpu")
    right = prove(this, grid, world, dtype=torch.bfloat16)
    with mock.patch.object(products, "Partial", Replicate):
        wrong = prove(this, grid, world, dtype=torch.bfloat16)
    return right.gradient_error, wrong.gradient_error


def planted():
    """Each wrong step: what is patched, by what, and the case it is planted in."""
    import torch
    import torch.distributed as dist
    from torch import nn

    from reference_model import model, parallel, trainer

    class GatheredColumn(nn.Linear):
        """A column-parallel product whose gather carries no gradient."""

        def forward(self, x):
            part = nn.functional.linear(x, self.weight.chunk(4)[dist.get_rank()])
            parts = [torch.empty_like(part) for _ in range(4)]
            dist.all_gather(parts, part)
            return torch.cat(parts, dim=-1)

    def cut_by_hand(transformer, _mesh):
        for block in transformer.layers.values():
            with torch.device("meta"):
                block.ffn.w1 = GatheredColumn(SHAPE.dim, SHAPE.ffn, bias=False, dtype=torch.float64)

    class Undrained:
        """A 1F1B loop over two stages that stops after its steady part."""

        def __init__(self, this, grid, stages, loss, _device, _ledger):
            self.this, self.stage, self.loss, self.group = this, stages[0], loss, grid.group("pp")
            self.peer = dist.get_global_rank(self.group, 1 - stages[0].index)
            self.sent = []

        def send(self, tensor):
            self.sent.append((tensor, dist.isend(tensor, self.peer, group=self.group)))

        def step(self, *inputs, target=None, losses=None, **_):
            shape = self.this.micro_batch, SEQUENCE, SHAPE.dim
            if self.stage.first:
                waiting = []
                for tokens in inputs[0].chunk(self.this.micro_batches):
                    waiting.append(self.stage.module(tokens))
                    self.send(waiting[-1].detach())
                    if len(waiting) == 2:
                        gradient = torch.empty(shape, dtype=torch.float64)
                        dist.recv(gradient, self.peer, group=self.group)
                        waiting.pop(0).backward(gradient)
                return
            for number, targets in enumerate(target.chunk(self.this.micro_batches)):
                x = torch.empty(shape, dtype=torch.float64, requires_grad=True)
                dist.recv(x.data, self.peer, group=self.group)
                losses.append(self.loss(self.stage.module(x), targets))
                losses[-1].backward()
                if number < self.this.micro_batches - 1:
                    self.send(x.grad)

    return {
        "gathers without a gradient": (parallel, "cut_tensors", cut_by_hand, ("tp4", {})),
        "never drained": (trainer, "build_schedule", Undrained, ("pp2,dp2", {})),
        "embedding not copied": (model, "materialised", lambda x: x, ("tp2,dp2", {"compile": "aot_eager"})),
    }


def timed(work, layout):
    """`work(layout)`; how long it took goes to the log."""
    begin = time.monotonic()
    result = work(layout)
    print(f"{time.monotonic() - begin:5.1f} s", work.__name__, layout, file=sys.stderr, flush=True)
    return result


def differing(layout, ranks):
    """What `collectives` found on any rank."""
    import torch.distributed as dist

    everyone = [None] * ranks
    dist.all_gather_object(everyone, timed(collectives, layout))
    return [[rank, *row] for rank, rows in enumerate(everyone) for row in rows]


def compare_all(rank, ranks, port):
    """One rank: every case of this number of ranks; rank 0 prints the worst of all ranks."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    worst = {}

    def record(name, case):
        begin = time.monotonic()
        everyone = [None] * ranks
        dist.all_gather_object(everyone, compare(*case))
        worst[name] = {k: max(e[k] for e in everyone) for k in everyone[0]}
        if rank == 0:
            print(f"{time.monotonic() - begin:5.1f} s", name, worst[name], file=sys.stderr, flush=True)

    for case in CASES[ranks]:
        record(label(*case), case)
    for name, (module, attribute, wrong, case) in planted().items() if ranks == 4 else ():
        with mock.patch.object(module, attribute, wrong):
            record(name, case)
    if ranks == 4:
        folder = [tempfile.mkdtemp() if rank == 0 else None]
        dist.broadcast_object_list(folder)
        worst["resumed"] = resume(folder[0])
        worst["collectives"] = {layout: differing(layout, ranks) for layout in (*COUNTED, *RECOMPUTED)}
        worst["float8"] = {layout: float8(layout) for layout in FLOAT8}
        worst["curves"] = {layout: timed(curve, layout) for layout in CURVES}
        worst["curves"]["one process"] = curve_of_one_process()
        if rank == 0:
            shutil.rmtree(folder[0])
    if rank == 0:
        print(json.dumps(worst), flush=True)


if __name__ == "__main__":
    from torch.multiprocessing import start_processes

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free_port = probe.getsockname()[1]
    start_processes(compare_all, (int(sys.argv[1]), free_port), nprocs=int(sys.argv[1]), start_method="fork")
