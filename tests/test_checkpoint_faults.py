"""Faults of a real disk under a save: full, read-only, slow, a slow target, a lying sync, frozen, a killed rank.

Each ends in a verdict that names it; the previous checkpoint stays loadable; ranks live on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import torch._dynamo  # noqa: F401 - DTensor imports it: once here, instead of once on every rank

from benchmarks.checkpoint import run as checkpoint_run
from benchmarks.checkpoint import save as checkpoint_save
from benchmarks.checkpoint.manifest import newest
from benchmarks.checkpoint.place import PREFIX
from benchmarks.checkpoint.save import load, save
from benchmarks.checkpoint.writers import WRITERS, Tools, write_plain
from benchmarks.measurement import Event, Expected, Measurement, Verdict
from benchmarks.storage import cache
from benchmarks.storage.aligned import Staging
from benchmarks.storage.filesystem import filesystem_of
from benchmarks.world import World
from clusters.limits import Limit
from tests.campaigns import Checkout, Finished
from tests.judging import expect, only, verdicts
from tests.ranks import on_ranks as on_ranks_within
from tests.test_checkpoint import measured, patched, refusal, small_state

on_ranks = functools.partial(on_ranks_within, deadline_s=200.0)  # busy machines are slow, not wrong
pytestmark = [pytest.mark.slow, pytest.mark.machine("root")]

MIB = 2**20
WRITES = {"plain": write_plain, **{name: WRITERS[name][0] for name in ("stock", "aligned")}}
BLKIO = Path("/sys/fs/cgroup/blkio")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Makes small disks: an ext4 image, mounted. Frozen ones are thawed at the end."""
    points: list[Path] = []

    def make(size: int) -> Path:
        image, point = tmp_path / f"disk{len(points)}.img", tmp_path / f"disk{len(points)}"
        with image.open("wb") as file:
            file.truncate(size)
        point.mkdir()
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], check=True)
        how = "loop,commit=300"  # no flush of its own within the test
        subprocess.run(["mount", "-o", how, str(image), str(point)], check=True)
        points.append(point)
        return point

    try:
        yield make
    finally:
        for point in points:
            subprocess.run(["fsfreeze", "-u", str(point)], check=False, capture_output=True)
            subprocess.run(["umount", "--lazy", str(point)], check=True)


def verdict(measurement: Measurement, **bound: float) -> Verdict:
    """What a limit of {floor: 5}, {ceiling: 1} or {equal: 0} makes of a number."""
    e = Expected(**{k: getattr(measurement, k) for k in ("metric", "unit", "better", "params")}, config="c", test="t")
    limit = Limit(name="planted", metric=e.metric, unit=e.unit, source="definition: planted", **bound)
    return only(verdicts(e, [dataclasses.replace(measurement, config="c")], [limit]))


def verdict_of_error(said: str) -> Verdict:
    """What becomes of a benchmark that raised `said` on its ranks."""
    e = expect("checkpoint.save.time", unit="s", better="lower")
    event = Event(kind="error", at="", detail={"config": e.config, "attempt": 1, "reason": said})
    return only(verdicts(e, [], [], errors=[event]))


@contextlib.contextmanager
def slow_disk(folder: Path, rate: int) -> Iterator[Path]:
    """A control group whose members write to the disk under `folder` at `rate` B/s at most."""
    if not (BLKIO / "blkio.throttle.write_bps_device").exists():
        pytest.skip("needs the blkio control group (version 1) to slow a disk down")
    group = BLKIO / f"rackproof-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "blkio.throttle.write_bps_device").write_text(f"{filesystem_of(folder).device} {rate}\n")
        yield group
    finally:
        (BLKIO / "cgroup.procs").write_text(f"{os.getpid()}\n")
        group.rmdir()


def join(group: Path) -> None:
    (group / "cgroup.procs").write_text(f"{os.getpid()}\n")


