"""A cluster as its file describes it: what should be there, what is swept, what limits hold.

Built by `clusters.loader.load`; everything else only reads it. Sizes are bytes, times seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from clusters.limits import Exemption, Limit, Waiver
from clusters.prices import Prices

Scalar = str | int | float | bool


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """Hardware facts of one GPU model, from clusters/hardware.toml."""

    sku: str  # the name this suite uses: h100-sxm
    names: tuple[str, ...]  # what the driver calls it (exact product names)
    bf16_flops: float  # dense bf16 peak, FLOP/s
    memory_bytes: int
    memory_bandwidth: float  # B/s
    nvlink_bandwidth: float  # B/s per GPU, one direction; 0 where there is none
    source: str
    nvls: bool = False  # its NVLink switch reduces and multicasts


@dataclass(frozen=True, kw_only=True)
class Network:
    """The fabric between nodes. All zero: one node."""

    kind: str = ""  # infiniband | roce | ethernet
    nics_per_node: int = 0
    nic_rate: float = 0.0  # B/s of one NIC, one direction
    oversubscription: float = 1.0
    in_network: bool = False  # its switches reduce (SHARP)
    source: str = ""

    @property
    def node_rate(self) -> float:
        """B/s of network per node, one direction."""
        return self.nics_per_node * self.nic_rate


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """One cluster file. `settings` are the tables [gemm], [collectives] ... for the suites' specs."""

    name: str
    path: str
    text: str  # the file itself: kept in the run folder, so that a page can be built again
    sha256: str
    description: str = ""
    nodes: int = 1
    ranks_per_node: int = 1  # of CPU ranks; with GPUs, one rank a GPU
    gpus_per_node: int | None = None  # None: as many as the machine has (local only)
    gpu: Gpu | None = None
    nodes_per_domain: int = 1  # nodes that one NVLink domain joins: 18 in an NVL72
    network: Network = field(default_factory=Network)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    limits: tuple[Limit, ...] = ()
    elsewhere: tuple[str, ...] = ()  # names of its limits that are for another number of nodes
    waivers: tuple[Waiver, ...] = ()
    exemptions: tuple[Exemption, ...] = ()
    prices: Prices | None = None  # what it costs
    contradictions: tuple[str, ...] = ()  # printed when it loads, each with its arithmetic

    asked: dict[str, set[str]] = field(default_factory=dict, compare=False, repr=False)

    def setting(self, table: str, key: str, default: Any) -> Any:
        """One value of [table]; lists come as tuples. What was asked for is kept in `asked`.

        Raises ValueError with the key where the file's value is of another kind than the default.
        """
        self.asked.setdefault(table, set()).add(key)
        value = self.settings.get(table, {}).get(key, default)
        value = tuple(value) if isinstance(value, list) else value
        if wanted := _mismatch(value, default):
            raise ValueError(f"{self.path} [{table}]: {key} = {value!r} must be {wanted}")
        return value


def _mismatch(value: Any, default: Any) -> str:
    """What a value should be, going by the default's kind; "" where it is that, or nothing is known."""
    if isinstance(default, bool):
        return "" if isinstance(value, bool) else "true or false"
    if isinstance(default, int | float):
        good = isinstance(value, int | float) and not isinstance(value, bool)
        whole = good and (isinstance(default, float) or float(value).is_integer())
        return "" if whole else "a whole number" if isinstance(default, int) else "a number"
    if isinstance(default, str):
        return "" if isinstance(value, str) else f'text: "{default}"'
    if isinstance(default, tuple):
        if not isinstance(value, tuple):
            return f"a list: {list(default)[:3]}"
        wrong = default and [inner for one in value if (inner := _mismatch(one, default[0]))]
        return f"a list, each {wrong[0]}" if wrong else ""
    return ""
