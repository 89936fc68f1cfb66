"""Faults of a real disk under a save: full, read-only, slow, one slow rank, frozen, a rank that is killed.

Each ends in an error or a number that tells it; the previous checkpoint stays loadable; ranks live on.
"""

from __future__ import annotations

import contextlib
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

from benchmarks.checkpoint.manifest import newest
from benchmarks.checkpoint.place import PREFIX
from benchmarks.checkpoint.save import load, save
from benchmarks.checkpoint.writers import WRITERS, Tools, write_plain
from benchmarks.storage.aligned import Staging
from benchmarks.storage.filesystem import filesystem_of
from benchmarks.world import World
from tests.campaigns import Checkout, Finished
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
        subprocess.run(["mount", "-o", "loop", str(image), str(point)], check=True)
        points.append(point)
        return point

    try:
        yield make
    finally:
        for point in points:
            subprocess.run(["fsfreeze", "-u", str(point)], check=False, capture_output=True)
            subprocess.run(["umount", "--lazy", str(point)], check=True)


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
    seconds = slow_rank["raw.bandwidth"].columns["rank_s"]
    assert seconds.index(max(seconds)) == 1
    assert slow_rank["save.time aligned"].samples[0] > 0.75 * size / 4 / rate
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


CHECK = """
from benchmarks.checkpoint.spec import Checkpoint
from suites.needs import needs

@needs(lambda cluster: Checkpoint(directory={directory!r}, repetitions=400, contents="weights", limit_s={limit_s}))
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


def start(tmp_path: Path, directory: Path, *, limit_s: float) -> tuple[Checkout, subprocess.Popen[str]]:
    """A campaign of a checkpoint that saves until something happens, and then a good benchmark."""
    checkout = Checkout(tmp_path / "checkout")
    checkout.cluster(LIMIT)
    checkout.plant("good")
    (checkout.folder / "suites" / "test_checkpoint.py").write_text(
        CHECK.format(directory=str(directory), limit_s=limit_s)
    )
    process = checkout.start()
    deadline = time.monotonic() + 60
    while not list(directory.glob(f"{PREFIX}*/step-1-*")):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return checkout, process


def test_a_rank_killed_in_the_middle_of_a_save_is_named_and_its_folder_removed_by_the_next_run(tmp_path: Path):
    directory = tmp_path / "checkpoints"
    directory.mkdir()
    checkout, process = start(tmp_path, directory, limit_s=60.0)
    os.kill(max(ranks_of(checkout.folder)), signal.SIGKILL)
    finished = checkout.finish(process)
    assert finished.code == 3
    assert "SIGKILL" in finished.output
    assert statuses(finished) == {"checkpoint.save.time": {"error"}, "planted.rate": {"pass"}}
    left = list(directory.iterdir())
    whole = [newest(folder) for folder in left]
    assert all(whole), "the previous checkpoint was there when the rank died"
    got = on_ranks(2, lambda world: measured(world, directory, repetitions=1, writers=("aligned",)))[0]
    assert got["load.wrong_tensors aligned"].samples == (0.0,)
    assert list(directory.iterdir()) == []


def test_a_frozen_file_system_costs_only_its_own_benchmark(tmp_path: Path, disk: Callable[[int], Path]):
    directory = disk(96 * MIB)
    checkout, process = start(tmp_path, directory, limit_s=30.0)
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
