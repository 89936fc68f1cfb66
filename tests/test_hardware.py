"""The links themselves: a ping-pong of memory words, NICs and tools; what is absent is missing, never a pass."""

from __future__ import annotations

import dataclasses
import itertools
import json
import mmap
import os
import stat
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.hardware import nics, nvbandwidth, perftest, pingpong
from benchmarks.hardware.nics import Nic, chosen, nearest
from benchmarks.hardware.program import Program, ProgramError
from benchmarks.hardware.run import run
from benchmarks.hardware.spec import TOOLS, Hardware
from benchmarks.measurement import Expected, Measurement
from benchmarks.spec import Place, from_config, to_config
from reports.evidence import Evidence
from tests.ranks import on_ranks

GPUS = Place(device="cuda", backend="nccl", nodes=2, ranks_per_node=8)
MICRO = 1e-6

# -- the spec -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", TOOLS)
def test_the_config_brings_the_spec_back_and_every_metric_has_a_key_of_its_own(tool):
    spec = Hardware(tool=tool, names=("mlx5_0", "mlx5_1"), nics=2)
    assert from_config(to_config(spec, GPUS))[0] == spec
    keys = [(m.name, str(m.params)) for m in spec.emits(GPUS)]
    assert len(keys) == len(set(keys)) > 0


def test_units_by_hand():
    def units(**fields: Any) -> set[int]:
        return {m.units or GPUS.units(m.per) for m in Hardware(**fields).emits(GPUS)}

    assert units(tool="symmetric_memory") == {2 * 8 * 7}
    assert units(tool="symmetric_memory", domain_nodes=2) == {16 * 15}
    assert units(tool="nvbandwidth") == {2 * 8 * 7, 16}
    assert units(tool="ib_write_lat", nics=4) == {8}


@pytest.mark.parametrize(
    ("fields", "place", "cure"),
    [
        ({"tool": "ib_read_lat"}, GPUS, "ib_write_lat"),
        ({"nics": 0}, GPUS, "at least 1"),
        ({"tests": ("all_to_host_memcpy_ce",)}, GPUS, "begin with"),
        ({"names": ("mlx5_0",)}, GPUS, "nics = 8"),
        ({}, Place(ranks_per_node=4), "leave it out on CPUs"),
        ({}, dataclasses.replace(GPUS, ranks_per_node=1), "2 GPUs or more"),
        ({"domain_nodes": 4}, GPUS, "whole NVLink domains"),
        ({"tool": "nvbandwidth"}, dataclasses.replace(GPUS, ranks_per_node=1), "leave it out"),
        ({"tool": "ib_write_bw"}, dataclasses.replace(GPUS, nodes=1), "leave it out"),
        ({"tool": "ib_write_bw", "nics": 9}, GPUS, "more than the 8 ranks"),
        ({"tool": "ib_write_bw", "nics": 2}, Place(nodes=2, ranks_per_node=2), "gpu_memory to no"),
    ],
)
def test_what_cannot_be_measured_there_is_refused_with_the_cure(fields, place, cure):
    with pytest.raises(ValueError, match=cure):
        Hardware(**fields).emits(place)


# -- NICs -----------------------------------------------------------------------------------------------------------


def port(root: Path, name: str, *, rate: int, up: bool = True, pci: str = "") -> None:
    folder = root / "sys/class/infiniband" / name / "ports/1"
    folder.mkdir(parents=True)
    (folder / "state").write_text("4: ACTIVE\n" if up else "1: DOWN\n")
    (folder / "rate").write_text(f"{rate} Gb/sec (4X NDR)\n")
    device = root / "sys/devices" / pci
    device.mkdir(parents=True, exist_ok=True)
    (folder.parent.parent / "device").symlink_to(device)


