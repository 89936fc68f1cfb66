"""Which nodes a night tests: fixed blocks, whoever waits longest, within the promise, and done in time."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters import knownbad
from clusters.knownbad import KnownBad, KnownBadError
from clusters.limits import Limit
from reports.bounds import against
from reports.evidence import Attempt
from reports.units import Unit
from suites import nightly
from suites.nightly import Range, blocks, choose, seconds_until
from suites.nodes import NodesError

NAMES = tuple(f"n{i}" for i in range(1, 65))
NOW = datetime(2026, 12, 1, 1, 0, tzinfo=UTC)


def test_a_range_of_idle_nodes_is_read():
    assert Range.parse("idle:8-32") == Range(least=8, most=32) and Range.parse("idle:2") == Range(least=2, most=2)
    assert Range.parse("8") is None
    with pytest.raises(NodesError, match="at least 1"):
        Range.parse("idle:9-8")


@given(st.integers(1, 200), st.sampled_from(nightly.BLOCKS))
def test_blocks_cover_every_node_and_never_change(count, size):
    names = [f"n{i}" for i in range(count)]
    found = blocks(names, size)
    assert all(len(block) == size for block in found)
    assert {n for block in found for n in block} == (set(names) if count >= size else set())
    assert found == blocks(names, size)


def test_the_largest_block_that_is_idle_is_taken():
    assert len(choose(NAMES, NAMES, {}, Range(least=8, most=40), now=NOW).nodes) == 32
    assert choose(NAMES, NAMES[8:16], {}, Range(least=8, most=32), now=NOW).nodes == NAMES[8:16]
    with pytest.raises(NodesError, match=r"7 of 64 are idle"):
        choose(NAMES, NAMES[:7], {}, Range(least=8, most=32), now=NOW)


def test_who_waits_longest_comes_first():
    last = {n: NOW - timedelta(days=1) for n in NAMES} | {n: NOW - timedelta(days=3) for n in NAMES[16:24]}
    assert choose(NAMES, NAMES, last, Range(least=8, most=8), now=NOW).nodes == NAMES[16:24]


def test_a_node_that_would_break_the_promise_goes_before_all():
    last = {n: NOW - timedelta(days=6) for n in NAMES} | dict.fromkeys(NAMES[40:48], NOW)
    last[NAMES[40]] = NOW - timedelta(days=8)
    found = choose(NAMES, NAMES, last, Range(least=8, most=8), now=NOW, within_nights=7)
    assert found.nodes == NAMES[40:48] and not found.overdue


def test_nodes_that_stay_overdue_are_named():
    found = choose(NAMES, NAMES[:8], dict.fromkeys(NAMES[:63], NOW), Range(least=8, most=8), now=NOW)
    assert found.overdue == ("n64",)


@given(st.integers(2, 60), st.integers(1, 8))
def test_every_node_is_tested_within_as_many_nights_as_there_are_blocks(count, _):
    names = [f"n{i}" for i in range(count)]
    last: dict[str, datetime] = {}
    nights = len(blocks(names, 2))
    for night in range(nights):
        when = NOW + timedelta(days=night)
        last |= dict.fromkeys(choose(names, names, last, Range(least=2, most=2), now=when).nodes, when)
    assert set(last) == set(names)


@pytest.mark.parametrize(("clock", "hours"), [("05:00", 4.0), ("00:30", 23.5), ("01:00", 24.0)])
def test_a_night_ends_at_the_next_time_of_day(clock, hours):
    assert seconds_until(clock, now=NOW) == hours * 3600


def test_what_is_no_time_of_day_is_refused():
    with pytest.raises(NodesError, match="such as 05:00"):
        seconds_until("five", now=NOW)


# -- known-bad nodes ---------------------------------------------------------------------------------------------

ENTRY = '[n17]\nowner = "rack team"\nticket = "HW-1"\nexpires = 2026-12-24\nreason = "NIC 3"\n'


def test_a_known_bad_node_is_shown_with_who_looks_after_it(tmp_path):
    (tmp_path / "bad.toml").write_text(ENTRY)
    (entry,) = knownbad.load(tmp_path / "bad.toml")
    assert entry == KnownBad(node="n17", owner="rack team", ticket="HW-1", expires=date(2026, 12, 24), reason="NIC 3")
    assert entry.line(date(2026, 12, 1)) == "n17 is known to be bad: NIC 3 (HW-1, rack team, until 2026-12-24)"
    assert knownbad.excused([entry], ["n1", "n17"], today=date(2026, 12, 24)) == ("n17",)


def test_an_expired_entry_excuses_nothing_and_is_not_forgotten():
    entry = KnownBad(node="n17", owner="o", ticket="t", expires=date(2026, 11, 30))
    assert knownbad.excused([entry], ["n17"], today=date(2026, 12, 1)) == ()
    assert "EXPIRED on 2026-11-30" in entry.line(date(2026, 12, 1))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("n17 = 1", "write a table"),
        ("[n17]\nowner = 'o'\nticket = 't'", "expires missing"),
        ("[n17]\nowner = 'o'\nticket = 't'\nexpires = '2026-12-24'", "a date without quotes"),
        ("[n17]\nowner = 'o'\nticket = 't'\nexpires = 2026-12-24T08:00:00", "a date without quotes"),
        (ENTRY + "why = 'x'", "unknown why"),
        (ENTRY + "wrong_data = 'yes'", "true or false"),
        ("[n17", "bad.toml"),
    ],
)
def test_half_an_entry_is_refused_with_the_cure(tmp_path, text, said):
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(KnownBadError, match=said):
        knownbad.load(tmp_path / "bad.toml")


def test_a_known_bad_node_is_judged_but_does_not_move_the_median():
    limit = Limit(name="alike", metric="m", unit="1", source="x", of="peers", floor=0.9)
    units = tuple(Unit((r,), f"rank {r}", f"n{r}", (v,)) for r, v in enumerate((10.0, 10.0, 4.0, 4.0, 8.0)))
    attempt = Attempt(numbers=(1,), units=units)
    plain = {j.unit for j in against(limit, attempt) if j.status == "fail"}
    excused = {j.unit for j in against(limit, attempt, excused={"n2", "n3"}) if j.status == "fail"}
    assert plain == {"rank 2", "rank 3"}, "the median of all is 8"
    assert excused == {"rank 2", "rank 3", "rank 4"}, "the bad do not lower the median, and are judged"


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(KnownBadError, match="cannot read"):
        knownbad.load(tmp_path / "none.toml")
