"""The checks: from what was read to findings. First what the log covers, then one module's worth per subject.

`expect` says what the machine should have. Every check yields at least one finding: where the log does not show
the answer, the finding is `unknown` and says how to make the log show it. Nothing here reads or prints.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from reports.nccl_log.advice import advice_for
from reports.nccl_log.facts import PLACE_BITS, Communicator, Facts, Seen
from reports.nccl_log.report import Finding

MORE_LOG = "run again with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH,TUNING on every rank"
NETWORKS = ("rdma", "ib", "roce", "efa", "socket", "any")


@dataclass(frozen=True, kw_only=True)
class Expect:
    """What should be there."""

    network: str = "rdma"
    """between nodes: rdma (any kind), ib, roce, efa, socket or any"""
    hcas: int | None = None
    """network devices each node must use; None: all that NCCL lists there"""
    nvlink: bool = True
    """whether GPUs of a node must talk over NVLink (or XGMI)"""

    def __post_init__(self) -> None:
        if self.network not in NETWORKS:
            raise ValueError(f"network {self.network!r} is none of {', '.join(NETWORKS)}")


@dataclass(frozen=True)
class Scene:
    """Facts with the few questions that every check asks."""

    facts: Facts
    files: tuple[str, ...]
    cuts: tuple[str, ...]  # why a file looks cut
    expect: Expect

    def at(self, places: Iterable[int]) -> tuple[str, ...]:
        """Places as FILE:LINE."""
        mask = (1 << PLACE_BITS) - 1
        return tuple(f"{self.files[place >> PLACE_BITS]}:{place & mask}" for place in sorted(places)[:3])

    def finding(
        self,
        check: str,
        severity: str,
        sentence: str,
        *tries: str,
        seen: Seen | None = None,
        places: Iterable[int] = (),
    ) -> Finding:
        """A finding with its evidence."""
        return Finding(
            check=check, severity=severity, sentence=sentence, tries=tries,
            evidence=self.at([*places, *(seen.places if seen else ())]), count=seen.count if seen else 0,
        )  # fmt: skip

    @property
    def world(self) -> Communicator | None:
        """The largest communicator: the job, as far as the log shows it."""
        return max(self.facts.communicators.values(), key=lambda c: c.size, default=None)

    @property
    def num_nodes(self) -> int | None:
        """Nodes of the job as NCCL counted them, else hosts seen; None where neither is known."""
        counted = [c.num_nodes for c in self.facts.communicators.values() if c.num_nodes]
        if counted:
            return max(counted)
        world = self.world
        hosts = {gpu.host for gpu in world.members.values()} if world else set()
        if world and len(world.members) == world.size and not world.ambiguous:
            return len(hosts)
        return len(hosts) if len(hosts) > 1 else None

    def whole(self, communicator: Communicator) -> bool:
        """Whether every rank of a communicator is in the log."""
        return len(communicator.members) == communicator.size

    @property
    def settled(self) -> bool:
        """Whether the log holds the job's whole set-up: what it does not show then is not there."""
        world = self.world
        return world is not None and self.whole(world) and len(world.finished) == world.size and not self.cuts


def complete(scene: Scene) -> Iterator[Finding]:
    """Is every rank there, and did every set-up finish?"""
    world = scene.world
    for cut in scene.cuts:
        yield scene.finding("complete", "unknown", f"The log is cut: {cut}.", "read the whole file")
    if world is None:
        why = "there is no NCCL line in it" if not scene.facts.gpus else "no communicator is set up in it"
        yield scene.finding("complete", "unknown", f"The log shows no job: {why}.", MORE_LOG)
        return
    if not scene.whole(world):
        absent = sorted(set(range(world.size)) - set(world.members))
        yield scene.finding(
            "complete", "unknown",
            f"{len(world.members)} of {world.size} ranks are in the log; missing: {some(absent)}.",
            "give the logs of all ranks, one file after the other", places=world.started.values(),
        )  # fmt: skip
    hanging = [c for c in scene.facts.communicators.values() if set(c.started) - c.finished]
    for communicator in hanging[:5]:
        yield _unfinished(scene, communicator)
    if not hanging and scene.whole(world):
        others = len(scene.facts.communicators) - 1
        also = f", and {others} smaller communicators" if others else ""
        yield scene.finding("complete", "fine", f"All {world.size} ranks finished their set-up{also}.")


def _unfinished(scene: Scene, communicator: Communicator) -> Finding:
    late = sorted(set(communicator.started) - communicator.finished)
    who = f"{len(late)} of {communicator.size} ranks started the set-up and never finished it: {some(late)}"
    hosts = sorted({communicator.members[rank].host for rank in late if rank in communicator.members})
    where = f" on {some(hosts)}" if hosts else ""
    if communicator.finished:
        return scene.finding(
            "complete", "wrong", f"{who}{where}; the others did finish.",
            "look for the first warning of these ranks", "check that their processes are alive",
            places=[communicator.started[rank] for rank in late],
        )  # fmt: skip
    return scene.finding(
        "complete", "unknown", f"{who}{where}. No rank did: either it hangs there, or the log ends too early.",
        "wait for the job to start, or look for the first warning",
        places=[communicator.started[rank] for rank in late],
    )  # fmt: skip


