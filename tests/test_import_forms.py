"""The rarer forms of others' results: perftest's JSON, early and valid; nccl-tests' alltoallv and hypercube."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reports.importers import IMPORTERS, Asked, Imported, read
from reports.importers.collectives import factor, ours, sent_share
from reports.importers.source import Source

FIXTURES = Path(__file__).parent / "fixtures" / "imports"
BANDWIDTH = FIXTURES / "perftest-write_bw-report.json"
EARLY = FIXTURES / "perftest-write_lat-early-report.txt"


def text_of(text: str, tool: str, **asked) -> Imported:
    return IMPORTERS[tool](Source(path="text", text=text), Asked(**asked))


def sentences(imported: Imported) -> str:
    return "\n".join(problem.sentence for problem in imported.problems)


# -- perftest --------------------------------------------------------------------------------------------------------


def test_the_unit_of_a_report_follows_from_its_message_rate():
    imported = read(str(BANDWIDTH), tool="perftest")
    assert imported.exit_code == 0, sentences(imported)
    (found,) = imported.measurements
    assert found.metric == "links.hardware.bandwidth"
    assert found.samples == (2229.27 * 2**20,)
    assert found.params == {"bytes": 65536, "tool": "ib_write_bw"}
    assert (found.subject.nic, found.notes["link"], found.notes["peak"]) == ("mlx5_11", "Ethernet", 5293.52 * 2**20)
    gigabits = json.loads(BANDWIDTH.read_text())
    gigabits["results"] |= {"BW_peak": 44.41, "BW_average": 18.70}
    (same,) = text_of(json.dumps(gigabits), "perftest").measurements
    assert same.samples[0] == pytest.approx(found.samples[0], rel=1e-3)


def test_an_early_report_has_no_quotes_and_is_read_all_the_same():
    imported = read(str(EARLY), tool="perftest")
    assert imported.exit_code == 0, sentences(imported)
    latency, p99 = imported.measurements
    assert (latency.metric, p99.metric) == ("links.hardware.latency", "links.hardware.latency_p99")
    assert (latency.samples, p99.samples) == ((pytest.approx(2.42e-6),), (pytest.approx(2.47e-6),))
    assert latency.params == {"bytes": 128, "tool": "ib_write_lat"}
    assert latency.notes["99.9% percentile"] == pytest.approx(4.03e-6)


def test_both_ways_is_a_metric_of_its_own():
    text = BANDWIDTH.read_text().replace("RDMA_Write_BW", "RDMA_Write_Bidirectional_BW")
    (found,) = text_of(text, "perftest").measurements
    assert found.metric == "links.hardware.both_ways.bandwidth"
    assert text_of(text, "perftest", line_rate=1.2e9).exit_code == 0
    assert text_of(text, "perftest", line_rate=1.1e9).exit_code == 1


@pytest.mark.parametrize(
    ("path", "before", "after", "exit_code", "words"),
    [
        (BANDWIDTH, "2229.27", "3229.27", 3, "in no unit that its MsgRate agrees with"),
        (BANDWIDTH, '"MsgRate": 0.035668', '"MsgRate": 0', 3, "in no unit"),
        (BANDWIDTH, "5293.52", "1293.52", 1, "above the peak"),
        (BANDWIDTH, "2229.27", '"fast"', 3, "no number"),
        (BANDWIDTH, "RDMA_Write_BW_Test", "mystery", 3, "names no test"),
        (BANDWIDTH, '"results"', '"result"', 3, "has no results"),
        (BANDWIDTH, '"MsgSize"', '"Size"', 3, "no MsgSize"),
        (EARLY, "t_min: 2.37", "t_min: 2.57", 1, "t_min 2.57 us is above"),
        (EARLY, "t_typical: 2.42", "t_typical: -2.42", 1, "negative"),
        (EARLY, "Mtu: 1024", "Segmentation fault", 3, "line 13 is no entry"),
    ],
)
def test_a_report_that_is_wrong_or_not_whole(path, before, after, exit_code, words):
    text = path.read_text()
    assert before in text
    imported = text_of(text.replace(before, after), "perftest")
    assert imported.exit_code == exit_code
    assert words in sentences(imported)


@pytest.mark.parametrize("path", [BANDWIDTH, EARLY])
def test_a_report_cut_anywhere_is_not_whole(path):
    text = path.read_text().rstrip()
    for cut in range(1, len(text) - 1):
        assert text_of(text[:cut], "perftest").exit_code == 3, cut


@settings(max_examples=100, deadline=None)
@given(section=st.sampled_from(["test_info", "results"]), data=st.data())
def test_any_value_in_a_report_never_raises(section, data):
    report = json.loads(BANDWIDTH.read_text())
    key = data.draw(st.sampled_from(sorted(report[section])))
    report[section][key] = data.draw(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.lists(st.none())
    )
    assert text_of(json.dumps(report), "perftest").exit_code in (0, 1, 3)


# -- nccl-tests ------------------------------------------------------------------------------------------------------

SIZES = (1048576, 4194304)
TIMES_US = (100.0, 250.0)


def table(program: str, *, ranks: int = 8, algbw: float = 1.0, busbw: float = 1.0) -> str:
    """What a program would print, where its algorithm and bus bandwidth are these shares of size / time."""
    lines = [f"# Collective test starting: {program}_perf"]
    lines += [f"# nThread 1 nGpus {ranks} minBytes {SIZES[0]} maxBytes {SIZES[-1]} step: 4(factor) warmup iters: 5"]
    lines += [f"#  Rank  {i} Group  0 Pid  4242 on  node-0 device  {i} [0x0{i}] NVIDIA H100" for i in range(ranks)]
    halves = " ".join(["time algbw busbw #wrong"] * 2)
    lines += [f"#  size  count  type  redop  root  {halves}"]
    rates = []
    for size, time in zip(SIZES, TIMES_US, strict=True):
        whole = size / time * 1e-3
        rates += [whole * busbw] * 2
        half = f"{time:.2f} {whole * algbw:.2f} {whole * busbw:.2f}"
        lines += [f" {size} {size // 4} float none -1 {half} 0 {half} 0"]
    lines += ["# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {sum(rates) / len(rates):.4f}", ""]
    return "\n".join(lines)


def test_factors_of_the_rarer_programs_by_hand():
    assert [factor("alltoallv", n) for n in (2, 8)] == [0.5, 0.875]
    assert [factor("hypercube", n) for n in (2, 8)] == [1.0, 1.0]
    assert [sent_share("hypercube", n) for n in (2, 8)] == [0.5, 0.875]
    assert sent_share("all_gather", 8) == 1.0
    assert ours("hypercube")[0] == "all_gather"


def test_alltoallv_is_an_uneven_all_to_all_and_never_compared_with_ours():
    imported = text_of(table("alltoallv", busbw=0.875), "nccl-tests")
    assert imported.exit_code == 0, sentences(imported)
    assert {m.metric for m in imported.measurements} == {
        "collectives.all_to_all.busbw", "collectives.all_to_all.wrong_elements",
    }  # fmt: skip
    assert {m.params["uneven"] for m in imported.measurements} == {"alltoallv"}


def test_a_hypercube_is_an_all_gather_whose_algorithm_bandwidth_leaves_out_its_own_share():
    imported = text_of(table("hypercube", algbw=0.875, busbw=0.875), "nccl-tests")
    assert imported.exit_code == 0, sentences(imported)
    large = [m for m in imported.measurements if m.metric.endswith("busbw") and m.params["bytes"] == SIZES[-1]]
    assert {m.params["algorithm"] for m in large} == {"hypercube"}
    assert large[0].samples[0] == pytest.approx(SIZES[-1] / 250e-6 * 0.875, rel=1e-3)


@pytest.mark.parametrize(("program", "shares"), [("hypercube", (1.0, 0.875)), ("alltoallv", (1.0, 1.0))])
def test_the_wrong_share_is_impossible(program, shares):
    imported = text_of(table(program, algbw=shares[0], busbw=shares[1]), "nccl-tests")
    assert imported.exit_code == 1
    assert "GB/s, but" in sentences(imported)
