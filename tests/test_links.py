"""The links benchmark: everybody meets everybody, every message is checked, a bad link has a name."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.links.run import run
from benchmarks.links.spec import Links
from benchmarks.links.tournament import partner, seated, tournament
from benchmarks.spec import Place, from_config, to_config
from tests.ranks import on_ranks

QUICK: dict[str, Any] = {
    "passes": 2, "latency_budget_s": 0.02, "bandwidth_budget_s": 0.02, "bandwidth_bytes": 20_000, "max_repetitions": 20,
}  # fmt: skip


# -- who meets whom -------------------------------------------------------------------------------------------------


@given(ranks=st.integers(2, 40), seed=st.none() | st.integers(0, 9))
def test_every_pair_meets_once_in_as_few_rounds_as_can_be(ranks, seed):
    rounds = tournament(ranks, seed=seed)
    assert sorted(pair for pairs in rounds for pair in pairs) == list(itertools.combinations(range(ranks), 2))
    assert len(rounds) == (ranks - 1 if ranks % 2 == 0 else ranks)
    for pairs in rounds:
        ends = [rank for pair in pairs for rank in pair]
        assert len(ends) == len(set(ends)) == ranks - ranks % 2
        for rank in range(ranks):
            peer = partner(pairs, rank)
            assert (rank in ends) == (peer is not None)
            assert peer is None or partner(pairs, peer) == rank


@given(ranks=st.integers(2, 24), per_node=st.integers(1, 8), cores=st.integers(1, 9))
def test_sub_rounds_lose_no_pair_and_crowd_no_node(ranks, per_node, cores):
    nodes = [f"node{rank // per_node}" for rank in range(ranks)]
    for pairs in tournament(ranks):
        parts = seated(pairs, nodes=nodes, cores=[cores] * ranks)
        assert sorted(pair for part in parts for pair in part) == sorted(pairs)
        for part in parts:
            for node in nodes:
                busy = [pair for pair in part for rank in pair if nodes[rank] == node]
                assert len(busy) <= cores or len(set(busy)) == 1


# -- the spec -------------------------------------------------------------------------------------------------------


def test_the_config_brings_the_spec_back():
    assert from_config(to_config(Links(window=2), Place(ranks_per_node=4)))[0] == Links(window=2)


@pytest.mark.parametrize("fields", [{"window": 0}, {"latency_bytes": 0}, {"passes": 0}, {"max_repetitions": 1}])
def test_a_wrong_spec_is_refused(fields):
    with pytest.raises(ValueError, match="links: "):
        Links(**fields)


def test_links_of_one_rank_are_refused():
    with pytest.raises(ValueError, match="at least 2 ranks"):
        Links().emits(Place(ranks_per_node=1))


# -- on real ranks --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 5])
def test_the_tables_have_every_ordered_pair(ranks):
    by_rank = on_ranks(ranks, lambda world: list(run(Links(**QUICK), world)))
    assert not any(by_rank[1:])
    assert [(m.metric, m.params) for m in by_rank[0]] == [
        (m.name, m.params) for m in Links(**QUICK).emits(Place(ranks_per_node=ranks))
    ]
    for m in by_rank[0]:
        rows = list(zip(m.columns["a"], m.columns["b"], strict=True))
        assert rows == list(itertools.permutations(range(ranks), 2))
        assert len(m.columns["samples"]) == len(rows)
        for samples in m.columns["samples"]:
            if m.metric == "links.wrong_elements":
                assert samples == [0.0]
            else:
                assert len(samples) >= 2 * Links(**QUICK).min_repetitions
                assert min(samples) > 0


def spoiled_links(world):
    """Rank 2 changes one byte of the 7th message that it sends to rank 0."""
    original, sent = dist.isend, [0]

    def lying(buffer, peer, *args, **kwargs):
        if world.rank == 2 and peer == 0 and buffer.numel() == QUICK["bandwidth_bytes"]:
            sent[0] += 1
            if sent[0] == 7:
                buffer[5] ^= 1
        return original(buffer, peer, *args, **kwargs)

    dist.isend = lying
    try:
        return list(run(Links(**QUICK), world))
    finally:
        dist.isend = original


@pytest.mark.slow
def test_one_wrong_byte_names_its_link_and_direction():
    *_, wrong = on_ranks(3, spoiled_links)[0]
    counts = {
        (a, b): samples[0]
        for a, b, samples in zip(wrong.columns["a"], wrong.columns["b"], wrong.columns["samples"], strict=True)
    }
    assert counts.pop((2, 0)) == 1.0
    assert set(counts.values()) == {0.0}
    (where,) = wrong.notes["first_wrong"].items()
    assert where[0] == "2->0"
    assert where[1]["element"] == 5
    assert where[1]["got"] == where[1]["expected"] ^ 1


def slow_links(world):
    """Sends from rank 1 to rank 0 start 10 ms late."""
    original = dist.isend

    def late(buffer, peer, *args, **kwargs):
        if (world.rank, peer) == (1, 0):
            time.sleep(0.01)
        return original(buffer, peer, *args, **kwargs)

    dist.isend = late
    try:
        return list(run(Links(**{**QUICK, "max_repetitions": 3}), world))
    finally:
        dist.isend = original


@pytest.mark.slow
def test_latency_is_half_of_the_round_trip():
    """10 ms lost on one way of two: half of it shows in both directions, and in no other pair's fastest trip."""
    latency, bandwidth, _ = on_ranks(3, slow_links)[0]
    fastest = {
        (a, b): min(samples)
        for a, b, samples in zip(latency.columns["a"], latency.columns["b"], latency.columns["samples"], strict=True)
    }
    slow = [fastest.pop((0, 1)), fastest.pop((1, 0))]
    assert all(seconds >= 0.005 for seconds in slow)
    assert max(fastest.values()) < 0.005
    # a window of 4 messages that all start 10 ms late cannot be over sooner
    widest = dict(
        zip(zip(bandwidth.columns["a"], bandwidth.columns["b"], strict=True), bandwidth.columns["samples"], strict=True)
    )
    assert max(widest[1, 0]) <= 4 * QUICK["bandwidth_bytes"] / 0.04
