"""One rank: dials the controller, joins the others, measures what it is told, sends records back.

Started by a launcher as `python -m benchmarks.worker`. The main thread measures; a second thread listens, so
that a rank whose main thread hangs in a collective still says where. An exception ends only its benchmark:
it is sent, and the rank waits for what the controller decides. When the controller goes away, so do we.
"""

from __future__ import annotations

import functools
import os
import queue
import shutil
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from benchmarks import diagnosis, introduction, scratch
from benchmarks.control import ADDRESS, KEY, Channel, Message, dial
from benchmarks.launch.identity import identify
from benchmarks.measurement import Config, Measurement, Subject, decode, encode, now
from benchmarks.ports import ports
from benchmarks.spec import from_config, load_run, to_place

if TYPE_CHECKING:
    from benchmarks.world import World

T = TypeVar("T")
ORPHANED = 75  # exit status of a rank whose controller is gone
NEW_BRACKET_S = 0.05  # work of this length since the last snapshot has conditions of its own


def main() -> int:
    """Serve one controller until it says stop. Returns the exit status."""
    begun = time.monotonic()
    identity = identify(os.environ)
    os.environ.update(identity.variables())
    channel = dial(os.environ[ADDRESS], os.environ[KEY])
    handle = diagnosis.arm()
    with channel.free_port() as meeting_point:
        channel.send(
            "hello", rank=identity.rank, node=socket.gethostname(), handle=handle.to_dict(),
            meeting_point=meeting_point.getsockname()[:2], facts={} if identity.local_rank else introduction.facts(),
        )  # fmt: skip
        inbox: queue.Queue[Message] = queue.Queue()
        threading.Thread(target=_listen, args=(channel, inbox, threading.get_ident()), daemon=True).start()
        start = inbox.get()
    address, port = start["master"]  # rank 0's, unless the launcher has made a meeting point of its own
    if "MASTER_ADDR" not in os.environ:
        os.environ.update(MASTER_ADDR=address, MASTER_PORT=str(port))
    own = scratch.make(start["token"])
    try:
        world = _reporting(channel, lambda: _join(channel, start, own, begun))
        _serve(channel, inbox, world)
    finally:
        shutil.rmtree(own, ignore_errors=True)
    return 0


def measure(config: Config, world: World, *, attempt: int = 1) -> Iterator[Measurement]:
    """Run one config on this rank: its Measurements with config, attempt, time and conditions filled in.

    Measurements that come in a burst were measured together, so they share the conditions of their work.
    The first rank of each node closes with one "conditions" measurement over the whole benchmark.
    """
    from benchmarks import conditions  # reads drivers: not wanted by who only imports the worker

    spec, _ = from_config(config)
    look = conditions.snapshot if world.device.type == "cuda" else functools.partial(conditions.snapshot, ask=None)
    begin = before = look()
    started, bracket = now(), None
    for measurement in load_run(config.benchmark)(spec, world):
        if bracket is None or time.monotonic() - before.at >= NEW_BRACKET_S:
            after = look()
            bracket, at, before, started = conditions.delta(before, after), started, after, now()
        found = {**bracket, **measurement.conditions}
        yield replace(measurement, config=config.id, attempt=attempt, started_at=at, conditions=found)
    if world.rank == world.local_ranks[0]:
        yield Measurement(
            metric="conditions", unit="1", better="equal", config=config.id, attempt=attempt, started_at=started,
            subject=Subject(group="node", node=world.node), conditions=conditions.delta(begin, look()),
        )  # fmt: skip


def _join(channel: Channel, start: Message, own: str, begun: float) -> World:
    from benchmarks.environment import read_environment  # torch: imported after the hello, so that a slow
    from benchmarks.world import open_world  # import is told from a rank that never started

    imported = time.monotonic()
    world = open_world(to_place(start["place"]), timeout_s=start["timeout_s"], scratch=own)
    environment = ""
    if world.rank == world.local_ranks[0]:
        environment = encode(read_environment(world, start["launch"]))
    channel.send(
        "ready", environment=environment, import_s=imported - begun, group_s=time.monotonic() - imported,
        nodes=list(world.nodes),
    )  # fmt: skip
    return world


def _serve(channel: Channel, inbox: queue.Queue[Message], world: World | None) -> None:
    """Run batches until the controller says stop; without a world, only wait for that."""
    import torch.distributed as dist

    while (message := inbox.get())["kind"] != "stop":
        if world is not None:
            which = {"config": decode(Config, message["config"]).id, "attempt": message["attempt"]}
            _reporting(channel, functools.partial(_batch, channel, message, world), **which)
    if dist.is_initialized():
        dist.destroy_process_group()


def _batch(channel: Channel, message: Message, world: World) -> None:
    config, attempt = decode(Config, message["config"]), message["attempt"]
    begin = time.monotonic()
    for measurement in measure(config, world, attempt=attempt):
        channel.send("record", config=config.id, attempt=attempt, line=encode(measurement))
    channel.send("done", config=config.id, attempt=attempt, seconds=time.monotonic() - begin)


def _reporting(channel: Channel, work: Callable[[], T], **which: Any) -> T | None:
    """What `work` returns; an exception is sent to the controller, which decides what becomes of the launch."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - the rank's boundary: any failure of a benchmark is reported
        reason = f"{type(error).__name__}: {error}"
        channel.send("failed", reason=reason, stack=traceback.format_exc(), ports=ports(), **which)
        return None


def _listen(channel: Channel, inbox: queue.Queue[Message], main_thread: int) -> None:
    """Answer `diagnose` at once; hand everything else to the main thread."""
    token = ""
    while True:
        try:
            message = channel.receive()
        except (EOFError, OSError):
            if token:
                shutil.rmtree(scratch.folder(token), ignore_errors=True)
            os._exit(ORPHANED)  # nobody will read what we measure; the main thread may hang in a collective
        token = message.get("token", token)
        if message["kind"] == "diagnose":
            channel.send("report", of=message["of"], **_look(message, main_thread))
        else:
            inbox.put(message)


def _look(message: Message, main_thread: int) -> dict[str, Any]:
    handle = diagnosis.Handle(**message["handle"])
    if handle.pid == os.getpid():
        return diagnosis.myself(main_thread).to_dict()
    return diagnosis.examine(handle).to_dict()


if __name__ == "__main__":
    sys.exit(main())
