"""Importers read what other tools print whole, or say which line they could not read; and believe no figure alone."""

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.measurement import Measurement, decode
from reports import commands, runs
from reports.importers import IMPORTERS, Asked, Imported, read
from reports.importers.collectives import factor
from reports.importers.figures import Figure, agree
from reports.importers.source import Source

FIXTURES = Path(__file__).parent / "fixtures" / "imports"
H100 = FIXTURES / "nccl-tests-8xh100-all_reduce.txt"
A100 = FIXTURES / "nccl-tests-2x8xa100-all_reduce.txt"
REPORT = FIXTURES / "nccl-tests-report.json"


def tool_of(path: Path) -> str:
    return next(tool for tool in IMPORTERS if path.name.startswith(tool))


EVERY = [(path, tool_of(path)) for path in sorted(FIXTURES.iterdir())]


def text_of(text: str, tool: str, **asked) -> Imported:
    return IMPORTERS[tool](Source(path="text", text=text), Asked(**asked))


def file_of(path: Path, **asked) -> Imported:
    return read(str(path), tool=tool_of(path), asked=Asked(**asked))


def sentences(imported: Imported, wrong: bool | None = None) -> str:
    chosen = [p for p in imported.problems if wrong is None or p.wrong == wrong]
    return "\n".join(f"{p.line}: {p.sentence}" for p in chosen)


def one(imported: Imported, metric: str, **params) -> Measurement:
    (found,) = [m for m in imported.measurements if m.metric == metric and params.items() <= m.params.items()]
    return found


# --- figures -----------------------------------------------------------------------------------------------


def test_figures_know_their_last_digit():
    assert Figure.of("12.90") == Figure(12.9, 0.01)
    assert Figure.of("1541").ulp == 1
    assert Figure.of("1.2e+05").ulp == pytest.approx(1e4)
    assert not Figure.of("nan").sound
    assert not Figure.of("-0.1").sound
    with pytest.raises(ValueError, match="no number"):
        Figure.of("12.9x")


@pytest.mark.parametrize(
    ("op", "ranks", "expected"),
    [
        ("all_reduce", 2, 1.0), ("all_reduce", 3, 4 / 3), ("all_reduce", 8, 1.75), ("all_reduce", 64, 1.96875),
        ("all_gather", 2, 0.5), ("all_gather", 3, 2 / 3), ("reduce_scatter", 8, 0.875), ("all_to_all", 64, 0.984375),
        ("gather", 8, 0.875), ("scatter", 8, 0.875), ("broadcast", 64, 1.0), ("reduce", 3, 1.0), ("send_recv", 8, 1.0),
    ],
)  # fmt: skip
def test_factors(op, ranks, expected):
    assert factor(op, ranks) == pytest.approx(expected)


@pytest.mark.parametrize("ranks", [2, 3, 8, 64, 512])
def test_a_formula_with_n_for_n_minus_1_is_caught_as_printed(ranks):
    algbw = Figure.of("142.37")
    right, planted = algbw.value * factor("all_reduce", ranks), algbw.value * 2
    assert agree(Figure.of(f"{right:.2f}"), right, algbw.ulp * 2)
    assert not agree(Figure.of(f"{planted:.2f}"), right, algbw.ulp * 2)


# --- nccl-tests --------------------------------------------------------------------------------------------


def test_a_published_table_is_read_whole():
    imported = file_of(H100)
    assert imported.exit_code == 0, sentences(imported)
    assert len(imported.measurements) == 4 * 2 * 2
    best = one(imported, "collectives.all_reduce.busbw", bytes=2147483648, out_of_place=True)
    assert best.samples == (470.73e9,)
    assert (best.unit, best.better, best.subject.ranks, best.params["dtype"]) == ("B/s", "higher", 8, "fp32")
    assert best.notes["lines"] == [20]
    assert best.notes["statistic"] == "mean"
    assert imported.skipped == (1,)
    (wrong,) = one(imported, "collectives.all_reduce.wrong_elements", bytes=268435456, out_of_place=True).samples
    assert wrong == 0