def test_the_fastest_nics_with_a_link_are_chosen_in_the_order_of_their_names(tmp_path):
    for name, rate, up in (
        ("mlx5_10", 400, True),
        ("mlx5_2", 400, True),
        ("mlx5_1", 100, True),
        ("mlx5_0", 400, False),
    ):
        port(tmp_path, name, rate=rate, up=up, pci=f"pci0000:00/{name}")
    there = nics.nics(tmp_path)
    assert [nic.name for nic in there] == ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_10"]
    assert [nic.name for nic in chosen(there, count=2)] == ["mlx5_2", "mlx5_10"]
    assert [nic.name for nic in chosen(there, count=1, names=("mlx5_1",))] == ["mlx5_1"]
    with pytest.raises(ValueError, match=r"3 RDMA NICs have a link, 8 should: .*mlx5_0 down 400 Gb/s"):
        chosen(there, count=8)
    with pytest.raises(ValueError, match="mlx5_0"):  # it is there, and has no link
        chosen(there, count=1, names=("mlx5_0",))
    with pytest.raises(ValueError, match="there is none"):
        chosen([], count=1)


def test_every_nic_gets_the_gpu_behind_its_own_switch(tmp_path):
    for i, switch in enumerate((3, 1, 0, 2)):
        port(tmp_path, f"mlx5_{i}", rate=400, pci=f"pci0/bridge{switch}/nic")
    gpus = [str(tmp_path / f"sys/devices/pci0/bridge{switch}/gpu") for switch in range(4)]
    assert nearest(gpus, [nic.path for nic in nics.nics(tmp_path)]) == [3, 1, 0, 2]
    assert nearest([""] * 4, ["a", "b"]) == [0, 1]  # unknown: in order


@given(gpus=st.integers(1, 8), data=st.data())
def test_no_gpu_drives_two_nics(gpus, data):
    count = data.draw(st.integers(1, gpus))
    where = st.sampled_from(["/p/a/x", "/p/a/y", "/p/b/x", "/q/a"])
    found = nearest([data.draw(where) for _ in range(gpus)], [data.draw(where) for _ in range(count)])
    assert len(set(found)) == len(found) == count


@given(nodes=st.integers(2, 40))
def test_in_the_ring_every_nic_sends_once_and_serves_once_and_never_both_at_a_time(nodes):
    rounds = perftest.ring(nodes)
    assert len(rounds) <= 3
    for pairs in rounds:
        ends = [node for pair in pairs for node in pair]
        assert len(ends) == len(set(ends))
    assert sorted(pair for pairs in rounds for pair in pairs) == [(i, (i + 1) % nodes) for i in range(nodes)]


# -- what the tools print -------------------------------------------------------------------------------------------

LATENCY_TABLE = """\
---------------------------------------------------------------------------------------
                    RDMA_Write Latency Test
---------------------------------------------------------------------------------------
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 8       2000          1.03           4.06         1.07               1.08             0.05           1.16                    4.06
---------------------------------------------------------------------------------------
"""  # noqa: E501
BANDWIDTH_TABLE = """\
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 1048576    95000            0.00               392.30             0.046766
"""


def test_the_clients_tables_are_read_in_si_units():
    lat, bw = Hardware(tool="ib_write_lat"), Hardware(tool="ib_write_bw")
    found = perftest.figures(lat, LATENCY_TABLE)
    assert found == {"links.hardware.latency": 1.07 * MICRO, "links.hardware.latency_p99": 1.16 * MICRO}
    assert perftest.figures(bw, BANDWIDTH_TABLE) == {"links.hardware.bandwidth": pytest.approx(392.3e9 / 8)}
    assert set(perftest.figures(bw, BANDWIDTH_TABLE, both_ways=True)) == {"links.hardware.both_ways.bandwidth"}
    with pytest.raises(ValueError, match="no column BW average"):
        perftest.figures(bw, LATENCY_TABLE)


@pytest.mark.parametrize("cut", range(0, len(LATENCY_TABLE) - 100, 37))
def test_a_cut_table_is_no_number(cut):
    row_is_whole = LATENCY_TABLE[:cut].count("\n") > 4
    if not row_is_whole:
        with pytest.raises(ValueError, match="no table"):
            perftest.figures(Hardware(tool="ib_write_lat"), LATENCY_TABLE[:cut])


