"""Stragglers: who computes slowly, in GEMM or in its part of a training step, twice; and who is late in collectives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.collectives.spec import Collective
from benchmarks.gemm.spec import Gemm
from benchmarks.measurement import Config, Event, Measurement, Subject, now
from benchmarks.spec import Place, to_config
from benchmarks.training.spec import Training
from reports.culprits import FOLLOW_UP
from reports.runs import StoredRun
from reports.slowranks import slow_devices
from suites import search
from tests.searched_run import Notebook, searched


def concluded(stored: StoredRun) -> Measurement:
    found = search.conclude(stored, {stored.run.configs[0].id: 1}, stored.cluster)
    assert found is not None
    return found


def test_a_slow_device_whose_gemm_was_not_repeated_is_not_called_healthy(tmp_path: Path) -> None:
    stored, notes = searched(tmp_path), Notebook()
    gemm = to_config(Gemm(shapes=("64",)), Place(nodes=8))
    flops = next(m for m in Gemm(shapes=("64",)).emits(Place(nodes=8)) if m.name == "gemm.flops")

    def rates(config: str, ranks: Iterable[int]) -> tuple[Measurement, ...]:
        return tuple(
            flops.measured(
                *(1e12 * (0.8 if rank == 5 else 1.0) * (1 + rank / 1e4) for _ in range(9)), config=config,
                subject=Subject(group="rank", rank=rank, node=f"n{rank}"),
            )
            for rank in ranks
        )  # fmt: skip

    run = replace(stored.run, configs=(*stored.run.configs, gemm))
    stored = replace(stored, run=run, measurements=stored.measurements + rates(gemm.id, range(8)))
    (again,) = search.follow_up(stored, (), run.configs, notes, stored.cluster)
    died = replace(stored, events=(*stored.events, *notes.events))
    for heard, outcome in ((range(0), "error"), (range(4), "error"), (range(8), "ok")):
        found = concluded(replace(died, measurements=died.measurements + rates(again.id, heard)))
        assert found.outcome == outcome
    assert found.samples == (1.0,)


def added(stored: StoredRun, config: Config, found: Sequence[Measurement], *, again: Config | None) -> StoredRun:
    """The run with one more config, what was measured of it, and the event of its repetition as `again`."""
    asked = {} if again is None else {"config": again.id, "of": config.id, "attempt": 1}
    events = (Event(kind=FOLLOW_UP, at=now(), detail=asked),) if asked else ()
    run = replace(stored.run, configs=(*stored.run.configs, config))
    return replace(stored, run=run, measurements=(*stored.measurements, *found), events=(*stored.events, *events))


def with_gemm(stored: StoredRun, rates: dict[int, float], repeated: dict[int, float] | None = None) -> StoredRun:
    """GEMM of every rank, the ranks of `rates` at a share of the speed, and what a repetition showed."""
    spec = Gemm(dtypes=("fp32",))
    config = to_config(spec, Place(nodes=8, ranks_per_node=1))
    again = to_config(replace(spec, repetitions=spec.repetitions + 2), Place(nodes=8, ranks_per_node=1))
    metric = spec.emits(Place())[0]
    found = [
        metric.measured(
            *[1e12 * (1 + 0.002 * rank % 0.01) * slow.get(rank, 1.0)] * 3, config=of.id,
            subject=Subject(group="rank", rank=rank, node=f"n{rank}"),
        )
        for of, slow in ((config, rates), (again, repeated)) if slow is not None for rank in range(8)
    ]  # fmt: skip
    return added(stored, config, found, again=again if repeated is not None else None)


def test_a_device_that_is_slow_twice_is_accused_and_once_is_cleared(tmp_path: Path) -> None:
    first = with_gemm(searched(tmp_path), {5: 0.7})
    (asked,) = search.follow_up(first, (), first.run.configs, Notebook(), first.cluster)
    assert asked.benchmark == "gemm"
    twice = concluded(with_gemm(searched(tmp_path), {5: 0.7}, {5: 0.7}))
    assert [(s["kind"], s["title"]) for s in twice.notes["suspects"]] == [("straggler", "n5")]
    assert "the others wait" in twice.notes["suspects"][0]["evidence"] and twice.samples == (1.0,)
    once = concluded(with_gemm(searched(tmp_path), {5: 0.7}, {}))
    assert once.notes["suspects"] == [] and once.notes["cleared"] == ["n5"]
    assert concluded(with_gemm(searched(tmp_path), {5: 1.3})).notes["suspects"] == [], "a fast one is none"


def test_a_rank_that_is_late_in_most_collectives_is_noted(tmp_path: Path) -> None:
    stored = searched(tmp_path)
    spec = Collective(op="all_reduce", sizes=(8, 64, 512))
    metrics = [m for size in spec.sizes for m in spec.metrics(size) if m.name.endswith("latency")]
    columns = {"rank": list(range(8)), "median_s": [1e-3 if rank == 2 else 2e-3 + 1e-6 * rank for rank in range(8)]}
    late = tuple(m.measured(2e-3, columns=columns, config="c") for m in metrics)
    found = concluded(replace(stored, measurements=(*stored.measurements, *late)))
    assert any(note.startswith("n2 arrives late in 3 of 3 collectives") for note in found.notes["notes"])
    assert found.samples == (0.0,)


# -- the training step ----------------------------------------------------------------------------------------------

PLACE = Place(nodes=8, ranks_per_node=1)
STEPS = Training(layout="pp2,dp4", steps=4)  # pipeline rank 0 on n0 to n3, 1 on n4 to n7


def with_step(
    stored: StoredRun, slow: Mapping[int, float], repeated: Mapping[int, float] | None = None, *,
    spec: Training = STEPS, drop: tuple[str, ...] = (),
) -> StoredRun:  # fmt: skip
    """Training steps in which the second pipeline rank has 1.4 times the work, the ranks of `slow` take longer."""
    config, again = to_config(spec, PLACE), to_config(replace(spec, steps=spec.steps + 2), PLACE)
    per_stage = 8 // spec.job(PLACE).layout.pp

    def step(of: str, slow: Mapping[int, float]) -> Measurement:
        work = [(1.4 if r >= per_stage else 1.0) * (1 + 0.002 * (r % 3)) * slow.get(r, 1.0) for r in range(8)]
        columns: dict[str, list[Any]] = {
            "rank": list(range(8)), "compute_s": work, "pipeline_rank": [r // per_stage for r in range(8)],
        }  # fmt: skip
        columns = {name: values for name, values in columns.items() if name not in drop}
        return spec.metrics(PLACE)["step.time"].measured(2.0, 2.0, config=of, columns=columns)

    found = [step(config.id, slow), *([step(again.id, repeated)] if repeated is not None else [])]
    return added(stored, config, found, again=again if repeated is not None else None)


def test_a_rank_slow_in_its_part_of_the_step_is_accused_once_seen_twice(tmp_path: Path) -> None:
    first = with_step(searched(tmp_path), {6: 1.5})
    (asked,) = search.follow_up(first, (), first.run.configs, Notebook(), first.cluster)
    assert (asked.benchmark, asked.spec["steps"]) == ("training", STEPS.steps + 2)
    assert concluded(first).outcome == "error", "not repeated yet: nobody is called healthy"
    (accused,) = concluded(with_step(searched(tmp_path), {6: 1.5}, {6: 1.5})).notes["suspects"]
    assert (accused["kind"], accused["title"]) == ("straggler", "n6")
    assert "of the step of tiny" in accused["evidence"] and "the others wait" in accused["evidence"]
    once = concluded(with_step(searched(tmp_path), {6: 1.5}, {}))
    assert once.notes["suspects"] == [] and once.notes["cleared"] == ["n6"]


def test_a_stage_with_more_work_and_a_fast_rank_are_no_stragglers(tmp_path: Path) -> None:
    for slow in ({}, {6: 0.7}):
        found = slow_devices(with_step(searched(tmp_path), slow))
        assert found.suspects == () and found.to_repeat == ()


def test_of_a_pipeline_rank_of_two_neither_is_the_slow_one(tmp_path: Path) -> None:
    spec = Training(layout="pp4,dp2", steps=4)
    assert slow_devices(with_step(searched(tmp_path), {6: 1.5}, spec=spec)).suspects == ()


def test_steps_of_runs_from_before_tell_of_nobody(tmp_path: Path) -> None:
    assert slow_devices(with_step(searched(tmp_path), {6: 1.5}, drop=("pipeline_rank",))).suspects == ()
