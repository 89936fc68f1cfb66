"""The localiser, rule by rule: each pattern means what the decision table says, and bad input accuses nobody.

The generator below is deliberately small and knows nothing of the localiser; whole fleets are simulated elsewhere.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reports.localise import PairTable, Topology, confirm, screen
from reports.localise.effects import Noise, middle, probability_bad, spread, two_way, upper_median
from reports.localise.pairs import told_apart
from suites import rounds

TEN, HALF = np.log(0.9), np.log(0.5)


def names(num):
    return [f"n{i}" for i in range(num)]


def leaves(num, size, **more):
    return Topology(leaf={f"n{i}": (f"leaf{i // size}",) for i in range(num)}, **more)


def racks(num, size):
    return {f"n{i}": f"rack{i // size}" for i in range(num)}


def measured(plan, *, num, fault=None, rails=1, noise=0.003, seed=0, **columns):
    """A table of both directions of every pair of `plan`; `fault(flows)` are logs added to each flow.

    Further columns are functions of the flows too. Flows have a, b and r: sender, receiver and rail.
    """
    dice = np.random.default_rng(seed)
    flows = [(r, *pair, rail) for r, made in enumerate(plan) for p in made.pairs for pair in (p, p[::-1])
             for rail in range(rails)]  # fmt: skip
    when, a, b, rail = np.array(flows).T
    of = SimpleNamespace(a=a, b=b, r=rail)
    logs = dice.normal(0, noise, len(a)) + (0 if fault is None else fault(of))
    extra = {name: make(of) for name, make in columns.items()}
    return PairTable.of(round=when, a=a, b=b, rail=rail, value=5e10 * np.exp(logs), nodes=names(num), **extra)


def played(num, fault=None, *, topology=None, **more):
    """What a full tournament of `num` nodes finds."""
    return screen(measured(rounds.tournament(num), num=num, fault=fault, **more), topology=topology)


def said(findings):
    """kind, element and direction of whoever is accused."""
    return sorted((s.kind, s.where, s.peer or s.path, s.rail, s.direction) for s in findings.accused)


def where(condition, size):
    return np.where(condition, size, 0.0)


def slow_sender(f):
    return where(f.a == 3, TEN)


def across(f):
    return (f.a < 4) != (f.b < 4)


ONE_RAIL_ONE_WAY = [("nic", "n3", "", 0, "transmit")]


@pytest.mark.parametrize(
    ("num", "rails", "fault", "topology", "expected"),
    [
        pytest.param(8, 1, slow_sender, None, ONE_RAIL_ONE_WAY, id="one direction"),
        pytest.param(8, 1, lambda f: where(f.b == 3, TEN), None, [("nic", "n3", "", 0, "receive")], id="the other"),
        pytest.param(8, 1, lambda f: where((f.a == 3) | (f.b == 3), TEN), None, [("nic", "n3", "", 0, "both")],
                     id="both directions of one rail"),
        pytest.param(8, 2, lambda f: where((f.a == 3) & (f.r == 1), TEN), None, [("nic", "n3", "", 1, "transmit")],
                     id="one rail of two"),
        pytest.param(8, 4, lambda f: where((f.a == 3) | (f.b == 3), TEN), None, [("host", "n3", "", None, "both")],
                     id="all rails"),
        pytest.param(8, 4, slow_sender, None, [("host", "n3", "", None, "transmit")],
                     id="all rails one way"),
        pytest.param(8, 1, lambda f: where(f.a == 2, TEN) + where(f.b == 5, TEN), None,
                     [("nic", "n2", "", 0, "transmit"), ("nic", "n5", "", 0, "receive")], id="two faults at once"),
        pytest.param(3, 1, lambda f: where(f.b == 1, TEN), None, [("nic", "n1", "", 0, "receive")], id="three nodes"),
        pytest.param(16, 1, lambda f: where((f.a // 4 == 2) & (f.b // 4 != 2), HALF), leaves(16, 4),
                     [("uplink", "leaf2", "", None, "out")], id="uplink out"),
        pytest.param(16, 1, lambda f: where((f.a // 4 == 2) != (f.b // 4 == 2), TEN), leaves(16, 4),
                     [("uplink", "leaf2", "", None, "both")], id="uplink both ways"),
        pytest.param(8, 1, lambda f: where((f.a >= 4) & (f.b < 4), HALF), leaves(8, 4),
                     [("uplink", "leaf1", "leaf0", None, "out")], id="trunk one way"),
        pytest.param(12, 1, lambda f: where((f.a // 4 == 1) | (f.b // 4 == 1), TEN), leaves(12, 4, rack=racks(12, 4)),
                     [("rack", "rack1", "", None, "both")], id="a whole rack of three"),
        pytest.param(8, 1, lambda f: where((f.a < 4) | (f.b < 4), TEN), Topology(rack=racks(8, 4)),
                     [("rack", "rack0", "", None, "both")], id="one rack of two"),
        pytest.param(12, 1, lambda f: where(f.a // 4 == 1, TEN), leaves(12, 4),
                     [("leaf", "leaf1", "", None, "transmit")],
                     id="a leaf whose hosts all send slowly, even to each other"),
        pytest.param(30, 1, lambda f: where((f.a % 3 == 0) | (f.b % 3 == 0), TEN),
                     Topology(attributes={f"n{i}": {"firmware": "old" if i % 3 == 0 else "new"} for i in range(30)}),
                     [("firmware", "old", "", None, "both")], id="what a third of the fleet shares"),
        pytest.param(8, 4, lambda f: where(f.r == 2, TEN), None, [("rail", "2", "", 2, "")], id="a rail on every node"),
        pytest.param(8, 1, lambda f: where(f.a == 3, -np.inf), None, [("dead", "n3", "", 0, "transmit")],
                     id="nothing comes through"),
        pytest.param(8, 1, None, leaves(8, 4), [], id="healthy"),
        pytest.param(8, 1, lambda f: np.full(len(f.a), HALF), leaves(8, 4), [], id="uniformly slow"),
        pytest.param(8, 1, lambda f: where(f.a != 3, TEN), None, [], id="a fast node among slow ones"),
    ],
)  # fmt: skip
def test_the_decision_table(num, rails, fault, topology, expected):
    assert said(played(num, fault, rails=rails, topology=topology)) == sorted(expected)


def test_a_suspect_says_how_much_how_sure_and_by_what_evidence():
    (suspect,) = played(8, slow_sender).suspects
    assert suspect.slower == pytest.approx(0.10, abs=0.005)
    assert suspect.confidence > 0.99 and suspect.num_agree == suspect.num_cells == 7
    assert "n3 sends 10.0 % slower than its peers (7 of 7 flows" in suspect.evidence.replace("9.9", "10.0")
    assert suspect.title == "n3 rail 0 transmit"


def test_more_than_a_fifth_slow_with_nothing_in_common_blames_the_software():
    findings = played(30, lambda f: where((f.a % 3 == 0) | (f.b % 3 == 0), TEN))
    assert findings.accused == () and "10 of 30 nodes" in findings.common_cause and "software" in findings.common_cause


def test_one_slow_cell_is_a_path_collision_once_it_has_repeated():

    def fault(f):
        return where((f.a == 1) & (f.b == 4), HALF)

    once = rounds.tournament(8)
    assert said(screen(measured(once, num=8, fault=fault))) == []
    assert said(screen(measured(once + once, num=8, fault=fault))) == [("pair", "n1", "n4", 0, "")]


def test_one_path_of_several_is_named_where_paths_are_given_and_its_leaf_where_not():
    num = 128
    plan = rounds.screening(num, 12, leaf=[i // 16 for i in range(num)])
    taken = np.random.default_rng(1).integers(0, 8, 100_000)

    def fault(f):
        return where((f.b // 16 == 5) & (f.a // 16 != 5) & (taken[: len(f.a)] == 3), HALF)

    known = measured(plan, num=num, fault=fault, rails=4, path=lambda f: taken[: len(f.a)])
    assert said(screen(known, topology=leaves(num, 16))) == [("path", "leaf5", "3", None, "in")]
    assert said(screen(replace(known, path=None), topology=leaves(num, 16))) == [("path", "leaf5", "", None, "in")]


def test_a_path_slow_for_every_leaf_is_the_spine():
    num = 128
    plan = rounds.screening(num, 12, leaf=[i // 16 for i in range(num)])
    taken = np.random.default_rng(1).integers(0, 8, 100_000)
    table = measured(plan, num=num, rails=4, path=lambda f: taken[: len(f.a)],
                     fault=lambda f: where((f.a // 16 != f.b // 16) & (taken[: len(f.a)] == 3), HALF))  # fmt: skip
    assert said(screen(table, topology=leaves(num, 16))) == [("spine", "3", "", None, "both")]


def test_slow_only_together_is_oversubscription():
    plan = rounds.tournament(8)
    alone = measured(plan, num=8, load=lambda f: np.ones(len(f.a)))
    together = measured(plan, num=8, seed=1, load=lambda f: np.full(len(f.a), 4),
                        fault=lambda f: where(across(f), HALF))  # fmt: skip
    findings = screen(alone.followed_by(together), topology=leaves(8, 4))
    assert said(findings) == [("oversubscription", "leaf0", "leaf1", None, "")]
    assert "2.0:1" in findings.suspects[0].evidence
    unknown = screen(measured(plan, num=8).followed_by(together), topology=leaves(8, 4))
    assert not any(s.kind == "oversubscription" for s in unknown.suspects), "nothing is known to have run alone"
    slow_hosts = measured(plan, num=8, load=lambda f: np.full(len(f.a), 4), fault=lambda f: np.full(len(f.a), HALF))
    assert said(screen(alone.followed_by(slow_hosts), topology=leaves(8, 4))) == [], (
        "inside is slowed as well: not the trunk"
    )


def test_mean_up_minimum_unchanged_and_retransmits_is_loss():

    def fault(f):
        return where(f.a == 6, np.log(0.6))

    best = measured(rounds.tournament(8), num=8, seed=5).value
    lossy = played(8, fault, best=lambda _: best, retransmits=lambda f: np.where(f.a == 6, 40, 0))
    assert said(lossy) == [("loss", "n6", "", 0, "transmit")]
    disturbed = played(8, fault, best=lambda _: best)
    assert said(disturbed) == [("nic", "n6", "", 0, "transmit")] and "disturbed" in disturbed.suspects[0].evidence
    slow = played(8, fault, best=lambda f: best * np.where(f.a == 6, 0.6, 1), retransmits=lambda f: 40 * (f.a == 6))
    assert said(slow) == [("nic", "n6", "", 0, "transmit")], "its best is slow too"


@pytest.mark.parametrize(("end", "direction"), [("a", "transmit"), ("b", "receive")])
def test_wrong_data_in_one_row_is_that_sender(end, direction):
    findings = played(8, wrong=lambda f: np.where({"a": f.a, "b": f.b}[end] == 3, 5, 0))
    assert said(findings) == [("corruption", "n3", "", None, direction)]


def test_two_corrupters_are_both_named_and_a_single_wrong_pair_is_neither_ends():
    findings = played(8, wrong=lambda f: ((f.a == 3) | (f.b == 6)).astype(float))
    assert said(findings) == [("corruption", "n3", "", None, "transmit"), ("corruption", "n6", "", None, "receive")]
    one = played(8, wrong=lambda f: ((f.a == 3) & (f.b == 1)).astype(float))
    assert one.accused == () and (one.suspects[0].where, one.suspects[0].peer) == ("n3", "n1")


def test_a_latency_there_and_back_names_the_host_but_no_direction():
    table = measured(rounds.tournament(8), num=8, noise=0.005,
                     fault=lambda f: where((f.a == 2) | (f.b == 2), np.log(4)))  # fmt: skip
    findings = screen(replace(table, better="lower", there_and_back=True))
    assert said(findings) == [("delay", "n2", "", 0, "either")]
    assert (
        findings.suspects[0].slower == pytest.approx(0.75, abs=0.01)
        and "times as late" in findings.suspects[0].evidence
    )
    half = table.rows(table.a < table.b)
    assert said(screen(replace(half, better="lower", there_and_back=True))) == said(findings), "one way is enough"


# bad input


def test_zero_nan_and_negative_are_flows_that_moved_nothing():
    table = measured(rounds.tournament(8), num=8)
    for nothing in (0.0, np.nan, -1.0, np.inf):
        value = np.where(table.b == 5, nothing, table.value)
        findings = screen(replace(table, value=value))
        assert said(findings) == [("dead", "n5", "", 0, "receive")]
        assert any("7 of 56 flows moved nothing" in note for note in findings.notes)


def test_when_most_flows_move_nothing_nobody_is_accused():
    table = measured(rounds.tournament(8), num=8)
    findings = screen(replace(table, value=np.where(table.a > 2, np.nan, table.value)))
    assert findings.suspects == () and "software" in findings.common_cause


def test_missing_cells_do_not_hide_the_culprit():
    table = measured(rounds.tournament(16), num=16, fault=slow_sender)
    kept = np.random.default_rng(2).random(len(table)) < 0.6
    assert said(screen(table.rows(kept))) == ONE_RAIL_ONE_WAY


def test_a_node_that_answered_only_once_is_not_judged_and_not_passed():
    table = measured(rounds.tournament(8), num=8)
    rare = (table.a == 4) | (table.b == 4)
    findings = screen(table.rows(~rare | (table.round == 0)))
    assert findings.unjudged == ("n4",) and findings.suspects == ()


def test_a_node_that_never_answered_is_not_judged():
    table = measured(rounds.tournament(8), num=8)
    assert screen(table.rows((table.a != 4) & (table.b != 4))).unjudged == ("n4",)


def test_two_hosts_of_one_name_are_two_suspects():
    assert told_apart(["x", "y", "x"]) == ("x#1", "y", "x#2")
    table = measured(rounds.tournament(8), num=8, fault=slow_sender)
    twins = PairTable.of(a=table.a, b=table.b, value=table.value, nodes=["n0", "n1", "n2", "n1", *names(8)[4:]])
    findings = screen(twins)
    assert [s.where for s in findings.accused] == ["n1#2"]
    assert any("several hosts are called n1" in note for note in findings.notes)


def test_a_node_measured_against_itself_is_left_out_and_said():
    findings = screen(PairTable.of(a=["x", "x"], b=["x", "x"], value=[1.0, 2.0]))
    assert findings.suspects == () and findings.unjudged == ("x",)
    assert any("two hosts share a name" in note for note in findings.notes)
    assert any("fewer than two nodes" in note for note in findings.notes)


def test_an_empty_table_finds_nothing_and_passes_nobody():
    findings = screen(PairTable.of(a=[], b=[], value=[], nodes=["x"]))
    assert findings.suspects == () and findings.unjudged == ("x",)


def test_two_nodes_cannot_be_separated_and_it_says_so():
    findings = played(2, lambda f: where(f.a == 1, TEN))
    assert findings.accused == ()
    assert any("two nodes cannot be separated" in note for note in findings.notes)
    assert "needs a third node" in findings.suspects[0].evidence


def test_without_a_topology_the_fabric_is_flat_and_that_is_said():
    assert any("taken as flat" in note for note in played(8).notes)
    assert not played(8, topology=leaves(8, 4)).notes


def test_columns_that_do_not_fit_are_refused_with_the_cure():
    with pytest.raises(ValueError, match="column wrong has 1 rows"):
        PairTable.of(a=[0, 1], b=[1, 0], value=[1.0, 2.0], wrong=[0])
    with pytest.raises(ValueError, match="outside the 1 nodes"):
        PairTable.of(a=[0], b=[1], value=[1.0], nodes=["x"])
    with pytest.raises(ValueError, match="no column 'speed'"):
        PairTable.of(a=[0], b=[1], value=[1.0], speed=[1])
    with pytest.raises(ValueError, match="better is"):
        PairTable.of(a=[0], b=[1], value=[1.0], better="more")


# properties


FAULTS = st.sampled_from(["transmit", "receive", "both", "none"])


def random_table(num, node, kind, seed):
    def fault(f):
        sends, receives = f.a == node, f.b == node
        return where((sends & (kind in ("transmit", "both"))) | (receives & (kind in ("receive", "both"))), TEN)

    return measured(rounds.tournament(num, seed=seed), num=num, fault=fault, seed=seed)


@given(st.integers(5, 12), st.integers(0, 4), FAULTS, st.integers(0, 99), st.randoms())
@settings(max_examples=40)
def test_relabelling_nodes_relabels_suspects(num, node, kind, seed, dice):
    table = random_table(num, node, kind, seed)
    new = list(range(num))
    dice.shuffle(new)
    code = np.array(new)
    moved = replace(table, a=code[table.a], b=code[table.b])
    renamed = {f"n{old}": f"n{at}" for old, at in enumerate(new)}
    expected = sorted((k, renamed[w], *rest) for k, w, *rest in said(screen(table)))
    assert said(screen(moved)) == expected
    assert (kind == "none") == (expected == [])


@given(st.integers(5, 12), st.integers(0, 4), FAULTS, st.integers(0, 99), st.floats(1e-12, 1e12))
@settings(max_examples=40)
def test_scaling_all_values_changes_nothing(num, node, kind, seed, factor):
    table = random_table(num, node, kind, seed)
    assert said(screen(replace(table, value=table.value * factor))) == said(screen(table))


@given(st.integers(5, 12), st.integers(0, 4), FAULTS, st.integers(0, 99))
@settings(max_examples=40)
def test_shuffling_rows_changes_nothing(num, node, kind, seed):
    table = random_table(num, node, kind, seed)
    order = np.random.default_rng(seed).permutation(len(table))
    assert said(screen(table.rows(order))) == said(screen(table))


@given(st.integers(5, 12), st.integers(0, 4), FAULTS, st.integers(0, 99))
@settings(max_examples=40)
def test_swapping_senders_and_receivers_swaps_the_direction(num, node, kind, seed):
    table = random_table(num, node, kind, seed)
    other = {"transmit": "receive", "receive": "transmit"}
    turned = [(*rest, other.get(way, way)) for *rest, way in said(screen(table))]
    assert said(screen(replace(table, a=table.b, b=table.a))) == sorted(turned)


# the parts, by hand


def test_the_upper_median_needs_a_majority_to_be_slow():
    got = upper_median(np.array([1.0, 2.0, 9.0, 5.0, 4.0, 3.0]), np.array([0, 0, 2, 2, 2, 0]), 4)
    assert got == pytest.approx([2.0, np.nan, 5.0, np.nan], nan_ok=True)
    assert middle(np.array([1.0, 2.0, np.nan])) == 2.0


def test_the_spread_is_that_of_the_healthy_when_nearly_half_is_slow():
    values = np.concatenate([np.random.default_rng(0).normal(0, 0.01, 600), np.full(400, -0.5)])
    assert spread(values) < 0.08 < 0.3 < values.std() + 0.1
    assert spread(np.random.default_rng(0).normal(0, 0.01, 10_000)) == pytest.approx(0.01, rel=0.05)


def test_the_two_way_fit_recovers_effects_through_outliers():
    row, col = (x.ravel() for x in np.meshgrid(np.arange(9), np.arange(9), indexing="ij"))
    y = 3.0 + np.where(row == 2, -0.2, 0) + np.where(col == 7, -0.1, 0)
    y[[5, 40]] -= 2.0
    fit = two_way(y, row, col, 9, 9)
    assert fit.level == pytest.approx(3.0) and fit.row.effect[2] == pytest.approx(-0.2)
    assert fit.col.effect[7] == pytest.approx(-0.1) and np.abs(np.delete(fit.row.effect, 2)).max() < 1e-9


def test_the_noise_is_a_density_that_knows_its_outliers():
    cells = np.concatenate([np.random.default_rng(0).normal(0, 0.03, 9500), np.full(500, -0.4)])
    noise = Noise.of(cells, 0.03)
    step = noise.grid[1] - noise.grid[0]
    assert np.exp(noise.log_density).sum() * step == pytest.approx(1.0, abs=0.02)
    ten = np.array([TEN])
    assert noise.log_odds(ten, ten)[0] > 2, "ten percent slow is rare here"
    assert noise.log_odds(np.array([-0.4]), np.array([-0.4]))[0] < noise.log_odds(ten, ten)[0] + 3, (
        "an outlier proves little"
    )


def test_the_posterior_by_hand():
    # prior odds 1/199; price ln(2.5066 x 0.01 / 0.7) = -3.3298; evidence e^10: odds e^(10 - 3.3298 - 5.2933) = e^1.3769
    got = probability_bad(np.array([10.0]), np.array([1]), 0.01)
    assert got[0] == pytest.approx(1 / (1 + np.exp(-1.3769)), abs=1e-4)


# two stages


def drawn_fleet(num, rails, num_bad, seed):
    """Noise of 3 % with heavy tails, 2 % shared by a leaf in a round, 5 % outliers; `num_bad` sides 10 % slow."""
    dice = np.random.default_rng(seed)
    leaf, slow, truth = np.arange(num) // 32, np.zeros((2, num, rails)), set()
    for node in dice.choice(num, num_bad, replace=False):
        side, rail = int(dice.integers(2)), int(dice.integers(rails))
        slow[side, node, rail] = TEN
        truth.add((f"n{node}", rail, ("transmit", "receive")[side]))

    def fault(f):
        a, b = f.a, f.b
        logs = slow[0, a, f.r] + slow[1, b, f.r] + dice.standard_t(3, len(a)) * 0.03 / np.sqrt(3)
        when = np.arange(len(a)) // (num * rails)
        for end in (leaf[a], leaf[b]):
            logs += dice.normal(0, 0.02, (when.max() + 1, leaf.max() + 1))[when, end]
        out = dice.random(len(a)) < 0.05
        logs[out] += np.log(dice.uniform(0.3, 0.9, out.sum()))
        return logs

    return fault, leaf.tolist(), truth


def test_screening_then_confirming_finds_all_and_accuses_no_healthy_host():
    num, rails = 1024, 4
    fault, leaf, truth = drawn_fleet(num, rails, 10, seed=4)
    where_ = leaves(num, 32)
    first = screen(
        measured(rounds.screening(num, 10, leaf=leaf), num=num, rails=rails, fault=fault, noise=0), topology=where_
    )
    found = {(s.where, s.rail, s.direction) for s in first.suspects}
    assert truth <= found, "the screening is generous"
    suspects = sorted({int(n[1:]) for s in first.suspects for n in s.nodes})
    plan = rounds.retest(suspects, [i for i in range(num) if i not in suspects], leaf=leaf)
    second = confirm(first, measured(plan, num=num, rails=rails, fault=fault, noise=0, seed=9))
    assert {(s.where, s.rail, s.direction) for s in second.accused} == truth
    assert all(s.confirmed and "re-test agrees in" in s.evidence for s in second.accused)
    assert len(second.accused) + len(second.cleared) == len(first.suspects)


def test_a_suspect_that_the_retest_finds_well_is_cleared():
    first = played(8, slow_sender)
    plan = rounds.retest([3], [i for i in range(8) if i != 3])
    healed = confirm(first, measured(plan, num=8, seed=1))
    assert healed.suspects == () and [s.where for s in healed.cleared] == ["n3"]
    assert "agrees in 0 of 5 pairs" in healed.cleared[0].evidence
    confirmed = confirm(first, measured(plan, num=8, seed=1, fault=slow_sender))
    assert said(confirmed) == said(first) and confirmed.accused[0].confirmed


def test_one_confirmation_is_not_enough():
    plan = rounds.retest([3], [i for i in range(8) if i != 3], 1)
    after = confirm(played(8, slow_sender), measured(plan, num=8, fault=slow_sender))
    assert after.accused == () and after.cleared == ()
    assert after.suspects[0].evidence.endswith("re-tested only once")


def test_a_suspect_that_was_not_retested_stays_unconfirmed():

    def fault(f):
        return where(f.a == 3, TEN) + where(f.b == 6, TEN)

    plan = rounds.retest([3], [0, 1, 2, 4, 5, 7], num_controls=0)
    after = confirm(played(8, fault), measured(plan, num=8, fault=fault))
    confirmed = {s.where: (s.confirmed, s.evidence.endswith("not re-tested")) for s in after.suspects}
    assert confirmed == {"n3": (True, False), "n6": (False, True)}


def test_a_node_that_was_not_judged_may_be_retested_and_accused_but_no_other():
    whole = measured(rounds.tournament(8), num=8, fault=slow_sender)
    first = screen(whole.rows((whole.a != 3) | (whole.round == 0)))
    assert first.unjudged == ("n3",) and first.suspects == ()
    plan = rounds.retest([3], [i for i in range(8) if i != 3])
    assert said(confirm(first, measured(plan, num=8, fault=slow_sender))) == ONE_RAIL_ONE_WAY
    well = played(8)
    assert well.unjudged == () and confirm(well, measured(plan, num=8, fault=slow_sender)).accused == ()


def test_an_uplink_and_a_rack_are_confirmed_like_hosts():
    num, leaf = 16, [i // 4 for i in range(16)]
    plan = rounds.screening(num, 4, leaf=leaf, seed=5)

    def uplink(f):
        return where((f.a // 4 == 2) & (f.b // 4 != 2), HALF)

    def rack(f):
        return where((f.a // 4 == 2) | (f.b // 4 == 2), TEN)

    for fault in (uplink, rack):
        first = played(num, fault, topology=leaves(num, 4))
        again = confirm(first, measured(plan, num=num, fault=fault, seed=1))
        assert said(again) == said(first) != [] and again.accused[0].confirmed
        assert confirm(first, measured(plan, num=num, seed=1)).accused == ()


def test_tables_of_different_quantities_cannot_confirm_each_other():
    table = measured(rounds.tournament(4), num=4)
    with pytest.raises(ValueError, match="different quantities"):
        confirm(screen(table), replace(table, better="lower"))
