"""A save is durable or an error, a load is right and cold or says what it is, and nothing stays behind.

Every fault is planted between real ranks and a real disk. The cases share launches, for speed.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo  # DTensor imports it: once here, instead of once on every rank

from benchmarks.checkpoint import run as checkpoint_run
from benchmarks.checkpoint import save as checkpoint_save
from benchmarks.checkpoint.manifest import newest
from benchmarks.checkpoint.shards import rank_shards
from benchmarks.checkpoint.spec import Checkpoint
from benchmarks.checkpoint.state import State
from benchmarks.checkpoint.writers import read_sharded, write_plain, write_sharded
from benchmarks.measurement import Measurement, decode, encode
from benchmarks.spec import Place
from benchmarks.storage import cache
from benchmarks.storage.filesystem import filesystem_of
from benchmarks.world import World
from reference_model.layout import Layout
from reference_model.shape import SHAPES
from tests.ranks import on_ranks

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _on_a_disk(tmp_path: Path) -> None:
    if filesystem_of(tmp_path).kind in checkpoint_run.IN_MEMORY:
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
    """What a run yields on this rank, by metric, after a round trip as records."""
    spec = Checkpoint(**{"directory": str(directory), "contents": "weights", "repetitions": 2, **fields})
    records = [decode(Measurement, encode(m)) for m in checkpoint_run.run(spec, world)]
    return {m.metric.removeprefix("checkpoint."): m for m in records}


def refusal(world: World, work: Callable[[], Any]) -> str:
    """The message of the error that every rank must raise alike."""
    try:
        work()
    except (RuntimeError, ValueError) as error:
        said = world.gather(str(error))
        assert len(set(said)) == 1, said
        return said[0]
    raise AssertionError("no rank raised")


def small_state(world: World) -> State:
    layout = Layout.auto(world.size)
    return State.random(rank_shards(SHAPES["tiny"], layout, world.rank, "weights"), layout, world)


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
    path = max(folder.glob("*.distcp"), key=lambda p: p.stat().st_size)
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
    assert {m.metric: m.params for m in first.values()} == {m.name: m.params for m in promised}
    assert others == [{}, {}, {}]
    assert first["load.wrong_tensors"].samples == (0.0,)
    assert first["load.cold_share"].samples[0] >= 0.95
    for name in ("save.time", "save.bandwidth", "raw.bandwidth", "load.time"):
        assert len(first[name].samples) == 2
        assert first[name].subject.ranks == 4
    size = first["save.time"].params["bytes"]
    for seconds, rate in zip(first["save.time"].samples, first["save.bandwidth"].samples, strict=True):
        assert rate == pytest.approx(size / seconds)
    assert first["save.time"].columns["rank"] == [0, 1, 2, 3]
    assert max(first["save.time"].columns["rank_s"]) < max(first["save.time"].samples)
    assert size < first["save.time"].notes["file_bytes"] < 1.01 * size + 2**20
    assert list(tmp_path.iterdir()) == []


def test_a_load_that_is_wrong_missing_cut_or_warm_is_never_a_time(tmp_path: Path):
    def cases(world: World) -> dict[str, Any]:
        got: dict[str, Any] = {}
        with patched(checkpoint_run, "load", damaged(flip_a_bit)):
            got["bit"] = measured(world, tmp_path)
        with patched(checkpoint_run, "load", damaged(lambda folder: (folder / "__2_0.distcp").unlink())):
            got["missing"] = refusal(world, lambda: measured(world, tmp_path))
        with patched(checkpoint_run, "load", damaged(lambda folder: os.truncate(folder / "MANIFEST.json", 99))):
            got["cut"] = refusal(world, lambda: measured(world, tmp_path))
        with patched(cache, "evict", lambda _: None):
            got["warm"] = measured(world, tmp_path)
            with patched(cache, "resident_bytes", lambda _: 0):
                got["pretending"] = measured(world, tmp_path)
        with patched(cache, "device_bytes_read", lambda: None):
            got["unknown"] = measured(world, tmp_path)
        return got

    got = on_ranks(4, cases)[0]
    assert got["bit"]["load.wrong_tensors"].samples == (1.0,)
    assert len(got["bit"]["load.wrong_tensors"].notes["wrong"]) == 1
    assert "__2_0.distcp is missing" in got["missing"]
    assert "MANIFEST.json is cut" in got["cut"]
    assert "stayed in the page cache" in got["warm"]["load.time"].reason
    assert "came from memory" in got["pretending"]["load.time"].reason
    assert "does not tell" in got["unknown"]["load.time"].reason
    for case in ("warm", "pretending", "unknown"):
        assert got[case]["load.time"].outcome == "error"
        assert got[case]["load.time"].samples == ()
        assert got[case]["load.cold_share"].samples[0] < 0.1
        assert got[case]["load.wrong_tensors"].samples == (0.0,)
    assert list(tmp_path.iterdir()) == []


def test_a_save_that_is_not_durable_is_an_error_and_the_previous_one_stays(tmp_path: Path):
    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def cases(world: World) -> dict[str, Any]:
        state, got = small_state(world), {}
        hashes = state.hashes()

        def again(name: str) -> str:
            folder = tmp_path / f"step-{name}"
            said = refusal(world, lambda: checkpoint_save.save(state, folder, world, write=write, hashes=hashes))
            world.barrier()
            assert newest(tmp_path) == tmp_path / "step-1"
            return said

        for write in (write_sharded, write_plain):
            if write is write_sharded:
                checkpoint_save.save(state, tmp_path / "step-1", world, write=write, hashes=hashes)
            kind = write.__name__
            with patched(os, "fsync", fail if world.rank == 1 else os.fsync):
                got[f"{kind} failed"] = again(f"20{kind == 'write_plain':d}")
            with patched(os, "fsync", (lambda _: None) if world.rank == 2 else os.fsync):
                got[f"{kind} lied"] = again(f"30{kind == 'write_plain':d}")
            with full_disk(world.rank == 3):
                got[f"{kind} full"] = again(f"40{kind == 'write_plain':d}")
        state.clear()
        read_sharded(state, tmp_path / "step-1", world)
        got["previous"] = state.hashes() == hashes
        return got

    answers = on_ranks(4, cases)
    assert all(a["previous"] for a in answers)
    for write in ("write_sharded", "write_plain"):
        got = answers[0]
        assert "Input/output error (EIO)" in got[f"{write} failed"]
        assert "rank 2" in got[f"{write} lied"]
        assert "fsync returned and" in got[f"{write} lied"]
        assert "EFBIG" in got[f"{write} full"]


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
    def little_room(_: Any) -> os.statvfs_result:
        return os.statvfs_result((4096, 4096, 100, 100, 100, 9, 9, 9, 0, 255))

    def cases(world: World) -> dict[str, str]:
        got = {"absent": refusal(world, lambda: measured(world, tmp_path / "absent"))}
        with patched(os, "statvfs", little_room):
            got["full"] = refusal(world, lambda: measured(world, tmp_path))
        with patched(Path, "is_file", (lambda _: False) if world.rank == 1 else Path.is_file):
            got["not shared"] = refusal(world, lambda: measured(world, tmp_path))
        return got

    got = on_ranks(2, cases)[0]
    assert "make it, or set [checkpoint] directory" in got["absent"]
    assert "free space, or set [checkpoint] directory" in got["full"]
    assert "rank 1 does not see" in got["not shared"]
    assert list(tmp_path.iterdir()) == []


def test_without_a_directory_memory_is_avoided(tmp_path: Path):
    world = World(
        rank=0,
        size=1,
        local_rank=0,
        place=Place(),
        device=torch.device("cpu"),
        node="a",
        nodes=("a",),
        scratch="/dev/shm",
    )
    assert checkpoint_run._default_parent(world) == Path("/var/tmp")
    assert checkpoint_run._default_parent(World(**{**vars(world), "scratch": str(tmp_path)})) == tmp_path


def test_every_layout_comes_back_and_the_data_cannot_be_compressed(tmp_path: Path):
    layouts = ("tp2,pp2", "tp1,pp1,dp4", "tp2,dp2,shard1", "pp2,dp2")

    def case(world: World, name: str) -> tuple[int, bytes]:
        layout, folder = Layout.parse(name), tmp_path / name
        state = State.random(rank_shards(SHAPES["tiny"], layout, world.rank, "weights"), layout, world)
        before = state.hashes()
        state.stamp(1)
        hashes = state.hashes()
        assert not set(before.values()) & set(hashes.values())
        done = checkpoint_save.save(state, folder, world, write=write_sharded, hashes=hashes)
        loaded = checkpoint_save.load(state, folder, world, hashes=hashes)
        assert loaded.wrong == []
        assert state.hashes() == hashes
        return sum(done.files.values()), b"".join(bytes(p.numpy()) for p in state.parts())

    answers = on_ranks(4, lambda world: [case(world, name) for name in layouts])
    for index, name in enumerate(layouts):
        whole = b"".join(answer[index][1] for answer in answers)
        size = Checkpoint(layout=name, contents="weights").state_bytes(Place(ranks_per_node=4))
        assert len(whole) == size < answers[0][index][0]
        assert len(zlib.compress(whole, 1)) > 0.99 * len(whole)
        blocks = [whole[i : i + 4096] for i in range(0, len(whole), 4096)]
        assert len(set(blocks)) == len(blocks)
