"""OSU Micro-Benchmarks: point to point and collectives, over MPI or NCCL.

Its latency is one way, its MB is 1e6 bytes. Where a table has the slowest rank's time (-f) that is the result,
otherwise the mean over the ranks, which hides a straggler: the notes say which. OSU does not print how many
ranks took part: without `--ranks` there is no bus bandwidth, and the sizes of operations that split their
buffer cannot be told. It prints no end either: a table cut between two lines looks whole, unless a size of the
doubling series is missing before its last.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise

from benchmarks.measurement import Metric, Scalar, Subject
from reports.importers.collectives import Sweep, factor, operation
from reports.importers.figures import Figure, whole
from reports.importers.source import LIBRARY, Asked, Findings, Imported, Source

TITLE = re.compile(r"#\s*OSU (MPI|NCCL|XCCL|OPENSHMEM|UPC)(?:-\w+)* (.*?) Test(?: v([\d.]+))?")
PAIRS = re.compile(r"#\s*\[ pairs: (\d{1,9}) \]")
COLUMN = re.compile(
    r"Size|Avg Latency ?\(us\)|Min Latency ?\(us\)|Max Latency ?\(us\)|Latency ?\(us\)|Bandwidth ?\(MB/s\)|Iterations"
    r"|P\d+ Tail Lat\(us\)|Validation|MB/s|Messages/s"
)
POINT_TO_POINT = {
    "latency": ("links.latency", "s", "lower"),
    "bandwidth": ("links.bandwidth", "B/s", "higher"),
    "bi-directional bandwidth": ("links.both_ways.bandwidth", "B/s", "higher"),
    "multiple bandwidth / message rate": ("links.flows.bandwidth", "B/s", "higher"),
}
COLLECTIVES = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reduce_scatter": "reduce_scatter", "broadcast": "broadcast",
    "reduce": "reduce", "gather": "gather", "scatter": "scatter", "all-to-all personalized exchange": "all_to_all",
}  # fmt: skip
PER_RANK_SIZES = ("all_gather", "all_to_all", "gather", "scatter")  # OSU prints one rank's share, we the whole buffer


@dataclass(kw_only=True)
class Test:
    """One test of the file."""

    title: str = ""
    library: str = ""
    version: str = ""
    line: int = 0
    columns: tuple[str, ...] = ()
    pairs: int = 0
    sizes: list[int] = field(default_factory=list)
    sweep: Sweep | None = None

    @property
    def op(self) -> str:
        """The collective, or "" for a point-to-point test or an unknown one."""
        return operation(COLLECTIVES.get(self.title.removesuffix(" latency"), ""))


def read(source: Source, asked: Asked) -> Imported:
    """Measurements of every test of a file."""
    findings, test = Findings(), Test()
    for number, line in source.lines():
        test = _line(test, findings, number, line, asked)
    _finish(test, findings)
    if not source.ends_whole and source.text:
        findings.unreadable(source.text.count("\n") + 1, "the last line has no end: the file is cut")
    return findings.imported("osu", source)


def _line(test: Test, findings: Findings, number: int, line: str, asked: Asked) -> Test:
    text = line.strip()
    if title := TITLE.match(text):
        _finish(test, findings)
        return _begin(title, number, findings, asked)
    if pairs := PAIRS.match(text):
        test.pairs = int(pairs[1])
    elif text.startswith("#"):
        columns = tuple(COLUMN.findall(text))
        if "Size" in columns:
            test.columns = columns
    elif LIBRARY.search(line) or (text and not text[:1].isdigit() and not test.columns):
        findings.skipped.append(number)
    elif text and not test.columns:
        findings.unreadable(number, "a row without the table's head: the start of the file is missing")
    elif text:
        _row(test, findings, number, text, asked)
    return test


def _begin(title: re.Match[str], number: int, findings: Findings, asked: Asked) -> Test:
    test = Test(title=title[2].lower(), library=title[1].lower(), version=title[3] or "", line=number)
    if test.op:
        if test.op in PER_RANK_SIZES and asked.ranks < 2:
            findings.unreadable(number, f"OSU prints one rank's share of a {test.op}: --ranks N is needed for its size")
        notes = {"tool": "osu", "library": test.library, "version": test.version}
        test.sweep = Sweep(op=test.op, ranks=asked.ranks, notes=notes)
    elif test.title not in POINT_TO_POINT:
        findings.unreadable(number, f"no metric of ours is the test {title[2]!r}")
    return test


def _row(test: Test, findings: Findings, number: int, text: str, asked: Asked) -> None:
    tokens = text.split()
    checked = tokens[-1].lower() in ("pass", "fail")
    if checked and "Validation" not in test.columns:
        tokens = tokens[:-1]
    if len(tokens) != len(test.columns):
        findings.unreadable(number, f"not a row of {len(test.columns)} columns: {text[:80]!r}")
        return
    if checked and text.split()[-1].lower() == "fail":
        findings.wrong(number, f"{tokens[0]} B: the result was wrong")
    fields = dict(zip(test.columns, tokens, strict=True))
    try:
        figures = {name.replace(" (", "("): Figure.of(token) for name, token in fields.items() if name != "Validation"}
        test.sizes.append(whole(tokens[0]))
    except ValueError as error:
        findings.unreadable(number, str(error))
        return
    if not all(figure.sound for figure in figures.values()):
        findings.wrong(number, f"{tokens[0]} B: a number is negative or no number")
        return
    if test.sweep:
        _collective(test, test.sweep, findings, number, figures, asked)
    elif test.title in POINT_TO_POINT:
        _link(test, findings, number, figures, asked)


def _collective(
    test: Test, sweep: Sweep, findings: Findings, number: int, figures: dict[str, Figure], asked: Asked
) -> None:
    average = figures.get("Avg Latency(us)") or figures.get("Latency(us)")
    low, high = figures.get("Min Latency(us)"), figures.get("Max Latency(us)")
    if average is None:
        findings.unreadable(number, "the table has no latency")
        return
    if low and high and not low.value - low.ulp <= average.value <= high.value + high.ulp:
        findings.wrong(number, f"the average {average.value:g} us is not between {low.value:g} and {high.value:g} us")
    time = high or average
    if time.value == 0:
        findings.wrong(number, "it took no time")
        return
    if test.op in PER_RANK_SIZES and asked.ranks < 2:
        return
    num_bytes = int(figures["Size"].value) * (asked.ranks if test.op in PER_RANK_SIZES else 1)
    params: dict[str, Scalar] = {"group": "world", "bytes": num_bytes, "library": test.library}
    sweep.notes["statistic"] = "slowest rank" if high else "mean over the ranks"
    rates = []
    if asked.ranks > 1 and num_bytes:
        rates = [num_bytes / time.value * 1e6 * factor(test.op, asked.ranks)]
        if asked.line_rate and rates[0] > asked.line_rate:
            findings.wrong(number, f"{num_bytes} B: busbw {rates[0] / 1e9:.4g} GB/s is above the line rate")
    sweep.add(params, times_s=[time.value * 1e-6], busbw=rates, wrong=None, line=number)


def _link(test: Test, findings: Findings, number: int, figures: dict[str, Figure], asked: Asked) -> None:
    name, unit, better = POINT_TO_POINT[test.title]
    column = "Latency(us)" if unit == "s" else "Bandwidth(MB/s)" if "Bandwidth(MB/s)" in figures else "MB/s"
    figure = figures.get(column) or figures.get("Avg Latency(us)")
    if figure is None:
        findings.unreadable(number, f"the table has no column {column}")
        return
    value = figure.value * 1e-6 if unit == "s" else figure.value * 1e6
    if value == 0:
        findings.wrong(number, f"{figures['Size'].value:.0f} B: {'it took no time' if unit == 's' else 'no bandwidth'}")
        return
    limit = asked.line_rate * (2 if "both_ways" in name else test.pairs or 1)
    if unit == "B/s" and limit and value > limit:
        findings.wrong(number, f"{figures['Size'].value:.0f} B: {value / 1e9:.4g} GB/s is above the line rate")
    params: dict[str, Scalar] = {"bytes": int(figures["Size"].value), "library": test.library}
    if test.pairs:
        params["flows"] = test.pairs
    notes = {"tool": "osu", "version": test.version, "line": number, "statistic": "mean"}
    metric = Metric(name=name, unit=unit, better=better, params=params)
    findings.measurements.append(metric.measured(value, subject=Subject(link=(0, 1)), config="imported", notes=notes))


def _finish(test: Test, findings: Findings) -> None:
    """Did the test print anything, and is a size of its doubling series missing?"""
    if test.title and not test.sizes:
        findings.unreadable(test.line, f"the test {test.title!r} printed no result")
    for before, after in pairwise(test.sizes):
        if before and after != 2 * before:
            findings.unreadable(test.line, f"after {before} B comes {after} B: lines are missing or out of order")
            break
    if test.sweep:
        findings.measurements.extend(test.sweep.measurements())
        findings.backend = test.library
