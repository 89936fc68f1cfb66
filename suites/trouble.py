"""Who is to blame when a benchmark has no result: a rank that died, raised, or hangs.

Pure decisions over what the ranks said and how they look; `suites/launching.py` collects that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.control import Channel, Message
from benchmarks.diagnosis import Handle, Report, tail

VICTIM = ("closed by peer", "Connection reset", "Broken pipe", "timed out", "Timed out", "Application timeout")


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """Why a benchmark has no result: which rank, what happened, where it was, what it last said."""

    kind: str  # died | raised | hung | start | nodes (they do not fit together)
    reason: str
    rank: int | None = None
    node: str = ""
    stack: str = ""
    log: str = ""

    def detail(self) -> dict[str, Any]:
        """Plain fields, for an event of the run."""
        return {"what" if k == "kind" else k: v for k, v in vars(self).items() if v not in ("", None)}


@dataclass(frozen=True, kw_only=True)
class Peer:
    """One rank as it introduced itself."""

    rank: int
    node: str
    channel: Channel
    handle: Handle
    meeting_point: tuple[str, int] = ("", 0)  # an address and a free port of its node
    facts: dict[str, str] = field(default_factory=dict)  # of its node, from the node's first rank


def unplugged(seen: Mapping[int, Report], peers: Mapping[int, Peer]) -> list[tuple[int, str]]:
    """Ranks whose node has a port without a link where most other nodes have one: (rank, port)."""
    found = []
    for port in sorted({port for report in seen.values() for port in report.ports}):
        states = {peers[r].node: report.ports.get(port) for r, report in seen.items() if report.ports}
        if 0 < sum(state == "down" for state in states.values()) <= len(states) / 2:
            found += [(r, port) for r in sorted(seen) if seen[r].ports.get(port) == "down"]
    return found


def died(peer: Peer, how: str) -> Trouble:
    """A rank's connection closed; `how` is what its launcher says of its end, "" if nothing."""
    return Trouble(
        kind="died", rank=peer.rank, node=peer.node, log=tail(peer.handle.log_path),
        reason=f"rank {peer.rank} on {peer.node} died: {how or 'its connection closed'}",
    )  # fmt: skip


def raised(peers: dict[int, Peer], messages: dict[int, Message]) -> Trouble:
    """Ranks raised: one without a link, else the first with an error of its own; who only lost its peer comes after."""
    seen = {r: Report(state="raised", ports=m.get("ports", {})) for r, m in messages.items()}
    if cut := unplugged(seen, peers):
        rank, port = cut[0]
        return Trouble(
            kind="raised", rank=rank, node=peers[rank].node, stack=messages[rank]["stack"],
            reason=f"{peers[rank].node} has no link on {port}: the cable is out",
        )  # fmt: skip
    own = [r for r, m in messages.items() if not any(v in m["reason"] for v in VICTIM)]
    rank = (own or list(messages))[0]
    peer, message = peers[rank], messages[rank]
    return Trouble(
        kind="raised", rank=rank, node=peer.node, stack=message["stack"], log=tail(peer.handle.log_path),
        reason=f"rank {rank} on {peer.node} raised {message['reason']}",
    )  # fmt: skip


def hung(
    peers: Mapping[int, Peer],
    seen: Mapping[int, Report],
    silent: Sequence[int],
    done: Mapping[int, Report] | None = None,
) -> Trouble:
    """Ranks are late: the culprit is one that cannot even answer, else one outside a collective, else the one that
    entered the fewest collectives.

    `seen` holds a report of every late rank; `silent` those that had to be looked at from outside; `done` reports of
    ranks that are through: one of them may have left out what the others wait for.
    """
    outside = [r for r in sorted(seen) if not seen[r].in_collective]
    cut = unplugged(seen, peers)
    behind, said = missing({**seen, **(done or {})})
    both = [r for r in behind if r in outside]
    rank = (silent or [r for r, _ in cut] or both or outside or behind or sorted(seen))[0]
    peer, report = peers[rank], {**(done or {}), **seen}[rank]
    reason = f"rank {rank} on {peer.node} hangs ({report.state})"
    if cut and not silent:
        reason = f"{peer.node} has no link on {', '.join(port for r, port in cut if r == rank)}: the cable is out"
    elif not silent and not outside and behind:
        where = "it waits elsewhere" if rank in seen else "it is through"
        reason = f"rank {rank} on {peer.node} is missing: {where}"
    elif not silent and not outside:
        reason = "all late ranks wait in a collective and no single one is to blame"
    reason += f"; {said}" if rank in behind else ""
    others = ", ".join(f"rank {r} {seen[r].state}" for r in sorted(seen) if r != rank)
    return Trouble(
        kind="hung", rank=rank, node=peer.node, stack=report.stack, log=report.log,
        reason=reason + (f"; {others}" if others else ""),
    )  # fmt: skip


def missing(reports: Mapping[int, Report]) -> tuple[list[int], str]:
    """Who entered fewer collectives of all ranks than the others, and that in words; ([], "") where nobody did.

    More than half behind is one rank that ran ahead, or nothing that can be told.
    """
    for group in sorted({g for report in reports.values() for g in report.entered if not g.startswith("last ")}):
        counts = {r: report.entered[group] for r, report in reports.items() if group in report.entered}
        most = max(counts.values(), default=0)
        behind = sorted((r for r in counts if counts[r] < most), key=lambda r: (counts[r], r))
        if behind and len(behind) <= len(counts) / 2:
            last = next(reports[r].entered for r in counts if counts[r] == most)
            names = [g.removeprefix("last ") for g, n in last.items() if g.startswith("last ") and n == most]
            what = f" ({names[0]})" if names else ""
            return behind, f"it entered {counts[behind[0]]} collectives, the others {most}{what}"
    return [], ""
