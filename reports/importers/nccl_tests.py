"""nccl-tests (and rccl-tests): the printed table, and the -J report.

Every version's table: with `#wrong` or the older `error`, with or without a root, with per-iteration columns,
one run after the other in one file. Times are means over the iterations, unless the report has every one. A
table is whole when its footer is there, its rows reach the largest size and their mean is the footer's. Two
jobs side by side, or one rank alone, are not what they claim to be: a benchmark of communication.

Text that no table holds is skipped and listed; within a table every line must read.
"""

from __future__ import annotations

import math
import re

from benchmarks.measurement import Scalar
from reports.importers import nccl_tests_json
from reports.importers.collectives import DTYPES, Sweep, factor, operation, ours, place_params, sent_share
from reports.importers.figures import Figure, agree
from reports.importers.nccl_tests_table import Cell, Row, Table, is_head
from reports.importers.source import LIBRARY, Asked, Findings, Imported, Source

NAME = re.compile(r"\b([a-z_]+?)_perf(?:_mpi)?\b")
SETTINGS = re.compile(
    r"#\s*nThread (\d{1,9}) nGpus (\d{1,9}) minBytes (\d{1,18}) maxBytes (\d{1,18}) step: (\d{1,18})\((factor|bytes)\)"
)
RANK = re.compile(r"#\s+Rank\s+(\d{1,9})\s+(?:Group\s+(-?\d{1,9})\s+)?Pid\s+\d+ on\s+(\S+)")
BOUNDS = re.compile(r"#\s*Out of bounds values\s*: (\d+) (OK|FAILED)")
MEAN = re.compile(r"#\s*Avg bus bandwidth\s*: (\S+)\s*(OK|FAILED)?")
VERSION = re.compile(r"#\s*nccl-tests version (\S+)")
FAILURE = re.compile(r"Test (?:NCCL|CUDA) failure|Test failure|failed with|#\s*error: (?!\(null\))\S")


def read(source: Source, asked: Asked) -> Imported:
    """Measurements of every table of a file."""
    if source.text.lstrip()[:1] == "{":
        return nccl_tests_json.read(source, asked)
    findings = Findings()
    table = Table(op=operation(asked.op))
    for number, line in source.lines():
        table = _line(table, findings, number, line, asked)
    if table.begun:
        findings.unreadable(table.last_line, "the table has no end: the file is cut, or the test died")
        _finish(table, findings, asked)
    if not source.ends_whole and source.text:
        findings.unreadable(source.text.count("\n") + 1, "the last line has no end: the file is cut")
    return findings.imported("nccl-tests", source)


def _line(table: Table, findings: Findings, number: int, line: str, asked: Asked) -> Table:
    """Read one line into the open table, or a new one where the line starts or ends one."""
    text = line.strip()
    if LIBRARY.search(line):
        findings.skipped.append(number)
    elif FAILURE.search(text):
        findings.unreadable(number, f"the test failed: {text[:160]}")
    elif text.startswith("#"):
        return _comment(table, findings, number, text, asked)
    elif text[:1].isdigit() and (table.columns or len(text.split()) > 6):
        _row(table, findings, number, text)
    elif text and table.columns:
        findings.unreadable(number, f"not a row of the table: {text[:80]!r}")
    elif text:
        table.op = table.op or _named(text)
        findings.skipped.append(number)
    return table


def _named(text: str) -> str:
    found = NAME.search(text)
    return operation(found[1]) if found else ""


def _comment(table: Table, findings: Findings, number: int, text: str, asked: Asked) -> Table:
    if found := SETTINGS.match(text):
        if table.settings:
            findings.unreadable(
                number, f"a second test starts before the one of line {table.first_line} ends: jobs side by side"
            )
        else:
            table.ranks = []
        table.settings = tuple(map(int, found.groups()[:5]))
        table.by_factor = found[6] == "factor"
        table.first_line = number
    elif found := RANK.match(text):
        table.ranks.append((int(found[1]), int(found[2] or 0), found[3]))
    elif " algbw " in text and " busbw " in text:
        columns = tuple(text.lstrip("# ").split())
        if not is_head(columns):
            findings.unreadable(number, f"the head of a table that this reader does not know: {text[:80]!r}")
            return table
        table.columns, table.header_line = columns, number
    elif found := VERSION.match(text):
        table.version = found[1]
    elif found := BOUNDS.match(text):
        if found[2] == "FAILED" or found[1] != "0":
            findings.wrong(number, f"{found[1]} results were out of bounds")
    elif found := MEAN.match(text):
        table.mean = found[1]
        table.last_line = number
        _finish(table, findings, asked)
        return Table(op=operation(asked.op), ranks=table.ranks, version=table.version)
    elif "starting:" in text:
        table.op = _named(text) or table.op
    table.last_line = number
    return table


