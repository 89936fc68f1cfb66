"""From a run's records to who is to blame: topology, re-test, boundary, budget, map, and what nobody may be called."""

from __future__ import annotations

import random
import struct
import zlib
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from benchmarks.links.schedule import num_rounds, schedule
from benchmarks.links.spec import Links
from benchmarks.measurement import Event, Expected, Measurement, Verdict, now
from benchmarks.spec import Place
from clusters.loader import load
from reports import cabling, drainfile, png
from reports.blamemap import blame_map
from reports.blamerefs import Rests
from reports.culprits import FOLLOW_UP, culprits, told
from reports.evidence import Evidence
from reports.localise import PairTable, Topology
from reports.localise.crowding import under_load
from reports.pairtables import BANDWIDTH, WRONG
from reports.recordrefs import RecordRefs
from reports.runs import RunError, StoredRun
from suites import places, search, searchplan
from suites.continuation import matches
from suites.options import Options, UsageError, seconds
from suites.test_links import tournament
from tests.searched_run import FILE, SPEED, Notebook, measured, searched
from tests.testbed import trials
from tests.testbed.faults import Fault

TOPOLOGY = """
[nodes."n[0-3]"]
leaf = "leaf0"
[nodes."n[4-7]"]
leaf = "leaf1"
[[cables]]
from = "n0:mlx5_0"
to = "leaf0:1"
[[cables]]
from = "n4:mlx5_0"
to = "leaf1:1"
"""


def slow_sender(a: int, _b: int, _rail: int) -> float:
    return 0.9 if a == 3 else 1.0


def follow_up(stored: StoredRun, fault=slow_sender, verdicts=()) -> StoredRun:
    """The run after what the search asked for was measured."""
    notes = Notebook()
    asked = search.follow_up(stored, verdicts, stored.run.configs, notes, stored.cluster)
    more = tuple(m for config in asked for m in measured(config, fault=fault, seed=1))
    return replace(stored, measurements=stored.measurements + more, events=(*stored.events, *notes.events))


def concluded(stored: StoredRun) -> Measurement:
    config = stored.run.configs[0].id
    found = search.conclude(stored, {config: 1}, stored.cluster)
    assert found is not None
    return found


def with_topology(stored: StoredRun, text: str = TOPOLOGY, found: str = "") -> StoredRun:
    """The run as if it had been given a topology, and what was found plugged."""
    kept = {}
    for which, name, words in (("plan", cabling.PLAN, text), ("found", cabling.FOUND, found)):
        if words:
            (stored.folder / name).write_text(words, encoding="utf-8")
            kept[which] = {"file": name, "source": name, "sha256": cabling.digest(stored.folder / name)}
    return replace(stored, events=(*stored.events, Event(kind=cabling.EVENT, at=now(), detail=kept)))


# -- the search -----------------------------------------------------------------------------------------------------


def test_a_slow_side_is_accused_after_its_retest_and_named_in_the_drain_file(tmp_path: Path) -> None:
    stored = follow_up(searched(tmp_path, fault=slow_sender))
    found = concluded(stored)
    assert found.samples == (1.0,)
    assert [s["title"] for s in found.notes["suspects"]] == ["n3 rail 0 transmit"]
    assert "found with probability" in found.notes["search"]
    stored = replace(stored, measurements=(*stored.measurements, found))
    (line,) = drainfile.lines(stored)
    assert line.startswith("n3 rackproof made-up: n3 rail 0 transmit: n3 sends ")
    assert drainfile.write(stored, tmp_path / "drain.txt").read_text() == f"{line}\n"


def test_one_rail_of_four_is_named_where_nodes_meet_by_all_rails_at_once(tmp_path: Path) -> None:
    def one_rail(_a: int, b: int, rail: int) -> float:
        return 0.9 if (b, rail) == (5, 2) else 1.0

    stored = follow_up(searched(tmp_path, rails=4, fault=one_rail), one_rail)
    assert [s.title for s in culprits(stored).accused] == ["n5 rail 2 receive"]


def test_a_node_that_answered_too_little_is_retested_and_nobody_is_called_healthy_before(tmp_path: Path) -> None:
    stored = searched(tmp_path, left_out=[6])
    assert culprits(stored).to_retest == ("n6",)
    before = concluded(stored)
    assert before.outcome == "error" and "n6" in before.reason and before.notes["judged"] is False
    after = concluded(follow_up(stored, lambda *_: 1.0))
    assert after.outcome == "ok" and after.samples == (0.0,)
    bad = concluded(follow_up(stored, lambda a, b, _r: 0.8 if 6 in (a, b) else 1.0))
    assert [s["title"] for s in bad.notes["suspects"]] == ["n6 rail 0 both"]


