"""Stragglers: the slowest in compute, the shortest time in collectives, and never a fast node among slow ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.localise import Topology
from reports.localise.stragglers import late_ranks, slow_ranks


def healthy(num, *, share=0.01, seed=0):
    return np.exp(np.random.default_rng(seed).normal(0, share, num))


def nodes(num, per_node=4):
    return [f"n{rank // per_node}" for rank in range(num)]


def titles(findings):
    return [s.title for s in findings.accused]


def test_the_slow_gpu_is_named_with_what_the_others_wait():
    times = healthy(32)
    times[5] = 1.25
    findings = slow_ranks(times, nodes=nodes(32), what="GEMM")
    assert titles(findings) == ["rank 5 on n1"]
    (suspect,) = findings.accused
    assert suspect.slower == pytest.approx(0.25, abs=0.02)
    assert suspect.waited == pytest.approx(1 - 1 / 1.25, abs=0.02), "a fifth of its time the others stand idle"
    assert "longer than its peers in GEMM; the others wait 20" in suspect.evidence


def test_a_share_of_the_whole_step_where_the_step_is_known():
    times = healthy(32, share=0.001)
    times[5] = 1.25
    (suspect,) = slow_ranks(times, nodes=nodes(32), step_s=2.5).accused
    assert suspect.waited == pytest.approx(0.1, abs=0.002)


def test_a_rate_is_judged_the_other_way_round():
    rates = 1e12 / healthy(16)
    rates[3] *= 0.7
    assert titles(slow_ranks(rates, nodes=nodes(16), better="higher")) == ["rank 3 on n0"]


def test_a_host_is_named_where_all_its_gpus_are_slow():
    times = healthy(32)
    times[8:12] *= 1.3
    assert titles(slow_ranks(times, nodes=nodes(32))) == ["n2"]


def test_a_rack_is_named_where_all_its_hosts_are_slow():
    times = healthy(48)
    times[12:24] *= 1.3
    where = Topology(rack={f"n{i}": f"r{i // 3}" for i in range(12)})
    findings = slow_ranks(times, nodes=nodes(48), topology=where)
    assert [(s.kind, s.where) for s in findings.accused] == [("rack", "r1")]


def test_a_third_slow_with_nothing_in_common_accuses_nobody():
    times = healthy(48).reshape(12, 4)
    times[::3] *= 1.3
    findings = slow_ranks(times.ravel(), nodes=nodes(48))
    assert findings.accused == () and "4 of 12 nodes" in findings.common_cause


def test_a_fast_node_among_slow_ones_is_no_suspect():
    times = healthy(8) * 1.3
    times[2] = 1.0
    assert slow_ranks(times, nodes=nodes(8, 1)).suspects == ()


def test_the_fleets_own_spread_is_no_fault():
    accused = [slow_ranks(healthy(64, share=0.03, seed=s), nodes=nodes(64)).accused for s in range(20)]
    assert not any(accused)
    assert slow_ranks(np.full(8, 1.0), nodes=nodes(8)).suspects == ()


def test_five_percent_is_healthy_even_in_a_quiet_fleet():
    times = healthy(32, share=0.001)
    times[4] = 1.045
    assert slow_ranks(times, nodes=nodes(32)).suspects == ()


def test_the_late_rank_shows_the_shortest_collective_time():
    times = 1 + np.abs(np.random.default_rng(0).normal(0, 0.01, (32, 20)))
    times[9] -= 0.3
    (suspect,) = late_ranks(times, nodes=nodes(32)).accused
    assert suspect.title == "rank 9 on n2" and suspect.waited == pytest.approx(0.3, abs=0.02)
    assert "shortest time is its own" in suspect.evidence
    times[9] += 0.6
    assert late_ranks(times, nodes=nodes(32)).suspects == (), "the longest time has only waited"


def test_a_rank_late_once_is_no_straggler():
    times = 1 + np.abs(np.random.default_rng(0).normal(0, 0.01, (8, 20)))
    times[3, 7] -= 0.5
    assert late_ranks(times, nodes=nodes(8)).suspects == ()


@pytest.mark.parametrize("bad", [np.nan, 0.0, -1.0, np.inf])
def test_a_rank_without_a_usable_time_is_not_judged(bad):
    times = healthy(8)
    times[3] = bad
    findings = slow_ranks(times, nodes=nodes(8, 1))
    assert findings.unjudged == ("n3",) and findings.suspects == ()
    late = late_ranks(np.tile(times[:, None], 5), nodes=nodes(8, 1))
    assert late.unjudged == ("n3",) and late.suspects == ()


def test_of_two_neither_is_the_slow_one_and_it_says_so():
    findings = slow_ranks([1.0, 2.0], nodes=["a", "b"])
    assert findings.suspects == () and findings.unjudged == ("a", "b")
    assert "fewer than 3" in findings.notes[0]


def test_times_and_nodes_must_match():
    with pytest.raises(ValueError, match="one node name per rank"):
        slow_ranks([1.0, 2.0], nodes=["a"])
    with pytest.raises(ValueError, match="one node name per rank"):
        late_ranks([[1.0, 2.0]], nodes=["a", "b"])


@given(st.integers(8, 40), st.integers(0, 7), st.floats(1e-9, 1e9), st.integers(0, 50), st.randoms())
def test_relabelling_relabels_and_scaling_changes_nothing(num, slow, factor, seed, dice):
    times = healthy(num, seed=seed)
    times[slow] *= 1.5
    who = [f"n{i}" for i in range(num)]
    assert titles(slow_ranks(times * factor, nodes=who)) == [f"n{slow}"]
    order = list(range(num))
    dice.shuffle(order)
    assert titles(slow_ranks(times[order], nodes=[who[i] for i in order])) == [f"n{slow}"]
