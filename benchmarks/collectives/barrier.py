"""A barrier as an operation: nothing to fill, verified by whether anybody left before everybody came.

Each member counts itself in at the job's store, then enters; once out, it reads the count. One member, another
each time, comes late on purpose, so that a barrier which lets others through is caught. No clock decides.
"""

from __future__ import annotations

import time
from functools import partial

import torch
import torch.distributed as dist

from benchmarks.collectives.operations import Slot
from benchmarks.collectives.pattern import Wrong
from benchmarks.collectives.teams import Team

LATE_S = 0.002  # by which one member comes late to a checked barrier; tens of round trips


class Barrier:
    """The barrier of one team, with the interface of `Operation`. `key` names its counter in the store: a fresh one."""

    def __init__(self, *, team: Team, key: str, num_slots: int) -> None:
        self.team = team
        empty, call = torch.empty(0), partial(dist.barrier, group=team.group)
        self.slots = [Slot(source=empty, output=empty, call=call) for _ in range(num_slots)]
        self.key = key
        self.store = dist.distributed_c10d._get_default_store()
        self.checks = 0

    def prepare(self, first_iteration: int) -> None:
        """Nothing to fill."""

    def verify(self, first_iteration: int) -> Wrong:
        """One checked barrier; its count is 1 where this member left before the last one came."""
        members = len(self.team.ranks)
        if self.team.place == self.checks % members:
            time.sleep(LATE_S)
        self.store.add(self.key, 1)
        self.slots[0].call()
        came = self.store.add(self.key, 0)
        self.checks += 1
        if came >= self.checks * members:
            return Wrong()
        early = {"came": came - (self.checks - 1) * members, "of": members, "iteration": first_iteration}
        return Wrong(count=1, first=early)

    def capture(self) -> None:
        """Refuses: a barrier blocks the host, so there is nothing to replay."""
        raise RuntimeError("collectives: a barrier cannot be a CUDA graph; leave graph out")