def test_a_new_attempt_is_not_confirmed_by_the_retest_of_an_older_one(tmp_path: Path) -> None:
    stored = follow_up(searched(tmp_path, fault=slow_sender))
    assert len(culprits(stored).accused) == 1
    (config,) = stored.run.configs
    mended = measured(config, fault=lambda *_: 1.0, attempt=2, seed=5)
    again = replace(stored, measurements=stored.measurements + mended)
    assert culprits(again).accused == () and not culprits(again).retested


def test_a_retest_that_gave_nothing_clears_nobody(tmp_path: Path) -> None:
    stored, notes = searched(tmp_path, fault=slow_sender), Notebook()
    (config,) = search.follow_up(stored, (), stored.run.configs, notes, stored.cluster)
    died = replace(stored, events=(*stored.events, *notes.events))
    found = concluded(died)
    assert found.outcome == "error" and "re-test gave no number: n3 rail 0 transmit" in found.reason
    assert found.notes["judged"] is False
    lost = tuple(
        replace(m, outcome="error", columns={}) if m.metric == BANDWIDTH else m
        for m in measured(config, fault=lambda *_: 1.0, seed=1)
    )
    assert concluded(replace(died, measurements=died.measurements + lost)).outcome == "error"


def test_wrong_data_of_a_retest_counts_also_where_its_speed_clears_everybody(tmp_path: Path) -> None:
    stored, notes = searched(tmp_path, fault=slow_sender), Notebook()
    (config,) = search.follow_up(stored, (), stored.run.configs, notes, stored.cluster)
    more = [
        replace(m, columns=m.columns | {"samples": [[float(i == 3)] for i in range(len(m.columns["a"]))]})
        if m.metric == WRONG else m
        for m in measured(config, fault=lambda *_: 1.0, seed=1)
    ]  # fmt: skip
    (m,) = (m for m in more if m.metric == WRONG)
    found = concluded(
        replace(stored, measurements=(*stored.measurements, *more), events=(*stored.events, *notes.events))
    )
    assert found.samples == (1.0,)
    assert [s["title"] for s in found.notes["suspects"]] == [f"n{m.columns['a'][3]} to n{m.columns['b'][3]}"]


def test_of_two_nodes_neither_is_called_healthy(tmp_path: Path) -> None:
    said = told(searched(tmp_path, nodes=2))
    assert said["judged"] is False and "cannot be told apart" in said["notes"][0]
    assert told(searched(tmp_path, nodes=1, rails=2)) == {}


def test_hosts_that_share_a_name_are_an_error_not_a_pass(tmp_path: Path) -> None:
    stored = searched(tmp_path)
    *others, last = stored.environments
    found = concluded(replace(stored, environments=(*others, replace(last, node="n0"))))
    assert found.outcome == "error" and "share a name" in found.reason and found.notes["judged"] is False


def test_a_rail_that_is_slow_on_every_node_is_retested_on_some_and_accused(tmp_path: Path) -> None:
    def rail(_a: int, _b: int, rail: int) -> float:
        return 0.8 if rail == 1 else 1.0

    stored = searched(tmp_path, rails=4, nodes=16, fault=rail)
    assert culprits(stored).to_retest
    assert [s.title for s in culprits(follow_up(stored, rail)).accused] == ["rail 1"]


# -- topology and cabling -------------------------------------------------------------------------------------------


def test_with_a_topology_an_uplink_is_named_and_without_one_it_says_flat(tmp_path: Path) -> None:
    def uplink(a: int, b: int, _rail: int) -> float:
        return 0.5 if a < 4 <= b else 1.0

    flat = searched(tmp_path, fault=uplink)
    assert any("taken as flat" in note for note in concluded(flat).notes["notes"])
    known = follow_up(with_topology(flat), uplink)
    assert [s.title for s in culprits(known).accused] == ["uplink leaf0 to leaf1"]
    assert not any("taken as flat" in note for note in concluded(known).notes["notes"])


