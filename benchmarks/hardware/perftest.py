"""ib_write_lat and ib_write_bw from every NIC to the same NIC of the next node, on GPU memory.

Both ends are started by the living ranks: rank i of a node drives one NIC and the GPU nearest to it. Nodes stand in a
ring; in each of two rounds (three where they are odd) disjoint neighbours measure, all their NICs at once. So every NIC
is measured as the sender towards the next node, and serves the node before. A number belongs to the sender.

What is read is the table that the client prints. A run that fails makes its numbers an error that names both ends.

    ib_write_lat -d mlx5_0 -p 40001 -s 8 -n 2000 -F --use_cuda=0             # the server, on node 1
    ib_write_lat -d mlx5_0 -p 40001 -s 8 -n 2000 -F --use_cuda=0 10.0.0.1    # the client, on node 0
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.hardware import nics
from benchmarks.hardware.program import Program, ProgramError
from benchmarks.hardware.spec import BANDWIDTH, LATENCY, WORD_BYTES, Hardware
from benchmarks.measurement import Measurement
from benchmarks.world import World

PACKAGE = "install the package perftest (apt-get install perftest, dnf install perftest)"
GPU_PACKAGE = "install a perftest that was built with CUDA (DOCA-OFED has one, or configure it with CUDA_H_PATH)"
GPU_OPTION = {"cuda": "--use_cuda", "hip": "--use_rocm"}
COLUMN = re.compile(r"#bytes|#iterations|BW \w+\[[^]]+\]|MsgRate\[\w+\]|t_\w+\[\w+\]|[\d.]+% percentile\[\w+\]")
GBIT = 1e9 / 8
READY_S = 15.0  # until a server listens
MARGIN_S = 30.0  # beyond the measurement itself: memory is registered, queues are connected
Unit = tuple[str, str]  # node, NIC
Tables = dict[str, dict[Unit, list[float]]]  # metric name -> samples


@dataclass(frozen=True, kw_only=True)
class Seat:
    """What one rank drives."""

    number: int  # of the NIC in its node
    nic: str
    gpu: int | None  # as CUDA counts; None: host memory


@dataclass(kw_only=True)
class Results:
    """What one rank saw as a client, and what went wrong at its end."""

    tables: Tables = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def lacking(spec: Hardware, world: World) -> str:  # noqa: ARG001 - one signature for all tools
    """What this node lacks: the program, one that can use GPU memory, or NICs with a link; "" where nothing."""
    if shutil.which(spec.tool) is None:
        return f"{spec.tool} is not installed: {PACKAGE}"
    if spec.gpu_memory and _gpu_option() not in _help(spec.tool):
        return f"{spec.tool} knows no {_gpu_option()}: {GPU_PACKAGE}, or set gpu_memory = false in [hardware]"
    try:
        nics.chosen(nics.nics(), count=spec.nics, names=spec.names)
    except ValueError as error:
        return str(error)
    return ""


def measure(spec: Hardware, world: World) -> Iterator[Measurement]:
    """All rounds; rank 0 yields the tables, a row per NIC. Every rank calls it."""
    seat = seat_of(spec, world)
    nodes = list(dict.fromkeys(world.nodes))
    me, results = nodes.index(world.node), Results()
    for both_ways in (False, True) if spec.tool == "ib_write_bw" and spec.both_ways else (False,):
        for pairs in ring(len(nodes)):
            role = next(("client" if me == a else "server" for a, b in pairs if me in (a, b)), "")
            other = next((b if me == a else a for a, b in pairs if me in (a, b)), me)
            for _ in range(spec.repetitions):
                play(spec, world, seat, results, role=role if seat else "", other=nodes[other], both_ways=both_ways)
    yield from report(spec, world, results)


def ring(num_nodes: int) -> list[list[tuple[int, int]]]:
    """Rounds of disjoint (client, server), in which every node is once the client of the next one.

    >>> ring(2), ring(3)
    ([[(0, 1)], [(1, 0)]], [[(0, 1)], [(1, 2)], [(2, 0)]])
    """
    rounds: list[list[tuple[int, int]]] = [[], [], []]
    for node in range(num_nodes):
        last_of_odd = num_nodes % 2 and node == num_nodes - 1
        rounds[2 if last_of_odd else node % 2].append((node, (node + 1) % num_nodes))
    return [pairs for pairs in rounds if pairs]


def seat_of(spec: Hardware, world: World) -> Seat | None:
    """Which NIC this rank drives; None: none. Every rank must call it."""
    paths = world.gather(_gpu_path(world) if spec.gpu_memory else "")
    devices = nics.chosen(nics.nics(), count=spec.nics, names=spec.names)
    local = world.local_ranks
    places = nics.nearest([paths[rank] for rank in local], [device.path for device in devices])
    for number, place in enumerate(places):
        if local[place] == world.rank:
            gpu = world.device.index if spec.gpu_memory else None
            return Seat(number=number, nic=devices[number].name, gpu=gpu)
    return None


def play(
    spec: Hardware, world: World, seat: Seat | None, results: Results, *, role: str, other: str, both_ways: bool
) -> None:
    """One run between this rank's NIC and the same NIC of `other`; all ranks call it together."""
    server, told = None, None
    if role == "server" and seat:
        server, told = _serve(spec, world, seat, results, both_ways=both_ways)
    offers = world.gather((world.node, seat.number if seat else -1, told))
    if role == "client" and seat:
        where = next((at for node, number, at in offers if at and (node, number) == (other, seat.number)), None)
        if where:  # else the server says what went wrong
            _call(spec, world, seat, results, other=other, where=where, both_ways=both_ways)
    world.barrier()
    if server and seat:
        try:
            server.finish(READY_S)  # its client is gone by now
        except ProgramError as error:
            results.problems.append(f"{world.node} {seat.nic} as server: {error}")


