"""The commands of `python -m reports`: each reads run folders, writes a view, and returns an exit status.

>>> build_parser().prog
'python -m reports'
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from benchmarks.measurement import Verdict
from reports import (
    alertcommand,
    archive,
    compare,
    comparepage,
    confirm,
    drainfile,
    junit,
    moneycommand,
    nightly,
    page,
    promote,
    proposals,
    prune,
    repairs,
    runs,
    sides,
    table,
    trend,
)
from reports.before import Before
from reports.importers import command as importing
from reports.judge import EXIT_CODES
from reports.nccl_log import command as nccl_log
from reports.runs import RunError, StoredRun

INCOMPLETE, USAGE = 3, 4
EXPORTS = ("csv", "parquet", "pytest-benchmark", "openmetrics", "junit")


def main(arguments: Sequence[str]) -> int:
    """Run one command. 4, with one line on stderr, for a wrong command or an unreadable run."""
    try:
        options = build_parser().parse_args(arguments)
    except SystemExit as end:  # argparse has printed its help or what was wrong
        return USAGE if end.code else 0
    try:
        status: int = options.command(options)
    except RunError as error:
        print(f"python -m reports: {error}", file=sys.stderr)
        return USAGE
    except BrokenPipeError:  # the reader went away (| head); nobody sees the rest, nor an error about it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return INCOMPLETE
    except OSError as error:
        print(f"python -m reports: {error.filename}: {error.strerror}; choose another place with -o", file=sys.stderr)
        return USAGE
    return status


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="python -m reports",
        description="Judge and show runs again, without measuring.",
        epilog="Exit status: 0 accepted, 1 rejected, 3 incomplete, 6 conditional, 4 a wrong command or run.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, command, words in (
        ("render", render, "the page of a run, one HTML file (RUN/index.html)"),
        ("table", show_table, "the verdicts on the terminal"),
        ("junit", show_junit, "the verdicts as JUnit XML"),
    ):
        one = commands.add_parser(name, help=words, description=words)
        one.add_argument("run", help="a run folder")
        one.add_argument(
            "--baseline", default="", metavar="RUN", help="an earlier run that nightly limits compare with"
        )
        if name == "render":
            one.add_argument(
                "--history", type=Path, metavar="DIR", help="a folder of earlier runs: trends of each number"
            )
        if name != "table":
            one.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to write it")
        one.set_defaults(command=command)
    one = commands.add_parser(
        "export", help="a run in another format: csv, parquet, pytest-benchmark, openmetrics, junit"
    )
    one.add_argument("run", help="a run folder")
    one.add_argument("--to", default="csv", choices=EXPORTS, help="the format (csv)")
    one.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to write it (RUN/export.SUFFIX)")
    one.set_defaults(command=export_run, baseline="")
    one = commands.add_parser("compare", help="is B as good as A: rack against rack, before against after")
    one.add_argument(
        "runs", nargs="+", metavar="RUN", help="the reference, then what is compared with it; A1+A2 repeats"
    )
    one.add_argument("--across", action="store_true", help="compare what is not comparable, and say so")
    one.add_argument("-o", "--output", type=Path, metavar="FILE", help="write a page too")
    one.set_defaults(command=compare_runs)
    drainfile.add_parser(commands)
    nightly.add_parser(commands)
    confirm.add_parser(commands)
    alertcommand.add_parser(commands)
    repairs.add_parser(commands)
    trend.add_parser(commands)
    promote.add_parsers(commands)
    proposals.add_parser(commands)
    moneycommand.add_parser(commands)
    prune.add_parser(commands)
    nccl_log.add_parser(commands)
    importing.add_parser(commands)
    return parser


def render(options: argparse.Namespace) -> int:
    """Write the page and say where it is."""
    stored, verdicts = _judged(options)
    baseline = runs.load(options.baseline) if options.baseline else None
    nights = archive.up_to(stored.folder, options.history) if options.history else ()
    before = Before.of(stored, baseline=baseline, nights=nights)
    print(page.write(stored, verdicts, stored.view(options.output or stored.folder / page.FILE), before=before))
    return _status(stored, verdicts)


def show_table(options: argparse.Namespace) -> int:
    """Print the table."""
    stored, verdicts = _judged(options)
    print(table.table(stored, verdicts))
    return _status(stored, verdicts)


def show_junit(options: argparse.Namespace) -> int:
    """Write the JUnit file and say where it is."""
    stored, verdicts = _judged(options)
    path = stored.view(options.output or stored.folder / "junit.xml")
    junit.write(stored, verdicts, path)
    print(path)
    return _status(stored, verdicts)


def export_run(options: argparse.Namespace) -> int:
    """Write the file and say where it is; 0 whatever the outcome, as nothing is judged by exporting."""
    from reports import export  # pandas takes half a second to import

    suffix, write = export.FORMATS[options.to]
    stored, verdicts = _judged(options)
    path = stored.view(options.output or stored.folder / f"export.{suffix}")
    write(stored, verdicts, path)
    print(path)
    return 0


def compare_runs(options: argparse.Namespace) -> int:
    """Print what changed. 0: nothing is worse; 1: something is; 3: cannot say."""
    if len(options.runs) < 2:
        raise RunError("compare needs two runs: the reference, and what is compared with it")
    before, *others = [sides.load_side(name) for name in options.runs]
    comparisons = [compare.compare(before, after, across=options.across) for after in others]
    print(comparepage.table(comparisons))
    if options.output:
        print(f"\npage: {comparepage.write(comparisons, options.output)}")
    return {"worse": 1, "undecided": INCOMPLETE}.get(comparepage.verdict(comparisons), 0)


def _judged(options: argparse.Namespace) -> tuple[StoredRun, list[Verdict]]:
    stored = runs.load(options.run)
    baseline = runs.load(options.baseline).as_baseline() if options.baseline else None
    if options.baseline and Path(options.baseline).resolve() == stored.folder.resolve():
        raise runs.RunError(f"{stored.folder} cannot be its own baseline: name an earlier run")
    return stored, stored.verdicts(today=date.today(), baseline=baseline)


def _status(stored: StoredRun, verdicts: Sequence[Verdict]) -> int:
    return EXIT_CODES[stored.outcome(verdicts)]
