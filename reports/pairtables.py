"""From a run's records to pair tables: one row per flow between two nodes, as the localiser reads them.

The elements are nodes, with a rail for every rank of a node; only ranks of one rail meet across nodes. Nothing is
judged here.

    table = pair_table(BANDWIDTH, latest(measurements), seats_of(stored))
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping

from benchmarks.measurement import Measurement
from reports.localise import PairTable
from reports.runs import StoredRun

BANDWIDTH, LATENCY, WRONG, FLOWS = "links.bandwidth", "links.latency", "links.wrong_elements", "links.flows.bandwidth"
RETRANSMITS = ("tcp_retransmits", "packet_seq_err", "local_ack_timeout_err")


def seats_of(stored: StoredRun) -> dict[int, tuple[str, int]]:
    """rank -> (node, rail) of the run's last launch."""
    return {
        rank: (node, rail)
        for node, environment in stored.latest_environments.items()
        for rail, rank in enumerate(sorted(environment.ranks))
    }


def latest(measurements: Iterable[Measurement]) -> dict[str, list[Measurement]]:
    """Metric -> its measurements of its last attempt (a repetition of noisy numbers leaves the settled ones out)."""
    found: dict[str, list[Measurement]] = {}
    for m in measurements:
        found.setdefault(m.metric, []).append(m)
    return {
        metric: [m for m in listed if m.attempt == max(m.attempt for m in listed)] for metric, listed in found.items()
    }


def pair_table(
    metric: str, measured: Mapping[str, list[Measurement]], seats: Mapping[int, tuple[str, int]]
) -> PairTable | None:
    """The pairs of one rail and two nodes as a PairTable; the largest message for bandwidth, the smallest for latency.

    A bandwidth is a mean, since a median hides loss, and `best` is the best repetition. A latency is the shortest round
    trip: whatever else runs on the hosts only adds, and a delay of the wire is in every one. Wrong elements and
    retransmits come along where they were counted.
    """
    found = measured.get(metric)
    if not found:
        return None
    m = (max if metric == BANDWIDTH else min)(found, key=lambda m: m.params.get("bytes", 0))
    wrong = {}
    for w in measured.get(WRONG, ()):
        wrong = {(a, b): s[0] for a, b, s in zip(w.columns["a"], w.columns["b"], w.columns["samples"], strict=True)}
    lost = m.columns.get("lost") or [{}] * len(m.columns["a"])
    rows = [
        (seats[a][0], seats[b][0], seats[a][1], samples, wrong.get((a, b), 0.0), sum(c.get(k, 0) for k in RETRANSMITS))
        for a, b, samples, c in zip(m.columns["a"], m.columns["b"], m.columns["samples"], lost, strict=True)
        if a in seats and b in seats and seats[a][1] == seats[b][1] and seats[a][0] != seats[b][0]
    ]
    if not rows:
        return None
    a, b, rail, samples, bad, sent_again = zip(*rows, strict=True)
    best = max if metric == BANDWIDTH else min
    usual = statistics.fmean if metric == BANDWIDTH else best
    return PairTable.of(
        a=a, b=b, rail=rail, value=[usual(s) if s else 0.0 for s in samples],
        best=[best(s) if s else 0.0 for s in samples], wrong=bad, retransmits=sent_again,
        better="higher" if metric == BANDWIDTH else "lower", there_and_back=metric == LATENCY,
    )  # fmt: skip


def flow_table(measured: Mapping[str, list[Measurement]], seats: Mapping[int, tuple[str, int]]) -> PairTable | None:
    """Simultaneous flows as a PairTable, with their number as `load`; those of one set and direction are a round.

    The value is what each of them had in the repetition whose slowest flow was fastest: whoever shares the machine can
    only take from that, and what they share cannot give more.
    """
    rows = [
        (i, seats[a][0], seats[b][0], value, int(m.params["flows"]))
        for i, m in enumerate(measured.get(FLOWS, ()))
        for a, b, value in zip(m.columns["a"], m.columns["b"], m.columns[_together(m)], strict=True)
        if a in seats and b in seats and seats[a][0] != seats[b][0]
    ]
    if len({load for *_, load in rows}) < 2:
        return None
    together, a, b, value, load = zip(*rows, strict=True)
    return PairTable.of(round=together, a=a, b=b, value=value, load=load)


def _together(m: Measurement) -> str:
    return "best_together" if "best_together" in m.columns else "median_bandwidth"  # of runs from before
