"""Results that other tools printed, as Measurements: nccl-tests, perftest, OSU, nvbandwidth.

So that numbers a person already has are judged and compared like our own. An importer reads one file whole or
says what it could not read, line by line; it never guesses and never drops. It also checks that the figures
agree with each other as far as their printed digits allow: a bus bandwidth that does not follow from its
algorithm bandwidth is no result. Importers judge nothing else.

>>> sorted(IMPORTERS)
['nccl-tests', 'nvbandwidth', 'osu', 'perftest']
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from reports.importers import nccl_tests, nvbandwidth, osu, perftest
from reports.importers.source import Asked, Imported, Source

IMPORTERS: dict[str, Callable[[Source, Asked], Imported]] = {
    "nccl-tests": nccl_tests.read,
    "perftest": perftest.read,
    "osu": osu.read,
    "nvbandwidth": nvbandwidth.read,
}

__all__ = ["IMPORTERS", "Asked", "Imported", "read"]


def read(path: str, *, tool: str, asked: Asked | None = None) -> Imported:
    """What `tool` wrote into the file at `path`.

    ValueError for an unknown tool, OSError where the file cannot be read; what is inside never raises.
    """
    if tool not in IMPORTERS:
        raise ValueError(f"no importer {tool!r}: there are {', '.join(IMPORTERS)}")
    return IMPORTERS[tool](Source(path=path, text=Path(path).read_bytes().decode("utf-8", "replace")), asked or Asked())