def test_a_table_without_its_operation_needs_to_be_told():
    assert file_of(A100).exit_code == 3
    assert "--op" in sentences(file_of(A100))
    imported = file_of(A100, op="all_reduce")
    assert imported.exit_code == 0, sentences(imported)
    assert {m.subject.ranks for m in imported.measurements} == {16}
    assert imported.skipped == (20,)


def test_the_wrong_operation_is_impossible():
    imported = file_of(A100, op="all_gather")
    assert imported.exit_code == 1
    assert "busbw 193.5 GB/s, but algbw x 0.9375 (all_gather, 16 ranks) is 96.75 GB/s" in sentences(
        imported, wrong=True
    )


def test_two_runs_in_one_file_with_launcher_prefixes_and_library_lines():
    imported = file_of(FIXTURES / "nccl-tests-2.17-two-runs.txt")
    assert imported.exit_code == 0, sentences(imported)
    assert imported.skipped == (30, 32, 47)
    assert {m.metric for m in imported.measurements} == {
        "collectives.all_gather.busbw", "collectives.all_gather.wrong_elements",
        "collectives.all_to_all.busbw", "collectives.all_to_all.wrong_elements",
    }  # fmt: skip
    assert len({m.params["bytes"] for m in imported.measurements if "all_gather" in m.metric}) == 14
    assert {m.params["dtype"] for m in imported.measurements if "all_to_all" in m.metric} == {"bf16"}


def test_the_old_table_has_no_root_and_an_error_column():
    imported = file_of(FIXTURES / "nccl-tests-2019-all_gather.txt")
    assert imported.exit_code == 0, sentences(imported)
    assert one(imported, "collectives.all_gather.latency", bytes=8192, in_place=True).samples == (15.91e-6,)
    assert not [m for m in imported.measurements if m.metric.endswith("wrong_elements")]  # it counted none


def test_two_jobs_side_by_side_are_not_one():
    imported = file_of(FIXTURES / "nccl-tests-two-jobs-side-by-side.txt", op="all_reduce")
    assert imported.exit_code == 3
    assert "2: a second test starts before the one of line 1 ends: jobs side by side" in sentences(imported)
    assert "rank 0 appears more than once (node-0, node-1)" in sentences(imported)
    assert imported.measurements == ()


def test_one_rank_communicates_with_nobody():
    text = re.sub(r"#  Rank  [1-7] .*\n", "", H100.read_text())
    imported = text_of(text, "nccl-tests")
    assert imported.exit_code == 3
    assert "1 rank alone: nothing was communicated" in sentences(imported)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("419.49      0 ", "419.49      3 ", "17: 268435456 B out of place: 3 wrong elements"),
        ("419.49", "471.49", "busbw 471.49 GB/s, but algbw x 1.75 (all_reduce, 8 ranks) is 419.5 GB/s"),
        ("1119.8  239.71", "1119.8  249.71", "algbw 249.71 GB/s, but size / time is 239.7 GB/s"),
        ("419.49", "-419.5", "a time or bandwidth is negative or no number"),
        ("419.49", "   nan", "a time or bandwidth is negative or no number"),
        ("1119.8  239.71", "  0.00  239.71", "it took no time"),
        ("values : 0 OK", "values : 2 FAILED", "2 results were out of bounds"),
    ],
)  # fmt: skip
def test_wrong_results_and_impossible_values_are_wrong(before, after, words):
    text = H100.read_text()
    assert before in text
    imported = text_of(text.replace(before, after, 1), "nccl-tests")
    assert imported.exit_code == 1
    assert words in sentences(imported, wrong=True)


def test_bandwidth_above_the_line_rate_is_impossible():
    assert file_of(H100, line_rate=471e9).exit_code == 0
    imported = file_of(H100, line_rate=470e9)
    assert imported.exit_code == 1
    assert "is above the line rate" in sentences(imported, wrong=True)


@pytest.mark.parametrize("removed", [16, 17, 18, 19, 20])
def test_a_row_that_is_missing_is_missed(removed):
    lines = H100.read_text().splitlines(keepends=True)
    imported = text_of("".join(lines[: removed - 1] + lines[removed:]), "nccl-tests")
    assert imported.exit_code == (0 if removed == 16 else 3)  # line 16 holds only the units
    if removed != 16:
        assert "rows are missing" in sentences(imported)


