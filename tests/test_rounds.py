"""Rounds: everybody is measured, nobody twice at once, and the price is what it says."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suites.rounds import LEAST_ROUNDS, plan_campaign, power, retest, screening, tournament


@given(st.integers(0, 40), st.integers(0, 9))
def test_a_tournament_meets_every_pair_exactly_once(num_nodes, seed):
    rounds = tournament(num_nodes, seed=seed)
    met = [tuple(sorted(pair)) for r in rounds for pair in r.pairs]
    assert sorted(met) == list(combinations(range(num_nodes), 2))
    assert len(rounds) == (num_nodes - 1 + num_nodes % 2 if num_nodes > 1 else 0)
    for r in rounds:
        nodes = [node for group in r.groups for node in group]
        assert len(nodes) == len(set(nodes)) == num_nodes - num_nodes % 2


@given(st.integers(2, 60), st.integers(1, 12), st.integers(0, 9))
def test_a_screening_round_leaves_nobody_out(num_nodes, num_rounds, seed):
    for r in screening(num_nodes, num_rounds, seed=seed):
        assert sorted(node for group in r.groups for node in group) == list(range(num_nodes))
        assert sorted(map(len, r.groups))[:-1] == [2] * (len(r.groups) - 1)
        assert len(r.groups[-1]) == 2 + num_nodes % 2
        for turn in r.turns:
            ends = [node for pair in turn for node in pair]
            assert len(ends) == len(set(ends)), "nobody measures twice at once"


def test_a_group_of_three_takes_three_turns_and_meets_all_its_pairs():
    (r,) = screening(3, 1)
    assert [len(turn) for turn in r.turns] == [1, 1, 1]
    assert {tuple(sorted(p)) for p in r.pairs} == {(0, 1), (0, 2), (1, 2)}


def test_partners_are_on_other_leaves_except_in_every_fifth_round():
    leaf = [i // 8 for i in range(64)]
    rounds = screening(64, 7, leaf=leaf, seed=3)
    assert [r.kind for r in rounds] == ["across", "within"] + ["across"] * 4 + ["within"]
    for r in rounds:
        same = [leaf[a] == leaf[b] for a, b in r.pairs]
        assert all(same) if r.kind == "within" else not any(same)
    met = [tuple(sorted(p)) for r in rounds if r.kind == "across" for p in r.pairs]
    assert len(met) == len(set(met)), "no pair twice"


def test_pods_are_kept_apart_in_half_of_the_rounds():
    leaf, pod = [i // 4 for i in range(64)], [i // 16 for i in range(64)]
    rounds = screening(64, 5, leaf=leaf, pod=pod)
    assert all(pod[a] != pod[b] for r in rounds[::2] for a, b in r.pairs)


def test_the_same_seed_gives_the_same_rounds():
    assert screening(50, 4, seed=7) == screening(50, 4, seed=7) != screening(50, 4, seed=8)


def test_a_retest_gives_each_suspect_new_known_good_partners_on_other_leaves():
    leaf = [i // 8 for i in range(32)]
    suspects, healthy = [0, 1, 9], [i for i in range(32) if i not in (0, 1, 9)]
    rounds = retest(suspects, healthy, 4, leaf=leaf)
    for suspect in suspects:
        partners = [next(b for a, b in r.groups if a == suspect) for r in rounds]
        assert len(set(partners)) == 4 and not set(partners) & set(suspects)
        assert all(leaf[p] != leaf[suspect] for p in partners)
    for r in rounds:
        nodes = [node for group in r.groups for node in group]
        assert len(nodes) == len(set(nodes))
        assert len(r.groups) == 3 + 8, "healthy pairs beside them"


def test_more_suspects_than_healthy_nodes_take_turns():
    rounds = retest([0, 1, 2, 3, 4], [5, 6], 2)
    assert len(rounds) == 6
    assert {a for r in rounds for a, _ in r.groups if a < 5} == {0, 1, 2, 3, 4}
    assert retest([], [1], 3) == []
    with pytest.raises(ValueError, match="known-good"):
        retest([0], [], 3)


def test_the_cost_is_rounds_minutes_and_node_hours():
    stages = plan_campaign(64, turn_s=6.0, local_s=120, rail_s=30, num_rails=8).stages
    assert stages[0].line == "node-local checks: 1 round, 2.0 min, 2.1 node-hours"
    assert stages[1].line == "all nodes by rail: 8 rounds, 4.0 min, 4.3 node-hours"
    assert stages[2].line == "full tournament: 63 rounds, 6.3 min, 6.7 node-hours"
    assert plan_campaign(129, turn_s=1.0).stages[2].line == "screening: 10 rounds, 0.5 min, 1.1 node-hours"


@given(st.integers(2, 300), st.floats(1, 2000))
def test_a_budget_is_kept_or_refused_with_what_it_would_take(num_nodes, budget_s):
    try:
        campaign = plan_campaign(num_nodes, turn_s=5.0, local_s=10.0, budget_s=budget_s)
    except ValueError as error:
        assert "give that much" in str(error)
        assert budget_s < plan_campaign(num_nodes, turn_s=5.0, local_s=10.0).seconds
    else:
        assert campaign.seconds <= budget_s
        assert campaign.stages[2].num_rounds >= min(LEAST_ROUNDS, num_nodes - 1)


def test_fewer_rounds_leave_less_confidence_and_say_so():
    full, cut = plan_campaign(500, turn_s=60.0), plan_campaign(500, turn_s=60.0, budget_s=480.0)
    assert (full.stages[2].num_rounds, cut.stages[2].num_rounds) == (10, 3)
    assert cut.confidence < full.confidence
    assert "3 of 10 rounds" in cut.said and "0.998" in cut.said


def test_power_by_hand():
    # 10 % is 0.1054 in logs; one round at 3 %: error 0.03/sqrt(0.95) = 0.03078; 0.1054/0.03078 - 3 = 0.423 -> 0.664
    assert power(1) == pytest.approx(0.664, abs=1e-3)
    assert power(0) == 0.0
    assert power(100) == 0.999, "no more is claimed: real tails are not normal"
