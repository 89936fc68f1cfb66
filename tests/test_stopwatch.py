"""Timing of calls: what a rank does next must not cost the others that are still inside."""

from __future__ import annotations

import time
from functools import partial

import pytest

from benchmarks.collectives.stopwatch import time_calls
from benchmarks.world import World
from tests.ranks import on_ranks

SLEEP_S = 0.4


def leave(world: World) -> tuple[list[float], float]:
    """Two calls, the last of which takes rank 1 long. Its durations, and when it was let go (one host, one clock)."""
    last = partial(time.sleep, SLEEP_S * world.rank)
    return time_calls([lambda: None, last], world=world), time.monotonic()


@pytest.mark.slow
def test_no_rank_goes_on_while_another_is_still_inside():
    (quick, left), (slow, ended) = on_ranks(2, leave)
    assert quick[1] < SLEEP_S / 2 < SLEEP_S <= slow[1]  # each rank's own duration, not the wait for the other
    assert abs(ended - left) < SLEEP_S / 2  # without the last barrier: a whole SLEEP_S apart
