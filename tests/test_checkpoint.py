"""A save is durable or an error, a load is right and cold or says what it is, and nothing stays behind.

Every fault is planted between real ranks and a real disk. The cases share launches, for speed.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import multiprocessing
import os
import resource
import shutil
import signal
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo  # DTensor imports it: once here, instead of once on every rank
from torch.distributed.checkpoint import FileSystemWriter, Metadata

from benchmarks.checkpoint import place
from benchmarks.checkpoint import run as checkpoint_run
from benchmarks.checkpoint import save as checkpoint_save
from benchmarks.checkpoint.manifest import newest
from benchmarks.checkpoint.metadata import storm
from benchmarks.checkpoint.spec import Checkpoint
from benchmarks.checkpoint.state import State
from benchmarks.checkpoint.writers import WRITERS, Tools, write_plain, write_stock
from benchmarks.measurement import Measurement, decode, encode
from benchmarks.spec import Place
from benchmarks.storage import aligned, cache
from benchmarks.storage.aligned import Staging
from benchmarks.storage.filesystem import filesystem_of
from benchmarks.storage.identity import SORTS
from benchmarks.world import World
from reference_model.layout import Layout
from reference_model.shape import SHAPES, Shape
from tests.ranks import on_ranks as on_ranks_within

on_ranks = functools.partial(on_ranks_within, deadline_s=200.0)  # busy machines are slow, not wrong
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _on_a_disk(tmp_path: Path) -> None:
    if filesystem_of(tmp_path).kind in SORTS["memory"]:
        pytest.fail("the tests' temporary folder is memory: set TMPDIR to a folder on a disk")


@contextmanager
def patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    """A fault, planted in this rank for a while."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def measured(world: World, directory: Path, **fields: Any) -> dict[str, Measurement]:
    """What a run yields on this rank, by metric and writer, after a round trip as records."""
    spec = Checkpoint(**{"directory": str(directory), "contents": "weights", "repetitions": 2, **fields})
    records = [decode(Measurement, encode(m)) for m in checkpoint_run.run(spec, world)]
    return {f"{m.metric.removeprefix('checkpoint.')} {m.params.get('writer', '')}".strip(): m for m in records}


def refusal(world: World, work: Callable[[], Any]) -> str:
    """The message of the error that every rank must raise alike."""
    try:
        work()
    except (RuntimeError, ValueError) as error:
        said = world.gather(str(error))
        assert len(set(said)) == 1, said
        return said[0]
    raise AssertionError("no rank raised")


def small_state(world: World, layout: str = "auto", *, shift: int = 0) -> State:
    split = Layout.auto(world.size) if layout == "auto" else Layout.parse(layout)
    return State.allocate(SHAPES["tiny"], split, "weights", world, shift=shift)


def damaged(damage: Callable[[Path], None]) -> Callable[..., Any]:
    """`load`, after `damage` was done to the folder by one rank."""
    load = checkpoint_save.load

    def first_damage(state: State, folder: Path, world: World, **options: Any) -> Any:
        if world.is_first:
            damage(folder)
        world.barrier()
        return load(state, folder, world, **options)

    return first_damage


def flip_a_bit(folder: Path) -> None:
    """In the middle of the largest data file: inside a tensor, not a header."""
    path = max(folder.glob("*rank*.bin"), default=None, key=lambda p: p.stat().st_size)
    path = path or max(folder.glob("*.distcp"), key=lambda p: p.stat().st_size)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
        file.flush()
        os.fsync(file.fileno())