@pytest.mark.parametrize(
    ("junk", "words"),
    [
        ("   536870912     13421\n", "2 fields, the table has 13 columns"), ("  12  float  sum\n", "3 fields"),
        ("Segmentation fault\n", "not a row of the table: 'Segmentation fault'"),
        ("h100-a1: Test NCCL failure common.cu:958 'unhandled system error'\n", "the test failed"),
        ("   536870912  134217728  float  sum  -1  2157.5  248.83  435.46x  0  2154.8  249.16  436.02  0\n", "435.46x"),
    ],
)  # fmt: skip
def test_a_line_that_does_not_read_is_reported_by_number(junk, words):
    lines = H100.read_text().splitlines(keepends=True)
    imported = text_of("".join([*lines[:17], junk, *lines[17:]]), "nccl-tests")
    assert imported.exit_code == 3
    (problem,) = imported.problems
    assert problem.line == 18
    assert words in problem.sentence


def test_a_library_line_inside_a_row_does_not_pass_for_a_row():
    text = H100.read_text().replace("    67108864     float", "    6710node-0:1:2 [0] NCCL INFO Connected all rings")
    imported = text_of(text, "nccl-tests")
    assert imported.exit_code == 3
    assert "rows are missing" in sentences(imported)


def test_results_that_were_not_checked_have_no_wrong_elements():
    text = re.sub(r"(\.\d\d)      0", r"\1    N/A", H100.read_text())
    imported = text_of(text, "nccl-tests")
    assert imported.exit_code == 0
    assert {m.metric for m in imported.measurements} == {"collectives.all_reduce.busbw"}


def test_the_same_size_twice_is_two_samples():
    lines = H100.read_text().splitlines(keepends=True)
    text = "".join(lines[:16] + [line for line in lines[16:20] for _ in range(2)] + lines[20:])
    imported = text_of(text, "nccl-tests")
    assert imported.exit_code == 0, sentences(imported)
    best = one(imported, "collectives.all_reduce.busbw", bytes=2147483648, out_of_place=True)
    assert best.samples == (470.73e9,) * 2


def test_cpu_times_give_no_latency_and_are_not_held_against_bandwidth():
    text = H100.read_text().replace("     time   algbw", "  cputime   algbw").replace("1119.8", "   3.1")
    assert text_of(text, "nccl-tests").exit_code == 0


def test_the_report_has_every_iteration_and_no_environment():
    imported = file_of(REPORT)
    assert imported.exit_code == 0, sentences(imported)
    every = one(imported, "collectives.all_reduce.latency", bytes=16384, out_of_place=True)
    assert len(every.samples) == 10
    assert every.subject.ranks == 8
    assert "SECRET" not in repr(imported)


@pytest.mark.parametrize(
    ("edit", "exit_code", "words"),
    [
        (lambda r: r["results"][1]["in_place"].update(nwrong=7.0), 1, "result 2 (262144 B in_place): 7 wrong elements"),
        (lambda r: r["results"][1]["in_place"].update(bus_bw=99.0), 1, "but alg_bw x 1.75 (8 ranks)"),
        (lambda r: r["results"][1]["in_place"].update(alg_bw=99.0), 1, "but size / time is"),
        (lambda r: r["results"][1]["in_place"].update(time="nan"), 1, "no number"),
        (lambda r: r["results"][1].update(size="big"), 3, "result 2 has no size"),
        (lambda r: r["results"][1].pop("in_place") and r["results"][1].pop("out_of_place"), 3, "has no numbers"),
        (lambda r: r["out_of_bounds"].update(count=1, okay="false"), 1, "1 results were out of bounds"),
        (lambda r: r.pop("end_time"), 3, "did not finish"),
        (lambda r: r.update(errors=["unhandled system error"]), 3, "ended with an error"),
        (lambda r: r["config"].update(ngpus=1), 3, "1 ranks: nothing was communicated"),
        (lambda r: r.update(args=["./mystery"]), 3, "--op"),
        (lambda r: r.update(results={}), 3, "no report of nccl-tests"),
    ],
)  # fmt: skip
def test_a_report_that_is_wrong_or_not_whole(edit, exit_code, words):
    report = json.loads(REPORT.read_text())
    edit(report)
    imported = text_of(json.dumps(report), "nccl-tests")
    assert imported.exit_code == exit_code
    assert words in sentences(imported)


