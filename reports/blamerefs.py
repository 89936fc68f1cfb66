"""What each suspect of a page rests on, and the command that measures it again.

    rests = Rests(stored, RecordRefs(stored), culprits(stored))
    rests.of(suspect), rests.again(suspect)

A suspect is what the run's own record of them holds (reports/culprits.py, `told`). Nothing is judged here.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from itertools import islice
from typing import Any

from reports.cabling import EVENT
from reports.culprits import FOLLOW_UP, SUSPECTS, Culprits
from reports.pairtables import BANDWIDTH, FLOWS, LATENCY, WRONG
from reports.recordrefs import RecordRef, RecordRefs
from reports.runs import StoredRun
from reports.slowranks import GEMM, STEP

TABLES = (BANDWIDTH, LATENCY, WRONG, FLOWS)
DEVICES = (GEMM, STEP)
SHOWN = 6  # records of one suspect


class Rests:
    """The records behind the suspects of one run."""

    def __init__(self, stored: StoredRun, refs: RecordRefs, found: Culprits | None) -> None:
        self.stored, self.refs = stored, refs
        repeats = [(e.detail["config"], e.detail["of"], e.detail.get("attempt", 1)) for e in stored.events
                   if e.kind == FOLLOW_UP]  # fmt: skip
        self.repeats = {config for config, *_ in repeats}
        self.tables: list[RecordRef] = []
        if found:
            again = [config for config, *of in repeats if of == [found.config, found.attempt]]
            self.tables = refs.of_config(found.config, TABLES, found.attempt)
            self.tables += [ref for config in again for ref in refs.of_config(config, TABLES)]
        said = [m for m in stored.measurements if m.metric == SUSPECTS]
        self.conclusion = refs.line(said[-1]) if said else None

    def of(self, suspect: Mapping[str, Any]) -> list[RecordRef]:
        """Of a straggler the records of its nodes, of others the tables of pairs; what was concluded comes last."""
        found: list[RecordRef] = []
        if suspect["kind"] == "straggler":
            where = ("", *suspect["nodes"])
            own = (m for m in self.stored.measurements if m.metric in DEVICES and m.subject.node in where)
            found = [self.refs.line(m) for m in islice(own, SHOWN)]
        elif suspect["kind"] != "cable":
            found = self.tables[:SHOWN]
        return [*found, *([self.conclusion] if self.conclusion else [])]

    @property
    def cabling(self) -> Mapping[str, Any]:
        """What was found plugged: its file in the run folder, and its source. Empty where nobody gave it."""
        kept = [e.detail["found"] for e in self.stored.events if e.kind == EVENT and "found" in e.detail]
        return kept[-1] if kept else {}

    def again(self, suspect: Mapping[str, Any]) -> str:
        """Measures it once more in the same run; a cable is looked up again, in a run of its own."""
        if suspect["kind"] == "cable":
            source = shlex.quote(str(self.cabling.get("source", "cabling.txt")))
            return f"ibnetdiscover > {source} && {self.stored.run.command}"
        nodes = suspect["nodes"]
        return self.stored.again(what=nodes[0] if len(nodes) == 1 else suspect["title"])

    @property
    def all_again(self) -> str:
        """Measures all pairs once more."""
        return self.stored.again(what=BANDWIDTH)
