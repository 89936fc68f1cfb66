"""Nodes that are known to be bad: shown with every run, left out of fleet medians, never forgotten.

The file is TOML, one table a node, and belongs to whoever runs the cluster (`[campaign] known_bad` names it):

    [n17]
    owner = "rack team"
    ticket = "HW-1234"
    expires = 2026-12-24
    reason = "NIC 3 negotiates 200G"
    wrong_data = false            # true: it is known to spoil data too; without, that still wakes people

An entry that has expired no longer excuses anything: the node counts again, and the entry is shown until it is removed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

FIELDS = ("owner", "ticket", "expires", "reason", "wrong_data")


class KnownBadError(ValueError):
    """A file of known-bad nodes that cannot be read; one line with the cure."""


@dataclass(frozen=True, kw_only=True)
class KnownBad:
    """One node, who looks after it, and until when that is an answer."""

    node: str
    owner: str
    ticket: str
    expires: date
    reason: str = ""
    wrong_data: bool = False  # known to spoil data, too

    def counts(self, today: date) -> bool:
        """Whether the entry still holds."""
        return today <= self.expires

    def line(self, today: date) -> str:
        """n17 is known to be bad: NIC 3 ... (HW-1234, rack team, until 2026-12-24)."""
        until = f"until {self.expires}" if self.counts(today) else f"EXPIRED on {self.expires}: the node counts again"
        why = f": {self.reason}" if self.reason else ""
        return f"{self.node} is known to be bad{why} ({self.ticket}, {self.owner}, {until})"


def load(path: Path) -> tuple[KnownBad, ...]:
    """The entries of a file. KnownBadError where it is not there, or an entry is not whole."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise KnownBadError(f"cannot read the known-bad nodes {path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise KnownBadError(f"{path}: {error}") from None
    found = []
    for node, table in tables.items():
        if not isinstance(table, dict):
            raise KnownBadError(f"{path}: {node} = ...: write a table, [{node}], with {', '.join(FIELDS)}")
        if unknown := set(table) - set(FIELDS):
            raise KnownBadError(f"{path} [{node}]: unknown {', '.join(sorted(unknown))}; there are {', '.join(FIELDS)}")
        if missing := [name for name in FIELDS[:3] if not table.get(name)]:
            raise KnownBadError(f"{path} [{node}]: {', '.join(missing)} missing: nobody would ever look at it again")
        if type(table["expires"]) is not date:  # a time of day is a date to Python, and compares with none
            raise KnownBadError(f"{path} [{node}] expires: a date without quotes, such as 2026-12-24")
        if not isinstance(table.get("wrong_data", False), bool):
            raise KnownBadError(f"{path} [{node}] wrong_data: true or false, without quotes")
        found.append(KnownBad(node=node, **table))
    return tuple(found)


def excused(entries: Iterable[KnownBad], names: Sequence[str], *, today: date) -> tuple[str, ...]:
    """Of these nodes, those that are left out of fleet medians today."""
    bad = {entry.node for entry in entries if entry.counts(today)}
    return tuple(name for name in names if name in bad)
