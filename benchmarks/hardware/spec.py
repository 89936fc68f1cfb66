"""What is measured of the links themselves, by which tool, and what that promises to emit. No torch here.

What the hardware does and what a library makes of it are different numbers: these are `links.hardware.*`, and no
limit of one judges the other. One config is one tool, so that a tool that is absent or fails costs only its numbers.

>>> from benchmarks.spec import Place
>>> node = Place(device="cuda", backend="nccl", ranks_per_node=8)
>>> [(m.name, m.units) for m in Hardware(tool="symmetric_memory").emits(node)]
[('links.hardware.latency', 56), ('links.hardware.wrong_elements', 56)]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from benchmarks.measurement import Metric, Scalar
from benchmarks.spec import Place

TOOLS = ("symmetric_memory", "nvbandwidth", "ib_write_lat", "ib_write_bw")
PERFTEST = TOOLS[2:]
WORD_BYTES = 8  # of a ping-pong over symmetric memory
LATENCY, BANDWIDTH = "links.hardware.latency", "links.hardware.bandwidth"


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """The links themselves, by one tool: GPU to GPU, host to GPU, or NIC to NIC."""

    benchmark: ClassVar[str] = "hardware"
    scope: ClassVar[str] = "world"

    tool: str = "symmetric_memory"
    """symmetric_memory (a ping-pong that the GPUs play by themselves), nvbandwidth, ib_write_lat or ib_write_bw"""
    domain_nodes: int = 1
    """nodes that one NVLink domain joins, for symmetric_memory"""
    tests: tuple[str, ...] = (
        "device_to_device_memcpy_write_ce", "device_to_device_latency_sm", "host_to_device_memcpy_ce",
        "device_to_host_memcpy_ce",
    )  # fmt: skip
    """of nvbandwidth, by its own names: device_to_device_*, host_to_device_* and device_to_host_*"""
    nics: int = 8
    """per node, for ib_write_*: of those with a link the fastest, in the order of their names"""
    names: tuple[str, ...] = ()
    """of the NICs, instead of the fastest: mlx5_0, mlx5_3 ..."""
    gpu_memory: bool = True
    """NICs read and write the memory of the GPU nearest to them, not the host's"""
    both_ways: bool = True
    """ib_write_bw also in both directions at once"""
    options: tuple[str, ...] = ()
    """further words for ib_write_*, the same on both ends: -x 3 (the GID of a RoCE port), -q 4 ..."""
    trips: int = 2000
    """round trips of one sample, of which ib_write_lat takes the 99th percentile"""
    bandwidth_bytes: int = 1 << 20
    """bytes of a message of ib_write_bw"""
    duration_s: int = 2
    """seconds of one sample of ib_write_bw"""
    repetitions: int = 5
    """samples of every link; of nvbandwidth, runs of the tool"""
    limit_s: float = 300.0
    """time-out of the whole benchmark, seconds"""

    def __post_init__(self) -> None:
        if self.tool not in TOOLS:
            raise ValueError(f"hardware: no tool {self.tool!r}; there are {', '.join(TOOLS)}")
        if min(self.domain_nodes, self.nics, self.trips, self.bandwidth_bytes, self.duration_s, self.repetitions) < 1:
            raise ValueError("hardware: nodes, NICs, trips, bytes, seconds and repetitions are at least 1")
        if not self.tests or any(not test.startswith(("device_to_", "host_to_device_")) for test in self.tests):
            raise ValueError(f"hardware: tests begin with device_to_ or host_to_device_, not {', '.join(self.tests)}")
        if self.names and len(set(self.names)) != self.nics:
            raise ValueError(f"hardware: names are {self.nics} different NICs (nics = {self.nics}), not {self.names}")

    def emits(self, place: Place) -> list[Metric]:
        """Every metric of the tool there. ValueError, with the cure, where it has nothing to measure."""
        if self.tool in PERFTEST:
            self._check_nics(place)
            return list(self._of_nics(place))
        if place.device != "cuda":
            raise ValueError(f"hardware: {self.tool} needs GPUs; leave it out on CPUs")
        if self.tool == "nvbandwidth":
            if place.ranks_per_node < 2:
                raise ValueError("hardware: nvbandwidth compares the GPUs of a node: there is one; leave it out")
            return [self.matrix(test, place) for test in self.tests]
        members = place.ranks_per_node * self.domain_nodes
        if members < 2 or place.nodes % self.domain_nodes:
            raise ValueError(
                f"hardware: symmetric_memory needs whole NVLink domains of 2 GPUs or more; {place.nodes} nodes of "
                f"{place.ranks_per_node} in domains of {self.domain_nodes} nodes are none"
            )
        return list(self.ping_pong(place))

    def ping_pong(self, place: Place) -> tuple[Metric, Metric]:
        """Half a round trip between two GPUs of a domain, and wrong words."""
        params: dict[str, Scalar] = {"tool": self.tool, "bytes": WORD_BYTES}
        pairs = place.ranks * (place.ranks_per_node * self.domain_nodes - 1)
        latency, wrong = (
            Metric(name=name, unit=unit, better=better, params=params, per="neighbour", units=pairs)
            for name, unit, better in ((LATENCY, "s", "lower"), ("links.hardware.wrong_elements", "1", "equal"))
        )
        return latency, wrong

    def matrix(self, test: str, place: Place) -> Metric:
        """One test of nvbandwidth: a unit per ordered pair of a node's GPUs, or per GPU."""
        name, unit, better = (LATENCY, "s", "lower") if "latency" in test else (BANDWIDTH, "B/s", "higher")
        params: dict[str, Scalar] = {"tool": self.tool, "test": test}
        if not test.startswith("device_to_device_"):
            return Metric(name=name, unit=unit, better=better, params=params, per="rank")
        pairs = place.ranks * (place.ranks_per_node - 1)
        return Metric(name=name, unit=unit, better=better, params=params, per="neighbour", units=pairs)

    def _of_nics(self, place: Place) -> Iterator[Metric]:
        """What one NIC reaches towards the next node: latency and its 99th percentile, or bandwidth."""
        size = WORD_BYTES if self.tool == "ib_write_lat" else self.bandwidth_bytes
        params: dict[str, Scalar] = {"tool": self.tool, "bytes": size}
        if self.gpu_memory:
            params["memory"] = "gpu"
        units = place.nodes * self.nics
        if self.tool == "ib_write_lat":
            for name in (LATENCY, f"{LATENCY}_p99"):
                yield Metric(name=name, unit="s", better="lower", params=params, per="nic", units=units)
            return
        yield Metric(name=BANDWIDTH, unit="B/s", better="higher", params=params, per="nic", units=units)
        if self.both_ways:
            name = "links.hardware.both_ways.bandwidth"
            yield Metric(name=name, unit="B/s", better="higher", params=params, per="nic", units=units)

    def _check_nics(self, place: Place) -> None:
        if place.nodes < 2:
            raise ValueError(f"hardware: {self.tool} goes from node to node; there is one: leave it out")
        if self.nics > place.ranks_per_node:
            raise ValueError(
                f"hardware: a rank drives a NIC, and {self.nics} NICs a node are more than the "
                f"{place.ranks_per_node} ranks; set nics, or names, to what the ranks can drive"
            )
        if self.gpu_memory and place.device != "cuda":
            raise ValueError("hardware: gpu_memory needs GPUs; set gpu_memory to no on CPUs")

    def bytes_written(self, place: Place) -> int:  # noqa: ARG002
        """Nothing is written to storage."""
        return 0