def test_a_report_cut_anywhere_is_not_whole():
    text = REPORT.read_text()
    for cut in range(1, len(text) - 1, 97):
        assert text_of(text[:cut], "nccl-tests").exit_code == 3


# --- perftest ----------------------------------------------------------------------------------------------


def test_perftest_counts_in_mib_and_in_gigabits():
    assert file_of(FIXTURES / "perftest-send_bw-mib.txt").measurements[0].samples == (5544.28 * 2**20,)
    imported = file_of(FIXTURES / "perftest-write_bw-ndr.txt")
    assert imported.exit_code == 0, sentences(imported)
    large = one(imported, "links.hardware.bandwidth", bytes=8388608)
    assert large.samples == (pytest.approx(395.61e9 / 8),)
    assert (large.subject.nic, large.params["tool"], large.notes["link"]) == ("mlx5_0", "ib_write_bw", "IB")


def test_perftest_latency_is_the_median_and_keeps_the_tail():
    imported = file_of(FIXTURES / "perftest-write_lat.txt")
    assert imported.exit_code == 0, sentences(imported)
    small = one(imported, "links.hardware.latency", bytes=2)
    assert small.samples == (pytest.approx(1.07e-6),)
    assert small.notes["99% percentile"] == pytest.approx(1.16e-6)
    assert small.params["memory"] == "gpu"


@pytest.mark.parametrize(
    ("name", "before", "after", "exit_code", "words"),
    [
        ("perftest-write_bw-ndr.txt", "0.748386", "0.948386", 1, "messages a second, but the bandwidth makes 0.748"),
        ("perftest-write_bw-ndr.txt", "392.51             392.37", "392.11             392.37", 1, "above the peak"),
        ("perftest-write_bw-ndr.txt", "[Gb/sec]", "[Tb/sec]", 3, "does not know"),
        ("perftest-write_bw-ndr.txt", "5000           392.51", "5000", 3, "4 fields, the table has 5"),
        ("perftest-write_lat.txt", "1.03           4.06", "1.13           4.06", 1, "t_min 1.13 us is above"),
        ("perftest-write_lat.txt", "1.16    		4.06", "4.16    		4.06", 1, "is above 99.9% percentile"),
        ("perftest-write_lat.txt", "1.07     	", "-1.07     	", 1, "negative"),
        ("perftest-write_lat.txt", " 64      1000", "Failed status 12: wr_id 0\n 64      1000", 3, "not a row"),
    ],
)  # fmt: skip
def test_perftest_that_is_wrong_or_not_whole(name, before, after, exit_code, words):
    text = (FIXTURES / name).read_text()
    assert before in text
    imported = text_of(text.replace(before, after), "perftest")
    assert imported.exit_code == exit_code
    assert words in sentences(imported)


def test_perftest_without_a_result_is_not_read():
    assert text_of("Couldn't connect to 10.0.0.1:18515\n", "perftest").exit_code == 3
    whole = (FIXTURES / "perftest-write_bw-ndr.txt").read_text()
    assert "no closing rule" in sentences(text_of(whole[: whole.rindex("----------")].rstrip("-"), "perftest"))


# --- OSU ---------------------------------------------------------------------------------------------------


def test_osu_takes_the_slowest_rank_where_it_is_printed():
    imported = file_of(FIXTURES / "osu-allreduce-full.txt", ranks=4)
    assert imported.exit_code == 0, sentences(imported)
    slow = one(imported, "collectives.all_reduce.busbw", bytes=16777216)
    assert slow.samples == (pytest.approx(16777216 / 8642.46e-6 * 1.5),)
    assert slow.notes["statistic"] == "slowest rank"
    assert one(imported, "links.bandwidth", bytes=2097152).samples == (24377.1e6,)


def test_osu_without_ranks_has_times_only():
    imported = file_of(FIXTURES / "osu-allreduce-full.txt")
    assert imported.exit_code == 0
    assert {m.metric for m in imported.measurements} == {"collectives.all_reduce.latency", "links.bandwidth"}


