"""What a campaign cost beside measuring is added up from its events, and shown."""

from __future__ import annotations

from benchmarks.measurement import Event
from suites import overhead


def event(kind, **detail):
    return Event(kind=kind, at="", detail=detail)


def test_launches_and_gaps_are_added_up_and_the_slowest_taken_apart():
    launch = {"place": {"nodes": 2}, "import_s": 1.0, "group_s": 0.5}
    said = overhead.line(
        [
            event("launch", **launch, seconds=2.0), event("launch", **launch | {"import_s": 3.0}, seconds=4.0),
            event("batch", overhead_s=0.25), event("batch", overhead_s=0.5), event("ended"),
        ]
    )  # fmt: skip
    assert said == (
        "not measuring: 6.0 s in launches (2 for 1 kind(s) of world; the slowest 4.0 s, of it import 3.0 s and group "
        "0.5 s), 0.8 s around 2 benchmark(s)"
    )


def test_without_a_launch_there_is_nothing_to_say():
    assert overhead.line([event("batch", overhead_s=1.0)]) == ""
