"""The training benchmark: what it refuses before ranks start, and what it measures on four ranks.

Run as a script, this file is the ranks' program: one process that forks them, so that torch is imported once.
"""

import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from benchmarks.spec import Place
from benchmarks.training.spec import Training

RANKS = 4
STALL_S = 0.3
LIMIT_S = 360


def place(ranks=RANKS):
    return Place(ranks_per_node=ranks)


class TestSpec:
    def test_a_plan_needs_no_torch(self):
        code = (
            "import sys; from benchmarks.spec import Place; from benchmarks.training.spec import Training;"
            "Training().emits(Place(ranks_per_node=4)); assert 'torch' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)

    def test_the_layout_of_the_result_is_the_one_that_ran(self):
        (params,) = {json.dumps(m.params) for m in Training().emits(place())}
        assert json.loads(params)["layout"] == "tp2,pp2,dp1"

    def test_a_cut_model_is_never_called_whole(self):
        spec = Training(model="70b", layers=4, sequence=8192)
        assert {m.params["model"] for m in spec.emits(place())} == {"70b (4 of 80 layers)"}

    @pytest.mark.parametrize(
        ("fields", "cure"),
        [
            ({"layout": "tp2,pp4,dp1"}, "needs 8 ranks and there are 4"),
            ({"layout": "pp4", "micro_batches": 2}, "use 4 or more"),
            ({"model": "7b"}, "there are tiny, 8b"),
            ({"dtype": "int8"}, "use auto, bf16"),
            ({"dtype": "fp8"}, "these ranks run on CPUs: use bf16"),
            ({"peak": -1.0}, "none is negative"),
            ({"observed": 0}, "raise steps, warmup and observed"),
            ({"steps": 0}, "raise steps"),
        ],
    )
    def test_what_cannot_run_is_refused_before_ranks_start(self, fields, cure):
        with pytest.raises(ValueError, match=cure):
            Training(**fields).check(place())

    def test_tensor_parallelism_across_nodes_is_refused_or_warned_of(self):
        two = Place(nodes=2, ranks_per_node=2)
        with pytest.raises(ValueError, match="would cross the network"):
            Training(layout="tp4").check(two)
        asked = Training(layout="tp4", allow_tp_across_nodes=True)
        asked.check(two)
        assert "groups of 4 ranks cross nodes of 2" in asked.warning(two)
        assert asked.warning(place()) == Training(layout="tp2,dp2").warning(two) == ""

    def test_a_deterministic_job_is_another_job_in_a_launch_of_its_own(self):
        plain, exact = Training(), Training(deterministic=True)
        assert (plain.env, exact.env) == ((), ("CUBLAS_WORKSPACE_CONFIG=:4096:8",))
        assert {m.params["deterministic"] for m in exact.emits(place())} == {True}
        assert not any("deterministic" in m.params for m in plain.emits(place()))


def test_torch_is_deterministic_only_for_the_job_that_asked_for_it():
    import torch

    from benchmarks.training.run import operations

    with pytest.raises(KeyError), operations(deterministic=True):
        assert torch.are_deterministic_algorithms_enabled()
        raise KeyError
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.fixture(scope="module")
def measured():
    """Measurements by case and metric, from one launch of four ranks."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, __file__], env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {(line["case"], line["metric"]): line for line in lines}


@pytest.mark.slow
class TestFourRanks:
    def test_what_was_promised_is_delivered(self, measured):
        promised = {m.name for m in Training().emits(place())}
        assert {metric for case, metric in measured if case == "right"} == promised
        assert all(line["outcome"] == "ok" for (case, _), line in measured.items() if case == "right")

    def test_a_layout_agrees_with_one_process(self, measured):
        assert measured["right", "training.loss_error"]["samples"][0] < 1e-12
        assert measured["right", "training.gradient_error"]["samples"][0] < 1e-12

    def test_there_is_a_sample_for_every_timed_step(self, measured):
        times = measured["right", "training.step.time"]
        assert len(times["samples"]) == 3
        assert min(times["samples"]) > 0
        rates = measured["right", "training.tokens_rate"]["samples"]
        assert rates == pytest.approx([8 * 32 / s for s in times["samples"]])

    def test_the_split_accounts_for_the_whole_step(self, measured):
        split = measured["right", "training.step.time"]["notes"]["split"]
        assert sum(split.values()) == pytest.approx(1.0)
        assert 0.0 <= split["other"] < 0.03
        assert set(split) == {"compute", "tp", "pp", "bubble", "data", "optimizer", "report", "other"}
        assert all(0.0 <= share < 1.0 for share in split.values())

    def test_communication_inside_a_stage_is_told_from_compute(self, measured):
        assert measured["right", "training.step.time"]["notes"]["split"]["tp"] > 0.0
        assert set(measured["right", "training.step.time"]["notes"]["hidden"]) == {"tp"}

    def test_every_collective_is_there_in_number_and_bytes(self, measured):
        for case in ("right", "bf16"):
            sent = measured[case, "training.step.time"]["notes"]["collectives"]
            assert {(s["axis"], s["operation"]) for s in sent} >= {("tp", "all_gather"), ("pp", "send")}
            for row in sent:
                assert (row["count"], row["bytes"]) == (row["planned_count"], row["planned_bytes"]), (case, row)

    def test_the_prediction_rests_on_this_run_and_stands_beside_the_step(self, measured):
        share = measured["right", "training.predicted_share"]
        times = measured["right", "training.step.time"]
        assert share["notes"]["source"].startswith("products, attention, memory and links (pp, tp), measured on these")
        assert share["samples"] == pytest.approx([share["notes"]["step_s"] / s for s in times["samples"]])
        assert min(share["notes"][rate] for rate in ("products_flops", "memory_rate")) > 0
        assert share["notes"]["link_rates"].keys() == {"tp", "pp"}
        assert sum(times["notes"]["predicted"]["split"].values()) == pytest.approx(1.0)

    def test_ranks_compute_times_and_who_is_waited_for_are_kept(self, measured):
        times = measured["right", "training.step.time"]
        assert len(times["columns"]["compute_s"]) == RANKS
        assert 0.0 <= times["notes"]["straggler"]["waited_for"] < 1.0
        assert times["notes"]["p95_s"] <= max(times["samples"])

    def test_the_bubble_is_measured_beside_its_prediction(self, measured):
        bubble = measured["right", "training.bubble"]
        assert len(bubble["samples"]) == 3
        assert all(0.0 < share < 1.0 for share in bubble["samples"])
        assert 0.0 < bubble["notes"]["predicted"] < 1.0

    def test_a_seeded_run_repeats_bit_for_bit(self, measured):
        one, two = (measured[case, "training.step.time"]["notes"]["losses"] for case in ("right", "again"))
        assert one == two
        assert one[-1] < one[0]

    def test_the_mixed_precision_path_is_proven_on_its_own(self, measured):
        exact, rough = measured["bf16", "training.gradient_error"]["notes"]["proofs"]
        assert exact.startswith("in float64")
        assert rough.startswith("in bfloat16")
        assert measured["bf16", "training.step.time"]["outcome"] == "ok"

    def test_a_wrong_step_is_found_and_its_speed_is_not_reported(self, measured):
        """Planted: the loss of a micro-batch is averaged over its own tokens, not over the step's."""
        assert measured["averaged twice", "training.loss_error"]["samples"][0] == pytest.approx(3.0)
        assert measured["averaged twice", "training.gradient_error"]["samples"][0] == pytest.approx(3.0)
        for name in ("step.time", "tokens_rate", "flops"):
            line = measured["averaged twice", f"training.{name}"]
            assert line["outcome"] == "error"
            assert "the step is wrong" in line["reason"]

    def test_a_gradient_that_is_zero_or_no_number_is_an_error(self, measured):
        assert measured["no embedding gradient", "training.gradient_error"]["samples"] == [1.0]
        assert "embedding.weight" in measured["no embedding gradient", "training.gradient_error"]["notes"]["worst"]
        assert measured["nan", "training.gradient_error"]["samples"] == [float("inf")]

    def test_steps_learn_from_a_token_file_and_its_stall_is_in_the_record(self, measured):
        """The file holds one token over and over: a model that reads it soon knows what comes next."""
        made_up, read = (measured[case, "training.step.time"]["notes"]["losses"] for case in ("right", "stored"))
        assert read[-1] < made_up[-1] - 0.01
        assert all(0.0 <= share < 1.0 for share in measured["stored", "training.data_share"]["samples"])
        assert ("right", "training.data_share") not in measured

    def test_what_storage_keeps_a_step_waiting_is_told(self, measured):
        """Planted: every read takes so long more."""
        share = measured["slow storage", "training.data_share"]["samples"]
        times = measured["slow storage", "training.step.time"]
        assert all(s * t >= STALL_S for s, t in zip(share, times["samples"], strict=True))
        assert times["notes"]["split"]["data"] > 0.0

    @pytest.mark.parametrize(
        ("case", "reason"),
        [("another vocabulary", "vocabulary of 999 and the model's is 2048"), ("too short", "use a longer file")],
    )
    def test_a_token_file_that_does_not_fit_is_refused_by_every_rank(self, measured, case, reason):
        assert [reason in measured[case, f"rank {rank}"]["reason"] for rank in range(RANKS)] == [True] * RANKS


def measure(rank: int, port: int, folder: str) -> None:
    """One rank: every case after the other; rank 0 prints what it measured, all ranks why they refused."""
    import torch

    from benchmarks.training.run import run
    from benchmarks.world import open_world
    from reference_model.packed import PackedTokens
    from reference_model.trainer import Trainer

    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    world = open_world(place(), timeout_s=60)
    honest = Trainer._loss, Trainer.gradients
    plants = {
        "right": {},
        "again": {},
        "bf16": {},
        "averaged twice": {"_loss": lambda self, *pair: honest[0](self, *pair) * self.job.micro_batches},
        "no embedding gradient": {"gradients": lambda self: changed(honest[1](self), "embedding.weight", 0.0)},
        "nan": {"gradients": lambda self: changed(honest[1](self), "norm.weight", float("nan"))},
    }
    for case, plant in plants.items():
        Trainer._loss, Trainer.gradients = plant.get("_loss", honest[0]), plant.get("gradients", honest[1])
        told(case, run(spec("bf16" if case == "bf16" else "fp32"), world))
    Trainer._loss, Trainer.gradients = honest
    stored = f"{folder}/stored"
    told("stored", run(spec("fp32", data=stored, deterministic=True), world))
    promptly = PackedTokens.rows
    PackedTokens.rows = lambda self, **which: time.sleep(STALL_S) or promptly(self, **which)
    told("slow storage", run(spec("fp32", data=stored), world))
    for case in ("another vocabulary", "too short"):
        try:
            told(case, run(spec("fp32", data=f"{folder}/{case}"), world))
        except ValueError as error:
            Path(folder, f"{case} {rank}").write_text(str(error))
    world.barrier()
    if rank == 0:
        for case, other in itertools.product(("another vocabulary", "too short"), range(RANKS)):
            said = Path(folder, f"{case} {other}")
            reason = said.read_text() if said.exists() else "not refused"
            print(json.dumps({"case": case, "metric": f"rank {other}", "outcome": "error", "reason": reason}))
        sys.stdout.flush()


def spec(dtype, **fields):
    """A few small steps."""
    return Training(sequence=32, steps=3, warmup=1, observed=1, dtype=dtype, **fields)


def told(case, found):
    """Print what a case measured."""
    for m in found:
        line = {
            "case": case,
            "metric": m.metric,
            "samples": m.samples,
            "outcome": m.outcome,
            "reason": m.reason,
            "columns": m.columns,
        }
        print(json.dumps({**line, "notes": m.notes}), flush=True)


def changed(gradients, name, factor):
    """The same gradients with one multiplied by `factor`, where this rank has it."""
    return {k: g * factor if k == name else g for k, g in gradients.items()}


if __name__ == "__main__":
    import torch
    from torch.multiprocessing import start_processes

    from reference_model.packed import pack

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free_port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as own:
        pack(Path(own, "stored"), [torch.full((5000,), 7)], vocab=2048)
        pack(Path(own, "another vocabulary"), [torch.full((5000,), 7)], vocab=999)
        pack(Path(own, "too short"), [torch.full((100,), 7)], vocab=2048)
        start_processes(measure, (free_port, own), nprocs=RANKS, start_method="fork")
