"""nvbandwidth: copies and latencies between GPUs, and between CPUs and GPUs; the printed matrices or --format json.

GB is 1e9 bytes. In a matrix the arrow says which way data flows; a row that reads from its column is turned
round, so that a link always leads from a to b. Every matrix carries its sum: one that does not add up is no
result. Waived tests were not measured, and that is said.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from benchmarks.measurement import Metric, Scalar
from reports.importers.figures import Figure, agree, whole
from reports.importers.source import Asked, Findings, Imported, Source

RUNNING = re.compile(r"^Running (\w+)\.$")
MATRIX = re.compile(r"^(.*?) ?(CPU|GPU)\(row\) (->|<-|<->) (CPU|GPU)\(column\) ?(.*?) ?\(?(GB/s|ns)\)?$")
LOCAL = re.compile(r"^(.*GPU\(column\).*?) ?\((GB/s|ns)\)$")
SUM = re.compile(r"^SUM (\w+) (\S+)$")
WAIVED = re.compile(r"(?i)^(?:waived|waiving)\b:? ?(.*?)\.?$")
FAILURE = re.compile(r"(?i)\berror\b|\bASSERT in expression|invalid value when checking|not found:")


@dataclass(kw_only=True)
class Matrix:
    """One matrix while it is read."""

    test: str = ""
    line: int = 0
    title: str = ""
    unit: str = ""  # GB/s | ns
    rows_are: str = ""  # CPU | GPU | "" for local tests
    arrow: str = ""
    columns: list[int] = field(default_factory=list)
    rows: dict[int, list[Figure | None]] = field(default_factory=dict)
    pending: bool = False  # something was announced whose sum has not come yet

    @property
    def open(self) -> bool:
        """Whether rows belong here."""
        return bool(self.unit)


def read(source: Source, asked: Asked) -> Imported:
    """Measurements of every matrix of a file."""
    findings = Findings()
    if (start := source.text.find("{")) >= 0 and source.text[start:].lstrip("{ \n\t\r").startswith('"nvbandwidth"'):
        _json(source.text[start:], findings, asked)
        return findings.imported("nvbandwidth", source)
    matrix = Matrix()
    for number, line in source.lines():
        matrix = _line(matrix, findings, number, line.strip(), asked)
    if matrix.pending:
        findings.unreadable(matrix.line, f"{matrix.test} has no sum: the file is cut, or the test died")
    if not source.ends_whole and source.text:
        findings.unreadable(source.text.count("\n") + 1, "the last line has no end: the file is cut")
    return findings.imported("nvbandwidth", source)


def _line(matrix: Matrix, findings: Findings, number: int, text: str, asked: Asked) -> Matrix:
    if running := RUNNING.match(text):
        if matrix.pending:
            findings.unreadable(matrix.line, f"{matrix.test} has no sum")
        return Matrix(test=running[1], line=number, pending=True)
    if found := MATRIX.match(text):
        name, unit = f"{found[1]} {found[5]}".strip(), found[6]
        return Matrix(
            test=matrix.test, line=number, title=name, unit=unit, rows_are=found[2], arrow=found[3], pending=True
        )  # fmt: skip
    if found := LOCAL.match(text):
        return Matrix(test=matrix.test, line=number, title=found[1], unit=found[2], pending=True)
    if found := SUM.match(text):
        _finish(matrix, findings, number, found[1], found[2], asked)
        return Matrix(test=matrix.test)
    if waived := WAIVED.match(text):
        findings.remarks.append(f"{waived[1] or matrix.test or 'a test'} was waived: not measured")
        return Matrix()
    if FAILURE.search(text):
        wrong = "checking" in text or "ASSERT" in text
        (findings.wrong if wrong else findings.unreadable)(number, f"{matrix.test or 'the tool'} failed: {text[:160]}")
        return Matrix()
    if matrix.open and text:
        _cells(matrix, findings, number, text)
    elif text and text[:1].isdigit() and len(text.split()) > 1:
        findings.unreadable(number, "numbers without a title: the start of the file is missing")
    return matrix


def _cells(matrix: Matrix, findings: Findings, number: int, text: str) -> None:
    tokens = text.split()
    try:
        if not matrix.columns:
            matrix.columns = [whole(token) for token in tokens]
            return
        row = whole(tokens[0])
        figures = [None if token == "N/A" else Figure.of(token) for token in tokens[1:]]
    except ValueError as error:
        findings.unreadable(number, str(error))
        return
    if len(figures) != len(matrix.columns) or row in matrix.rows:
        findings.unreadable(number, f"not another row of {len(matrix.columns)} columns: {text[:80]!r}")
        return
    matrix.rows[row] = figures


def _finish(matrix: Matrix, findings: Findings, number: int, name: str, total: str, asked: Asked) -> None:
    test = matrix.test or name
    cells = [cell for row in matrix.rows.values() for cell in row if cell is not None]
    if not cells:
        findings.unreadable(number, f"{name} has a sum and no matrix: lines are missing")
        return
    try:
        printed = Figure.of(total)
    except ValueError as error:
        findings.unreadable(number, str(error))
        return
    if not all(cell.sound and cell.value > 0 for cell in cells):
        findings.wrong(matrix.line, f"{name}: a value is not above zero")
        return
    if matrix.rows_are == "GPU" and matrix.arrow and len(matrix.rows) < len(matrix.columns):
        findings.unreadable(number, f"{name}: {len(matrix.rows)} rows for {len(matrix.columns)} columns")
    elif not agree(printed, sum(cell.value for cell in cells), sum(cell.ulp for cell in cells) / 2):
        findings.wrong(number, f"{name}: the matrix adds up to {sum(c.value for c in cells):.2f}, the sum says {total}")
    worst = max(cell.value for cell in cells)
    if asked.line_rate and matrix.unit == "GB/s" and worst * 1e9 > asked.line_rate:
        findings.wrong(matrix.line, f"{name}: {worst:g} GB/s is above the line rate")
    _measure(matrix, findings, test, name)


def _measure(matrix: Matrix, findings: Findings, test: str, name: str) -> None:
    latency = matrix.unit == "ns"
    scale = 1e-9 if latency else 1e9
    params: dict[str, Scalar] = {"tool": "nvbandwidth", "test": test}
    if name != test:
        params["part"] = name.removeprefix(f"{test}_")
    notes = {"tool": "nvbandwidth", "line": matrix.line, "title": matrix.title}
    if matrix.rows_are == "GPU" and matrix.arrow:
        metric = _metric(latency, params, per="pair")
        pairs = [
            (row, column, cell.value * scale)
            for row, cells in sorted(matrix.rows.items())
            for column, cell in zip(matrix.columns, cells, strict=True)
            if cell is not None
        ]
        turned = [(b, a, value) for a, b, value in pairs] if matrix.arrow == "<-" else pairs
        columns: dict[str, list[Any]] = {
            "a": [a for a, _, _ in turned], "b": [b for _, b, _ in turned], "samples": [[v] for _, _, v in turned]
        }  # fmt: skip
        findings.measurements.append(metric.measured(columns=columns, config="imported", notes=notes))
        return
    for row, cells in sorted(matrix.rows.items()):
        here = params | ({"cpu": row} if len(matrix.rows) > 1 else {})
        kept = [(gpu, cell.value * scale) for gpu, cell in zip(matrix.columns, cells, strict=True) if cell is not None]
        columns = {"rank": [gpu for gpu, _ in kept], "samples": [[value] for _, value in kept]}
        metric = _metric(latency, here, per="rank")
        findings.measurements.append(metric.measured(columns=columns, config="imported", notes=notes))


def _metric(latency: bool, params: dict[str, Scalar], per: str) -> Metric:
    if latency:
        return Metric(name="links.hardware.latency", unit="s", better="lower", params=params, per=per)
    return Metric(name="links.hardware.bandwidth", unit="B/s", better="higher", params=params, per=per)


def _json(text: str, findings: Findings, asked: Asked) -> None:
    try:
        body = json.JSONDecoder().raw_decode(text)[0]["nvbandwidth"]
        cases = body["testcases"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        findings.unreadable(getattr(error, "lineno", 0), f"not a whole report of nvbandwidth: {error}")
        return
    if body.get("error"):
        findings.unreadable(0, f"nvbandwidth failed: {str(body['error'])[:160]}")
    for number, case in enumerate(cases if isinstance(cases, list) else ()):
        _case(case, number, findings, asked)


def _case(case: Any, number: int, findings: Findings, asked: Asked) -> None:
    name = str(case.get("name", "")) if isinstance(case, dict) else ""
    if not name:
        findings.unreadable(0, f"test case {number + 1} has no name")
        return
    if case.get("status") == "Waived":
        findings.remarks.append(f"{name} was waived: not measured")
        return
    if case.get("status") != "Passed":
        findings.unreadable(0, f"{name}: {case.get('status', 'no status')} {str(case.get('error', ''))[:120]}".rstrip())
        return
    description = str(case.get("bandwidth_description", "")).strip()
    found, local = MATRIX.match(description), LOCAL.match(description)
    try:
        rows = {
            index: [None if str(cell) == "N/A" else Figure.of(str(cell)) for cell in row]
            for index, row in enumerate(case["bandwidth_matrix"])
        }
        total = str(case["sum"])
    except (KeyError, TypeError, ValueError) as error:
        findings.unreadable(0, f"{name} does not read: {error!r}")
        return
    width = {len(row) for row in rows.values()}
    if len(width) != 1 or not (found or local):
        findings.unreadable(0, f"{name}: no matrix this reader knows ({description!r})")
        return
    matrix = Matrix(test=name, title=description, columns=list(range(width.pop())), rows=rows)
    matrix.unit = found[6] if found else local[2] if local else ""
    if found:
        matrix.rows_are, matrix.arrow = found[2], found[3]
    _finish(matrix, findings, 0, name, total, asked)