def one_version(scene: Scene) -> Iterator[Finding]:
    """One NCCL version everywhere?"""
    versions = scene.facts.versions
    if not versions:
        yield scene.finding(
            "version", "unknown", "The log does not say which NCCL version ran.", "NCCL_DEBUG=VERSION or INFO"
        )
    elif len(versions) > 1:
        names = ", ".join(f"{name} ({_who(scene, name)})" for name in sorted(versions))
        places = [seen.places[0] for seen in versions.values()]
        yield scene.finding(
            "version", "wrong", f"More than one NCCL version ran: {names}.",
            "use one image or environment on every node", "give only the logs of one job", places=places,
        )  # fmt: skip
    else:
        ((name, seen),) = versions.items()
        speaking = sum(name in gpu.versions for gpu in scene.facts.gpus.values())
        whose = f"said by {speaking} of {len(scene.facts.gpus)} GPUs" if speaking else "said once for the job"
        yield scene.finding("version", "fine", f"Version {name} everywhere it is named ({whose}).", seen=seen)


def _who(scene: Scene, version: str) -> str:
    hosts = sorted({gpu.host for gpu in scene.facts.gpus.values() if version in gpu.versions})
    return some(hosts) if hosts else "host not named"


PINS = {
    "NCCL_P2P_DISABLE": ("1", "GPUs of a node may not talk directly"),
    "NCCL_IB_DISABLE": ("1", "InfiniBand and RoCE are turned off"),
    "NCCL_SHM_DISABLE": ("1", "shared memory is turned off"),
    "NCCL_NET_GDR_LEVEL": ("LOC 0", "GPUDirect RDMA is turned off"),
    "NCCL_NVLS_ENABLE": ("0", "NVLink SHARP is turned off"),
    "NCCL_CUMEM_ENABLE": ("0", "cuMem allocations, which NVLink SHARP needs, are turned off"),
    "NCCL_DMABUF_ENABLE": ("0", "DMA-BUF is turned off: GPUDirect RDMA needs nvidia-peermem"),
    "NCCL_NET": ("Socket", "TCP sockets are chosen by hand"),
    "NCCL_ALGO": ("", "the algorithm is pinned"),
    "NCCL_PROTO": ("", "the protocol is pinned"),
    "NCCL_MAX_NCHANNELS": ("", "channels are limited"),
    "NCCL_P2P_LEVEL": ("", "direct GPU transfers are limited by hand"),
}
"""variable -> (values that matter, any if empty; what it does)"""


def settings(scene: Scene) -> Iterator[Finding]:
    """Settings that change the path or pin a choice, and settings that differ between ranks."""
    by_name: dict[str, dict[str, Seen]] = {}
    for (name, value), seen in scene.facts.settings.items():
        by_name.setdefault(name, {})[value] = seen
    for name, values in sorted(by_name.items()):
        matters, meaning = PINS.get(name, ("-", ""))
        for value, seen in values.items():
            if not matters or value.upper() in matters.upper().split():
                yield scene.finding(
                    "settings", "note", f"{name}={value} is set: {meaning}.", f"unset {name}", seen=seen
                )
        if len(values) > 1 and name not in ("NCCL_HOSTID", "NCCL_DEBUG_FILE", "NCCL_SOCKET_IFNAME"):
            listed = ", ".join(sorted(values)[:4])
            places = [seen.places[0] for seen in values.values()]
            yield scene.finding(
                "settings", "note", f"{name} differs between ranks or runs: {listed}.", "set it the same everywhere",
                places=places,
            )  # fmt: skip


def messages(scene: Scene) -> Iterator[Finding]:
    """Every warning in plain words."""
    grouped: dict[str, list[Finding]] = {}
    for remark in sorted(scene.facts.remarks.values(), key=lambda r: r.seen.places):  # the first cause first
        advice = advice_for(remark.text, remark.level)
        hosts = some(sorted(host for host in remark.hosts if host))
        where = f" [{hosts}]" if hosts else ""
        if advice is None:
            words = f"NCCL warned of something this reader has no words for: {remark.text.strip()}{where}"
            yield scene.finding("messages", "unknown", words, "search NCCL's issues for the text", seen=remark.seen)
            continue
        quoted = f"{advice.sentence} It said: {remark.text.strip()[:200]}{where}"
        found = scene.finding("messages", advice.severity, quoted, *advice.tries, seen=remark.seen)
        grouped.setdefault(advice.sentence, []).append(found)
    for same in grouped.values():
        first = max(same, key=lambda f: f.count)
        yield Finding(
            check=first.check, severity=first.severity, sentence=first.sentence, tries=first.tries,
            evidence=first.evidence, count=sum(f.count for f in same),
        )  # fmt: skip
    if not any(remark.level == "WARN" for remark in scene.facts.remarks.values()) and scene.facts.gpus:
        yield scene.finding("messages", "fine", "NCCL printed no warning.")
    for seen, what in (
        (scene.facts.unread, "channel lines have a form this reader does not know"),
        (scene.facts.garbled, "lines hold the text of two ranks, written over each other"),
    ):
        if seen.count:
            yield scene.finding("messages", "note", f"{seen.count} {what}.", seen=seen)


def some(items: Iterable[object], most: int = 6) -> str:
    """The first `most` items, and how many more there are."""
    listed = list(items)
    rest = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(str(item) for item in listed[:most]) + rest
