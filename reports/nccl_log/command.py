"""`python -m reports nccl-log FILE...`: what NCCL really did, what is wrong, what to try.

Exit code 0: healthy; 1: something is wrong; 3: the log cannot tell (or cannot be read); 4: wrong usage.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence

from tabulate import tabulate

from reports.nccl_log import Expect, Finding, LogReport, read_log
from reports.nccl_log.checks import NETWORKS
from reports.nccl_log.report import CANNOT_TELL

WORDS = {"wrong": "WRONG", "unknown": "CANNOT TELL", "note": "note", "fine": "fine"}
ENDING = {0: "Healthy.", 1: "Something is wrong.", 3: "Cannot tell: see above what the log does not show."}
MOST_NODES = 40


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register `nccl-log`; the parsed namespace gets `command(arguments) -> exit code`."""
    parser = subparsers.add_parser("nccl-log", help="what NCCL really did, from its log", description=__doc__)
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help='log files of one job, plain or gzip; "-" reads standard input'
    )
    parser.add_argument("--network", choices=NETWORKS, default="rdma", help="what should carry traffic between nodes")
    parser.add_argument(
        "--hcas", type=int, metavar="N", help="network devices each node should use (default: all listed)"
    )
    parser.add_argument("--no-nvlink", dest="nvlink", action="store_false", help="the machines have no NVLink")
    parser.add_argument("--json", action="store_true", help="the whole report as JSON, ranks included")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Read, print, and return the exit code."""
    expect = Expect(network=arguments.network, hcas=arguments.hcas, nvlink=arguments.nvlink)
    try:
        report = read_log(arguments.files, expect=expect)
    except OSError as error:
        print(f"cannot read the log: {error}", file=sys.stderr)
        return CANNOT_TELL
    if arguments.json:
        print(json.dumps(dataclasses.asdict(report) | {"exit_code": report.exit_code}, indent=1))
    else:
        print("\n".join(render(report)))
    return report.exit_code


def main(argv: Sequence[str] | None = None) -> int:
    """`nccl-log` on its own: `main([FILE, ...])`."""
    parser = argparse.ArgumentParser(prog="reports")
    add_parser(parser.add_subparsers(required=True))
    arguments = parser.parse_args(["nccl-log", *(sys.argv[1:] if argv is None else argv)])
    return int(arguments.command(arguments))


def render(report: LogReport) -> Iterator[str]:
    """The report as lines of text."""
    versions = ", ".join(report.versions) or "of unknown version"
    read = f"{report.num_lines:,} lines read, {report.num_nccl_lines:,} of them NCCL's"
    yield f"{counted(report.num_ranks, 'rank')} on {counted(len(report.nodes), 'host')}, NCCL {versions}; {read}"
    if report.nodes:
        yield ""
        yield from _nodes(report)
    if report.algorithms:
        yield ""
        yield from report.algorithms
    for finding in report.findings:
        times = f" ({finding.count:,} lines)" if finding.count > 1 else ""
        at = f" [{_places(report, finding)}]" if finding.evidence else ""
        yield ""
        yield f"{WORDS[finding.severity]}: {finding.sentence}{times}{at}"
        for trial in finding.tries:
            yield f"    try: {trial}"
    yield ""
    yield ENDING[report.exit_code]


def counted(number: int, noun: str) -> str:
    """1 rank, 16 ranks, no rank."""
    return f"{number or 'no'} {noun}{'s' if number > 1 else ''}"


def _places(report: LogReport, finding: Finding) -> str:
    if len(report.files) > 1:
        return ", ".join(finding.evidence)
    return "line " + ", ".join(place.rpartition(":")[2] for place in finding.evidence)


def _devices(names: tuple[str, ...]) -> int:
    """Physical devices: NCCL names two that it merged "a+b"."""
    return len({part for name in names for part in name.split("+")})


def _nodes(report: LogReport) -> Iterator[str]:
    rows = [
        (
            node.host or "(not named)", node.ranks, ", ".join(node.networks),
            f"{_devices(node.hcas_used)} of {len(node.hcas_listed) or '?'}" if node.networks else "",
            node.gdr, ", ".join(t for t in node.transports if not t.startswith("NET")), node.nvls,
        )
        for node in report.nodes[:MOST_NODES]
    ]  # fmt: skip
    header = ("host", "ranks", "network", "devices used", "GPUDirect", "inside the node", "NVLS")
    yield tabulate(rows, headers=header, tablefmt="simple", disable_numparse=True)
    if len(report.nodes) > MOST_NODES:
        yield f"... and {len(report.nodes) - MOST_NODES} more hosts"