def test_a_full_and_a_read_only_disk_are_named_and_the_previous_checkpoint_loads(disk: Callable[[int], Path]):
    folder = disk(48 * MIB)

    def cases(world: World) -> dict[Any, Any]:
        state, tools = small_state(world), Tools(staging=Staging(folder))
        state.fill(repetition=1)
        save(state, folder / "step-1", world, write=WRITES["stock"], tools=tools)
        got: dict[Any, Any] = {}
        if world.is_first:
            leave_free(folder, 4 * MIB)
        world.barrier()
        for name, write in WRITES.items():
            path = folder / f"step-2{len(got)}"
            got[name] = refusal(world, lambda p=path, w=write: save(state, p, world, write=w, tools=tools))
            assert newest(folder) == folder / "step-1"
            if world.is_first:
                shutil.rmtree(path)
            world.barrier()
        if world.is_first:
            subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        world.barrier()
        got["read-only"] = refusal(world, lambda: save(state, folder / "step-3", world, write=write_plain, tools=tools))
        loaded = load(state, folder / "step-1", world, read=WRITERS["stock"][1], repetition=1)
        got["previous"] = loaded
        return got

    got = on_ranks(4, cases)[0]
    for name in WRITES:
        assert "No space left on device (ENOSPC)" in got[name]
        assert "free space there" in got[name]
    assert "Read-only file system (EROFS); mount it writable" in got["read-only"]
    for said in got.values():
        if isinstance(said, str):
            assert (found := verdict_of_error(said)).status == "error"
            assert found.reason == said
    assert got["previous"].wrong == []
    assert got["previous"].evidence["resident_before"] == 0
    assert got["previous"].cold_share < 0.95  # the image under the loop device is in memory: its disk gave nothing


def leave_free(folder: Path, size: int) -> None:
    """Fill the disk until `size` bytes are left."""
    stat = os.statvfs(folder)
    descriptor = os.open(folder / "filler", os.O_WRONLY | os.O_CREAT)
    os.posix_fallocate(descriptor, 0, stat.f_bavail * stat.f_frsize - size)
    os.close(descriptor)


def test_a_slow_disk_and_a_slow_rank_show_in_the_numbers(disk: Callable[[int], Path]):
    folder, rate = disk(96 * MIB), 4 * MIB  # slow enough that the kernel's burst of 0.1 s does not count

    def cases(world: World, group: Path) -> list[dict[str, Any]]:
        one = {"repetitions": 1, "writers": ("aligned",)}
        fast = measured(world, folder, **one)
        if world.rank == 1:
            join(group)
        slow_rank = measured(world, folder, **one)
        join(group)
        return [fast, slow_rank, measured(world, folder, **one)]

    with slow_disk(folder, rate) as group:
        fast, slow_rank, slow = on_ranks(4, lambda world: cases(world, group))[0]
    size = fast["raw.bandwidth"].params["bytes"]
    for name in ("raw.bandwidth", "save.bandwidth aligned"):
        assert slow[name].samples[0] < 1.3 * rate  # a page cache would show more
    assert slow["save.time aligned"].samples[0] > 0.75 * size / rate
    assert verdict(slow["raw.bandwidth"], floor=2.0 * rate).status == "fail"
    assert verdict(fast["raw.bandwidth"], floor=0.1 * rate).status == "pass"
    seconds = slow_rank["raw.bandwidth"].columns["rank_s"]
    assert seconds.index(max(seconds)) == 1
    assert slow_rank["save.time aligned"].samples[0] > 0.75 * size / 4 / rate
    named = verdict(slow_rank["save.time aligned"], ceiling=0.5 * size / 4 / rate)
    assert (named.status, "waited for rank 1 on " in named.reason) == ("fail", True)
    assert [p.name for p in folder.iterdir()] == ["lost+found"]


def test_a_slow_sync_is_inside_the_clock_and_names_its_rank(tmp_path: Path):
    def slow(descriptor: int, sync: Callable[[int], None] = os.fsync) -> None:
        time.sleep(0.3)
        sync(descriptor)

    def case(world: World) -> dict[str, Any]:
        with patched(os, "fsync", slow if world.rank == 2 else os.fsync):
            return measured(world, tmp_path, repetitions=1)

    got = on_ranks(4, case)[0]
    for name in ("save.time stock", "save.time aligned"):
        assert got[name].samples[0] > 0.3
        seconds = got[name].columns["rank_s"]
        assert seconds.index(max(seconds)) == 2
        found = verdict(got[name], ceiling=0.2)
        assert (found.status, "waited for rank 2 on " in found.reason) == ("fail", True)