def _serve(
    spec: Hardware, world: World, seat: Seat, results: Results, *, both_ways: bool
) -> tuple[Program | None, tuple[str, int] | None]:
    """A server that listens, and where; none where it does not come up, which is noted."""
    port = _free_port()
    try:
        server = Program.start(*command(spec, seat, port=port, both_ways=both_ways))
        _await_listening(server, port)
    except ProgramError as error:
        results.problems.append(f"{world.node} {seat.nic} as server: {error}")
        return None, None
    return server, (_address(), port)


def _call(
    spec: Hardware, world: World, seat: Seat, results: Results, *, other: str, where: tuple[str, int], both_ways: bool
) -> None:
    """Run the client and note what it measured, or what went wrong."""
    words = command(spec, seat, port=where[1], both_ways=both_ways)
    try:
        said = Program.start(*words, where[0]).finish(MARGIN_S + spec.duration_s)
        for name, value in figures(spec, said, both_ways=both_ways).items():
            results.tables.setdefault(name, {}).setdefault((world.node, seat.nic), []).append(value)
    except (ProgramError, ValueError) as error:
        results.problems.append(f"{world.node} {seat.nic} to {other}: {error}")


def command(spec: Hardware, seat: Seat, *, port: int, both_ways: bool = False) -> list[str]:
    """The words of the server; the client's are these and the server's address."""
    words = [spec.tool, "-d", seat.nic, "-p", str(port), "-F"]
    if spec.tool == "ib_write_lat":
        words += ["-s", str(WORD_BYTES), "-n", str(spec.trips)]
    else:
        words += ["-s", str(spec.bandwidth_bytes), "-D", str(spec.duration_s), "--report_gbits"]
        words += ["-b"] if both_ways else []
    return words + ([f"{_gpu_option()}={seat.gpu}"] if seat.gpu is not None else []) + list(spec.options)


def figures(spec: Hardware, said: str, *, both_ways: bool = False) -> dict[str, float]:
    """Metric name -> value in SI, from what a client printed. ValueError where it is not a whole table."""
    row = table(said)
    if spec.tool == "ib_write_lat":
        wanted = {LATENCY: ("t_typical[usec]", 1e-6), f"{LATENCY}_p99": ("99% percentile[usec]", 1e-6)}
    else:
        wanted = {"links.hardware.both_ways.bandwidth" if both_ways else BANDWIDTH: ("BW average[Gb/sec]", GBIT)}
    if absent := [column for column, _ in wanted.values() if column not in row]:
        raise ValueError(f"its table has no column {', '.join(absent)}: it has {', '.join(row)}")
    return {name: row[column] * scale for name, (column, scale) in wanted.items()}