def test_osu_prints_one_ranks_share_of_an_allgather():
    assert "--ranks" in sentences(file_of(FIXTURES / "osu-allgather.txt"))
    imported = file_of(FIXTURES / "osu-allgather.txt", ranks=8)
    assert imported.exit_code == 0
    assert one(imported, "collectives.all_gather.latency", bytes=8 * 4096).samples == (pytest.approx(22.5e-6),)
    assert {m.params["library"] for m in imported.measurements} == {"nccl"}


@pytest.mark.parametrize(
    ("name", "before", "after", "exit_code", "words"),
    [
        ("osu-latency.txt", "4                       2.43\n", "", 3, "after 2 B comes 8 B: lines are missing"),
        ("osu-latency.txt", "2.44", "2.4a", 3, "'2.4a' is no number"),
        ("osu-latency.txt", "2.44", "-2.44", 1, "negative"),
        ("osu-latency.txt", "2.44", "0.00", 1, "took no time"),
        ("osu-allreduce-full.txt", "8619.50", "8639.50", 1, "is not between"),
        ("osu-allreduce-full.txt", ".10              Pass", ".10              Fail", 1, "the result was wrong"),
        ("osu-allreduce-full.txt", "# Size      Bandwidth (MB/s)        Validation\n", "", 3, "the table's head"),
        ("osu-allreduce-full.txt", "MPI Bandwidth", "MPI Put Latency", 3, "no metric of ours"),
    ],
)  # fmt: skip
def test_osu_that_is_wrong_or_not_whole(name, before, after, exit_code, words):
    text = (FIXTURES / name).read_text()
    assert before in text
    imported = text_of(text.replace(before, after), "osu", ranks=4)
    assert imported.exit_code == exit_code, sentences(imported)
    assert words in sentences(imported)


# --- nvbandwidth -------------------------------------------------------------------------------------------


def test_nvbandwidth_matrices_are_tables_of_pairs():
    imported = file_of(FIXTURES / "nvbandwidth-read-6xa6000.txt")
    assert imported.exit_code == 0, sentences(imported)
    (matrix,) = imported.measurements
    assert len(matrix.columns["samples"]) == 30
    at = list(zip(matrix.columns["a"], matrix.columns["b"], strict=True)).index((2, 4))
    assert matrix.columns["samples"][at] == [21.87e9]


def test_nvbandwidth_turns_reads_round_and_names_parts():
    imported = file_of(FIXTURES / "nvbandwidth-report.json")
    assert imported.exit_code == 0, sentences(imported)
    (matrix,) = imported.measurements
    assert (matrix.columns["a"], matrix.columns["b"]) == ([1, 0], [0, 1])
    assert imported.remarks == ("multinode_device_to_device_memcpy_read_ce was waived: not measured",)
    both = file_of(FIXTURES / "nvbandwidth-bidirectional-and-latency.txt")
    assert both.exit_code == 0, sentences(both)
    assert one(both, "links.hardware.latency").columns["samples"] == [
        [pytest.approx(728.12e-9)],
        [pytest.approx(731.4e-9)],
    ]
    assert {m.params.get("part") for m in both.measurements} == {"read1", "read2", "total", None}
    host = file_of(FIXTURES / "nvbandwidth-host-8x4090.txt")
    assert host.exit_code == 0
    assert host.measurements[0].columns["rank"] == list(range(8))


@pytest.mark.parametrize(
    ("before", "after", "exit_code", "words"),
    [
        ("read_ce 715.53", "read_ce 725.53", 1, "the matrix adds up to 715.56, the sum says 725.53"),
        ("22.36", "12.36", 1, "the matrix adds up to"),
        ("22.36", "-2.36", 1, "not above zero"),
        (" 5     21.86     22.67     22.01     26.34     26.35       N/A\n", "", 3, "5 rows for 6 columns"),
        ("22.36     21.87     22.17", "22.36     21.87", 3, "not another row of 6 columns"),
        ("22.36", "22,36", 3, "'22,36' is no number"),
        ("SUM device_to_device_memcpy_read_ce 715.53\n", "", 3, "has no sum"),
        ("memcpy CE GPU(row)", "ASSERT in expression h_errorFlag == 0\nmemcpy CE GPU(row)", 1, "failed"),
    ],
)  # fmt: skip
def test_nvbandwidth_that_is_wrong_or_not_whole(before, after, exit_code, words):
    text = (FIXTURES / "nvbandwidth-read-6xa6000.txt").read_text()
    assert before in text
    imported = text_of(text.replace(before, after), "nvbandwidth")
    assert imported.exit_code == exit_code, sentences(imported)
    assert words in sentences(imported)