def test_a_slow_target_of_the_storage_is_named_by_the_rank_and_the_target(
    disk: Callable[[int], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder, target, rate = disk(96 * MIB), disk(48 * MIB), 4 * MIB
    lfs = tmp_path / "bin" / "lfs"
    lfs.parent.mkdir()
    lfs.write_text(LFS)
    lfs.chmod(0o755)
    monkeypatch.setenv("PATH", f"{lfs.parent}:{os.environ['PATH']}")
    lustre = dataclasses.replace(filesystem_of(folder), kind="lustre")
    write = Staging.write

    def elsewhere(staging: Staging, path: Path, parts: Any) -> int:
        size = write(staging, target / path.name, parts)
        path.symlink_to(target / path.name)
        return size

    def case(world: World, group: Path) -> dict[str, Any]:
        join(group)
        with (
            patched(checkpoint_run, "filesystem_of", lambda _: lustre),
            patched(checkpoint_save, "filesystem_of", lambda _: lustre),
            patched(Staging, "write", elsewhere if world.rank == 2 else write),
        ):
            return measured(world, folder, repetitions=1, writers=("aligned",), metadata_files=0)

    with slow_disk(target, rate) as group:
        got = on_ranks(3, lambda world: case(world, group))[0]
    found = verdict(got["save.time aligned"], ceiling=0.4 * got["raw.bandwidth"].params["bytes"] / 3 / rate)
    assert found.status == "fail"
    assert "waited for rank 2 on " in found.reason
    assert "(OST 9)" in found.reason
    assert got["raw.bandwidth"].notes["bytes_per_ost"].keys() == {"4", "9"}


LFS = """#!/bin/sh
[ "$1" = df ] && { echo "scratch-OST0004_UUID 1000 100 900 10% /scratch[OST:4]"; exit; }
[ -L "$2" ] && ost=9 || ost=4
printf 'lmm_stripe_count:  1\\nlmm_stripe_size:   1048576\\n\\tobdidx objid objid group\\n\\t %s 15 0x9 0xac\\n' $ost
"""


def test_a_sync_that_lies_past_the_page_cache_is_seen_at_the_disk(disk: Callable[[int], Path]):
    folder = disk(96 * MIB)

    def lie(_: int) -> None:
        """What a library put before fsync does, or a mount without barriers."""

    def cases(world: World) -> dict[str, Any]:
        state, tools, got = small_state(world), Tools(staging=Staging(folder)), {"mode": Staging(folder).mode}
        state.fill(repetition=1)
        save(state, folder / "step-1", world, write=WRITES["aligned"], tools=tools)
        for name in ("plain", "aligned"):
            with patched(os, "fsync", lie), patched(cache, "unwritten_bytes", lambda _: None):  # as before Linux 6.5
                step, write = folder / f"step-2-{name}", WRITES[name]
                got[name] = refusal(world, lambda s=step, w=write: save(state, s, world, write=w, tools=tools))
        loaded = load(state, folder / "step-1", world, read=WRITERS["aligned"][1], repetition=1)
        return {**got, "wrong": loaded.wrong}

    got = on_ranks(2, cases)[0]
    assert got["mode"] == "direct", "with O_DIRECT there is nothing in the page cache to ask about"
    for name in ("plain", "aligned"):
        found = verdict_of_error(got[name])
        assert found.status == "error"
        assert "fsync returned, and yet the disk was never asked to flush its cache" in found.reason
        assert "mount it with barriers" in found.reason
    assert got["wrong"] == []


@pytest.mark.machine("fuse")
def test_the_wrong_storage_is_a_fail_whatever_its_speed(tmp_path: Path):
    """A FUSE mount that calls itself NFS, memory, and the empty folder that a failed mount leaves behind."""
    behind, nfs, memory, empty = (tmp_path / name for name in ("behind", "nfs", "memory", "empty"))
    for folder in (behind, nfs, memory, empty):
        folder.mkdir()
    one = {"repetitions": 1, "writers": ("aligned",), "metadata_files": 0}

    def cases(world: World) -> list[dict[str, Any]]:
        asked = ((nfs, "parallel"), (nfs, ""), (memory, "parallel"), (memory, "local"), (empty, "parallel"))
        return [measured(world, folder, filesystem=kind, **one) for folder, kind in asked]

    subprocess.run(["bindfs", "-o", "subtype=nfs4", str(behind), str(nfs)], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(memory)], check=True)
    try:
        got = on_ranks(2, cases)[0]
    finally:
        for folder in (nfs, memory):
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
    said = (
        "is fuse.nfs4 (network",
        "behind a network link",
        "survives a restart",
        "survives a restart",
        "is the mount",
    )
    for found, words in zip(got, said, strict=True):
        place = verdict(found["directory.problems"], equal=0.0)
        assert place.status == "fail"
        assert words in place.reason
        assert found["load.wrong_tensors aligned"].samples == (0.0,)
    for found in got[:4]:  # neither FUSE nor memory can prove that a read was cold
        assert found["load.time aligned"].outcome == "error"


CHECK = """
from benchmarks.checkpoint.spec import Checkpoint
from suites.needs import needs

@needs(lambda cluster: Checkpoint(
    directory={directory!r}, repetitions=400, contents="weights", metadata_files=0, writers={writers!r},
    limit_s={limit_s},
))
def test_a_checkpoint(verdicts):
    verdicts("checkpoint.save.*").must_pass()
"""
LIMIT = """
[limits.saves]
metric = "checkpoint.save.time"
unit = "s"
ceiling = 100
source = "definition: planted"
"""


def start(
    tmp_path: Path, directory: Path, *, limit_s: float, writers: tuple[str, ...], until: str
) -> tuple[Checkout, subprocess.Popen[str]]:
    """A campaign of a checkpoint that saves and saves, and then a good benchmark; the first has come to `until`."""
    checkout = Checkout(tmp_path / "checkout")
    checkout.cluster(LIMIT)
    checkout.plant("good")
    (checkout.folder / "suites" / "test_checkpoint.py").write_text(
        CHECK.format(directory=str(directory), limit_s=limit_s, writers=writers)
    )
    process = checkout.start()
    deadline = time.monotonic() + 240
    while not list(directory.glob(f"{PREFIX}*/{until}")):
        assert process.poll() is None, checkout.said()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return checkout, process


def test_a_rank_killed_in_the_middle_of_a_save_is_named_and_its_folder_removed_by_the_next_run(tmp_path: Path):
    directory = tmp_path / "checkpoints"
    directory.mkdir()
    checkout, process = start(tmp_path, directory, limit_s=60.0, writers=("stock", "aligned"), until="step-[1-9]*")
    os.kill(max(ranks_of(checkout.folder)), signal.SIGKILL)
    finished = checkout.finish(process)
    assert finished.code == 3
    assert "SIGKILL" in finished.output
    assert statuses(finished) == {"checkpoint.save.time": {"error"}, "planted.rate": {"pass"}}
    got = on_ranks(2, lambda world: measured(world, directory, repetitions=1, writers=("aligned",)))[0]
    assert got["load.wrong_tensors aligned"].samples == (0.0,)
    assert list(directory.iterdir()) == []


def test_after_a_rank_is_killed_in_the_middle_of_a_save_the_previous_checkpoint_loads(tmp_path: Path):
    def save_twice(world: World) -> None:
        state, tools = small_state(world), Tools(staging=Staging(tmp_path))
        state.fill(repetition=1)
        save(state, tmp_path / "step-1", world, write=WRITES["aligned"], tools=tools)
        save(state, tmp_path / "step-2", world, write=dying if world.rank == 1 else write_plain, tools=tools)

    def dying(state: Any, folder: Path, world: World, tools: Tools) -> Any:
        write_plain(state, folder, world, tools)
        os.kill(os.getpid(), signal.SIGKILL)

    def load_again(world: World) -> list[str]:
        return load(small_state(world), newest(tmp_path), world, read=WRITERS["aligned"][1], repetition=1).wrong

    with pytest.raises(AssertionError, match="rank 1: died"):
        on_ranks(2, save_twice)
    assert (tmp_path / "step-2" / "rank1.raw").is_file()
    assert newest(tmp_path) == tmp_path / "step-1"
    assert on_ranks(2, load_again) == [[], []]


def test_a_frozen_file_system_costs_only_its_own_benchmark(tmp_path: Path, disk: Callable[[int], Path]):
    directory = disk(96 * MIB)
    checkout, process = start(tmp_path, directory, limit_s=15.0, writers=("aligned",), until="step-*")
    subprocess.run(["fsfreeze", "-f", str(directory)], check=True)
    try:
        finished = checkout.finish(process, timeout_s=200.0)
    finally:
        subprocess.run(["fsfreeze", "-u", str(directory)], check=False)
    assert finished.code == 3
    assert statuses(finished) == {"checkpoint.save.time": {"error"}, "planted.rate": {"pass"}}


def statuses(finished: Finished) -> dict[str, set[str]]:
    """Statuses of the verdicts on what was saved and on the benchmark that came after it."""
    found: dict[str, set[str]] = {"checkpoint.save.time": set(), "planted.rate": set()}
    for verdict in finished.stored.verdicts(today=date(2026, 12, 1)):
        if verdict.metric in found:
            found[verdict.metric].add(verdict.status)
    return found


def ranks_of(folder: Path) -> list[int]:
    """Process ids of the workers that a campaign in `folder` has started."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and b"benchmarks.worker" in (entry / "cmdline").read_bytes():
                environment = (entry / "environ").read_bytes()
                if str(folder).encode() in environment and b"\0RANK=" in environment:
                    found.append(int(entry.name))
    return found
