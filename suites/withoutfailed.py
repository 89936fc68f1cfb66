"""Going on without the nodes that fail by themselves: `--continue-without-failed`.

What ranks do together is not measured over a node that is known to be broken: it would slow or stop all others. The
run itself is REJECTED and measures nothing more; the nodes that are left get a run of their own, in the same
allocation, so that the first day finds what else is wrong. Here: which nodes failed, and why.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from benchmarks.measurement import Config, Event, Verdict
from benchmarks.spec import load_spec
from suites import nodes

MOST = 0.5  # of the nodes: where more fail, the measurement is looked at first


def alone(configs: Sequence[Config]) -> list[Config]:
    """The node-local stage: what each device does by itself."""
    return [config for config in configs if load_spec(config.benchmark).scope == "device"]


def failed(verdicts: Sequence[Verdict], errors: Sequence[Event], configs: Collection[str]) -> dict[str, str]:
    """Node -> why, of the nodes that failed a mandatory limit of `configs`, or whose rank died or hung in one."""
    found: dict[str, str] = {}
    for v in verdicts:
        if v.config in configs and v.status == "fail" and v.mandatory:
            listed = [str(node) for _, node, _ in v.evidence.get("units", ())]
            for node in listed or [str(v.evidence.get("node", "")) or v.subject]:
                found.setdefault(node, f"{v.check}: {v.status}")
    in_error = {v.config for v in verdicts if v.status == "error"}
    for event in errors:
        config, node = event.detail.get("config"), str(event.detail.get("node", ""))
        if node and config in configs and config in in_error:
            found.setdefault(node, str(event.detail.get("reason", "error")))
    return found


def without(why: Mapping[str, str], hosts: Sequence[str], node_of: Mapping[str, str]) -> tuple[str, ...]:
    """The hosts that are left. () where none failed, a culprit is not known by name, or more than half failed.

    `node_of` says what each host calls itself, which need not be what a launcher calls it.
    """
    bad = {host for host in hosts if node_of.get(host, host) in why}
    known = {node_of.get(host, host) for host in hosts}
    if not bad or set(why) - known or len(bad) > len(hosts) * MOST:
        return ()
    return tuple(host for host in hosts if host not in bad)


def reason(why: Mapping[str, str]) -> str:
    """Why nothing more is measured in this run: one line for every number that is now missing."""
    listed = "; ".join(f"{node}: {what}" for node, what in sorted(why.items())[:4])
    return f"not measured: {nodes.fold(why)} failed by itself ({listed})"
