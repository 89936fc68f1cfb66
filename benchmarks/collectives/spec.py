"""What a collective's sweep is asked to do, and what it promises to emit. No torch here.

A size is counted as nccl-tests prints it: each rank's buffer for all_reduce, broadcast, reduce and send_recv;
the total output for all_gather; the total input for reduce_scatter; the total per rank for all_to_all; all
ranks' together for gather and scatter. A size that does not divide into whole elements (and, where the
operation shares it out, into equal shares) is rounded up. The params name the size that was asked for, so that a
limit holds for any number of ranks; rates are of the bytes that really move.

>>> spec = Collective(op="all_gather", sizes=(8,))
>>> spec.elements(8, members=4) * ITEM_BYTES[spec.dtype]
16
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from benchmarks.measurement import Metric, Scalar
from benchmarks.spec import Place

OPS = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter",
    "send_recv", "barrier",
)  # fmt: skip
SPLIT = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")  # the size is shared out among the ranks
EITHER_PLACE = ("all_gather", "reduce_scatter")  # torch offers these in place and out of place
GROUPS = ("world", "node", "rail")
ITEM_BYTES = {
    "fp32": 4, "bf16": 2, "fp16": 2, "fp8_e4m3": 1, "fp8_e5m2": 1, "fp64": 8, "int8": 1, "uint8": 1, "int32": 4,
    "int64": 8,
}  # fmt: skip
LATENCY_BYTES = 64 << 10  # up to this size the time is a latency metric too
VARIANTS = {
    # sweeps with NCCL's environment pinned: each is a launch of its own, and a metric of its own
    "ring": ("NCCL_ALGO=Ring",),
    "tree": ("NCCL_ALGO=Tree",),
    "network": ("NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", "NCCL_NVLS_ENABLE=0", "NCCL_MNNVL_ENABLE=0"),
}
TREES = ("all_reduce",)  # NCCL's trees do no other operation
RINGS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")


@dataclass(frozen=True, kw_only=True)
class Collective:
    """One collective over one kind of group, swept over sizes. Every result is verified."""

    benchmark: ClassVar[str] = "collectives"
    scope: ClassVar[str] = "world"

    op: str = "all_reduce"
    """all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce, gather, scatter, send_recv (a ring
    of neighbours) or barrier"""
    sizes: tuple[int, ...] = (8, 64 << 10, 4 << 20)
    """bytes, as nccl-tests counts them; of no meaning for a barrier"""
    factor: int = 0
    """sizes are a range: from the smallest on, each this many times the one before, to the largest; 0: a list"""
    dtype: str = "fp32"
    """fp32, bf16, fp16, fp8_e4m3, fp8_e5m2, fp64, int8, uint8, int32 or int64"""
    group: str = "world"
    """who takes part: world, each node, or each rail (the ranks with the same place on every node)"""
    together: bool = True
    """all nodes or rails at the same time; otherwise one after the other while the rest waits"""
    root: int = 0
    """the member that sends a broadcast or scatter and receives a reduce or gather"""
    in_place: bool = False
    """input and output share memory (all_gather, reduce_scatter; the others have no choice)"""
    uneven: bool = False
    """all_to_all with shares that differ by distance: 1, 2 ... n parts"""
    deferred: bool = False
    """start the operation, then wait for it, instead of one blocking call"""
    graph: bool = False
    """replay a CUDA graph of the call"""
    variant: str = ""
    """with NCCL pinned to its ring or tree, or network: between all GPUs by the network only (no NVLink, no shared
    memory); two nodes hide a weak NIC behind NVLink otherwise"""
    budget_s: float = 0.3
    """seconds of repetitions per size, after the warm-up"""
    precision: float = 0.02
    """stop before, once the 95 % interval of the median is within this share of it"""
    min_repetitions: int = 5
    """repetitions per size even where the budget is spent"""
    max_repetitions: int = 1000
    """repetitions per size after which nothing more is learnt"""
    seed: int = 1
    """picks the data"""
    limit_s: float = 120.0
    """time-out of the whole sweep, seconds"""

    def __post_init__(self) -> None:
        for value, known, what in (
            (self.op, OPS, "op"), (self.dtype, ITEM_BYTES, "dtype"), (self.group, GROUPS, "group"),
        ):  # fmt: skip
            if value not in known:
                raise ValueError(f"collectives: no {what} {value!r}; there are {', '.join(known)}")
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError(f"collectives: sizes are positive bytes, not {self.sizes}")
        if self.factor < 0 or self.factor == 1 or (self.factor and len(set(self.sizes)) != 2):
            raise ValueError(
                f"collectives: factor {self.factor} makes no range of {self.sizes}: give the smallest and the largest "
                f"size, and a factor of 2 or more"
            )
        self._check_variant()
        if not 1 <= self.min_repetitions <= self.max_repetitions:
            raise ValueError(
                f"collectives: min_repetitions {self.min_repetitions} must lie between 1 and "
                f"max_repetitions {self.max_repetitions}"
            )
        if self.in_place and self.op not in EITHER_PLACE:
            raise ValueError(
                f"collectives: in_place is a choice of {' and '.join(EITHER_PLACE)} only, not of {self.op}"
            )
        if self.op == "barrier" and (self.graph or self.deferred):
            raise ValueError("collectives: a barrier blocks the host: neither graph nor deferred applies")
        if self.op == "send_recv" and self.deferred:
            raise ValueError("collectives: send_recv always starts both transfers, then waits: leave deferred out")
        if self.uneven and self.op != "all_to_all":
            raise ValueError(f"collectives: uneven shares are for all_to_all only, not for {self.op}")

    def _check_variant(self) -> None:
        """Refuse what NCCL cannot be pinned to."""
        if self.variant and self.variant not in VARIANTS:
            raise ValueError(f"collectives: no variant {self.variant!r}; there are {', '.join(VARIANTS)}")
        able = {"ring": RINGS, "tree": TREES}.get(self.variant, OPS)
        if self.op not in able:
            raise ValueError(f"collectives: NCCL's {self.variant} does {', '.join(able)}, not {self.op}")

    @property
    def env(self) -> tuple[str, ...]:
        """Variables of the launch that it needs for itself."""
        return VARIANTS.get(self.variant, ())

    def members(self, place: Place) -> int:
        """Ranks of one group there. ValueError, with the cure, where this collective cannot run."""
        members = {"world": place.ranks, "node": place.ranks_per_node, "rail": place.nodes}[self.group]
        if members < 2:
            raise ValueError(
                f"collectives: a collective needs at least 2 ranks, and a {self.group} has {members} here; "
                f"give the cluster more, or leave it out"
            )
        if not 0 <= self.root < members:
            raise ValueError(f"collectives: root {self.root} is no member of a {self.group} of {members}")
        if self.variant and place.backend != "nccl":
            raise ValueError(f"collectives: variants pin NCCL, not {place.backend}; leave variant out")
        if self.graph and place.device != "cuda":
            raise ValueError("collectives: graph replay needs GPUs; leave graph out on CPUs")
        if self.dtype.startswith("fp8") and place.backend == "gloo":
            raise ValueError("collectives: gloo moves no fp8; take another dtype, or nccl")
        return members

    def elements(self, size: int, members: int) -> int:
        """Elements that a size becomes: whole ones, and equal shares where the operation splits it."""
        step = members if self.op in SPLIT else 1
        return -(-size // (ITEM_BYTES[self.dtype] * step)) * step

    def sweep(self) -> list[int]:
        """The sizes, ascending, each once; 0 for a barrier."""
        if self.op == "barrier":
            return [0]
        sizes = sorted(set(self.sizes))
        while self.factor and sizes[-2] * self.factor < sizes[-1]:
            sizes.insert(-1, sizes[-2] * self.factor)
        return sizes

    def params(self, size: int) -> dict[str, Scalar]:
        """The params of every metric at that size; what is as usual is not named."""
        params: dict[str, Scalar] = {"group": self.group}
        if self.op != "barrier":
            params |= {"bytes": size, "dtype": self.dtype}
        named = {
            "alone": not self.together, "in_place": self.in_place, "uneven": self.uneven, "deferred": self.deferred,
            "graph": self.graph,
        }  # fmt: skip
        return params | {name: True for name, chosen in named.items() if chosen}

    def metrics(self, size: int, rail: int | None = None) -> Iterator[Metric]:
        """What one size emits for one group: busbw, wrong_elements, and the latency of a small size.

        The groups of a "rail" sweep are told apart by a param: `rail` is which one. A variant has names of its own
        (collectives.all_reduce.ring.busbw), so that no limit of the library's own choice judges it.
        """
        params, prefix = self.params(size), ".".join(filter(None, ("collectives", self.op, self.variant)))
        per = "node" if self.group == "node" else "world"
        if rail is not None:
            params["rail"] = rail
        if self.op != "barrier":
            yield Metric(name=f"{prefix}.busbw", unit="B/s", better="higher", params=params, per=per)
        yield Metric(name=f"{prefix}.wrong_elements", unit="1", better="equal", params=params, per=per)
        if size <= LATENCY_BYTES:
            yield Metric(name=f"{prefix}.latency", unit="s", better="lower", params=params, per=per)

    def emits(self, place: Place) -> list[Metric]:
        """Every metric of the sweep at that place."""
        rails = list(range(place.ranks_per_node)) if self.group == "rail" else [None]
        self.members(place)
        return [metric for size in self.sweep() for rail in rails for metric in self.metrics(size, rail)]

    def bytes_written(self, place: Place) -> int:  # noqa: ARG002
        """Nothing is written to storage."""
        return 0
