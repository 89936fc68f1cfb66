"""One file to import, what the user told about it, and what came out.

>>> source = Source(path="x", text="[1,0]<stdout>:# size\\n[1,0]<stdout>:  8")
>>> list(source.lines())
[(1, '# size'), (2, '  8')]
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.measurement import Measurement, params_key

LAUNCHER = re.compile(r"^(?:\x1b\[[\d;]*m)*(?:\[\d+,\d+\]<std(?:out|err)>:|\s*\d+: ?|\[\d+\] ?)?")
LIBRARY = re.compile(
    r" NCCL (?:INFO|WARN|TRACE) |^\s*(?:NCCL version|RCCL version|HIP version|ROCm version|Hostname|Librccl path)\b"
)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the file does not say and the user may know."""

    op: str = ""
    """the collective, where an old nccl-tests table does not name it"""
    ranks: int = 0
    """how many ranks took part, which OSU does not print"""
    line_rate: float = 0.0
    """B/s that no bandwidth in the file can exceed; 0: not given"""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong in the file, or that could not be read."""

    line: int  # 0: the file as a whole
    sentence: str
    wrong: bool = False  # a wrong result or an impossible value; otherwise cut, unreadable or not what it claims


@dataclass(frozen=True, kw_only=True)
class Imported:
    """Everything that came out of one file."""

    tool: str
    path: str
    measurements: tuple[Measurement, ...]
    problems: tuple[Problem, ...]
    skipped: tuple[int, ...] = ()  # lines that are not the tool's: a launcher's banner, a library's log
    remarks: tuple[str, ...] = ()  # what the tool itself left out
    nodes: int = 0  # hosts that took part; 0 where the file does not say
    backend: str = ""  # nccl | mpi, of collectives

    @property
    def exit_code(self) -> int:
        """0 read whole and sound; 1 wrong results or impossible values; 3 cut, unreadable or not what it claims."""
        if any(problem.wrong for problem in self.problems):
            return 1
        return 3 if self.problems or not self.measurements else 0


@dataclass(frozen=True, kw_only=True)
class Source:
    """The text of one file."""

    path: str
    text: str

    def lines(self) -> Iterator[tuple[int, str]]:
        """Every line with its number, without what a launcher put before it."""
        for number, line in enumerate(self.text.splitlines(), 1):
            yield number, line[LAUNCHER.match(line).end() :]  # type: ignore[union-attr]

    @property
    def ends_whole(self) -> bool:
        """Whether the last line has an end."""
        return self.text.endswith("\n")


@dataclass
class Findings:
    """What an importer gathers while it reads."""

    measurements: list[Measurement] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    nodes: int = 0
    backend: str = ""

    def unreadable(self, line: int, sentence: str) -> None:
        """Cut, unreadable, or not what it claims to be."""
        self.problems.append(Problem(line=line, sentence=sentence))

    def wrong(self, line: int, sentence: str) -> None:
        """A wrong result, or a value that cannot be."""
        self.problems.append(Problem(line=line, sentence=sentence, wrong=True))

    def imported(self, tool: str, source: Source) -> Imported:
        """The result, problems in the order of the lines."""
        if not self.measurements and not self.problems:
            self.unreadable(0, f"no result of {tool} in it")
        seen: Counter[tuple[object, ...]] = Counter()
        for place, record in enumerate(self.measurements):
            key = (record.metric, params_key(record.params))
            seen[key] += 1
            if seen[key] > 1:  # the same test once more, or on another device: not more samples of the first
                self.measurements[place] = dataclasses.replace(record, config=f"{record.config}-{seen[key]}")
        return Imported(
            tool=tool, path=source.path, measurements=tuple(self.measurements),
            problems=tuple(sorted(self.problems, key=lambda p: p.line)), skipped=tuple(self.skipped),
            remarks=tuple(self.remarks), nodes=self.nodes, backend=self.backend,
        )  # fmt: skip