# --- the command -------------------------------------------------------------------------------------------


def test_the_command_prints_writes_and_returns_the_code(tmp_path, capsys):
    out = tmp_path / "measurements.jsonl"
    assert commands.main(["import", str(H100), "--as", "nccl-tests", "-o", str(out)]) == 0
    assert "Read whole and sound." in capsys.readouterr().out
    records = [decode(Measurement, line) for line in out.read_text().splitlines()]
    assert records == list(file_of(H100).measurements)
    assert commands.main(["import", str(A100), "--as", "nccl-tests"]) == 3
    assert "NOT READ: line 23: the table does not say" in capsys.readouterr().out
    assert commands.main(["import", str(H100), "--as", "nccl-tests", "--line-rate", "450"]) == 1
    assert commands.main(["import", "no-such-file", "--as", "osu"]) == 3
    assert commands.main(["import", str(H100), "--as", "sockperf"]) == 4


def test_an_import_becomes_a_run_that_is_judged_but_never_accepted(tmp_path, capsys):
    folder = tmp_path / "vendor"
    told = ["--cluster", "a100-sxm-hdr200", "--into", str(folder)]
    assert commands.main(["import", str(A100), "--as", "nccl-tests", "--op", "all_reduce", *told]) == 0
    assert commands.main(["import", str(A100), "--as", "nccl-tests", "--op", "all_reduce", *told]) == 4
    stored = runs.load(folder)
    assert (stored.run.nodes, stored.run.scope["backend"]) == (2, "nccl")
    verdicts = stored.verdicts(today=date(2026, 12, 1))
    statuses = {v.status for v in verdicts if v.metric == "collectives.all_reduce.wrong_elements"}
    assert statuses == {"pass"}
    assert stored.outcome(verdicts) == "INCOMPLETE"
    capsys.readouterr()


def test_an_import_with_a_wrong_result_is_rejected_and_one_not_whole_is_in_error(tmp_path, capsys):
    source = tmp_path / "all_reduce_perf.txt"
    for before, after, outcome, status in (
        ("419.49      0 ", "419.49      3 ", "REJECTED", "error"),
        ("# Avg bus", "# Gone bus", "INCOMPLETE", "error"),
    ):
        source.write_text(H100.read_text().replace(before, after))
        folder = tmp_path / outcome
        commands.main(
            ["import", str(source), "--as", "nccl-tests", "--cluster", "h100-sxm-ndr400", "--into", str(folder)]
        )
        stored = runs.load(folder)
        verdicts = stored.verdicts(today=date(2026, 12, 1))
        assert stored.outcome(verdicts) == outcome
        assert [v.status for v in verdicts if v.metric == "import.file"] == [status]
    assert commands.main(["import", str(H100), "--as", "nccl-tests", "--into", str(tmp_path / "x")]) == 4
    assert commands.main(["import", str(H100), "--as", "osu", "--into", "y", "--cluster", "no-such"]) == 4
    capsys.readouterr()


def test_the_same_test_on_two_devices_is_two_measurements():
    text = (FIXTURES / "perftest-write_bw-ndr.txt").read_text()
    imported = text_of(text + text.replace("mlx5_0", "mlx5_1"), "perftest")
    assert imported.exit_code == 0
    assert {(m.subject.nic, m.config) for m in imported.measurements} == {
        ("mlx5_0", "imported"), ("mlx5_1", "imported-2"),
    }  # fmt: skip


def test_a_file_of_another_tool_is_not_what_it_claims_to_be():
    for path, tool in EVERY:
        for other in IMPORTERS:
            if other != tool:
                imported = read(str(path), tool=other)
                assert imported.exit_code == 3, (path.name, other)
                assert imported.measurements == ()


# --- whatever comes in, nothing raises, and nothing cut passes ----------------------------------------------


