"""A read by all ranks at once that is cold, and the proof that it was: evicted everywhere, given by the device.

read = read_cold(files, world, sort="parallel", work=loader.seconds_to_read)
read.share, read.doubt      # 0.98, "" or 0.02, "4096 of 8192 bytes stayed in the page cache (...)"
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.storage import cache, traffic
from benchmarks.world import World

COLD = 0.95  # of the bytes must be proven to come from the device


@dataclass(frozen=True, kw_only=True)
class ColdRead:
    """One timed read of all ranks."""

    seconds: float  # barrier to barrier, of the slowest rank
    rank_seconds: list[float]
    share: float  # of the bytes that are proven to come from the device, 0 to 1
    doubt: str = ""  # why it is no more, where it is below COLD
    evidence: dict[str, int | str | None] = field(default_factory=dict)


def read_cold(
    files: Sequence[Path], world: World, *, sort: str, work: Callable[[], float], wanted_bytes: int | None = None
) -> ColdRead:
    """Evict `files` from every node, then time `work` on all ranks and count where its bytes came from.

    `sort` of storage says which counters are believed (traffic.py). `wanted_bytes`: what all ranks read together;
    None: every file once. `work` returns this rank's own seconds, and ends alike on all ranks, also where one fails.
    """
    world.barrier()
    resident = _evict(files, world)
    before, node_before = cache.device_bytes_read(), _node_counters(world)
    world.barrier()
    begin = time.perf_counter()
    rank_seconds: list[float] = world.gather(work())
    seconds = max(world.gather(time.perf_counter() - begin))
    after, node_after = cache.device_bytes_read(), _node_counters(world)
    own = world.gather(None if after is None or before is None else after - before)
    nodes = [delta for delta in world.gather(traffic.grown(node_before, node_after)) if delta]
    given = traffic.came_from(sort, process=own, nodes=nodes)
    size = sum(path.stat().st_size for path in files)
    share, doubt, evidence = proof(size=size, resident=resident, given=given, wanted=wanted_bytes)
    return ColdRead(seconds=seconds, rank_seconds=rank_seconds, share=share, doubt=doubt, evidence=evidence)


def proof(
    *, size: int, resident: int | None, given: tuple[int | None, str], wanted: int | None = None
) -> tuple[float, str, dict[str, int | str | None]]:
    """(share proven cold, why not more, evidence): nothing resident before, and the device gave the bytes.

    `size`: of the files; `wanted`: bytes that were read of them, where that is not all.
    """
    device, by = given
    asked = size if wanted is None else wanted
    evidence: dict[str, int | str | None] = {
        "file_bytes": size, "resident_before": resident, "device_bytes": device, "device_bytes_by": by,
    }  # fmt: skip
    if resident is None or device is None:
        return 0.0, "this system does not tell what came from memory", evidence
    share = max(0.0, min(1.0 - resident / size, device / asked, 1.0))
    if share >= COLD:
        return share, "", evidence
    if resident > (1 - COLD) * size:
        kept = f"{resident} of {size} bytes stayed in the page cache (mapped by a process, or memory itself)"
        return share, kept, evidence
    return share, f"by the {by} counter, {device} of {asked} bytes came from the device, the rest from memory", evidence


def _evict(files: Sequence[Path], world: World) -> int | None:
    """Drop the files from this node's page cache, shared out over its ranks; bytes still resident on any node."""
    mine = files[world.local_ranks.index(world.rank) :: len(world.local_ranks)]
    for path in mine:
        cache.evict(path)
    world.barrier()
    left = [cache.resident_bytes(path) for path in mine]
    everywhere = world.gather(None if None in left else sum(n for n in left if n))
    return None if None in everywhere else sum(everywhere)


def _node_counters(world: World) -> dict[str, int]:
    """This node's counters, from one of its ranks only."""
    return traffic.node_counters() if world.rank == world.local_ranks[0] else {}