def test_it_delivers_what_it_promised_and_leaves_nothing(tmp_path: Path):
    first, *others = on_ranks(4, lambda world: measured(world, tmp_path, contents="mixed"))
    promised = Checkpoint(directory=str(tmp_path), contents="mixed").emits(Place(ranks_per_node=4))
    assert sorted((m.metric, str(m.params)) for m in first.values()) == sorted(
        (m.name, str(m.params)) for m in promised
    )
    assert others == [{}, {}, {}]
    size = first["raw.bandwidth"].params["bytes"]
    assert len(first["raw.bandwidth"].samples) == 2
    for operation in ("create", "stat", "unlink"):
        assert len(first[f"metadata.{operation}"].samples) == 3
        assert min(first[f"metadata.{operation}"].samples) > 0
    for writer in Checkpoint.writers:
        assert first[f"load.wrong_tensors {writer}"].samples == (0.0,)
        assert first[f"load.cold_share {writer}"].samples[0] >= 0.95
        save, rate, load = (first[f"{n} {writer}"] for n in ("save.time", "save.bandwidth", "load.time"))
        assert rate.samples == tuple(pytest.approx(size / seconds) for seconds in save.samples)
        assert len(save.samples) == len(load.samples) == 2
        assert save.subject.ranks == 4
        assert save.columns["rank"] == load.columns["rank"] == [0, 1, 2, 3]
        assert max(save.columns["rank_s"]) < max(save.samples)
        assert size < save.notes["file_bytes"] < 1.01 * size + 2**20
        spans = list(zip(save.columns["begin_s"], save.columns["end_s"], strict=True))
        assert all(0 <= begin < end < max(save.samples) for begin, end in spans)
        assert save.notes["slowest"] in [f"rank {rank} on {node}" for rank, node in enumerate(save.columns["node"])]
        assert save.notes["extra_memory_bytes"] >= 0
    assert list(tmp_path.iterdir()) == []


def test_on_two_nodes_each_reads_what_the_other_wrote(tmp_path: Path):
    def case(world: World) -> tuple[int, dict[str, Measurement]]:
        names = tuple(f"node{rank // 2}" for rank in range(world.size))
        apart = dataclasses.replace(world, node=names[world.rank], nodes=names)
        shift = checkpoint_run.reader_shift(apart)
        assert apart.nodes[(apart.rank + shift) % apart.size] != apart.node
        return shift, measured(apart, tmp_path, repetitions=1, filesystem="parallel")

    shift, got = on_ranks(4, case)[0]
    assert shift == 2
    assert got["load.wrong_tensors stock"].samples == got["load.wrong_tensors aligned"].samples == (0.0,)
    assert got["load.cold_share stock"].samples[0] >= 0.95
    assert [problem.split(":")[0] for problem in got["directory.problems"].notes["problems"]] == ["node0", "node1"]


def test_an_asynchronous_save_tells_the_stall_from_the_durable_time_and_ends_its_processes(tmp_path: Path):
    def case(world: World) -> tuple[dict[str, Measurement], int]:
        got = measured(world, tmp_path, writers=("async-stock", "async-aligned"))
        return got, len(multiprocessing.active_children())

    answers = on_ranks(2, case)
    got = answers[0][0]
    promised = Checkpoint(contents="weights", writers=("async-stock", "async-aligned")).emits(Place(ranks_per_node=2))
    assert sorted(m.metric for m in got.values()) == sorted(m.name for m in promised)
    for writer in ("async-stock", "async-aligned"):
        stalls, times = got[f"save.stall {writer}"].samples, got[f"save.time {writer}"].samples
        assert all(0 < stall < time for stall, time in zip(stalls, times, strict=True))
        assert got[f"load.wrong_tensors {writer}"].samples == (0.0,)
        assert got[f"save.time {writer}"].notes["file_bytes"] > got[f"save.time {writer}"].params["bytes"]
    assert [left for _, left in answers] == [0, 0]
    assert list(tmp_path.iterdir()) == []


