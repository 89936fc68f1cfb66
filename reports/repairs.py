"""Repairs: what people say they did to a node, and what the serials say was swapped or moved.

    python -m reports repair node7 --what "GPU 3 replaced" --by "A. Lovelace" --history runs

Each entry is a file of its own in `repairs/` beside the runs, made in one step, so that two people on two hosts lose
nothing; none is ever rewritten. A part that is at another place than the night before is an event without anybody's
word. Whether a repair helped is told by the nights before it and after it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from benchmarks.measurement import Event, now
from reports import journal
from reports.archive import Night
from reports.bootstrap import ratio_of_medians
from reports.runs import RunError, moment

FOLDER = "repairs"
AROUND = 7  # nights on each side that say whether it helped
LEAST = 3
SAME = 0.02


@dataclass(frozen=True, kw_only=True)
class Repair:
    """Something that was done to a node or a part."""

    at: datetime
    node: str
    what: str
    by: str = ""  # "" where only the serials say it
    serial: str = ""

    def line(self) -> str:
        """2026-11-20 node7: GPU 3 replaced (A. Lovelace)."""
        who = f" ({self.by})" if self.by else ""
        return f"{self.at:%Y-%m-%d} {self.node}: {self.what}{who}"


@dataclass(frozen=True, kw_only=True)
class Effect:
    """A number around a repair."""

    repair: Repair
    place: int  # the first night after it
    gain: float | None  # share; negative is worse; None where there are too few nights
    word: str  # better | worse | same | undecided | too few nights


def record(root: Path, repair: Repair) -> Path:
    """Keep a repair. RunError where the folder is none or it says nothing."""
    if not root.is_dir():
        raise RunError(f"{root}: no such folder of runs; name it with --history")
    if not (repair.node.strip() and repair.what.strip() and repair.by.strip()):
        raise RunError("say which node, what was done and who did it: repair NODE --what TEXT --by NAME")
    detail = {"node": repair.node, "what": repair.what, "by": repair.by, "serial": repair.serial}
    return journal.add(root / FOLDER, Event(kind="repair", at=repair.at.isoformat(), detail=detail))


def recorded(root: Path) -> list[Repair]:
    """The repairs that people told, oldest first. RunError for a file that does not read."""
    found = []
    for path, event in journal.entries(root / FOLDER):
        try:
            found.append(Repair(at=moment(event.at), **event.detail))
        except (RunError, TypeError) as error:
            raise journal.unreadable(path, error) from None
    return sorted(found, key=lambda repair: repair.at)


def seen(every: Sequence[Night]) -> list[Repair]:
    """What the serials say: parts that a place got, lost or exchanged since the last night that looked at it."""
    found: list[Repair] = []
    at: dict[tuple[str, str], str] = {}  # node and slot -> serial
    home: dict[str, tuple[str, str]] = {}  # serial -> node and slot
    for night in every:
        tonight = {(node, slot): serial for serial, (node, slot) in night.places.items()}
        for where, serial in sorted(tonight.items()):
            old, before = at.get(where), home.get(serial)
            if old not in (None, serial) or before not in (None, where):
                node, slot = where
                came = f", until then {' '.join(before)}" if before not in (None, where) and before else ""
                went = f" instead of {old}" if old not in (None, serial) else ""
                found.append(Repair(at=night.started, node=node, what=f"{slot} is {serial}{went}{came}", serial=serial))
            home[serial] = where
        at |= tonight
    return found


def concern(repairs: Sequence[Repair], *, node: str, serial: str) -> list[Repair]:
    """Those of one node, or of one part (also where it gave way to another), or all."""
    if serial:
        return [r for r in repairs if serial == r.serial or serial in r.what.replace(",", " ").split()]
    return [r for r in repairs if node in ("", r.node)]


def effects(
    repairs: Sequence[Repair], when: Sequence[datetime], values: Sequence[float], better: str
) -> Iterator[Effect]:
    """Each repair with the nights before and after it: up to AROUND of them, none beyond the next repair."""
    places = [sum(night < repair.at for night in when) for repair in repairs]
    for k, (repair, place) in enumerate(zip(repairs, places, strict=True)):
        begin = max([p for p in places[:k] if p < place], default=0)
        end = min([p for p in places[k + 1 :] if p > place], default=len(values))
        before, after = values[max(begin, place - AROUND) : place], values[place : min(end, place + AROUND)]
        if min(len(before), len(after)) < LEAST or min([*before, *after]) <= 0:
            yield Effect(repair=repair, place=place, gain=None, word="too few nights")
            continue
        ratio = ratio_of_medians([[list(before)]], [[list(after)]])
        low, high = (ratio.low, ratio.high) if better == "higher" else (1 / ratio.high, 1 / ratio.low)
        gain = (ratio.median if better == "higher" else 1 / ratio.median) - 1
        word = "better" if low > 1 else "worse" if high < 1 else "undecided"
        yield Effect(repair=repair, place=place, gain=gain, word="same" if max(high - 1, 1 - low) <= SAME else word)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register `repair`."""
    words = "note what was done to a node, so that its history shows whether it helped"
    parser = commands.add_parser("repair", help=words, description=words)
    add = parser.add_argument
    add("node", help="the node's name")
    add("--what", required=True, metavar="TEXT", help="what was done: 'GPU 3 replaced', 'cable of mlx5_2 reseated'")
    add("--by", required=True, metavar="NAME", help="who did it")
    add("--serial", default="", metavar="SN", help="of the part that it concerns")
    add("--at", default="", metavar="TIME", help="when, such as 2026-11-20T10:00+01:00 (now; without a zone, UTC)")
    add("--history", type=Path, default=Path("runs"), metavar="DIR", help="a folder of runs (runs)")
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    try:
        at = moment(options.at or now())
    except RunError:
        raise RunError(f"--at {options.at}: a time such as 2026-11-20T10:00+01:00") from None
    repair = Repair(at=at, node=options.node, what=options.what, by=options.by, serial=options.serial)
    print(f"{record(options.history, repair)}: {repair.line()}")
    return 0
