"""The links benchmark: everybody meets everybody, every message is checked, a bad link has a name."""

from __future__ import annotations

import itertools
import statistics
import time
from typing import Any

import pytest
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.collectives.wire import losses, lost_between
from benchmarks.links.flows import halves
from benchmarks.links.paths import named, topology
from benchmarks.links.run import run
from benchmarks.links.spec import Links
from benchmarks.links.tournament import partner, seated, tournament
from benchmarks.measurement import params_key
from benchmarks.spec import Place, from_config, to_config
from clusters.loader import load
from suites.test_links import tournament as asked
from tests.ranks import on_ranks

QUICK: dict[str, Any] = {
    "passes": 2, "latency_budget_s": 0.02, "bandwidth_budget_s": 0.02, "bandwidth_sizes": (20_000,),
    "max_repetitions": 20,
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


@pytest.mark.parametrize(
    "fields",
    [
        {"window": 0},
        {"latency_sizes": (0,)},
        {"bandwidth_sizes": ()},
        {"bandwidth_sizes": (8,)},
        {"passes": 0},
        {"max_repetitions": 1},
    ],
)
def test_a_wrong_spec_is_refused(fields):
    with pytest.raises(ValueError, match="links: "):
        Links(**fields)


@pytest.mark.parametrize(
    ("fields", "ranks", "cure"),
    [
        ({}, 1, "at least 2 ranks"),
        ({"flows": (3,)}, 4, "from 1 to 2"),
        ({"flows": (1, 1)}, 4, "different numbers"),
        ({"congestion": True}, 3, "at least 4 ranks"),
    ],
)
def test_what_cannot_run_there_is_refused_before_the_launch(fields, ranks, cure):
    with pytest.raises(ValueError, match=cure):
        Links(**fields).emits(Place(ranks_per_node=ranks))


# -- on real ranks --------------------------------------------------------------------------------------------------


EVERYTHING = {**QUICK, "both_ways": True, "latency_sizes": (8, 1024)}


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 5])
def test_the_tables_have_every_ordered_pair(ranks):
    by_rank = on_ranks(ranks, lambda world: list(run(Links(**EVERYTHING), world)))
    assert not any(by_rank[1:])
    assert [(m.metric, m.params) for m in by_rank[0]] == [
        (m.name, m.params) for m in Links(**EVERYTHING).emits(Place(ranks_per_node=ranks))
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
        if m.metric != "links.wrong_elements":
            assert set(m.columns["path"]) == {"loopback"}
            for samples, low, mean, high in zip(
                *(m.columns[c] for c in ("samples", "min", "mean", "max")), strict=True
            ):
                assert low == min(samples) <= mean <= max(samples) == high


def spoiled_links(world):
    """Rank 2 changes one byte of the 7th message that it sends to rank 0."""
    original, sent = dist.isend, [0]

    def lying(buffer, peer, *args, **kwargs):
        if world.rank == 2 and peer == 0 and buffer.numel() == QUICK["bandwidth_sizes"][0]:
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
    *_, wrong = on_ranks(4, spoiled_links)[0]
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


LATE_S = 0.04


def slow_links(world):
    """Sends from rank 1 to rank 0 start late, one at a time and several at once."""

    def late(original):
        def call(buffer, peer, *args, **kwargs):
            if (world.rank, peer) == (1, 0):
                time.sleep(LATE_S)
            return original(buffer, peer, *args, **kwargs)

        return call

    originals = dist.send, dist.isend
    dist.send, dist.isend = map(late, originals)
    try:
        return list(run(Links(**{**QUICK, "max_repetitions": 3}), world))
    finally:
        dist.send, dist.isend = originals


@pytest.mark.slow
def test_latency_is_half_of_the_round_trip():
    """Time lost on one way of two: half of it shows in both directions, and in no other pair's fastest trip."""
    latency, bandwidth, _ = on_ranks(3, slow_links)[0]
    fastest = {
        (a, b): min(samples)
        for a, b, samples in zip(latency.columns["a"], latency.columns["b"], latency.columns["samples"], strict=True)
    }
    slow = [fastest.pop((0, 1)), fastest.pop((1, 0))]
    assert all(LATE_S / 2 <= seconds < LATE_S for seconds in slow)
    assert max(fastest.values()) < LATE_S / 2
    # a window of 4 messages that all start late cannot be over sooner
    widest = dict(
        zip(zip(bandwidth.columns["a"], bandwidth.columns["b"], strict=True), bandwidth.columns["samples"], strict=True)
    )
    assert max(widest[1, 0]) <= 4 * QUICK["bandwidth_sizes"][0] / (4 * LATE_S)


# -- flows and congestion -------------------------------------------------------------------------------------------


@given(nodes=st.integers(1, 5), per_node=st.integers(1, 5))
def test_flows_cross_the_middle_and_share_no_end(nodes, per_node):
    names = [f"n{rank // per_node}" for rank in range(nodes * per_node)]
    pairs = halves(names)
    half = len(names) // 2
    assert len(pairs) == half
    assert sorted(a for a, _ in pairs) == list(range(half))
    assert sorted(b for _, b in pairs) == list(range(half, 2 * half))
    first = [names[a] for a, _ in pairs[: len(set(names[:half]))]]
    assert len(set(first)) == len(first)  # the first flows start on different nodes


def crowd(world):
    spec = Links(**{**QUICK, "passes": 2, "flows": (1, 2), "congestion": True, "congestion_trips": 40})
    measured = list(run(spec, world))
    promised = [(m.name, m.params) for m in spec.emits(world.place)]
    assert not world.is_first or [(m.metric, m.params) for m in measured] == promised
    return measured


@pytest.mark.slow
def test_flows_and_congestion_are_measured_and_verified():
    found = on_ranks(4, crowd)[0]
    flows = [m for m in found if m.metric == "links.flows.bandwidth"]
    assert [(m.params["flows"], m.params["direction"]) for m in flows] == [
        (1, "up"), (1, "down"), (2, "up"), (2, "down"),
    ]  # fmt: skip
    assert [m.columns["a"] for m in flows] == [[0], [2], [0, 1], [2, 3]]
    for m in flows:
        # all flows together are as quick as the slowest: never quicker than each at its best, all at once
        assert min(m.samples) > 0
        assert len(m.columns["median_bandwidth"]) == m.params["flows"]
    up, down = [m for m in found if m.metric == "links.flows.scaling"]
    assert (up.params["flows"], up.params["direction"], down.params["direction"]) == (2, "up", "down")
    assert up.samples == tuple(s / (2 * statistics.median(flows[0].samples)) for s in flows[2].samples)
    factors = [m for m in found if m.metric.startswith("links.congestion.")]
    assert [m.metric for m in factors] == ["links.congestion.mean_factor", "links.congestion.p99_factor"]
    for m in factors:
        assert len(m.samples) == 2  # one per pass, another pair each
        assert len(set(m.columns["a"])) == 2
        assert min(m.columns["trips"]) >= 40
        for factor, alone, loaded in zip(m.samples, m.columns["alone_s"], m.columns["loaded_s"], strict=True):
            assert factor == pytest.approx(loaded / alone)
    assert {samples[0] for samples in found[-1].columns["samples"]} == {0.0}


def spoil_a_flow(world):
    """Rank 3 changes a byte of what it sends to rank 1, once, while flows are measured."""
    original, sent = dist.isend, [0]

    def lying(buffer, peer, *args, **kwargs):
        if (world.rank, peer) == (3, 1) and buffer.numel() == QUICK["bandwidth_sizes"][0]:
            sent[0] += 1
            if sent[0] == PAIRS_SEND + 1:
                buffer[5] ^= 1
        return original(buffer, peer, *args, **kwargs)

    dist.isend = lying
    try:
        few = {**QUICK, "min_repetitions": 3, "max_repetitions": 3}
        return list(run(Links(**few, flows=(2,)), world))
    finally:
        dist.isend = original


PAIRS_SEND = 2 * 4 * 4  # before the flows: 2 passes of 1 + 3 windows of 4 messages


@pytest.mark.slow
def test_a_wrong_byte_in_a_flow_is_booked_to_its_pair():
    wrong = on_ranks(4, spoil_a_flow)[0][-1]
    rows = zip(wrong.columns["a"], wrong.columns["b"], wrong.columns["samples"], strict=True)
    assert {(a, b) for a, b, samples in rows if samples != [0.0]} == {(3, 1)}
    assert "3->1" in wrong.notes["first_wrong"]


# -- what is written beside a pair ----------------------------------------------------------------------------------


def test_losses_are_read_by_name_and_only_what_moved_is_told(tmp_path):
    assert losses(tmp_path) == {}
    (tmp_path / "proc/net").mkdir(parents=True)
    (tmp_path / "proc/net/snmp").write_text("Ip: Forwarding\nIp: 1\nTcp: InSegs RetransSegs\nTcp: 5 7\n")
    for device, errors in (("mlx5_0", 2), ("mlx5_1", 3)):
        port = tmp_path / f"sys/class/infiniband/{device}/ports/1/counters"
        port.mkdir(parents=True)
        (port / "symbol_error").write_text(f"{errors}\n")
    before = losses(tmp_path)
    assert before == {"symbol_error": 5, "tcp_retransmits": 7}
    assert lost_between(before, before) == {}
    assert lost_between(before, {"symbol_error": 6, "tcp_retransmits": 7}) == {"symbol_error": 1}


TOPOLOGY = """\
\t\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\x1b[0m
GPU0\t X \tNV18\tSYS\tPIX\t0-47\t0
GPU1\tNV18\t X \tPHB\tSYS\t0-47\t0
GPU2\tSYS\tPHB\t X \tSYS\t48-95\t1
NIC0\tPIX\tSYS\tSYS\t X \t\t

Legend:

  X    = Self
"""


def test_the_drivers_map_is_read_with_its_escape_codes():
    found = topology(TOPOLOGY)
    assert found == {(0, 1): "NV18", (0, 2): "SYS", (1, 0): "NV18", (1, 2): "PHB", (2, 0): "SYS", (2, 1): "PHB"}
    assert [named(word) for word in ("NV18", "NV4", "PIX", "SYS", "", "X")] == [
        "nvlink", "nvlink", "pcie", "pcie", "unknown", "unknown",
    ]  # fmt: skip
    assert topology("") == {}


# -- what the suites ask for ----------------------------------------------------------------------------------------


def test_this_machine_gets_pairs_and_a_cluster_its_fabric_too():
    assert not list(asked(load("local")).flows)
    cluster = load("h100-sxm-ndr400")
    spec = asked(cluster)
    ranks = cluster.nodes * cluster.gpus_per_node
    assert max(spec.flows) == ranks // 2  # the bisection
    assert spec.both_ways
    assert spec.congestion
    assert spec.limit_s > asked(load("local")).limit_s
    place = Place(device="cuda", backend="nccl", nodes=cluster.nodes, ranks_per_node=cluster.gpus_per_node)
    assert len({params_key(m.params) + m.name for m in spec.emits(place)}) == len(spec.emits(place))