def test_a_cable_that_is_not_where_the_plan_has_it_is_accused(tmp_path: Path) -> None:
    right = with_topology(searched(tmp_path), found=TOPOLOGY)
    assert concluded(right).samples == (0.0,)
    moved = TOPOLOGY.replace('to = "leaf1:1"', 'to = "leaf1:7"')
    wrong = concluded(with_topology(searched(tmp_path), found=moved))
    assert wrong.samples == (1.0,)
    assert "planned" in wrong.notes["suspects"][0]["evidence"] and "leaf1:7" in wrong.notes["suspects"][0]["evidence"]
    bare = TOPOLOGY.partition("[[cables]]")[0]
    unknown = concluded(with_topology(searched(tmp_path), text=bare, found=TOPOLOGY))
    assert any("cabling was not checked: the plan names no cables" in note for note in unknown.notes["notes"])


def test_a_kept_topology_that_was_changed_is_refused(tmp_path: Path) -> None:
    stored = with_topology(searched(tmp_path))
    (tmp_path / cabling.PLAN).write_text(TOPOLOGY.replace("leaf1", "leaf9"), encoding="utf-8")
    with pytest.raises(RunError, match="not the file that the run was given"):
        culprits(stored)
    (tmp_path / cabling.PLAN).unlink()
    with pytest.raises(RunError, match="put back the copy"):
        culprits(stored)


@pytest.mark.parametrize(("text", "said"), [("hello", "neither TOML"), (None, "cannot be read"), (b"\xff", "no text")])
def test_a_topology_that_cannot_be_read_is_one_line_with_its_cure(tmp_path: Path, text, said) -> None:
    path = tmp_path / "fabric"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError, match=said):
        places.with_places(load("local"), Options(cluster="local", topology=path))


# -- rounds, and what they cost -------------------------------------------------------------------------------------


def made(tmp_path: Path, nodes: int, rails: int = 1, settings: str = "") -> Links:
    path = tmp_path / "c.toml"
    path.write_text(FILE.format(nodes=nodes, rails=rails).replace("[limits", f"{settings}\n[limits", 1), "utf-8")
    return tournament(load(str(path)))


def test_few_nodes_meet_all_and_many_in_random_rounds(tmp_path: Path) -> None:
    assert (made(tmp_path, 8).meet, made(tmp_path, 8, 4).meet) == ("ranks", "nodes")
    assert made(tmp_path, 128, 2).screening == 0 and made(tmp_path, 129).screening == 10
    assert made(tmp_path, 500, 8).limit_s < 600
    short = made(tmp_path, 64, settings="[campaign]\nbudget_s = 40.0")
    assert short.meet == "nodes" and 3 <= short.screening < 63
    with pytest.raises(ValueError, match="is too short to search 64 nodes"):
        made(tmp_path, 64, settings="[campaign]\nbudget_s = 1.0")


