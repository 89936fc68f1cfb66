"""`python -m reports import FILE --as TOOL`: what another tool measured, checked and as our records.

Exit code 0: read whole and sound; 1: wrong results or impossible values; 3: cut, unreadable, or not what it
claims to be; 4: wrong usage.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from tabulate import tabulate

from benchmarks.measurement import Measurement, encode
from clusters import loader
from reports.importers import IMPORTERS, Asked, Imported, folder, read

UNREADABLE, USAGE = 3, 4
ENDING = {0: "Read whole and sound.", 1: "Wrong results or impossible values.", 3: "Not read whole: see above."}
MOST_ROWS = 60
SHOWN = {"B/s": (1e9, "GB/s"), "s": (1e-6, "us")}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register `import`; the parsed namespace gets `command(arguments) -> exit code`."""
    parser = subparsers.add_parser("import", help="read what another tool measured", description=__doc__)
    parser.add_argument("file", metavar="FILE", help="what the tool printed or wrote")
    parser.add_argument("--as", dest="tool", required=True, choices=sorted(IMPORTERS), help="the tool")
    parser.add_argument("--op", default="", help="the collective, where an old nccl-tests table does not name it")
    parser.add_argument(
        "--ranks", type=int, default=0, metavar="N", help="ranks that took part: OSU does not print them"
    )
    parser.add_argument("--line-rate", type=float, default=0.0, metavar="GB/S", help="no bandwidth can be above this")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the Measurements, one JSON line each")
    parser.add_argument("--into", type=Path, metavar="RUN", help="write a run folder, to be judged by --cluster")
    parser.add_argument("--cluster", metavar="NAME", help="the cluster file whose limits judge it: a name or a path")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Read, print, write, and return the exit code."""
    asked = Asked(op=arguments.op, ranks=arguments.ranks, line_rate=arguments.line_rate * 1e9)
    if bool(arguments.into) != bool(arguments.cluster):
        print("--into RUN and --cluster NAME go together: limits are a cluster's", file=sys.stderr)
        return USAGE
    try:
        cluster = loader.load(arguments.cluster) if arguments.cluster else None
        imported = read(arguments.file, tool=arguments.tool, asked=asked)
    except loader.ClusterError as error:
        print(error, file=sys.stderr)
        return USAGE
    except OSError as error:
        print(f"cannot read {arguments.file}: {error.strerror}", file=sys.stderr)
        return UNREADABLE
    print("\n".join(render(imported)))
    if arguments.output:
        arguments.output.write_text("".join(f"{encode(record)}\n" for record in imported.measurements))
        print(f"{len(imported.measurements)} measurements in {arguments.output}")
    if cluster:
        try:
            folder.write(imported, cluster=cluster, folder=arguments.into, command=shlex.join(sys.argv))
        except FileExistsError:
            print(f"{arguments.into} is there already: name a new folder", file=sys.stderr)
            return USAGE
        print(f"a run in {arguments.into}: python -m reports table {arguments.into}")
    return imported.exit_code


def render(imported: Imported) -> Iterator[str]:
    """The result as lines of text."""
    rows = [row for measurement in imported.measurements for row in _rows(measurement)]
    if rows:
        yield tabulate(
            rows[:MOST_ROWS], headers=("metric", "params", "subject", "value", "unit"), disable_numparse=True
        )
    if len(rows) > MOST_ROWS:
        yield f"... and {len(rows) - MOST_ROWS} more"
    if imported.skipped:
        yield f"lines that are not of {imported.tool}: {_ranges(imported.skipped)}"
    yield from imported.remarks
    for problem in imported.problems:
        where = f"line {problem.line}" if problem.line else "the file"
        yield f"{'WRONG' if problem.wrong else 'NOT READ'}: {where}: {problem.sentence}"
    yield ENDING[imported.exit_code]


def _rows(measurement: Measurement) -> Iterator[tuple[str, ...]]:
    scale, unit = SHOWN.get(measurement.unit, (1.0, measurement.unit))
    params = ", ".join(f"{name}={value}" for name, value in measurement.params.items())
    values = sorted(value for row in measurement.columns.get("samples", ()) for value in row) or sorted(
        measurement.samples
    )
    if not values:
        return
    median = f"{values[len(values) // 2] / scale:.4g}"
    spread = f" ({values[0] / scale:.4g} to {values[-1] / scale:.4g})" if values[0] != values[-1] else ""
    units = f"{len(measurement.columns['samples'])} units" if measurement.columns else measurement.subject.label
    yield measurement.metric, params, units, median + spread, unit


def _ranges(numbers: tuple[int, ...]) -> str:
    """Line numbers with runs drawn together: 1-4, 9."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(f"{a}-{b}" if a < b else str(a) for a, b in spans)