def test_the_words_of_both_ends_by_hand():
    seat = perftest.Seat(number=0, nic="mlx5_3", gpu=5)
    assert perftest.command(Hardware(tool="ib_write_lat", options=("-x", "3")), seat, port=4001) == [
        "ib_write_lat", "-d", "mlx5_3", "-p", "4001", "-F", "-s", "8", "-n", "2000", "--use_cuda=5", "-x", "3",
    ]  # fmt: skip
    host = dataclasses.replace(seat, gpu=None)
    assert perftest.command(Hardware(tool="ib_write_bw"), host, port=4001, both_ways=True)[-3:] == [
        "2",
        "--report_gbits",
        "-b",
    ]


def matrices(num_gpus: int, *, arrow: str = "->") -> dict[str, Any]:
    """A report of nvbandwidth: from GPU a to b in GB/s 100 a + b + 1; latency 1.5 us everywhere."""
    cells = [["N/A" if a == b else str(100 * a + b + 1.0) for b in range(num_gpus)] for a in range(num_gpus)]
    waits = [["N/A" if a == b else "1500" for b in range(num_gpus)] for a in range(num_gpus)]
    host = [[str(50.0 + b) for b in range(num_gpus)]]
    titles = {
        "device_to_device_memcpy_write_ce": (f"memcpy CE GPU(row) {arrow} GPU(column) bandwidth (GB/s)", cells),
        "device_to_device_latency_sm": ("Device to Device Latency SM GPU(row) <-> GPU(column) (ns)", waits),
        "host_to_device_memcpy_ce": ("memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)", host),
        "device_to_host_memcpy_ce": ("memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)", host),
    }
    cases = [
        {"name": name, "status": "Passed", "bandwidth_description": title, "bandwidth_matrix": matrix}
        for name, (title, matrix) in titles.items()
    ]
    return {"nvbandwidth": {"testcases": cases}}


def test_a_link_leads_from_a_to_b_whichever_way_the_row_reads():
    tests = Hardware().tests
    written = nvbandwidth.read(f"note\n{json.dumps(matrices(3))}\n", tests, num_gpus=3)
    read = nvbandwidth.read(json.dumps(matrices(3, arrow="<-")), tests, num_gpus=3)
    assert written[tests[0]][0, 2] == read[tests[0]][2, 0] == 3e9
    assert written["device_to_device_latency_sm"][2, 0] == 1500e-9
    assert written["host_to_device_memcpy_ce"] == {(0,): 50e9, (1,): 51e9, (2,): 52e9}


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda cases: cases[0].update(status="Waived"), "memcpy_write_ce: Waived"),
        (lambda cases: cases.pop(1), "latency_sm: not in the report"),
        (lambda cases: cases[0].update(bandwidth_matrix=[["N/A"]]), "1 x 1 .* for 3 GPUs"),
        (lambda cases: cases[0]["bandwidth_matrix"][0].__setitem__(1, "N/A"), "could not convert"),
        (lambda cases: cases[0].update(bandwidth_description="?"), "matrix of 3 x 3"),
        (lambda cases: cases.clear(), "not in the report"),
    ],
)
def test_a_report_that_is_not_whole_is_no_number(edit, words):
    report = matrices(3)
    edit(report["nvbandwidth"]["testcases"])
    with pytest.raises(ValueError, match=words):
        nvbandwidth.read(json.dumps(report), Hardware().tests, num_gpus=3)


@pytest.mark.parametrize(
    "said", ["", "{", "ERROR: Invalid Arguments", '{"nvbandwidth": []}', '{"a": 1}', '{"nvbandwidth']
)
def test_no_report_says_what_was_printed(said):
    with pytest.raises(ValueError, match="no report"):
        nvbandwidth.read(said, Hardware().tests, num_gpus=3)


# -- programs -------------------------------------------------------------------------------------------------------


def test_a_program_that_fails_or_hangs_is_told_with_its_last_words():
    with pytest.raises(ProgramError, match="no-such-program does not start"):
        Program.start("no-such-program")
    with pytest.raises(ProgramError, match=r"status 3.*: out of order"):
        Program.start(sys.executable, "-c", "print('out of order'); raise SystemExit(3)").finish(30.0)
    hung = Program.start(sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)")
    assert hung.process.stdout is not None
    while hung.process.stdout.readline() != "up\n":
        pass
    with pytest.raises(ProgramError, match="did not end within"):
        hung.finish(0.1)
    assert hung.process.poll() is not None


