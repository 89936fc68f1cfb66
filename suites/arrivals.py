"""Ranks arrive: each proves that it belongs to this launch and says who it is and what its node has.

What a node has (versions, sources, strangers on its GPUs) is compared before a group is formed and before anything
is measured: one node with another torch would hang the others, or spoil their numbers.
"""

from __future__ import annotations

import queue
import threading
from collections import Counter, defaultdict
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener, answer_challenge, deliver_challenge  # type: ignore[attr-defined]
from typing import Any

from benchmarks import diagnosis
from benchmarks.control import Channel, ControlError
from suites import nodes
from suites.trouble import Peer, Trouble

SAME = ("python", "torch", "sources")


def accept(listener: Listener, key: bytes, arrivals: queue.Queue[Peer]) -> None:
    """Take connections until the listener closes; each introduces itself in a thread of its own."""
    while True:
        try:
            connection = listener.accept()
        except OSError:
            return
        threading.Thread(target=_introduce, args=(connection, key, arrivals), daemon=True).start()


def unfit(peers: dict[int, Peer]) -> Trouble | None:
    """Why these nodes cannot be measured together: they differ, or a stranger is at work on one. None: they can."""
    problems = strangers(peers) + [line for fact in SAME if (line := disagreement(fact, peers))]
    return Trouble(kind="nodes", reason="; ".join(problems)) if problems else None


def disagreement(fact: str, peers: dict[int, Peer]) -> str:
    """Which nodes have another value of a fact than most; "" where all have the same."""
    by_value: dict[str, list[str]] = defaultdict(list)
    for node, value in {p.node: p.facts.get(fact, "") for p in peers.values() if p.facts}.items():
        by_value[value].append(node)
    if len(by_value) < 2:
        return ""
    (most, those), *others = Counter({v: len(names) for v, names in by_value.items()}).most_common()
    told = ", ".join(f"{nodes.fold(by_value[value])} has {value or 'none'}" for value, _ in others)
    return f"{fact} differs between nodes: {told}; {nodes.fold(by_value[most])} has {most or 'none'} ({those} of them)"


def strangers(peers: dict[int, Peer]) -> list[str]:
    """Processes that are not ours on GPUs of these nodes, by node."""
    return [
        f"{p.node} is not free: {p.facts['strangers']}"
        for p in peers.values() if p.facts.get("strangers")
    ]  # fmt: skip


def _introduce(connection: Connection[Any, Any], key: bytes, arrivals: queue.Queue[Peer]) -> None:
    """Prove the key both ways and read the hello; a stranger is hung up on."""
    channel = Channel(connection)
    try:
        deliver_challenge(connection, key)
        answer_challenge(connection, key)
        hello = channel.receive()
        handle = diagnosis.Handle(**hello["handle"])
        host, port = hello["meeting_point"]
        arrivals.put(
            Peer(
                rank=hello["rank"], node=hello["node"], channel=channel, handle=handle, meeting_point=(host, port),
                facts=hello.get("facts", {}),
            )
        )  # fmt: skip
    except (OSError, EOFError, AuthenticationError, ControlError, KeyError, TypeError):
        channel.close()