def test_a_topology_keeps_partners_of_a_screening_on_other_leaves(tmp_path: Path) -> None:
    path = tmp_path / "fabric.toml"
    path.write_text("".join(f'[nodes."n[{8 * i}-{8 * i + 7}]"]\nleaf = "l{i}"\n' for i in range(20)), "utf-8")
    cluster = load("local", nodes=160)
    spec = tournament(places.with_places(cluster, Options(cluster="local", topology=path)))
    assert len(spec.leaves) == 20
    per = cluster.ranks_per_node
    nodes = [f"n{rank // per}" for rank in range(160 * per)]
    rounds = schedule(replace(spec, passes=1), nodes=nodes)
    across = [r for i, r in enumerate(rounds[:10]) if i % 5 != 1]
    assert all(a // per // 8 != b // per // 8 for pairs in across for a, b in pairs)
    assert all(a // per // 8 == b // per // 8 for a, b in rounds[1])
    for pairs in rounds[:10]:
        assert sorted(rank for pair in pairs for rank in pair) == list(range(160 * per)), "every rail of every node"


def test_of_an_odd_number_of_nodes_nobody_is_left_out() -> None:
    spec = Links(meet="nodes", screening=3, passes=1)
    rounds = schedule(spec, nodes=[f"n{rank // 2}" for rank in range(10)])
    assert len(rounds) == num_rounds(spec, nodes=5, per_node=2) == 3 * 3 + 1
    for i in range(3):
        assert {rank for pairs in rounds[3 * i : 3 * i + 3] for pair in pairs for rank in pair} == set(range(10))


def test_a_rank_that_met_nobody_makes_a_table_of_meetings_missing() -> None:
    expected = Expected(
        metric="links.bandwidth", unit="B/s", better="higher", config="c", test="t", per="meeting", units=4
    )

    def table(*pairs: tuple[int, int]) -> str:
        columns = {"a": [a for a, _ in pairs], "b": [b for _, b in pairs], "samples": [[1.0]] * len(pairs)}
        m = Measurement(metric="links.bandwidth", unit="B/s", better="higher", config="c", columns=columns)
        problem = Evidence([m]).attempts(expected)[0].problem
        return problem.reason if problem else ""

    assert table((0, 1), (1, 0), (2, 3), (3, 2)) == ""
    assert "met nobody, as sender or as receiver: rank 3" in table((0, 1), (1, 0), (2, 0), (0, 2))
    assert "rank 2" in table((0, 1), (1, 0), (3, 2), (0, 3))
    assert "not pairs of 4 ranks" in table((0, 1), (1, 0), (2, 3), (3, 2), (4, 0))


def test_the_plan_says_what_the_search_costs_and_what_a_budget_leaves() -> None:
    spec = Links()
    full = searchplan.campaign(spec, nodes=64, per_node=8)
    cut = searchplan.campaign(spec, nodes=64, per_node=8, budget_s=full.seconds / 2)
    assert cut.seconds <= full.seconds / 2 and cut.confidence <= full.confidence and not cut.full
    assert f"{cut.stages[2].num_rounds} of 63 rounds" in cut.said


def test_a_budget_is_a_length_of_time() -> None:
    assert (seconds("20m"), seconds("1.5h"), seconds("45 s"), seconds("")) == (1200.0, 5400.0, 45.0, None)
    for wrong in ("soon", "0m", "-3m", "20 weeks"):
        with pytest.raises(UsageError, match="such as 20m"):
            seconds(wrong)


def test_a_resumed_run_keeps_its_topology_and_budget(tmp_path: Path) -> None:
    stored = with_topology(searched(tmp_path))
    kept = places.as_before(Options(cluster="c"), stored)
    assert kept.topology == tmp_path / cabling.PLAN and kept.budget_s is None
    with pytest.raises(UsageError, match="has its topology already"):
        places.as_before(Options(cluster="c", topology=tmp_path / "other"), stored)
    with pytest.raises(UsageError, match="another budget"):
        places.as_before(Options(cluster="c", budget_s=60.0), stored)


# -- what leaves share ----------------------------------------------------------------------------------------------


def crowd(narrow: set[tuple[int, int]], *, inside: bool = True, rounds: int = 4) -> PairTable:
    """Flows between hosts 0-3 and 4-7, and inside both, alone and by four; those over a `narrow` way at half."""
    rows = []
    ways = [(0, 4, (0, 1)), (4, 0, (1, 0))] + ([(0, 1, (0, 0)), (4, 5, (1, 1))] if inside else [])
    dice = np.random.default_rng(1)
    for a, b, way in ways:
        for together in (1, 4):
            for i in range(rounds):
                for flow in range(together):
                    share = 0.5 if together > 1 and way in narrow else 1.0
                    ends = (a + flow % 4, b + flow % 4) if way[0] != way[1] else (a + flow % 2 * 2, b + flow % 2 * 2)
                    rows.append((a * 1000 + together * 100 + i, *ends, share * dice.normal(1, 0.01), together))
    when, a, b, value, load = zip(*rows, strict=True)
    names = [f"n{i}" for i in range(8)]
    return PairTable.of(round=when, a=a, b=b, value=value, load=load, nodes=names)


LEAVES = Topology(leaf={f"n{i}": (f"leaf{i // 4}",) for i in range(8)})


def test_a_boundary_that_is_narrow_one_way_is_an_uplink_and_both_ways_oversubscription() -> None:
    (one,) = under_load(crowd({(1, 0)}), topology=LEAVES)
    assert (one.title, one.certain) == ("uplink leaf1 to leaf0", True)
    (both,) = under_load(crowd({(1, 0), (0, 1)}), topology=LEAVES)
    assert (both.kind, both.certain) == ("oversubscription", True) and "2.0:1" in both.evidence
    assert under_load(crowd(set()), topology=LEAVES) == []


def test_flows_that_are_slow_together_inside_leaves_too_accuse_no_boundary() -> None:
    assert under_load(crowd({(0, 0), (1, 1), (0, 1), (1, 0)}), topology=LEAVES) == []


def test_without_leaves_or_flows_inside_nobody_is_certain_of_a_boundary() -> None:
    for found in (under_load(crowd({(1, 0), (0, 1)}, inside=False), topology=LEAVES), under_load(crowd({(1, 0)}))):
        assert not any(s.certain for s in found)
    assert under_load(crowd(set())) == []


def test_a_boundary_is_probed_where_the_whole_is_slow_and_no_node_is(tmp_path: Path) -> None:
    stored = with_topology(searched(tmp_path))
    assert search.follow_up(stored, (), stored.run.configs, Notebook(), stored.cluster) == []
    slow = failing("collectives.all_reduce.busbw")
    (config,) = search.follow_up(stored, [slow], stored.run.configs, notes := Notebook(), stored.cluster)
    assert "0-4 1-5 2-6 3-7" in config.spec["flow_sets"] and "0-1 2-3 4-5 6-7" in config.spec["flow_sets"]
    assert [e.kind for e in notes.events] == [FOLLOW_UP]
    blamed = with_topology(searched(tmp_path, fault=slow_sender))
    (config,) = search.follow_up(blamed, [slow], blamed.run.configs, Notebook(), blamed.cluster)
    assert not config.spec["flow_sets"], "a slow node explains it"


def failing(metric: str) -> Verdict:
    return Verdict(status="fail", metric=metric, unit="B/s", better="higher")


# -- the map --------------------------------------------------------------------------------------------------------


def test_a_small_map_outlines_the_row_of_a_slow_sender(tmp_path: Path) -> None:
    found = blame_map(culprits(follow_up(searched(tmp_path, fault=slow_sender))))
    assert found is not None
    assert found.picture.count('class="outline"') == 1 and "n3 rail 0 transmit" in found.picture
    assert found.picture.count('<rect class="h') == 8 * 7
    assert blame_map(None) is None


def test_each_suspect_names_its_records_and_the_command_that_measures_it_again(tmp_path: Path) -> None:
    searched_run = follow_up(searched(tmp_path, fault=slow_sender))
    said = concluded(searched_run)
    stored = replace(searched_run, measurements=(*searched_run.measurements, said))
    rests = Rests(stored, RecordRefs(stored), culprits(stored))
    (suspect,) = said.notes["suspects"]
    found = [stored.measurements[ref.line - 1] for ref in rests.of(suspect)]
    assert found[-1] is said
    assert {m.config for m in found if m.metric == BANDWIDTH} == {said.config, *rests.repeats}
    assert rests.again(suspect).endswith("suites --resume " + f"{stored.folder} --retest n3")
    assert matches(verdict_on(said), "n3", said.notes)
    straggler = {"kind": "straggler", "nodes": ["n3"], "title": "rank 3 on n3"}
    assert rests.of(straggler) == rests.of(suspect)[-1:]
    cable = {"kind": "cable", "nodes": [], "title": "cable n0:mlx5_0"}
    assert rests.again(cable).startswith("ibnetdiscover > ")


def verdict_on(m: Measurement) -> Verdict:
    return Verdict(status="fail", metric=m.metric, unit=m.unit, better=m.better, config=m.config)


def test_a_large_map_is_a_picture_with_the_suspect_framed(tmp_path: Path) -> None:
    spec = Links(meet="nodes", screening=4, passes=1)
    stored = searched(tmp_path, nodes=100, rails=2, spec=spec, fault=lambda a, _b, _r: 0.7 if a == 40 else 1.0)
    stored = follow_up(stored, lambda a, _b, _r: 0.7 if a == 40 else 1.0)
    assert [s.title for s in culprits(stored).accused] == ["n40 transmit"]
    found = blame_map(culprits(stored))
    assert found is not None and found.picture.startswith('<img class="map" src="data:image/png;base64,')
    assert [m.name for m in found.rails] == ["rail 0", "rail 1"]


def test_leaves_are_told_with_what_leaves_and_enters_them_slowest_first(tmp_path: Path) -> None:
    def uplink(a: int, b: int, _rail: int) -> float:
        return 0.5 if a < 4 <= b else 1.0

    found = blame_map(culprits(with_topology(searched(tmp_path, fault=uplink))))
    assert found is not None
    assert {m.name for m in found.leaves[:2]} == {"out of leaf0", "into leaf1"}
    assert found.leaves[0].slower == pytest.approx(0.5, abs=0.02)


def test_a_picture_has_the_dots_it_was_given() -> None:
    cells = np.array([[0, 1, 2], [2, 1, 0]])
    data = png.picture(cells, ["#000000", "#ffffff", "#ff0000"])
    width, height = struct.unpack(">II", data[16:24])
    start = data.index(b"IDAT")
    (length,) = struct.unpack(">I", data[start - 4 : start])
    rows = zlib.decompress(data[start + 4 : start + 4 + length])
    assert (width, height) == (3, 2)
    assert [list(rows[i * 4 + 1 : i * 4 + 4]) for i in range(2)] == cells.tolist()
    with pytest.raises(ValueError, match="palette of 2"):
        png.picture(cells, ["#000000", "#ffffff"])


# -- many ----------------------------------------------------------------------------------------------------------


def test_a_third_of_the_nodes_slow_is_one_failure_without_a_name_once_seen_twice(tmp_path: Path) -> None:
    def third(a: int, b: int, _rail: int) -> float:
        return 0.8 if a % 3 == 0 or b % 3 == 0 else 1.0

    stored = searched(tmp_path, nodes=30, fault=third)
    found = concluded(follow_up(stored, third))
    assert found.notes["suspects"] == [] and "software" in found.notes["common_cause"]
    assert found.samples == (1.0,), "it is no pass"
    assert concluded(follow_up(stored, lambda *_: 1.0)).notes["common_cause"] == ""


@pytest.mark.parametrize(("speed", "outcome"), [(1.0, "ACCEPTED"), (0.5, "REJECTED")])
def test_all_alike_and_all_slow_is_rejected_by_the_limit_and_accuses_nobody(tmp_path, speed, outcome) -> None:
    floor = f'[limits.f]\nmetric = "links.bandwidth"\nunit = "B/s"\nfloor = {0.8 * SPEED}\nsource = "a data sheet"\n'
    stored = searched(tmp_path, fault=lambda *_: speed, limits=floor)
    (config,), place = stored.run.configs, Place(nodes=8, ranks_per_node=1)
    size = max(config.spec["bandwidth_sizes"])
    metrics = [Links().pair_metric("bandwidth", size), search.SUSPECTS]
    expected = tuple(
        Expected(
            metric=m.name, unit=m.unit, better=m.better, config=config.id, test="t", params=m.params, per=m.per,
            units=m.units or place.units(m.per),
        )
        for m in metrics
    )  # fmt: skip
    run = replace(stored.run, expected=expected)
    ended = Event(kind="ended", at=now(), detail={})
    suspects = replace(concluded(stored), config=config.id)
    stored = replace(
        stored, run=run, measurements=(*stored.measurements, suspects),
        events=(Event(kind="selected", at=now(), detail={"all": True}), ended),
    )  # fmt: skip
    verdicts = stored.verdicts(today=date(2026, 12, 1))
    assert stored.outcome(verdicts) == outcome, [(v.metric, v.status, v.reason) for v in verdicts]
    assert suspects.samples == (0.0,)


# -- the trials' own arithmetic -------------------------------------------------------------------------------------


def test_a_trial_is_held_against_what_was_planted() -> None:
    up, down = (Fault(kind="slow_uplink", leaf=0, way=way, amount=0.5) for way in ("up", "down"))
    assert trials.trunk((up,)) == {"uplink uplink leaf0 to leaf1"}
    assert trials.trunk((down,)) == {"uplink uplink leaf1 to leaf0"}
    assert trials.sides((Fault(kind="slow_receive", host=3), Fault(kind="loss", host=5, way="transmit"))) == {
        "nic node3 rail 0 receive", "loss node5 rail 0 transmit",
    }  # fmt: skip
    rows = [{"case": "clean", "trial": i, "right": i > 0, "seconds": 4.0} for i in range(3)]
    assert "2 of 3" in trials.table(rows) and "loss" not in trials.table(rows)


def test_links_that_scatter_too_much_to_see_a_slow_nic_call_nobody_healthy(tmp_path):
    def busy(*_: int) -> float:
        return dice.uniform(0.6, 1.0)

    dice = random.Random(7)
    stored = searched(tmp_path, fault=busy)
    stored = follow_up(stored, fault=busy)
    found = search.conclude(stored, {stored.run.configs[0].id: 1}, stored.cluster)
    assert found.outcome == "error" and "scatters by" in found.reason and "probability" in found.reason
    assert found.notes["judged"] is False
    calm = searched(tmp_path)
    assert search.conclude(calm, {calm.run.configs[0].id: 1}, calm.cluster).samples == (0.0,)