# -- on real ranks --------------------------------------------------------------------------------------------------

PERFTEST = """\
#!{python}
import socket, sys
words = sys.argv[1:]
port, nic = int(words[words.index("-p") + 1]), words[words.index("-d") + 1]
if words[-1][:1].isdigit() and words[-2] not in ("-n", "-D", "-p"):
    socket.create_connection((words[-1], port)).close()
    if nic == "bad_1":
        sys.exit("Couldn't modify QP to RTR")
    print(open({table!r}).read(), end="")
else:
    with socket.create_server(("", port)) as server:
        server.accept()
"""


def tools(folder: Path) -> None:
    """Stand-ins that speak and connect as the real ones do."""
    (folder / "lat").write_text(LATENCY_TABLE)
    (folder / "bw").write_text(BANDWIDTH_TABLE)
    (folder / "report").write_text(json.dumps(matrices(2)))
    for name, text in (
        ("ib_write_lat", PERFTEST.format(python=sys.executable, table=str(folder / "lat"))),
        ("ib_write_bw", PERFTEST.format(python=sys.executable, table=str(folder / "bw"))),
        ("nvbandwidth", f"#!/bin/sh\ncat {folder / 'report'}\n"),
    ):
        (folder / name).write_text(text)
        (folder / name).chmod(stat.S_IRWXU)


class SharedWords:
    """Words in a file that all ranks map, played by the CPU: what symmetric memory and the kernel are on GPUs.

    Rank 1 answers rank 0's tenth word wrongly, once.
    """

    LIE = 10

    def __init__(self, world, domain, path):
        self.domain, size = domain, 8 * world.size * world.size
        if world.is_first:
            path.write_bytes(bytes(size))
        world.barrier()
        with path.open("r+b") as file:
            self.words = memoryview(mmap.mmap(file.fileno(), size)).cast("Q")
        self.me, self.size = world.rank, world.size

    def play(self, peer, *, leads, first, warm_up, trips):
        other = self.domain.ranks[peer]
        mine, theirs = self.me * self.size + other, other * self.size + self.me
        wrong, begin = 0, time.perf_counter()
        for trip in range(first, first + warm_up + trips):
            if trip == first + warm_up:
                begin = time.perf_counter()
            word = trip + 1
            if leads:
                self.words[theirs] = word
            while (got := self.words[mine]) == trip:
                os.sched_yield()
            wrong += got != word
            if not leads:
                lies = (self.me, other, word) == (1, 0, self.LIE)
                self.words[theirs] = word + 1000 if lies else word
            elif got != word:  # what the other believes to have sent
                self.words[mine] = word
        return time.perf_counter() - begin, wrong


def on_two_nodes(world, folder):
    """Every tool on four ranks that take themselves for two nodes; then each of the ways to have no numbers."""
    nodes = ("n0", "n0", "n1", "n1")
    place = dataclasses.replace(world.place, nodes=2, ranks_per_node=2)
    world = dataclasses.replace(world, nodes=nodes, node=nodes[world.rank], place=place)
    on_gpus = dataclasses.replace(world, place=dataclasses.replace(place, device="cuda"))
    nics.nics = lambda: [Nic(name=f"mlx5_{i}", active=True, rate=400.0, path="") for i in range(2)]
    quick = {"nics": 2, "gpu_memory": False, "repetitions": 2, "trips": 50}
    found = {}
    found["absent"] = list(run(Hardware(tool="ib_write_lat", **quick), world))
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
    for tool in ("ib_write_lat", "ib_write_bw"):
        found[tool] = list(run(Hardware(tool=tool, **quick), world))
    found["nvbandwidth"] = list(run(Hardware(tool="nvbandwidth", **quick), on_gpus))
    spec = Hardware(**{**quick, "domain_nodes": 2})
    path = folder / "words"
    found["words"] = list(pingpong.measure(spec, on_gpus, open_words=lambda w, d: SharedWords(w, d, path)))
    found["no GPU"] = list(run(spec, on_gpus))
    found["too few"] = list(run(Hardware(tool="ib_write_lat", **{**quick, "names": ("mlx5_0", "mlx5_7")}), world))
    found["no CUDA"] = list(
        run(Hardware(tool="ib_write_lat", **{**quick, "gpu_memory": True}), dataclasses.replace(on_gpus))
    )
    nics.nics = lambda: [Nic(name=f"bad_{i}", active=True, rate=400.0, path="") for i in range(2)]
    found["broken"] = list(run(Hardware(tool="ib_write_lat", **{**quick, "repetitions": 1}), world))
    return found


