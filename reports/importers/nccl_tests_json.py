"""The report that nccl-tests writes with -J, versions 1 and 2.

It names every environment variable of the job: none of that is kept. Where it has every iteration's time, each
is a sample; otherwise the mean is the only one.
"""

from __future__ import annotations

import json
import re
from typing import Any

from benchmarks.measurement import Scalar
from reports.importers.collectives import DTYPES, Sweep, factor, operation, ours, place_params, sent_share
from reports.importers.figures import Figure, agree
from reports.importers.source import Asked, Findings, Imported, Source

PRINTED = 1e-6  # the report prints six decimals
HALVES = (("out_of_place", False), ("in_place", True))


def read(source: Source, asked: Asked) -> Imported:
    """Measurements of a report."""
    findings = Findings()
    try:
        report = json.loads(source.text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 0)
        findings.unreadable(line, f"not a whole report: {error}; the test died, or the file is cut")
        return findings.imported("nccl-tests", source)
    if not isinstance(report, dict) or not isinstance(report.get("results"), list):
        findings.unreadable(0, "this JSON is no report of nccl-tests: it has no list of results")
        return findings.imported("nccl-tests", source)
    op, ranks = _operation(report, asked), _ranks(report)
    if not op:
        findings.unreadable(0, "the report does not name a known operation: --op NAME does")
    if ranks < 2:
        findings.unreadable(0, f"{ranks} ranks: nothing was communicated; was it built with MPI=1?")
    if op and ranks >= 2:
        notes = {"tool": "nccl-tests", "nccl": report.get("nccl_version"), "statistic": "mean"}
        sweep = Sweep(op=ours(op)[0], ranks=ranks, notes=notes)
        for number, row in enumerate(report["results"]):
            _row(sweep, op, row, number, findings, asked)
        findings.measurements.extend(sweep.measurements())
        hosts = {str(device.get("hostname", "")) for device in _devices(report)}
        findings.nodes, findings.backend = len(hosts - {""}), "nccl"
    _footer(report, findings)
    return findings.imported("nccl-tests", source)


def _operation(report: dict[str, Any], asked: Asked) -> str:
    args = report.get("args")
    program = str(args[0]) if isinstance(args, list) and args else ""
    found = re.search(r"([a-z_]+?)_perf(?:_mpi)?$", program)
    return operation(asked.op) or (operation(found[1]) if found else "")


def _ranks(report: dict[str, Any]) -> int:
    """Processes (one entry of `devices` each, whatever they drive) x threads x GPUs; less where groups are split."""
    config = _config(report)
    devices = _devices(report)
    threads, gpus = config.get("nthreads", 1), config.get("ngpus", 1)
    groups = len({str(device.get("group", 0)) for device in devices}) or 1
    if not isinstance(threads, int) or not isinstance(gpus, int):
        return 0
    return len(devices) // groups * threads * gpus


def _config(report: dict[str, Any]) -> dict[str, Any]:
    config = report.get("config")
    return config if isinstance(config, dict) else {}


def _devices(report: dict[str, Any]) -> list[dict[str, Any]]:
    devices = _config(report).get("devices", report.get("devices"))
    if not isinstance(devices, list) or not all(isinstance(device, dict) for device in devices):
        return []
    return devices


def _row(sweep: Sweep, op: str, row: Any, number: int, findings: Findings, asked: Asked) -> None:
    where = f"result {number + 1}"
    size, dtype = (row.get("size"), row.get("type")) if isinstance(row, dict) else (None, None)
    if not isinstance(size, int) or not isinstance(dtype, str) or not 0 <= size < 1 << 63:
        findings.unreadable(0, f"{where} has no size or type")
        return
    halves = [(name, in_place) for name, in_place in HALVES if row.get(name) is not None]
    if not halves:
        findings.unreadable(0, f"{where} ({size} B) has no numbers")
    for name, in_place in halves:
        params: dict[str, Scalar] = {"group": "world", "bytes": size, "dtype": DTYPES.get(dtype, dtype)}
        params |= place_params(sweep.op, in_place) | ours(op)[1]
        if row.get("redop") not in ("sum", "none", None):
            params["redop"] = str(row["redop"])
        _half(sweep, op, params, row[name], row.get(f"{name}_per_iter"), f"{where} ({size} B {name})", findings, asked)


def _half(
    sweep: Sweep, op: str, params: dict[str, Scalar], half: Any, iterations: Any, where: str, findings: Findings,
    asked: Asked,
) -> None:  # fmt: skip
    try:
        time, algbw, busbw = (
            Figure(float(half[key]), PRINTED) for key in ("time" if "time" in half else "cpu_time", "alg_bw", "bus_bw")
        )
        wrong = None if half.get("nwrong") is None else float(half["nwrong"])
        each = [float(t) for t in iterations["times_us"]] if isinstance(iterations, dict) else []
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        findings.unreadable(0, f"{where} does not read: {error!r}")
        return
    if wrong:
        findings.wrong(0, f"{where}: {wrong:g} wrong elements")
    if not all(figure.sound for figure in (time, algbw, busbw)) or not all(t > 0 for t in each):
        findings.wrong(0, f"{where}: a time or bandwidth is negative or no number")
        return
    size, share, sent = float(params["bytes"]), factor(op, sweep.ranks), sent_share(op, sweep.ranks)
    if size == 0:
        return
    if time.value == 0:
        findings.wrong(0, f"{where}: it took no time")
        return
    rate = size / time.value * 1e-3 * sent
    if "time" in half and not agree(algbw, rate, rate * time.ulp / time.value):
        findings.wrong(0, f"{where}: alg_bw {algbw.value:g} GB/s, but size / time is {rate:.6g} GB/s")
    if not agree(busbw, algbw.value * share, algbw.ulp * share):
        expected = algbw.value * share
        says = f"alg_bw x {share:.4g} ({sweep.ranks} ranks) is {expected:.6g} GB/s"
        findings.wrong(0, f"{where}: bus_bw {busbw.value:g} GB/s, but {says}")
    if asked.line_rate and busbw.value * 1e9 > asked.line_rate:
        findings.wrong(0, f"{where}: bus_bw {busbw.value:g} GB/s is above the line rate")
    times = [t * 1e-6 for t in each] or ([time.value * 1e-6] if "time" in half else [])
    rates = [size / t * sent * share for t in times] if each else [busbw.value * 1e9]
    sweep.add(params, times_s=times, busbw=rates, wrong=wrong, line=0)


def _footer(report: dict[str, Any], findings: Findings) -> None:
    if "end_time" not in report:
        findings.unreadable(0, "the report has no end time: the test did not finish")
    bounds = report.get("out_of_bounds")
    if not isinstance(bounds, dict) or "count" not in bounds:
        findings.unreadable(0, "the report does not say whether results were out of bounds")
    elif bounds["count"] != 0 or str(bounds.get("okay", "true")).lower() != "true":
        findings.wrong(0, f"{bounds['count']} results were out of bounds")
    errors = report.get("errors")
    for text in errors if isinstance(errors, list) else [errors]:
        if text and text != "no error":
            findings.unreadable(0, f"the test ended with an error: {str(text)[:160]}")
