"""What NCCL really did, read from its own log: one job's, of any size, from one file or from many.

`NCCL_DEBUG=INFO` prints which network, transports and devices NCCL chose; people read it to learn why a job is
slow, and the answer is spread over a hundred thousand lines. `read_log` gathers it per rank and per node and
says what is wrong and what to try. It takes logs as they are: interleaved ranks, launcher prefixes, time
stamps, cut files, gzip, NCCL 2.4 to 2.29 and RCCL. It measures nothing, and believes only what the log says.

>>> read_log([]).exit_code
3
"""

from __future__ import annotations

from collections.abc import Sequence

from reports.nccl_log import summary
from reports.nccl_log.checks import Expect, Scene
from reports.nccl_log.facts import PLACE_BITS
from reports.nccl_log.reader import Reader
from reports.nccl_log.report import Finding, LogReport, NodeReport, RankReport
from reports.nccl_log.stream import opened

__all__ = ["Expect", "Finding", "LogReport", "NodeReport", "RankReport", "read_log"]


def read_log(paths: Sequence[str], *, expect: Expect | None = None) -> LogReport:
    """The report on one job's log files ("-" is standard input).

    Files may be plain or gzip; together they are one job. Raises OSError where a file cannot be opened; what is
    inside never raises. Memory is bounded whatever the size.
    """
    reader, cuts, num_bytes = Reader(), [], 0
    for index, path in enumerate(paths):
        place = (index << PLACE_BITS) + 1
        with opened(path) as source:
            for block in source:
                place += reader.feed(block, place)
        num_bytes += source.num_bytes
        if source.cut:
            cuts.append(f"{path}: {source.cut}")
    scene = Scene(reader.finish(), tuple(paths), tuple(cuts), expect or Expect())
    rows = summary.ranks(scene)
    return LogReport(
        files=tuple(paths), num_lines=reader.num_lines, num_nccl_lines=reader.num_nccl_lines,
        num_bytes=num_bytes, versions=tuple(sorted(scene.facts.versions)),
        num_ranks=scene.world.size if scene.world else 0,
        algorithms=summary.algorithms(scene), rings=tuple(scene.facts.rings)[:4], trees=tuple(scene.facts.trees)[:4],
        ranks=rows, nodes=summary.nodes(scene, rows), findings=summary.findings(scene),
    )  # fmt: skip
