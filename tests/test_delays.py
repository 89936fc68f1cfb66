"""Slow or only late: a delay that explains a lower bandwidth is accused alone, one that does not excuses nobody."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from reports.culprits import Culprits, culprits
from reports.runs import StoredRun
from suites import search
from tests.searched_run import Fault, Notebook, measured, searched

# Four messages of 1 MiB at 10 GB/s take 419 us. Half round trips of 15 us in place of 5 make them wait for 20 us up to
# five times: a repetition of 36 us more (8 % lower) may be nothing but that, one of 280 us more (40 %) is slow.
LATE = 3.0


def at(node: int, share: float) -> Fault:
    """What is `share` of the usual at one node, both ways."""
    return lambda a, b, _: share if node in (a, b) else 1.0


HEALTHY = at(3, 1.0)


def found(
    folder: Path, *, slow: Fault = HEALTHY, late: Fault = HEALTHY, then: Fault | None = None
) -> Culprits:  # fmt: skip
    """Screened with these faults and re-tested with them, or with `then` as lateness."""
    stored = searched(folder, fault=slow, late=late)
    found = culprits(retested(stored, slow, then or late))
    assert found
    return found


def retested(stored: StoredRun, slow: Fault, late: Fault) -> StoredRun:
    """The run after what the search asked for was measured."""
    notes = Notebook()
    asked = search.follow_up(stored, (), stored.run.configs, notes, stored.cluster)
    more = tuple(m for config in asked for m in measured(config, fault=slow, late=late, seed=1))
    return replace(stored, measurements=stored.measurements + more, events=(*stored.events, *notes.events))


def accused(of: Culprits) -> list[tuple[str, str]]:
    return [(s.kind, s.title) for s in of.accused]


def test_who_is_late_only_is_a_delay_whose_direction_cannot_be_told(tmp_path):
    assert accused(found(tmp_path, late=at(3, LATE))) == [("delay", "n3 rail 0 either")]


def test_a_lower_bandwidth_that_the_round_trips_explain_is_the_delay(tmp_path):
    of = found(tmp_path, slow=at(3, 0.92), late=at(3, LATE))
    assert accused(of) == [("delay", "n3 rail 0 either")]
    assert "explains bandwidth 8." in of.screened.suspects[0].evidence


def test_what_the_round_trips_do_not_explain_is_slow(tmp_path):
    assert accused(found(tmp_path, slow=at(3, 0.6), late=at(3, LATE))) == [("nic", "n3 rail 0 both")]


def test_a_delay_excuses_its_own_host_only(tmp_path):
    def slow(a: int, _b: int, _rail: int) -> float:
        return 0.9 if a == 6 else 1.0

    of = found(tmp_path, slow=slow, late=at(3, LATE))
    assert sorted(accused(of)) == [("delay", "n3 rail 0 either"), ("nic", "n6 rail 0 transmit")]


def test_a_delayed_rail_excuses_no_other_rail_of_its_host(tmp_path):
    def late(a: int, b: int, rail: int) -> float:
        return LATE if 3 in (a, b) and rail == 0 else 1.0

    def slow(a: int, _b: int, rail: int) -> float:
        return 0.9 if a == 3 and rail == 1 else 1.0

    stored = searched(tmp_path, rails=4, fault=slow, late=late)
    of = culprits(retested(stored, slow, late))
    assert sorted(accused(of)) == [("delay", "n3 rail 0 either"), ("nic", "n3 rail 1 transmit")]


def test_two_slow_rails_of_one_host_are_two_suspects(tmp_path):
    def slow(a: int, _b: int, rail: int) -> float:
        return 0.9 if a == 3 and rail in (1, 3) else 1.0

    stored = searched(tmp_path, rails=6, fault=slow)
    of = culprits(retested(stored, slow, HEALTHY))
    assert sorted(accused(of)) == [("nic", "n3 rail 1 transmit"), ("nic", "n3 rail 3 transmit")]


def test_a_delay_that_is_gone_in_the_re_test_excuses_nobody(tmp_path):
    of = found(tmp_path, slow=at(3, 0.92), late=at(3, LATE), then=at(3, 1.0))
    assert accused(of) == [("nic", "n3 rail 0 both")]


def test_a_longer_cable_is_no_delay(tmp_path):
    assert accused(found(tmp_path, late=at(3, 1.06))) == []


def test_a_busy_host_is_late_now_and_then_and_not_delayed(tmp_path):
    """Nine round trips of ten are ten times as long; the shortest is as short as everybody's."""
    stored = searched(tmp_path, late=at(3, 1.0))

    def busy(samples: list[float]) -> list[float]:
        return [samples[0], *(10 * s for s in samples[1:])]

    disturbed = [
        replace(m, columns=m.columns | {"samples": [
            busy(s) if 3 in ends else s
            for s, ends in zip(m.columns["samples"], zip(m.columns["a"], m.columns["b"], strict=True), strict=True)
        ]}) if m.metric == "links.latency" else m
        for m in stored.measurements
    ]  # fmt: skip
    of = culprits(replace(stored, measurements=tuple(disturbed)))
    assert of and of.screened.suspects == ()
