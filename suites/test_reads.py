"""Does training get its tokens fast enough, and the right ones?"""

from __future__ import annotations

import dataclasses
from typing import Any

from benchmarks.reads.spec import Reads
from benchmarks.spec import Place
from clusters.cluster import Cluster
from suites.needs import needs
from suites.test_checkpoint import SLOWEST

PLACE = ("directory",)  # one file system is under test: [checkpoint] says which
FIELDS = tuple(field.name for field in dataclasses.fields(Reads) if field.name not in (*PLACE, "filesystem"))


def tokens(cluster: Cluster) -> Reads:
    """The token files of [reads], whose keys are the spec's fields, in the directory of [checkpoint]."""
    sizes = {name: cluster.setting("reads", name, getattr(Reads, name)) for name in FIELDS}
    place = {name: cluster.setting("checkpoint", name, getattr(Reads, name)) for name in PLACE}
    spec = Reads(**sizes, **place)
    if "limit_s" in cluster.settings.get("reads", {}):
        return spec
    where = Place(nodes=cluster.nodes, ranks_per_node=cluster.gpus_per_node or cluster.ranks_per_node)
    moved = (1 + 2 * spec.repetitions) * spec.bytes_written(where)  # written once, read in order and at random
    return dataclasses.replace(spec, limit_s=spec.limit_s + moved / SLOWEST)


@needs(tokens)
def test_tokens_are_read_cold_and_right(verdicts: Any) -> None:
    """Every word is what was written, and comes from the device, whether files are few and large or many and small."""
    verdicts("reads.*").must_pass()