def _row(table: Table, findings: Findings, number: int, text: str) -> None:
    table.last_line = number
    if not table.columns:
        findings.unreadable(number, "a row without the table's head: the start of the file is missing")
        return
    try:
        table.rows.append(Row.of(text, table.columns, number))
    except ValueError as error:
        findings.unreadable(number, str(error))


def _finish(table: Table, findings: Findings, asked: Asked) -> None:
    """The measurements of a table, and whether it is whole and sound."""
    where = table.header_line or table.first_line or table.last_line
    ranks = table.num_ranks(findings, where)
    if ranks < 2:
        return
    if not table.op:
        findings.unreadable(where, "the table does not say which operation it is: --op NAME does")
        return
    op, further = ours(table.op)
    sweep = Sweep(op=op, ranks=ranks, notes={"tool": "nccl-tests", "version": table.version, "statistic": "mean"})
    for row in table.rows:
        for cell in row.cells:
            if _sound(table, row, cell, ranks, findings, asked):
                params: dict[str, Scalar] = {
                    "group": "world",
                    "bytes": row.size,
                    "dtype": DTYPES.get(row.dtype, row.dtype),
                }
                params |= place_params(op, cell.in_place) | row.choices | further
                sweep.add(
                    params, times_s=[] if table.cpu_time else [cell.time.value * 1e-6],
                    busbw=[cell.busbw.value * 1e9], wrong=cell.wrong, line=row.line,
                )  # fmt: skip
    findings.measurements.extend(sweep.measurements())
    findings.nodes, findings.backend = len({host for _, _, host in table.ranks}), "nccl"
    _whole(table, findings)


def _sound(table: Table, row: Row, cell: Cell, ranks: int, findings: Findings, asked: Asked) -> bool:
    """Whether a result can be: figures that are numbers and follow from each other, no wrong element."""
    where = f"{row.size} B {'in' if cell.in_place else 'out of'} place"
    if cell.wrong:
        findings.wrong(row.line, f"{where}: {cell.wrong:g} wrong elements")
    if not all(figure.sound for figure in (cell.time, cell.algbw, cell.busbw)):
        findings.wrong(row.line, f"{where}: a time or bandwidth is negative or no number")
        return False
    if row.size == 0:
        return False  # too small to split over the ranks: nothing was sent
    if cell.time.value == 0:
        findings.wrong(row.line, f"{where}: it took no time")
        return False
    rate = row.size / cell.time.value * 1e-3 * sent_share(table.op, ranks)  # GB/s
    if not table.cpu_time and not agree(cell.algbw, rate, rate * cell.time.ulp / cell.time.value):
        findings.wrong(row.line, f"{where}: algbw {cell.algbw.value:g} GB/s, but size / time is {rate:.4g} GB/s")
    share = factor(table.op, ranks)
    if not agree(cell.busbw, cell.algbw.value * share, cell.algbw.ulp * share):
        expected = cell.algbw.value * share
        findings.wrong(
            row.line,
            f"{where}: busbw {cell.busbw.value:g} GB/s, but algbw x {share:.4g} ({table.op}, {ranks} ranks) is "
            f"{expected:.4g} GB/s",
        )
    if asked.line_rate and cell.busbw.value * 1e9 > asked.line_rate:
        findings.wrong(row.line, f"{where}: busbw {cell.busbw.value:g} GB/s is above the line rate")
    return True


def _whole(table: Table, findings: Findings) -> None:
    """Do the rows reach from the smallest size to the largest, and is their mean the footer's?"""
    cells = [cell for row in table.rows for cell in row.cells]
    if table.settings and table.rows:
        _, _, least, most, step = table.settings
        expected = 1
        if table.by_factor and step > 1 and most >= least > 0:
            expected = math.floor(math.log(most / least, step) + 1e-9) + 1
        elif step > 0 and most >= least:
            expected = (most - least) // step + 1
        sizes = {row.size for row in table.rows}
        if len(table.rows) < expected or (max(sizes) * (step if table.by_factor else 1) + step * 4096 < most):
            findings.unreadable(
                table.rows[-1].line,
                f"{len(table.rows)} rows, but {least} to {most} B makes {expected}: rows are missing",
            )
    if table.mean and cells:
        try:
            mean = Figure.of(table.mean)
        except ValueError:
            findings.unreadable(table.last_line, f"the mean {table.mean!r} is no number")
            return
        got = sum(cell.busbw.value for cell in cells) / len(cells)
        uncertain = sum(cell.busbw.ulp for cell in cells) / len(cells)
        if not agree(mean, got, uncertain):
            findings.unreadable(
                table.last_line,
                f"the rows have a mean of {got:.4f} GB/s, the footer says {table.mean}: rows are missing",
            )