def test_a_load_that_is_wrong_missing_cut_or_warm_is_never_a_time(tmp_path: Path):
    def cases(world: World) -> dict[str, Any]:
        got: dict[str, Any] = {}
        for writer, name in (("stock", "__2_0.distcp"), ("aligned", "rank2.bin")):
            one = {"writers": (writer,), "repetitions": 1}
            with patched(checkpoint_run, "load", damaged(flip_a_bit)):
                got[writer, "bit"] = measured(world, tmp_path, **one)
            with patched(checkpoint_run, "load", damaged(lambda folder, name=name: (folder / name).unlink())):
                got[writer, "missing"] = refusal(world, lambda one=one: measured(world, tmp_path, **one))
            with patched(checkpoint_run, "load", damaged(lambda folder: os.truncate(folder / "MANIFEST.json", 99))):
                got[writer, "cut"] = refusal(world, lambda one=one: measured(world, tmp_path, **one))
        warm = {"writers": ("stock",), "repetitions": 1}  # aligned leaves nothing in the page cache
        with patched(cache, "evict", lambda _: None):
            got["warm"] = measured(world, tmp_path, **warm)
            with patched(cache, "resident_bytes", lambda _: 0):
                got["pretending"] = measured(world, tmp_path, **warm)
        with patched(cache, "device_bytes_read", lambda: None):
            got["unknown"] = measured(world, tmp_path, **warm)
        return got

    got = on_ranks(4, cases)[0]
    for writer, name in (("stock", "__2_0.distcp"), ("aligned", "rank2.bin")):
        wrong = got[writer, "bit"][f"load.wrong_tensors {writer}"]
        assert wrong.samples == (1.0,)
        assert len(wrong.notes["wrong"]) == 1
        assert f"{name} is missing" in got[writer, "missing"]
        assert "MANIFEST.json is cut" in got[writer, "cut"]
    assert "stayed in the page cache" in got["warm"]["load.time stock"].reason
    assert "the rest from memory" in got["pretending"]["load.time stock"].reason
    assert "does not tell" in got["unknown"]["load.time stock"].reason
    for case in ("warm", "pretending", "unknown"):
        assert got[case]["load.time stock"].outcome == "error"
        assert got[case]["load.time stock"].samples == ()
        assert got[case]["load.cold_share stock"].samples[0] < 0.1
        assert got[case]["load.wrong_tensors stock"].samples == (0.0,)
    assert list(tmp_path.iterdir()) == []


def test_everything_is_synced_when_it_is_full_and_the_manifest_comes_last(tmp_path: Path):
    def case(world: World) -> dict[str, list[tuple[str, int]]]:
        state, got = small_state(world), {}
        for name, (write, _) in list(WRITERS.items())[:2]:
            synced: list[tuple[str, int]] = []

            def watched(descriptor: int, seen: list = synced, sync: Any = os.fsync) -> None:
                sync(descriptor)
                seen.append((str(Path(f"/proc/self/fd/{descriptor}").readlink()), os.fstat(descriptor).st_size))

            with patched(os, "fsync", watched):
                tools = Tools(staging=Staging(tmp_path))
                checkpoint_save.save(state, tmp_path / name, world, write=write, tools=tools)
            got[name] = synced
        return got

    for rank, answer in enumerate(on_ranks(2, case)):
        for name, synced in answer.items():
            folder, sizes, order = tmp_path / name, dict(synced), [path for path, _ in synced]
            data = [*folder.glob(f"__{rank}_*"), *folder.glob(f"rank{rank}.*")]
            assert data and all(sizes[str(p)] == p.stat().st_size for p in data)
            if rank:
                continue
            assert order[0] == str(tmp_path), "the folder's own name comes first"
            assert sizes[str(folder / ".metadata")] == (folder / ".metadata").stat().st_size
            assert order[-3:] == [str(folder), str(folder / "MANIFEST.json.partial"), str(folder)]


