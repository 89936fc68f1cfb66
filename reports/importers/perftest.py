"""perftest: ib_write_bw, ib_read_bw, ib_send_bw and their _lat: the table of client or server, or --out_json.

The bandwidth [MB/sec] of perftest is 2^20 bytes a second, [Gb/sec] is 1e9 bits; the latency is half a round
trip, its `typical` the median; the 99th percentile is a number of its own. The message rate beside a bandwidth must
say the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise

from benchmarks.measurement import Metric, Scalar, Subject
from reports.importers import perftest_json
from reports.importers.figures import Figure, agree, whole
from reports.importers.source import Asked, Findings, Imported, Source

TITLE = re.compile(r"^\s*(RDMA_Write|RDMA_Read|Send|Atomic\w*)\b(.*?)\b(BW|Latency) Test\s*$")
COLUMN = re.compile(
    r"#bytes|#iterations|BW \w+\[[^]]+\]|MsgRate\[\w+\]|CPU_Util\[%\]|t_\w+\[\w+\]"
    r"|[\d.]+% percentile\[\w+\]|tps average"
)
DEVICE = re.compile(r"Device\s*:\s*(\S+)")
LINK = re.compile(r"Link type\s*:\s*(\S+)")
QPS = re.compile(r"Number of qps\s*:\s*(\d{1,9})")
FAILURE = re.compile(
    r"(?i)couldn't|unable to|failed|failure|error|cannot|did not detect|no such device|problems with warm up"
)
RATES = {"MB/sec": 2.0**20, "MiB/sec": 2.0**20, "Gb/sec": 1e9 / 8}
GPU_MEMORY = re.compile(r"(?i)cuda|rocm")
RULE = re.compile(r"^-{20,}$")


@dataclass(kw_only=True)
class Run:
    """One run of one of the programs."""

    program: str = ""
    bidirectional: bool = False
    device: str = ""
    link: str = ""
    qps: int = 1
    gpu: bool = False
    columns: tuple[str, ...] = ()
    header_line: int = 0
    rows: int = 0
    facts: dict[str, str] = field(default_factory=dict)


def read(source: Source, asked: Asked) -> Imported:
    """Measurements of every run of a file."""
    findings, run = Findings(), Run()
    if source.text.lstrip()[:1] == "{":
        _report(source.text, findings, asked)
        return findings.imported("perftest", source)
    for number, line in source.lines():
        run = _line(run, findings, number, line, asked)
    if run.columns:
        findings.unreadable(source.text.count("\n"), "the table has no closing rule: the file is cut, or the test died")
    elif run.program and not run.rows:
        findings.unreadable(0, f"{run.program} printed no result")
    if not source.ends_whole and source.text:
        findings.unreadable(source.text.count("\n") + 1, "the last line has no end: the file is cut")
    return findings.imported("perftest", source)


def _report(text: str, findings: Findings, asked: Asked) -> None:
    """The one result of a JSON report."""
    try:
        report = perftest_json.parse(text)
        settings, results = report.get("test_info", {}), report.get("results", {})
        title = TITLE.match(settings.get("test", "").replace("_", " ").replace("RDMA ", "RDMA_"))
        if not title or not results:
            raise ValueError("the report names no test of perftest, or has no results")
        fields = perftest_json.columns(results)
        qps = whole(settings.get("Number_of_qps", "1"))
    except ValueError as error:
        findings.unreadable(0, str(error))
        return
    run = _run(title, gpu=any(value == "ON" for key, value in settings.items() if GPU_MEMORY.search(key)))
    run.device, run.link, run.qps = settings.get("Device", ""), settings.get("Link_type", ""), qps
    _judge(run, findings, 0, fields, asked)


def _run(title: re.Match[str], *, gpu: bool) -> Run:
    """A run of the program that a title names."""
    kind = {"BW": "bw", "Latency": "lat"}[title[3]]
    verb = title[1].lower().replace("rdma_", "").split("_")[0]
    return Run(program=f"ib_{verb}_{kind}", bidirectional="Bidirectional" in title[2], gpu=gpu)


def _line(run: Run, findings: Findings, number: int, line: str, asked: Asked) -> Run:
    text = line.strip()
    if title := TITLE.match(line):
        if run.program and not run.rows:
            findings.unreadable(number, f"a second test starts before {run.program} printed a result")
        return _run(title, gpu=run.gpu)
    if run.columns and RULE.match(text):
        run.columns = ()
    elif run.columns and text[:1].isdigit():
        _row(run, findings, number, text, asked)
    elif text.startswith("#bytes"):
        run.columns, run.header_line = tuple(COLUMN.findall(text)), number
        if not run.program:
            findings.unreadable(number, "a table without its title: the start of the file is missing")
    elif run.columns and text:
        findings.unreadable(number, f"not a row of the table: {text[:80]!r}")
    elif FAILURE.search(text) and "Max inline" not in text:
        findings.unreadable(number, f"the test failed: {text[:160]}")
    elif text:
        _setting(run, text)
    return run


def _setting(run: Run, text: str) -> None:
    if found := DEVICE.search(text):
        run.device = found[1]
    if found := LINK.search(text):
        run.link = found[1]
    if found := QPS.search(text):
        run.qps = int(found[1])
    run.gpu = run.gpu or "CUDA" in text or "GPU buffer" in text


def _row(run: Run, findings: Findings, number: int, text: str, asked: Asked) -> None:
    tokens = text.split()
    if len(tokens) != len(run.columns):
        findings.unreadable(number, f"{len(tokens)} fields, the table has {len(run.columns)} columns: {text[:80]!r}")
        return
    try:
        fields = {name: Figure.of(token) for name, token in zip(run.columns, tokens, strict=True)}
        whole(tokens[0])
    except ValueError as error:
        findings.unreadable(number, str(error))
        return
    run.rows += 1
    _judge(run, findings, number, fields, asked)


def _judge(run: Run, findings: Findings, number: int, fields: dict[str, Figure], asked: Asked) -> None:
    """The measurements of one row, where its figures can be."""
    if not all(figure.sound for figure in fields.values()):
        findings.wrong(number, "a number is negative or no number")
        return
    if run.program.endswith("_bw"):
        _bandwidth(run, findings, number, fields, asked)
    elif run.program:
        _latency(run, findings, number, fields)


def _params(run: Run, num_bytes: float) -> dict[str, Scalar]:
    params: dict[str, Scalar] = {"bytes": int(num_bytes), "tool": run.program}
    named = {"qps": run.qps if run.qps != 1 else 0, "memory": "gpu" if run.gpu else ""}
    return params | {name: value for name, value in named.items() if value}


def _bandwidth(run: Run, findings: Findings, number: int, fields: dict[str, Figure], asked: Asked) -> None:
    unit = next((name[len("BW average[") : -1] for name in fields if name.startswith("BW average[")), "")
    if unit not in RATES:
        findings.unreadable(number, f"a bandwidth in [{unit}], which this reader does not know")
        return
    average, peak = fields[f"BW average[{unit}]"], fields.get(f"BW peak[{unit}]")
    num_bytes, rate = fields["#bytes"].value, average.value * RATES[unit]
    if average.value == 0:
        findings.wrong(number, f"{num_bytes:.0f} B: no bandwidth at all")
        return
    if peak and peak.value and peak.value + peak.ulp + average.ulp < average.value:
        findings.wrong(
            number, f"{num_bytes:.0f} B: the average {average.value:g} is above the peak {peak.value:g} {unit}"
        )
    messages = fields.get("MsgRate[Mpps]")
    if messages and num_bytes:
        expected, unsure = (x * RATES[unit] / num_bytes / 1e6 for x in (average.value, average.ulp))
        if not agree(messages, expected, unsure):
            said = f"{messages.value:g} million messages a second, but the bandwidth makes {expected:g}"
            findings.wrong(number, f"{num_bytes:.0f} B: {said}")
    if asked.line_rate and rate > asked.line_rate * (2 if run.bidirectional else 1):
        findings.wrong(number, f"{num_bytes:.0f} B: {rate / 1e9:.4g} GB/s is above the line rate")
    name = "links.hardware.both_ways.bandwidth" if run.bidirectional else "links.hardware.bandwidth"
    metric = Metric(name=name, unit="B/s", better="higher", params=_params(run, num_bytes))
    notes = {"tool": "perftest", "line": number, "link": run.link, "statistic": "mean"}
    if peak and peak.value:
        notes["peak"] = peak.value * RATES[unit]
    findings.measurements.append(
        metric.measured(rate, subject=Subject(group="nic", nic=run.device), config="imported", notes=notes)
    )


def _latency(run: Run, findings: Findings, number: int, fields: dict[str, Figure]) -> None:
    times = {name.split("[")[0]: figure for name, figure in fields.items() if name.endswith("[usec]")}
    typical = times.get("t_typical") or times.get("t_avg")
    if typical is None:
        findings.unreadable(number, "no typical and no average latency in this table")
        return
    size = fields["#bytes"].value
    order = [name for name in ("t_min", "t_typical", "99% percentile", "99.9% percentile", "t_max") if name in times]
    for lower, upper in pairwise(order):
        if times[lower].value > times[upper].value + times[lower].ulp + times[upper].ulp:
            findings.wrong(
                number, f"{size:.0f} B: {lower} {times[lower].value:g} us is above {upper} {times[upper].value:g} us"
            )
    if typical.value == 0:
        findings.wrong(number, f"{size:.0f} B: it took no time")
        return
    notes = {
        "tool": "perftest",
        "line": number,
        "link": run.link,
        "statistic": "median" if "t_typical" in times else "mean",
    }
    notes |= {name.removeprefix("t_"): figure.value * 1e-6 for name, figure in times.items()}
    told = {"links.hardware.latency": typical, "links.hardware.latency_p99": times.get("99% percentile")}
    for name, figure in told.items():
        if figure is not None:
            metric = Metric(name=name, unit="s", better="lower", params=_params(run, size))
            subject = Subject(group="nic", nic=run.device)
            findings.measurements.append(
                metric.measured(figure.value * 1e-6, subject=subject, config="imported", notes=notes)
            )
