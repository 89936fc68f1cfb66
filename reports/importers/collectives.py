"""Collectives as other tools print them, under our names: operations, dtypes, factors, params, metrics.

Factors (bus bandwidth = size / time x factor) as nccl-tests defines them, n ranks: all_reduce 2(n-1)/n;
all_gather, reduce_scatter, all_to_all, alltoallv, gather, scatter (n-1)/n; broadcast, reduce, send_recv 1; hypercube 1,
since its algorithm bandwidth already counts (n-1)/n of the size.

>>> factor("all_reduce", 8)
1.75
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.measurement import Measurement, Metric, Scalar, Subject

OPS = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter", "send_recv",
)  # fmt: skip
ALIASES = {"alltoall": "all_to_all", "sendrecv": "send_recv", "allreduce": "all_reduce", "allgather": "all_gather"}
DTYPES = {
    "float": "fp32", "half": "fp16", "bfloat16": "bf16", "double": "fp64", "int8": "int8", "uint8": "uint8",
    "int32": "int32", "uint32": "uint32", "int64": "int64", "uint64": "uint64", "f8e4m3": "fp8_e4m3",
    "f8e5m2": "fp8_e5m2", "fp8_e4m3": "fp8_e4m3", "fp8_e5m2": "fp8_e5m2",
}  # fmt: skip
PROGRAMS: dict[str, tuple[str, dict[str, Scalar]]] = {
    # programs of nccl-tests that do one of OPS in a way of their own: the operation, and the param that tells so
    "alltoallv": ("all_to_all", {"uneven": "alltoallv"}),  # shares of its own, not those of our uneven sweep
    "hypercube": ("all_gather", {"algorithm": "hypercube"}),  # an all_gather by send and receive along a cube's edges
}
CHOICE_OF_PLACE = ("all_gather", "reduce_scatter")  # elsewhere ours is in place; there it is the other way round
LATENCY_BYTES = 64 << 10  # up to this size the time is a latency metric too, as in our own sweep


def operation(name: str) -> str:
    """Our name of an operation or one of PROGRAMS, "" for one we have none for."""
    known = ALIASES.get(name, name)
    return known if known in (*OPS, *PROGRAMS) else ""


def ours(name: str) -> tuple[str, dict[str, Scalar]]:
    """Our operation behind a name that `operation` gave, and the params that its numbers have besides."""
    return PROGRAMS.get(name, (name, {}))


def sent_share(op: str, ranks: int) -> float:
    """Algorithm bandwidth x time over the printed size: the hypercube counts only what a rank receives.

    Source: nccl-tests, src/hypercube.cu.
    """
    return (ranks - 1) / ranks if op == "hypercube" else 1.0


def factor(op: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth."""
    if op in ("broadcast", "reduce", "send_recv", "hypercube"):
        return 1.0
    return (2 if op == "all_reduce" else 1) * (ranks - 1) / ranks


@dataclass(kw_only=True)
class Sweep:
    """Results of one operation, gathered per size: a size printed several times has several samples."""

    op: str
    ranks: int
    notes: dict[str, Any]
    cells: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(
        self, params: dict[str, Scalar], *, times_s: list[float], busbw: list[float], wrong: float | None, line: int
    ) -> None:
        """One printed result: seconds and B/s of one or more repetitions, wrong elements if they were checked."""
        key = repr(sorted(params.items()))
        cell = self.cells.setdefault(key, {"params": params, "times": [], "busbw": [], "wrong": [], "lines": []})
        cell["times"] += times_s
        cell["busbw"] += busbw
        cell["lines"].append(line)
        if wrong is not None:
            cell["wrong"].append(wrong)

    def measurements(self) -> Iterator[Measurement]:
        """busbw, the latency of small sizes, and wrong elements where they were checked."""
        subject = Subject(group="world", ranks=self.ranks)
        for cell in self.cells.values():
            params = cell["params"]
            given = {"subject": subject, "config": "imported", "notes": self.notes | {"lines": cell["lines"]}}
            if cell["busbw"]:
                yield self._metric("busbw", "B/s", "higher", params).measured(*cell["busbw"], **given)
            if cell["times"] and (params["bytes"] <= LATENCY_BYTES or not cell["busbw"]):
                yield self._metric("latency", "s", "lower", params).measured(*cell["times"], **given)
            if cell["wrong"]:
                yield self._metric("wrong_elements", "1", "equal", params).measured(*cell["wrong"], **given)

    def _metric(self, name: str, unit: str, better: str, params: dict[str, Scalar]) -> Metric:
        return Metric(name=f"collectives.{self.op}.{name}", unit=unit, better=better, params=params)


def place_params(op: str, in_place: bool) -> dict[str, Scalar]:
    """The param that tells in place from out of place, where it is not the usual one for that operation."""
    if op in CHOICE_OF_PLACE:
        return {"in_place": True} if in_place else {}
    return {} if in_place else {"out_of_place": True}