def table(said: str) -> dict[str, float]:
    """Column -> number of the one row that a client printed. ValueError where there is no such row.

    >>> table("#bytes #iterations t_typical[usec]\\n 8 2000 1.07\\n")["t_typical[usec]"]
    1.07
    """
    lines = [line.strip() for line in said.splitlines()]
    at = next((i for i, line in enumerate(lines) if line.startswith("#bytes")), len(lines))
    columns = COLUMN.findall(lines[at]) if at < len(lines) else []
    rows = [line.split() for line in lines[at + 1 :] if line[:1].isdigit()]
    if len(rows) != 1 or len(rows[0]) != len(columns):
        last = " ".join(said.split())[-300:]
        raise ValueError(f"it printed no table of one row: {last or 'nothing'}")
    return {column: float(number) for column, number in zip(columns, rows[0], strict=True)}


def report(spec: Hardware, world: World, results: Results) -> Iterator[Measurement]:
    """The tables on rank 0, or an error for all of them where a run went wrong. All ranks hand in their results."""
    everyone = world.gather(results)
    if not world.is_first:
        return
    problems = [problem for each in everyone for problem in each.problems]
    for metric in spec.emits(world.place):
        rows: dict[Unit, list[float]] = {
            unit: samples for each in everyone for unit, samples in each.tables.get(metric.name, {}).items()
        }  # fmt: skip
        units = sorted(rows)
        columns: dict[str, list[Any]] = {
            "node": [node for node, _ in units], "nic": [nic for _, nic in units], "samples": [rows[u] for u in units],
        }  # fmt: skip
        if problems:
            reason = "; ".join(problems[:3]) + (f"; and {len(problems) - 3} more" if len(problems) > 3 else "")
            yield metric.measured(outcome="error", reason=reason, subject=world.all(), notes={"measured": columns})
        else:
            yield metric.measured(columns=columns, subject=world.all())


def _gpu_option() -> str:
    return GPU_OPTION["hip" if torch.version.hip else "cuda"]


def _help(tool: str) -> str:
    done = subprocess.run([tool, "--help"], capture_output=True, text=True, timeout=30, check=False)
    return done.stdout + done.stderr


def _gpu_path(world: World) -> str:
    """The PCIe device of this rank's GPU, as the kernel nests them; "" where torch does not tell."""
    found = torch.cuda.get_device_properties(world.device)
    if not hasattr(found, "pci_bus_id"):
        return ""
    address = f"{found.pci_domain_id:04x}:{found.pci_bus_id:02x}:{found.pci_device_id:02x}.0"
    return str(Path("/sys/bus/pci/devices", address).resolve())


def _address() -> str:
    """This node's address on the way to the first rank: the others reach it there."""
    family, _, _, _, towards = socket.getaddrinfo(os.environ["MASTER_ADDR"], 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(towards)  # sends nothing: it only chooses the route
        return str(probe.getsockname()[0])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _await_listening(server: Program, port: int) -> None:
    """Until the server's port is open; connecting to try it would already be the client it waits for."""
    end = time.monotonic() + READY_S
    while not _listens(port):
        if server.process.poll() is not None:
            server.finish(1.0)
        if server.process.poll() is not None or time.monotonic() > end:
            raise ProgramError(f"{server.words[0]} did not listen within {READY_S:g} s: {server.end()[-300:]}")
        time.sleep(0.02)


def _listens(port: int) -> bool:
    """Whether somebody listens on a TCP port of this machine (proc(5): state 0A)."""
    for name in ("tcp", "tcp6"):
        lines = Path("/proc/net", name).read_text(encoding="ascii").splitlines()[1:]
        if any(line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A" for line in lines):
            return True
    return False
