"""Is the training state durable in time, also for the tenth time in a row, and does exactly that come back?"""

from __future__ import annotations

import dataclasses
from typing import Any

from benchmarks.checkpoint.spec import Checkpoint
from benchmarks.spec import Place
from clusters.cluster import Cluster
from clusters.physics import job_mtbf
from suites.needs import needs

# B/s that all ranks together write or read: storage slower than this runs into its time-out. Half of the least that is
# accepted of shared storage (published: 5 GiB/s written, Together).
SLOWEST = 2.7e9
FIELDS = tuple(field.name for field in dataclasses.fields(Checkpoint))
IN_A_ROW = 10


def state(cluster: Cluster) -> Checkpoint:
    """The checkpoint of [checkpoint], saved by every writer and loaded."""
    return in_time(Checkpoint(**{**settings(cluster), "in_a_row": 0, "sustain_s": 0.0}), cluster)


def in_a_row(cluster: Cluster) -> Checkpoint:
    """The same bytes by plain writes, ten times in a row and for `sustain_s` at least."""
    found = settings(cluster)
    return in_time(Checkpoint(**{**found, "repetitions": 0, "in_a_row": found["in_a_row"] or IN_A_ROW}), cluster)


def settings(cluster: Cluster) -> dict[str, Any]:
    """[checkpoint], whose keys are the spec's fields.

    Where they are not given, what the network carries follows from [network], and how often the job fails from the
    number of its GPUs.
    """
    found = {name: cluster.setting("checkpoint", name, getattr(Checkpoint, name)) for name in FIELDS}
    gpus = cluster.nodes * (cluster.gpus_per_node or 0) if cluster.gpu else 0
    mtbf_s = found["mtbf_s"] or (job_mtbf(gpus=gpus) if gpus else 0.0)
    return {**found, "network_rate": found["network_rate"] or cluster.network.node_rate, "mtbf_s": mtbf_s}


def in_time(spec: Checkpoint, cluster: Cluster) -> Checkpoint:
    """With time enough for the bytes that it moves and the seconds that it waits, unless the file says how much."""
    if "limit_s" in cluster.settings.get("checkpoint", {}):
        return spec
    place = Place(nodes=cluster.nodes, ranks_per_node=cluster.gpus_per_node or cluster.ranks_per_node)
    read = len(spec.writers) * spec.repetitions * spec.state_bytes(place)
    waits = spec.sustain_s + spec.pause_s * (spec.repetitions + spec.in_a_row)
    return dataclasses.replace(spec, limit_s=spec.limit_s + waits + (spec.bytes_written(place) + read) / SLOWEST)


@needs(state)
def test_what_is_saved_comes_back(verdicts: Any) -> None:
    """Every part of every tensor is what it was, read from the device and not from memory, in time."""
    verdicts("checkpoint.load.*").must_pass()


@needs(state)
def test_a_save_is_durable_in_time(verdicts: Any) -> None:
    """Seconds until data, metadata and folder are durable, and the rate against plain writes of the same bytes."""
    verdicts("checkpoint.save.*").must_pass()


@needs(state)
def test_checkpoints_go_to_the_right_storage(verdicts: Any) -> None:
    """One file system of the expected sort on all nodes: never memory, NFS, or the root disk where a mount failed."""
    verdicts("checkpoint.directory.problems").must_pass()


@needs(in_a_row, suites=("acceptance",))
def test_the_tenth_save_is_as_fast_as_the_first(verdicts: Any) -> None:
    """Saves in a row until no burst buffer hides the storage: their last third is what counts."""
    verdicts("checkpoint.sustained.*").must_pass()