@settings(max_examples=150, deadline=None)
@given(case=st.sampled_from(EVERY), cut=st.floats(0, 1))
def test_a_file_cut_anywhere_never_raises_and_never_passes_for_whole(case, cut):
    path, tool = case
    text = path.read_text()
    asked = {"ranks": 8, "op": "all_reduce" if path == A100 else ""}
    whole = text_of(text, tool, **asked)
    part = text_of(text[: int(cut * len(text))], tool, **asked)
    lost = len(whole.measurements) - len(part.measurements)
    if tool == "osu":  # it prints no end: a cut between two lines cannot be told
        assert part.exit_code == 3 or part.exit_code == 0
    elif lost > 0 and not (tool == "nvbandwidth" and part.measurements):  # nor can a whole test less
        assert part.exit_code in (1, 3)


@settings(max_examples=80, deadline=None)
@given(case=st.sampled_from(EVERY), order=st.randoms(use_true_random=False))
def test_shuffled_lines_never_raise(case, order):
    path, tool = case
    lines = path.read_text().splitlines(keepends=True)
    order.shuffle(lines)
    assert text_of("".join(lines), tool).exit_code in (0, 1, 3)


@settings(max_examples=120, deadline=None)
@given(case=st.sampled_from(EVERY), edits=st.lists(st.tuples(st.floats(0, 1), st.text(max_size=6)), max_size=8))
def test_edited_files_never_raise(case, edits):
    path, tool = case
    text = path.read_text()
    for where, junk in edits:
        at = int(where * len(text))
        text = text[:at] + junk + text[at + len(junk) :]
    assert text_of(text, tool).exit_code in (0, 1, 3)


@settings(max_examples=120, deadline=None)
@given(tool=st.sampled_from(sorted(IMPORTERS)), text=st.text(max_size=400))
def test_random_text_never_raises_and_is_never_a_result(tool, text):
    assert text_of(text, tool).exit_code == 3


NASTY = st.sampled_from(
    [
        "0",
        "-1",
        "nan",
        "inf",
        "1e999",
        "1e-999",
        "-0",
        "9" * 30,
        "9" * 5000,
        "\u00b2",
        "\u0663",
        "N/A",
        "",
        "1*",
        "0x10",
    ]
)


@settings(max_examples=300, deadline=None)
@given(case=st.sampled_from(EVERY), swaps=st.lists(st.tuples(st.floats(0, 1), NASTY), min_size=1, max_size=3))
def test_any_number_in_any_place_never_raises(case, swaps):
    path, tool = case
    parts = re.split(r"(\S+)", path.read_text())
    words = [n for n, part in enumerate(parts) if re.fullmatch(r"[\d.]+", part)] or [0]
    for where, nasty in swaps:
        parts[words[int(where * (len(words) - 1))]] = nasty
    for asked in ({}, {"ranks": 8, "op": "all_reduce", "line_rate": 1e9}):
        assert text_of("".join(parts), tool, **asked).exit_code in (0, 1, 3)


@pytest.mark.parametrize("tool", ["nccl-tests", "nvbandwidth"])
def test_json_as_deep_as_it_gets(tool):
    start = '{"nvbandwidth": ' if tool == "nvbandwidth" else '{"results": '
    assert text_of(start + "[" * 100_000, tool).exit_code == 3


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(
    path=st.lists(st.integers(0, 9), min_size=1, max_size=5),
    value=JSON,
    tool=st.sampled_from(["nccl-tests", "nvbandwidth"]),
)
def test_reports_with_any_value_anywhere_never_raise(path, value, tool):
    name = {"nccl-tests": "nccl-tests-report.json", "nvbandwidth": "nvbandwidth-report.json"}[tool]
    report = json.loads((FIXTURES / name).read_text())
    node = report
    for step in path[:-1]:
        keys = list(node) if isinstance(node, dict) else range(len(node))
        child = node[list(keys)[step % len(keys)]] if keys else None
        if not isinstance(child, dict | list) or not child:
            break
        node = child
    keys = list(node) if isinstance(node, dict) else list(range(len(node)))
    node[keys[path[-1] % len(keys)]] = value
    assert text_of(json.dumps(report), tool).exit_code in (0, 1, 3)
