"""Nodes that do not fit together are named before a group is formed, each with what it has."""

from __future__ import annotations

from suites import arrivals
from suites.trouble import Peer


def peers(**facts):
    """One rank a node; only the first of a node says what it has."""
    same = {"python": "3.11.7", "torch": "2.13.0", "sources": "aa"}
    first = [
        Peer(rank=2 * k, node=node, channel=None, handle=None, facts={**same, **own})
        for k, (node, own) in enumerate(facts.items())
    ]
    return {p.rank: p for p in first} | {
        p.rank + 1: Peer(rank=p.rank + 1, node=p.node, channel=None, handle=None) for p in first
    }


def test_nodes_that_are_alike_and_free_fit():
    assert arrivals.unfit(peers(n1={}, n2={}, n10={})) is None


def test_each_node_that_differs_is_named_with_what_it_has():
    trouble = arrivals.unfit(
        peers(n1={}, n2={"python": "3.12.1"}, n9={}, n10={"torch": "2.9.0"}, n11={"torch": "2.9.0"})
    )
    assert trouble.kind == "nodes" and trouble.reason == (
        "python differs between nodes: n2 has 3.12.1; n[1,9-11] has 3.11.7 (4 of them); "
        "torch differs between nodes: n[10-11] has 2.9.0; n[1-2,9] has 2.13.0 (3 of them)"
    )


def test_a_strangers_process_on_a_gpu_is_an_error_that_names_it():
    trouble = arrivals.unfit(peers(n1={}, n2={"strangers": "process 4242 (python) is on GPU 3"}))
    assert trouble.kind == "nodes" and trouble.reason == "n2 is not free: process 4242 (python) is on GPU 3"
