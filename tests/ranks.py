"""Real ranks for tests: processes forked from this one, joined over gloo on loopback.

A fork starts in milliseconds where a launch from nothing imports torch once per rank. The children use one
thread each, end with `_exit`, and are ended by their own pids when the deadline passes.

    assert on_ranks(2, lambda world: world.gather(world.rank)) == [[0, 1], [0, 1]]
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import time
import traceback
from collections.abc import Callable
from typing import Any

DEADLINE_S = 60.0


def on_ranks(count: int, work: Callable[..., Any], *, deadline_s: float = DEADLINE_S, **place: Any) -> list[Any]:
    """What `work(world)` returns on each of `count` ranks, in rank order.

    `place` are further fields of the Place. Fails with the ranks' tracebacks, or names the ranks that did
    not end in time.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place = {"ranks_per_node": count, **place}
    children = [_fork(rank, count, port, work, place) for rank in range(count)]
    answers: dict[int, bytes] = {}
    end = time.monotonic() + deadline_s
    try:
        buffers = {pipe: bytearray() for _, pipe in children}
        ranks = {pipe: rank for rank, (_, pipe) in enumerate(children)}
        while ranks and (left := end - time.monotonic()) > 0:
            for pipe in select.select(list(ranks), [], [], left)[0]:
                if chunk := os.read(pipe, 1 << 20):
                    buffers[pipe] += chunk
                else:
                    answers[ranks.pop(pipe)] = bytes(buffers[pipe])
        late = sorted(ranks.values())
    finally:
        for pid, pipe in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(pipe)
    assert not late, f"ranks {late} did not end within {deadline_s} s"
    outcomes = [pickle.loads(answers[rank]) if answers[rank] else (False, "died") for rank in range(count)]
    failed = [f"rank {rank}: {what}" for rank, (well, what) in enumerate(outcomes) if not well]
    assert not failed, "\n".join(failed)
    return [what for _, what in outcomes]


def _fork(rank: int, count: int, port: int, work: Callable[..., Any], place: dict[str, Any]) -> tuple[int, int]:
    """Start one rank; its pid and the pipe that its answer comes through."""
    read, write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write)
        return pid, read
    os.close(read)
    answer: tuple[bool, Any] = (False, "no answer")
    try:
        answer = (True, _work(rank, count, port, work, place))
        pickled = pickle.dumps(answer)
    except BaseException:  # noqa: BLE001  the child's last boundary: whatever it was, the test must see it
        pickled = pickle.dumps((False, traceback.format_exc()))
    with os.fdopen(write, "wb") as pipe:
        pipe.write(pickled)
    os._exit(0)


def _work(rank: int, count: int, port: int, work: Callable[..., Any], place: dict[str, Any]) -> Any:
    import torch
    import torch.distributed as dist

    from benchmarks.spec import Place
    from benchmarks.world import open_world

    torch.set_num_threads(1)
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(count), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )
    world = open_world(Place(**place), timeout_s=DEADLINE_S)
    result = work(world)
    world.barrier()
    dist.destroy_process_group()
    return result
