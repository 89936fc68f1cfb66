"""Checkpoints in a row, by plain writes, until no cache can hide the storage: so long, or three times what it holds.

A burst buffer, a cloud volume's credits or a disk's fast cells take the first checkpoints and not the tenth. The
rate that counts is that of the last third; how much of the first third's rate it keeps tells that something filled.

    rows = in_a_row(spec, world, folder, state, tools)
    last_third(rows)        # what the gate judges
"""

from __future__ import annotations

import shutil
import statistics
import time
from pathlib import Path

import torch

from benchmarks.checkpoint.save import Saved, save
from benchmarks.checkpoint.spec import Checkpoint
from benchmarks.checkpoint.state import State
from benchmarks.checkpoint.writers import Tools, write_plain
from benchmarks.world import World

CACHES = 3  # times the servers' cache is more than it can hide
BLOCK_WORDS = 512  # of 8 bytes: 4 KiB


def in_a_row(spec: Checkpoint, world: World, folder: Path, state: State, tools: Tools) -> list[Saved]:
    """Saves by plain writes, one after another, at least `spec.in_a_row`; the two newest stay.

    They end once they took `sustain_s` seconds, or where the servers' cache is known have written CACHES times as
    much. Between them `pause_s` passes, and every 4 KiB of the state changes, so that no two are alike.
    """
    rows: list[Saved] = []
    while not enough(spec, rows):
        if rows:
            stamp(state)
            time.sleep(spec.pause_s)
        rows.append(save(state, folder / f"row-{len(rows)}", world, write=write_plain, tools=tools))
        if world.is_first and len(rows) > 2:
            shutil.rmtree(folder / f"row-{len(rows) - 3}")
    if world.is_first:
        for number in range(max(0, len(rows) - 2), len(rows)):
            shutil.rmtree(folder / f"row-{number}")
    world.barrier()
    return rows


def enough(spec: Checkpoint, rows: list[Saved]) -> bool:
    """Whether so many saves, seconds or bytes have been seen that a cache is no explanation."""
    if len(rows) < spec.in_a_row:
        return False
    long = sum(row.seconds for row in rows) >= spec.sustain_s
    written = sum(sum(row.files.values()) for row in rows)
    return long or (spec.server_cache_bytes > 0 and written >= CACHES * spec.server_cache_bytes)


def last_third(rows: list[Saved]) -> list[Saved]:
    """The saves that count: the last third of them, one at least."""
    return rows[-max(1, len(rows) // 3) :]


def kept(rows: list[Saved]) -> float:
    """The last third's rate as a share of the first third's: well below 1 where something filled up."""
    first = statistics.median(row.seconds for row in rows[: max(1, len(rows) // 3)])
    return first / statistics.median(row.seconds for row in last_third(rows))


def stamp(state: State) -> None:
    """Change one word in every 4 KiB of the state: cheap, and no block stays what it was."""
    for part in state.saved_parts():
        whole = part.numel() // 8 * 8
        part[:whole].view(torch.int64)[::BLOCK_WORDS].add_(1)
