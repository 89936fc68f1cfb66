"""nvbandwidth on every node at once: copies and loads between its GPUs, and between GPUs and host.

The first rank of a node runs it while the others wait; it sees the GPUs that the ranks see, in the same order. What is
read is its JSON (`-j`): a matrix for each test, in GB/s (1e9) or ns. The arrow in its title says which way data goes; a
row that reads from its column is turned round, so that a link always leads from a to b.

    nvbandwidth -j -t device_to_device_memcpy_write_ce device_to_device_latency_sm
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

from benchmarks.hardware.program import Program, ProgramError
from benchmarks.hardware.spec import Hardware
from benchmarks.measurement import Measurement
from benchmarks.world import World

PACKAGE = "build it from NVIDIA's sources (NVIDIA/nvbandwidth: cmake, CUDA, boost program-options) into the PATH"
RUN_S = 240.0  # of one run on eight GPUs: seconds a test
SCALE = {"GB/s": 1e9, "ns": 1e-9}
Cells = dict[tuple[int, ...], float]  # (GPU, GPU), or (GPU,) -> B/s or s


def lacking(spec: Hardware, world: World) -> str:  # noqa: ARG001 - one signature for all tools
    """What this node lacks; "" where nothing."""
    return "" if shutil.which("nvbandwidth") else f"nvbandwidth is not installed: {PACKAGE}"


def measure(spec: Hardware, world: World) -> Iterator[Measurement]:
    """Run it on every node; rank 0 yields a table per test. Every rank calls it."""
    found, problem = [], ""
    if world.rank == world.local_ranks[0]:
        try:
            for _ in range(spec.repetitions):
                said = Program.start("nvbandwidth", "-j", "-t", *spec.tests).finish(RUN_S)
                found.append(read(said, spec.tests, num_gpus=len(world.local_ranks)))
        except (ProgramError, ValueError) as error:
            problem = f"{world.node}: {error}"
    everyone = world.gather((world.local_ranks, found, problem))
    problems = [problem for _, _, problem in everyone if problem]
    for test in spec.tests if world.is_first else ():
        metric = spec.matrix(test, world.place)
        if problems:
            yield metric.measured(outcome="error", reason="; ".join(problems[:3]), subject=world.all())
            continue
        rows: dict[tuple[int, ...], list[float]] = {}
        for ranks, runs, _ in everyone:
            for run in runs:
                for gpus, value in run[test].items():
                    rows.setdefault(tuple(ranks[gpu] for gpu in gpus), []).append(value)
        yield metric.measured(columns=_columns(rows), subject=world.all())


def read(said: str, tests: tuple[str, ...], *, num_gpus: int) -> dict[str, Cells]:
    """Test -> its numbers. ValueError where a test did not pass, or its matrix is not of `num_gpus` GPUs."""
    try:
        body = json.JSONDecoder().raw_decode(said[said.index("{") :])[0]["nvbandwidth"]
        cases = {case["name"]: case for case in body["testcases"]}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"nvbandwidth printed no report ({error!r}): {' '.join(said.split())[-300:]}") from None
    found = {}
    for test in tests:
        case = cases.get(test, {})
        if case.get("status") != "Passed":
            raise ValueError(f"nvbandwidth {test}: {case.get('status', 'not in the report')} {case.get('error', '')}")
        found[test] = _cells(test, case, num_gpus)
    return found


def _cells(test: str, case: dict[str, Any], num_gpus: int) -> Cells:
    title, matrix = str(case.get("bandwidth_description", "")), case.get("bandwidth_matrix") or []
    unit = next((unit for unit in SCALE if f"({unit})" in title), "")
    between = test.startswith("device_to_device_")
    if not unit or len(matrix) != (num_gpus if between else 1) or any(len(row) != num_gpus for row in matrix):
        size = f"{len(matrix)} x {len(matrix[0]) if matrix else 0}"
        raise ValueError(
            f"nvbandwidth {test}: a matrix of {size} in {title!r}, for {num_gpus} GPUs; does the first rank of a node "
            f"see all of them?"
        )
    cells: Cells = {}
    for a, row in enumerate(matrix):
        for b, cell in enumerate(row):
            if between and a == b:
                continue
            key = (b,) if not between else (b, a) if "<-" in title and "<->" not in title else (a, b)
            cells[key] = float(cell) * SCALE[unit]  # "N/A" between two GPUs: they have no peer access
    return cells


def _columns(rows: dict[tuple[int, ...], list[float]]) -> dict[str, list[Any]]:
    ends = sorted(rows)
    samples = [rows[end] for end in ends]
    if len(ends[0]) == 1:
        return {"rank": [end[0] for end in ends], "samples": samples}
    return {"a": [end[0] for end in ends], "b": [end[1] for end in ends], "samples": samples}
