"""Fewer ranks than the job has: the same bytes and files per rank, every doubling measured, the rest projected.

The eight nodes are eight ranks of this machine under other names.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
import torch._dynamo  # DTensor imports it: once here, instead of once on every rank

from benchmarks.checkpoint import run as checkpoint_run
from benchmarks.checkpoint import sustained
from benchmarks.checkpoint.save import Saved
from benchmarks.checkpoint.shards import SHAPES, Layout, rank_shards
from benchmarks.checkpoint.spec import Checkpoint
from benchmarks.measurement import Measurement, decode, encode
from benchmarks.spec import Place
from benchmarks.world import World
from tests.ranks import on_ranks

EIGHT = Place(nodes=8, ranks_per_node=1)
JOB = Checkpoint(layout="tp2,pp2,dp4", contents="weights", repetitions=1, metadata_files=0, in_a_row=4)


def saves(*seconds: float, size: int = 100) -> list[Saved]:
    return [
        Saved(
            seconds=s, rank_seconds=[s], rank_begins=[0.0], files={"a": size}, rank_files=[["a"]], cpu_s=0.0,
            stall_s=0.0, extra_bytes=None,
        )
        for s in seconds
    ]  # fmt: skip


def test_each_rank_has_what_that_rank_of_the_job_saves():
    layout = Layout.parse(JOB.layout)
    each = [sum(s.bytes for s in rank_shards(SHAPES["tiny"], layout, r, "weights") if s.saved_here) for r in range(16)]
    assert JOB.state_bytes(EIGHT) == sum(each[:8])
    assert JOB.whole_bytes(EIGHT) == sum(each)
    assert JOB.partial(EIGHT) and not JOB.partial(Place(nodes=8, ranks_per_node=2))


def test_what_a_part_measures_never_has_the_name_of_the_whole():
    named = {(m.name, bool(m.params.get("projected"))) for m in JOB.emits(EIGHT)}
    whole = {m.name for m in JOB.emits(Place(nodes=8, ranks_per_node=2))}
    assert whole <= {name for name, _ in named}, "a limit on any of them must find its number"
    assert not {name for name, projected in named if not projected} & {
        "checkpoint.save.time", "checkpoint.save.bandwidth", "checkpoint.raw.bandwidth", "checkpoint.load.time",
    }  # fmt: skip


@pytest.mark.parametrize(("layout", "said"), [("tp2", "needs 2 ranks, there are 8"), ("tp2,cp8", "leave cp out")])
def test_layouts_of_fewer_ranks_or_shared_sequences_are_refused(layout: str, said: str):
    with pytest.raises(ValueError, match=said):
        Checkpoint(layout=layout).emits(EIGHT)


def test_saves_in_a_row_go_on_until_no_cache_explains_them():
    spec = Checkpoint(in_a_row=3, sustain_s=10.0, server_cache_bytes=150)
    assert not sustained.enough(spec, saves(9.0, 9.0))  # too few
    assert not sustained.enough(spec, saves(3.0, 3.0, 3.0))  # too short, and 300 of 450 bytes
    assert sustained.enough(spec, saves(4.0, 4.0, 4.0))
    assert sustained.enough(spec, saves(1.0, 1.0, 1.0, 1.0, 1.0))
    assert not sustained.enough(dataclasses.replace(spec, server_cache_bytes=0), saves(1.0, 1.0, 1.0, 1.0, 1.0))


def test_a_cache_that_fills_shows():
    assert sustained.kept(saves(1.0, 1.0, 1.0, 1.0, 4.0, 4.0)) == 0.25
    assert [s.seconds for s in sustained.last_third(saves(1.0, 1.0, 1.0, 2.0, 3.0, 4.0))] == [3.0, 4.0]


@pytest.mark.slow
def test_eight_nodes_project_sixteen_and_no_more(tmp_path: Path):
    def case(world: World) -> list[Measurement]:
        names = tuple(f"node{rank}" for rank in range(world.size))
        apart = dataclasses.replace(world, node=names[world.rank], nodes=names, place=EIGHT)
        spec = dataclasses.replace(JOB, directory=str(tmp_path), network_rate=1e12)
        far = dataclasses.replace(spec, layout="tp2,pp2,dp8", in_a_row=0, writers=("aligned",))
        return [decode(Measurement, encode(m)) for s in (spec, far) for m in checkpoint_run.run(s, apart)]

    torch.set_num_threads(1)
    records, *others = on_ranks(8, case, deadline_s=300.0)
    assert others == [[]] * 7
    promised = JOB.emits(EIGHT)
    got, far = records[: len(promised)], records[len(promised) :]
    assert sorted((m.metric, str(m.params)) for m in got) == sorted((m.name, str(m.params)) for m in promised)
    found = {(m.metric.removeprefix("checkpoint."), m.params.get("writer"), m.params.get("nodes")): m for m in got}
    steps = {nodes: found["scaling.bandwidth", "raw", nodes].samples[0] for nodes in (1, 2, 4, 8)}
    raw = found["raw.bandwidth", None, None]
    assert raw.notes["projected"] == "PROJECTED from 1, 2, 4, 8 to 16 nodes, 16 ranks"
    assert raw.samples[0] == pytest.approx(min(2.0, steps[8] / steps[4]) * steps[8])
    for writer in ("stock", "aligned"):
        time = found["save.time", writer, None]
        assert time.samples[0] >= 0.999 * JOB.whole_bytes(EIGHT) / raw.samples[0]
        assert found["load.wrong_tensors", writer, None].samples == (0.0,)
        assert found["load.cold_share", writer, None].samples[0] >= 0.95
    row = found["sustained.bandwidth", None, None]
    assert (row.outcome, row.notes["saves"], row.params["projected"]) == ("error", 4, True)
    assert "8 of 16 ranks: saves in a row are not projected" in row.reason
    assert len(found["sustained.kept", None, None].samples) == 1
    further = [m for m in far if m.params.get("projected")]
    assert {m.outcome for m in further} == {"error"}
    assert all("more than one doubling beyond the 8 measured" in m.reason for m in further)
    assert list(tmp_path.iterdir()) == []