def test_torch_alone_syncs_a_small_metadata_file_while_it_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Why the clock of `stock` adds a sync of its own. Should torch mend this, the extra sync costs nothing."""
    sizes: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: sizes.append(os.fstat(descriptor).st_size))
    FileSystemWriter(tmp_path).finish(Metadata(state_dict_metadata={}), results=[])
    assert 0 < (tmp_path / ".metadata").stat().st_size < 8192
    if torch.__version__.startswith("2.13"):
        assert sizes == [0]


def test_a_save_that_is_not_durable_is_an_error_and_the_previous_one_stays(tmp_path: Path):
    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def cases(world: World) -> dict[str, Any]:
        state, got = small_state(world), {}
        state.fill(repetition=1)
        with patched(aligned, "MODES", ("buffered",) * 3):  # past the page cache, a lie leaves no trace in it
            staging = Staging(tmp_path)
        checkpoint_save.save(state, tmp_path / "step-1", world, write=write_stock, tools=Tools(staging=staging))
        for kind, write in (("stock", write_stock), ("plain", write_plain), ("aligned", WRITERS["aligned"][0])):

            def again(fault: str, kind: str = kind, write: Any = write) -> None:
                folder = tmp_path / f"step-{len(got) + 2}"
                got[kind, fault] = refusal(
                    world, lambda: checkpoint_save.save(state, folder, world, write=write, tools=Tools(staging=staging))
                )
                assert newest(tmp_path) == tmp_path / "step-1"

            with patched(os, "fsync", fail if world.rank == 1 else os.fsync):
                again("failed")
            with patched(os, "fsync", (lambda _: None) if world.rank == 2 else os.fsync):
                again("lied")
            with full_disk(world.rank == 3):
                again("full")
        loaded = checkpoint_save.load(state, tmp_path / "step-1", world, read=WRITERS["stock"][1], repetition=1)
        got["previous"] = loaded.wrong
        return got

    got = on_ranks(4, cases)[0]
    assert got["previous"] == []
    for kind in ("stock", "plain", "aligned"):
        assert "Input/output error (EIO)" in got[kind, "failed"]
        assert "fsync returned and" in got[kind, "lied"]
        assert "rank 2" in got[kind, "lied"]
        assert "EFBIG" in got[kind, "full"]


@contextmanager
def full_disk(here: bool) -> Iterator[None]:
    """This rank's files may not grow beyond 64 KiB, without being root: what a full disk does, as EFBIG."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    if here:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_folder_that_is_no_place_for_it_is_refused_with_the_cure(tmp_path: Path):
    def forbidden(**_: Any) -> str:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(tmp_path))

    def little_room(_: Any) -> os.statvfs_result:
        return os.statvfs_result((4096, 4096, 100, 100, 100, 9, 9, 9, 0, 255))

    def cases(world: World) -> dict[str, str]:
        got = {"absent": refusal(world, lambda: measured(world, tmp_path / "absent"))}
        with patched(os, "statvfs", little_room):
            got["full"] = refusal(world, lambda: measured(world, tmp_path))
        with patched(tempfile, "mkdtemp", forbidden):
            got["forbidden"] = refusal(world, lambda: measured(world, tmp_path))
        with patched(place, "claimed", (lambda _: "another") if world.rank == 1 else place.claimed):
            got["not shared"] = refusal(world, lambda: measured(world, tmp_path))
        return got

    got = on_ranks(2, cases)[0]
    assert "make it, or set [checkpoint] directory" in got["absent"]
    assert "free space, or set [checkpoint] directory" in got["full"]
    assert "Permission denied (EACCES); make it writable for this user" in got["forbidden"]
    assert "rank 1 does not see" in got["not shared"]
    assert list(tmp_path.iterdir()) == []