def attempt_of(measurement: Measurement, units: int, per: str):
    e = Expected(
        metric=measurement.metric, unit=measurement.unit, better=measurement.better, params=measurement.params,
        config="", test="t", per=per, units=units,
    )  # fmt: skip
    (attempt,) = Evidence([measurement]).attempts(e)
    return attempt


def rows(measurement: Measurement) -> dict[tuple[int, int], list[float]]:
    columns = measurement.columns
    return dict(zip(zip(columns["a"], columns["b"], strict=True), columns["samples"], strict=True))


@pytest.mark.slow
def test_every_tool_on_four_ranks_and_every_way_to_have_no_numbers(tmp_path):
    tools(tmp_path)
    by_rank = on_ranks(4, lambda world: on_two_nodes(world, tmp_path))
    assert not any(measured for found in by_rank[1:] for measured in found.values())
    found = by_rank[0]

    latency, p99 = found["ib_write_lat"]
    assert list(zip(latency.columns["node"], latency.columns["nic"], strict=True)) == [
        ("n0", "mlx5_0"), ("n0", "mlx5_1"), ("n1", "mlx5_0"), ("n1", "mlx5_1"),
    ]  # fmt: skip
    assert latency.columns["samples"] == [[1.07 * MICRO] * 2] * 4
    assert p99.columns["samples"] == [[1.16 * MICRO] * 2] * 4
    units = attempt_of(latency, 4, "nic").units
    assert [unit.label for unit in units] == ["n0 mlx5_0", "n0 mlx5_1", "n1 mlx5_0", "n1 mlx5_1"]
    assert attempt_of(latency, 5, "nic").problem.status == "missing"
    assert [m.metric for m in found["ib_write_bw"]] == [
        "links.hardware.bandwidth",
        "links.hardware.both_ways.bandwidth",
    ]

    copies, loads, *host = found["nvbandwidth"]
    assert rows(copies) == {
        (0, 1): [2e9] * 2, (1, 0): [101e9] * 2, (2, 3): [2e9] * 2, (3, 2): [101e9] * 2,
    }  # fmt: skip
    assert attempt_of(copies, 4, "neighbour").problem is None
    assert loads.columns["samples"] == [[1500e-9] * 2] * 4
    assert [m.columns["rank"] for m in host] == [[0, 1, 2, 3]] * 2

    word, wrong = found["words"]
    pairs = list(itertools.permutations(range(4), 2))
    assert list(zip(word.columns["a"], word.columns["b"], strict=True)) == pairs
    assert all(len(samples) == 2 and min(samples) > 0 for samples in word.columns["samples"])
    counts = rows(wrong)
    assert counts.pop((1, 0)) == [1.0]
    assert list(counts.values()) == [[0.0]] * 11

    for name, words in (
        ("absent", "n0 and 1 more|ib_write_lat is not installed: install the package perftest"),
        ("no GPU", "symmetric memory is for GPUs"),
        ("too few", "mlx5_7"),
        ("no CUDA", "knows no --use_cuda: install a perftest that was built with CUDA"),
    ):
        assert found[name], name
        for measured in found[name]:
            problem = attempt_of(measured, 4, "nic").problem
            assert problem.status == "missing", name
            assert any(part in problem.reason for part in words.split("|")), problem.reason
    for measured in found["broken"]:
        problem = attempt_of(measured, 4, "nic").problem
        assert problem.status == "error"
        assert "n0 bad_1 to n1: ib_write_lat failed" in problem.reason
        assert "modify QP to RTR" in problem.reason
