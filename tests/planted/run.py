"""Measure nothing, honestly or not: what each planted cause does on its rank."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.planted.spec import Planted

from benchmarks.measurement import Measurement
from benchmarks.world import World

ORPHAN = "import socket, time; s = socket.socket(); s.bind(('', 0)); s.listen(); time.sleep(120)"
GOOD = (1e9, 1.01e9, 0.99e9, 1e9, 1e9, 1.02e9, 0.98e9, 1e9)


def run(spec: Planted, world: World) -> Iterator[Measurement]:
    """Every rank yields a rate and a time; `on_rank` yields what the cause makes of them."""
    rate, seconds = spec.emits(world.place)
    world.barrier()
    if spec.cause == "talks":
        talk(world, seconds=6.0)
    mine = world.rank == spec.on_rank
    if mine:
        happen(spec.cause)
    if not (mine and spec.cause == "absent"):
        samples = SAMPLES.get(spec.cause, GOOD) if mine else GOOD
        once = samples
        if spec.cause == "noisy once" and mine:  # the first attempt straddles the limit, later ones do not
            once = SAMPLES["noisy"] if first_time("noisy") else GOOD * 40
        record = rate.measured(*once, subject=world.me())
        yield ALTERED.get(spec.cause, lambda m: m)(record) if mine else record
    if mine and spec.cause == "slow and noisy once":  # one number fails while the other is noisy at first
        yield seconds.measured(*(NOISY_SECONDS if first_time("time") else (0.1,) * 40), subject=world.me())
    else:
        yield seconds.measured(*(1 / s for s in GOOD), subject=world.me())
    if mine and spec.cause.endswith(" at the end"):
        happen(spec.cause.removesuffix(" at the end"))
    if mine and spec.cause == "leaves out":  # what all others now wait for
        return
    world.barrier()


def talk(world: World, *, seconds: float) -> None:
    """All ranks exchange something over and over: a benchmark that a fault can hit in the middle."""
    end = time.monotonic() + seconds
    while min(world.gather(time.monotonic() < end)):
        time.sleep(0.02)


def happen(cause: str) -> None:
    """What befalls the rank before it measures."""
    if cause == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if cause == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if cause == "asleep":
        time.sleep(60)
    if cause == "raises":
        raise RuntimeError("planted: this benchmark raises")
    if cause == "exits":
        os._exit(7)
    if cause == "killed once" and first_time("killed"):
        os.kill(os.getpid(), signal.SIGKILL)
    if cause == "orphan":
        subprocess.Popen([sys.executable, "-c", ORPHAN], start_new_session=True)
    if cause == "slow start":
        time.sleep(3)


def first_time(what: str) -> bool:
    """True once per checkout: planted faults that heal."""
    mark = Path(__file__).with_name(f"{what}.mark")
    if mark.exists():
        return False
    mark.touch()
    return True


NOISY_SECONDS = (0.2, 1.9, 0.3, 1.8, 0.2, 2.0, 0.3, 1.9)  # the limit is 1 s
SAMPLES = {
    "slow and noisy once": tuple(s / 10 for s in GOOD),
    "slow": tuple(s / 10 for s in GOOD),
    "noisy": (0.2e9, 1.5e9, 0.3e9, 1.4e9, 0.25e9, 1.6e9, 0.2e9, 1.5e9),
    "nan": (*GOOD[:-1], math.nan),
    "infinite": (*GOOD[:-1], math.inf),
    "impossible": tuple(s * 1e6 for s in GOOD),
    "negative": (*GOOD[:-1], -1e9),
    "empty": (),
    "waived": tuple(s / 10 for s in GOOD),
    "expired": tuple(s / 10 for s in GOOD),
    "advisory": tuple(s / 10 for s in GOOD),
}

ALTERED: dict[str, Callable[[Measurement], Measurement]] = {
    "other rank": lambda m: replace(m, subject=replace(m.subject, rank=0)),
    "throttled": lambda m: replace(m, conditions={"disqualified": "thermal slowdown on gpu0"}),
    "other unit": lambda m: replace(m, unit="bit/s"),
    "same rank": lambda m: replace(m, subject=replace(m.subject, rank=0)),
    "error record": lambda m: replace(m, samples=(), outcome="error", reason="planted: could not be read"),
}