def test_the_wrong_sort_of_storage_is_measured_and_named(tmp_path: Path):
    expected = {"filesystem": "parallel", "capacity_bytes": 10**16, "repetitions": 1, "writers": ("aligned",)}
    got = on_ranks(2, lambda world: measured(world, tmp_path, **expected, mtbf_s=1e4, interval_s=1600.0))[0]
    found = got["directory.problems"]
    assert found.samples == (2.0,)
    assert "the cluster file says parallel" in found.notes["problems"][0]
    assert "the cluster file says 1e+04" in found.notes["problems"][1]
    assert got["save.time aligned"].outcome == "ok"
    notes = got["save.time aligned"].notes
    assert notes["lost_share_at_best_interval"] <= notes["lost_share_at_file_interval"]


def test_files_that_the_next_rank_does_not_see_are_an_error_on_all_ranks(tmp_path: Path):
    def case(world: World) -> tuple[dict[str, list[float]], str]:
        rates = storm(tmp_path, world, num_files=5, rounds=2)
        apart = tmp_path / f"rank{world.rank}"  # as where a folder is not shared
        apart.mkdir()
        said = refusal(world, lambda: storm(apart, world, num_files=5))
        shutil.rmtree(apart)
        return rates, said

    (rates, said), _ = on_ranks(2, case)
    assert {operation: len(found) for operation, found in rates.items()} == {"create": 2, "stat": 2, "unlink": 2}
    assert "No such file or directory (ENOENT); every rank must see the same folder" in said
    assert list(tmp_path.iterdir()) == []


def test_memory_on_top_of_the_state_is_bounded_by_the_staging(tmp_path: Path):
    shape = Shape(name="wide", layers=1, dim=1024, heads=8, kv_heads=8, ffn=64, vocab=8192)
    threads = 2

    def case(world: World) -> tuple[int, dict[str, int | None]]:
        state = State.allocate(shape, Layout(dp=world.size), "weights", world)
        tools, got = Tools(staging=Staging(tmp_path, threads=threads)), {}
        for turn in range(2):  # what a first save imports and caches is not its own
            for name, write in (("plain", write_plain), ("aligned", WRITERS["aligned"][0])):
                saved = checkpoint_save.save(state, tmp_path / f"{name}{turn}", world, write=write, tools=tools)
                got[name] = saved.extra_bytes
        return sum(part.numel() for part in state.saved_parts()), got

    [(size, extra)] = on_ranks(1, case)
    assert size > 2 * threads * aligned.CHUNK, "else a copy of the state would go unseen"
    for taken in extra.values():
        assert taken is None or taken <= threads * aligned.CHUNK


def test_every_layout_loads_under_every_other_and_the_data_cannot_be_compressed(tmp_path: Path):
    layouts = ("tp2,pp2", "tp1,pp1,dp4", "tp2,dp2,shard1", "tp4")

    def case(world: World, repetition: int) -> bytes:
        name, writer = layouts[repetition], ("stock", "aligned")[repetition % 2]
        state, folder = small_state(world, name), tmp_path / f"{name}-{writer}"
        state.fill(repetition=repetition)
        write, read = WRITERS[writer]
        checkpoint_save.save(state, folder, world, write=write, tools=Tools(staging=Staging(tmp_path)))
        for other in (name, layouts[repetition - 1], layouts[repetition - 2]):
            target = small_state(world, other, shift=1)
            loaded = checkpoint_save.load(target, folder, world, read=read, repetition=repetition)
            assert loaded.wrong == [], (name, other, loaded.wrong)
            assert len(target.wrong(repetition=repetition + 1)) == len(target.shards)  # other data is told apart
        return b"".join(bytes(part.numpy()) for part in state.saved_parts())

    answers = on_ranks(4, lambda world: [case(world, i) for i in range(len(layouts))])
    for index, name in enumerate(layouts):
        whole = b"".join(answer[index] for answer in answers)
        assert len(whole) == Checkpoint(layout=name, contents="weights").state_bytes(Place(ranks_per_node=4))
        assert len(zlib.compress(whole, 1)) > 0.99 * len(whole)
        blocks = [whole[i : i + 4096] for i in range(0, len(whole), 4096)]
        assert len(set(blocks)) == len(blocks)
