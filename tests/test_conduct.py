"""The page says who started the ranks, where, at what cost, by which time-outs, and what stayed behind."""

from __future__ import annotations

import dataclasses
from datetime import date

from benchmarks.measurement import Event
from reports import page, runs
from reports.conduct import conduct
from tests import sample_run

PLACE = {"nodes": 4}
EVENTS = [
    ("nodes", {"launcher": "ssh", "why": "earlier", "hosts": []}),
    ("nodes", {"launcher": "srun", "why": "inside Slurm job 7", "hosts": ["n1", "n2"], "left_out": ["n3"]}),
    ("known_bad", {"excused": ["n2"], "lines": ["n2 is known to be bad (HW-1, us, until 2099-01-01)"]}),
    ("timeouts", {"lines": ["time-outs: a benchmark 10 s at most", "Slurm: SlurmdTimeout 300 sec"]}),
    ("launch", {"seconds": 4.0, "import_s": 3.0, "group_s": 0.5, "place": PLACE}),
    ("launch", {"seconds": 2.0, "import_s": 1.0, "group_s": 0.1, "place": PLACE}),
    ("leftover", {"what": ["process 12 (python), holds port 4000 on n2"]}),
    ("continued", {"without": ["n9"]}),
]


def test_each_line_has_its_term():
    found = dict(reversed(conduct(Event(kind=k, at="", detail=d) for k, d in EVENTS)))
    assert found["ranks started by"] == "srun (inside Slurm job 7)" and found["nodes"] == "2: n1, n2"
    assert found["left out"] == "n3" and found["known to be bad"].startswith("n2 is known to be bad")
    assert found["start-up"] == (
        "2 launches for 1 kind(s) of world; until the group was up, 4 s at most, of it import 3 s and group 500 ms"
    )
    assert found["time-outs"] == "a benchmark 10 s at most" and found["went on without"].startswith("n9")
    assert found["left behind"] == "process 12 (python), holds port 4000 on n2"


def test_the_page_has_them(tmp_path):
    stored = runs.load(sample_run.write(tmp_path / "sample"))
    events = tuple(Event(kind=k, at="", detail=d) for k, d in EVENTS)
    told = dataclasses.replace(stored, events=(*stored.events, *events))
    html = page.page(told, told.verdicts(today=date(2026, 12, 1)))
    for words in ("inside Slurm job 7", "n2 is known to be bad", "SlurmdTimeout 300 sec", "holds port 4000 on n2"):
        assert words in html
