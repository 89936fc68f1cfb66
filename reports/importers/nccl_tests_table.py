"""One table of nccl-tests while it is read: its settings, ranks, columns and rows.

>>> row = Row.of("8 2 float sum -1 12.90 0.00 0.00 0 12.87 0.00 0.00 N/A", COLUMNS, 7)
>>> row.size, [cell.in_place for cell in row.cells], row.cells[1].wrong is None
(8, [False, True], True)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from benchmarks.measurement import Scalar
from reports.importers.figures import Figure, whole
from reports.importers.source import Findings

COLUMNS = (
    "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong",
)  # fmt: skip
TIMES = ("time", "cputime")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One result: out of place or in place."""

    in_place: bool
    time: Figure  # us
    algbw: Figure  # GB/s
    busbw: Figure  # GB/s
    wrong: float | None  # elements; None: not checked


@dataclass(frozen=True, kw_only=True)
class Row:
    """One size."""

    line: int
    size: int
    dtype: str
    choices: dict[str, Scalar]  # the reduction or root, where it is not the usual one
    cells: tuple[Cell, ...]

    @classmethod
    def of(cls, text: str, columns: tuple[str, ...], line: int) -> Row:
        """Read a row under these columns. ValueError says what does not read."""
        tokens, groups, stamp = text.split(), groups_of(columns), "timestamp" in columns
        width = [len(group) for group in groups]
        if stamp:
            tokens = tokens[:-2]
        total = sum(width)
        if len(tokens) - total < 3 and len(groups) == 2:  # nothing out of place: that half is blank
            groups, total = groups[1:], width[1]
        spare = len(tokens) - total
        if not 3 <= spare <= 5:
            raise ValueError(f"{len(tokens)} fields, the table has {len(columns)} columns: {text[:80]!r}")
        left, right = tokens[:spare], tokens[spare:]
        cells = []
        for group in groups:
            part, right = right[: len(group)], right[len(group) :]
            in_place = len(groups_of(columns)) == 2 and group is groups[-1]
            cells.append(_cell(dict(zip(group, part, strict=True)), in_place))
        size, _ = whole(left[0]), whole(left[1])
        return cls(line=line, size=size, dtype=left[2], choices=_choices(left[3:]), cells=tuple(cells))


def groups_of(columns: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The columns of each half of the table: every half starts with its time."""
    named = [name for name in columns if name != "timestamp"]
    starts = [n for n, name in enumerate(named) if name in TIMES]
    return [tuple(named[a:b]) for a, b in pairwise([*starts, len(named)])]


def is_head(columns: tuple[str, ...]) -> bool:
    """Whether these are the columns of a table: one or two halves, each with a time and both bandwidths."""
    halves = groups_of(columns)
    return len(halves) in (1, 2) and all({"algbw", "busbw"} <= set(half) for half in halves)


def _cell(fields: dict[str, str], in_place: bool) -> Cell:
    time = fields.get("time") or fields.get("cputime", "")
    wrong = None
    if "#wrong" in fields and fields["#wrong"] != "N/A":
        wrong = Figure.of(fields["#wrong"].rstrip("*")).value
    elif fields.get("error", "").endswith("*"):  # the older column: marked where it exceeds what is allowed
        wrong = 1.0
    return Cell(
        in_place=in_place,
        time=Figure.of(time),
        algbw=Figure.of(fields["algbw"]),
        busbw=Figure.of(fields["busbw"]),
        wrong=wrong,
    )


def _choices(tokens: list[str]) -> dict[str, Scalar]:
    choices: dict[str, Scalar] = {}
    for token in tokens:
        if token.lstrip("-").isdigit():
            if whole(token.lstrip("-")) and token[0] != "-":
                choices["root"] = whole(token)
        elif token not in ("sum", "none"):
            choices["redop"] = token
    return choices


@dataclass(kw_only=True)
class Table:
    """The table that is being read."""

    op: str = ""
    version: str = ""
    settings: tuple[int, ...] = ()  # threads, GPUs per thread, smallest and largest size, step
    by_factor: bool = True
    ranks: list[tuple[int, int, str]] = field(default_factory=list)  # rank, group, host
    columns: tuple[str, ...] = ()
    rows: list[Row] = field(default_factory=list)
    mean: str = ""  # of the footer
    first_line: int = 0
    header_line: int = 0
    last_line: int = 0

    @property
    def begun(self) -> bool:
        """Whether a test started that has not ended."""
        return bool(self.settings or self.columns or self.rows)

    @property
    def cpu_time(self) -> bool:
        """Whether the times are the host's, from which no bandwidth follows."""
        return "cputime" in self.columns

    def num_ranks(self, findings: Findings, line: int) -> int:
        """Ranks of one communicator; 0, with the reason, where the list of devices is not one job's."""
        numbers = [rank for rank, _, _ in self.ranks]
        if not numbers:
            findings.unreadable(line, "no list of ranks: the start of the file is missing")
            return 0
        if len(set(numbers)) < len(numbers):
            hosts = ", ".join(sorted({host for rank, _, host in self.ranks if numbers.count(rank) > 1}))
            findings.unreadable(line, f"rank {numbers[0]} appears more than once ({hosts}): several jobs, not one")
            return 0
        groups = {group: sum(1 for _, other, _ in self.ranks if other == group) for _, group, _ in self.ranks}
        if len(set(groups.values())) > 1:
            findings.unreadable(line, f"groups of different sizes: {sorted(groups.values())}")
            return 0
        ranks = next(iter(groups.values()))
        if ranks < 2:
            alone = f"{len(numbers)} rank{'s' if len(numbers) > 1 else ''} alone"
            findings.unreadable(line, f"{alone}: nothing was communicated; was it built with MPI=1?")
        return ranks
