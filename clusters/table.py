"""One TOML table, read field by field, with errors that name the file, the table and the cure.

Why: a cluster file is written by hand, under pressure, by someone who did not write this suite. Not here:
what the fields mean; `clusters/loader.py` knows that.

>>> Table(where="x.toml [network]", fields={"nic_rate": 50e9}).number("nic_rate")
50000000000.0
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from clusters.limits import Scalar

PLACEHOLDERS = ("", "tbd", "todo", "fixme", "xxx", "?", "??", "???", "n/a", "na", "none", "unknown", "-", ".", "...")


class ClusterError(ValueError):
    """A cluster file that cannot be used: one line that says where, what and the cure."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """The fields of one TOML table and its place in the file, for messages."""

    where: str  # "clusters/local.toml [limits.exact]"
    fields: dict[str, Any]

    def error(self, problem: str) -> ClusterError:
        """A ClusterError that says where `problem` is."""
        return ClusterError(f"{self.where}: {problem}")

    def only(self, known: Iterable[str]) -> Table:
        """This table, or ClusterError for a key that is not `known`, with the nearest one."""
        known = tuple(known)
        for key in self.fields:
            if key not in known:
                raise self.error(f"unknown key {key!r}{near(key, known)}; known: {', '.join(known)}")
        return self

    def table(self, key: str) -> Table:
        """The sub-table `key`; empty where it is absent."""
        value = self.fields.get(key, {})
        if not isinstance(value, dict):
            raise self.error(f"{key} = {value!r} must be a table: write [{key}]")
        return Table(where=f"{self.where} [{key}]", fields=value)

    def tables(self, key: str) -> dict[str, Table]:
        """The named tables [key.NAME]."""
        outer = self.table(key)
        for name, value in outer.fields.items():
            if not isinstance(value, dict):
                raise outer.error(f"{name} = {value!r} must be a table: write [{key}.{name}]")
        return {n: Table(where=f"{self.where} [{key}.{n}]", fields=v) for n, v in outer.fields.items()}

    def text(self, key: str, default: str = "") -> str:
        """A string."""
        value = self.fields.get(key, default)
        if not isinstance(value, str):
            raise self.error(f'{key} = {value!r} must be text: {key} = "..."')
        return value

    def stated(self, key: str, *, example: str) -> str:
        """A string that must be there and say something: no placeholder."""
        value = self.text(key).strip()
        if key not in self.fields:
            raise self.error(f'no {key}: add one, such as {key} = "{example}"')
        if value.lower().strip(" .!") in PLACEHOLDERS:
            raise self.error(f'{key} = "{value}" is a placeholder: say it, such as {key} = "{example}"')
        return value

    def number(self, key: str, default: float = 0.0) -> float:
        """A finite number."""
        value = self.fields.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(f"{key} = {value!r} must be a number")
        if not math.isfinite(value):
            raise self.error(f"{key} = {value} is no number to compare with: write a finite one")
        return float(value)

    def positive(self, key: str, default: float) -> float:
        """A number above zero."""
        value = self.number(key, default)
        if value <= 0:
            raise self.error(f"{key} = {value:g} must be above zero")
        return value

    def count(self, key: str, default: int) -> int:
        """A whole number from 1 on."""
        value = self.fields.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(f"{key} = {value!r} must be a whole number")
        if value < 1:
            raise self.error(f"{key} = {value} must be at least 1")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self.fields.get(key, default)
        if not isinstance(value, bool):
            raise self.error(f"{key} = {value!r} must be true or false")
        return value

    def scalars(self, key: str) -> dict[str, Scalar]:
        """An inline table of plain values: { bytes = 1024, dtype = "float32" }."""
        value = self.fields.get(key, {})
        if not isinstance(value, dict):
            raise self.error(f'{key} = {value!r} must be a table of plain values: {key} = {{ dtype = "float32" }}')
        for name, inner in value.items():
            if not isinstance(inner, str | int | float):
                raise self.error(f"{key}.{name} = {inner!r} must be one text, number, true or false")
        return value

    def day(self, key: str) -> date:
        """A date, as TOML's own 2026-12-31 or as text."""
        value = self.fields.get(key)
        if type(value) is date:
            return value
        try:
            return date.fromisoformat(str(value))
        except ValueError:
            shown = f"no {key}" if value is None else f"{key} = {str(value)!r} is no date"
            raise self.error(f"{shown}: write {key} = 2026-12-31") from None


def read(path: Path) -> tuple[bytes, Table]:
    """The bytes of a TOML file and its top table. ClusterError names the file, and the line where it is broken."""
    try:
        content = path.read_bytes()
        return content, Table(where=str(path), fields=tomllib.loads(content.decode()))
    except OSError as error:
        raise ClusterError(f"{path}: cannot be read ({error.strerror}): check the path and its permissions") from None
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ClusterError(f"{path}: line {line} is not UTF-8 text: save the file as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ClusterError(f"{path}: not valid TOML: {error}; correct that line, or delete it") from None


def near(name: str, known: Iterable[str]) -> str:
    """The words (do you mean 'floor'?) after a space, or nothing where no known name is close."""
    close = get_close_matches(name, list(known), n=2, cutoff=0.6)
    return f" (do you mean {' or '.join(repr(c) for c in close)}?)" if close else ""
