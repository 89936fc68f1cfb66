"""Facts as the report's tables: one row per rank, one per node, the algorithms, and all findings.

>>> size(8), size(64 << 20)
('8 B', '64 MiB')
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from reports.nccl_log.checks import Scene, complete, messages, one_version, settings
from reports.nccl_log.facts import Gpu
from reports.nccl_log.network_checks import between_nodes
from reports.nccl_log.node_checks import in_switches, inside_node
from reports.nccl_log.report import SEVERITIES, Finding, NodeReport, RankReport

ALL_CHECKS = (complete, one_version, between_nodes, inside_node, in_switches, settings, messages)


def findings(scene: Scene) -> tuple[Finding, ...]:
    """Every finding, the gravest first, otherwise in the order of the checks."""
    found = list(chain.from_iterable(check(scene) for check in ALL_CHECKS))
    return tuple(sorted(found, key=lambda f: SEVERITIES.index(f.severity)))


def ranks(scene: Scene) -> tuple[RankReport, ...]:
    """One row per GPU that said something, by rank."""
    rows = [_rank(scene, gpu) for gpu in scene.facts.gpus.values() if gpu.ranks or gpu.transports or gpu.networks]
    return tuple(sorted(rows, key=lambda r: (r.rank is None, r.rank or 0, r.host, r.gpu)))


def _rank(scene: Scene, gpu: Gpu) -> RankReport:
    largest = max((scene.facts.communicators[name] for name in gpu.ranks), key=lambda c: c.size, default=None)
    host = scene.facts.host(gpu.host)
    return RankReport(
        rank=gpu.ranks[largest.name] if largest else None, ranks=largest.size if largest else None,
        host=gpu.host, pid=gpu.pid, gpu=gpu.index, versions=tuple(sorted(gpu.versions)),
        networks=tuple(sorted({p.network for p in gpu.paths} or set(gpu.networks))),
        hcas=tuple(sorted({host.device(p.device) for p in gpu.paths if p.network != "Socket"})),
        gdr=all(p.gdr for p in gpu.paths) if gpu.paths else gpu.ring_gdr,
        transports={name: seen.count for name, seen in sorted(gpu.transports.items())},
        channels=gpu.channels, nvls=gpu.nvls,
    )  # fmt: skip


def nodes(scene: Scene, rows: Iterable[RankReport]) -> tuple[NodeReport, ...]:
    """One row per host."""
    by_host: dict[str, list[RankReport]] = {}
    for row in rows:
        by_host.setdefault(row.host, []).append(row)
    return tuple(
        NodeReport(
            host=host, ranks=len(mine),
            networks=_union(r.networks for r in mine), hcas_used=_union(r.hcas for r in mine),
            hcas_listed=tuple(sorted(set(scene.facts.host(host).hcas.values()))), gdr=_together(r.gdr for r in mine),
            transports=_union(r.transports for r in mine), nvls=_together(r.nvls for r in mine),
        )
        for host, mine in sorted(by_host.items())
    )  # fmt: skip


def algorithms(scene: Scene) -> tuple[str, ...]:
    """What the tuner chose, one line per operation, algorithm and protocol."""
    rows = []
    chosen = sorted(scene.facts.algorithms.items(), key=lambda item: (item[0][0], item[1].smallest, item[0]))
    for (op, algorithm, protocol), entry in chosen:
        span = (
            size(entry.smallest)
            if entry.smallest == entry.largest
            else f"{size(entry.smallest)} to {size(entry.largest)}"
        )
        channels = f", up to {entry.channels} channels" if entry.channels else ""
        rows.append(f"{op} {span}: {algorithm}/{protocol}{channels} ({entry.seen.count:,} x)")
    return tuple(rows)


def size(num_bytes: int) -> str:
    """Bytes in binary units: 8 B, 64 MiB."""
    value, unit = float(num_bytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.4g} {unit}"


def _union(parts: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(sorted(set(chain.from_iterable(parts))))


def _together(answers: Iterable[bool | None]) -> str:
    said = {answer for answer in answers if answer is not None}
    return {frozenset(): "", frozenset({True}): "on", frozenset({False}): "off"}.get(frozenset(said), "partly")
