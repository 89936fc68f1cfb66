"""What a cluster costs: the table [prices] of a cluster file, dated and with its source.

    [prices]
    currency = "USD"
    rents = [8000, 2400]        # an hour of all nodes of this file, each an offer
    buy = 6_200_000             # once
    keep = 120_000              # a month: power, space, people
    hours_a_day = 20            # that it is used
    source = "contract 17, page 4"
    date = 2026-11-30

Prices judge nothing. What they amount to is worked out in `reports/money.py`.

>>> fields = {"rents": [10], "currency": "EUR", "source": "quote 7", "date": "2026-11-30"}
>>> prices(Table(where="x.toml [prices]", fields=fields), nodes=2).rents
(10.0,)
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from clusters.table import Table


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Prices in one currency, and what they are worked out with. 0: not given."""

    currency: str = ""  # empty where the source names none
    rents: tuple[float, ...] = ()  # an hour of all `nodes`
    buy: float = 0.0  # all `nodes`, once
    keep: float = 0.0  # a month of owning them
    hours_a_day: float = 24.0  # that they are used, and that a rent is paid for
    nodes: int = 1  # that the prices are for
    tokens: float = 1.5e12  # of one training
    mfu: float = 0.0  # share of the dense peak that was promised
    goodput: float = 0.0  # share of the time that makes progress; 0: as measured, else all of it
    source: str = ""
    date: str = ""


def prices(table: Table, *, nodes: int) -> Prices | None:
    """The prices of a table; None where it is empty. ClusterError for what cannot be a price.

    `nodes` is what the file is written for: a price is of all of them, unless the table says another number.
    """
    if not table.fields:
        return None
    table.only(field.name for field in dataclasses.fields(Prices))
    found = Prices(
        currency=table.stated("currency", example="USD") if "currency" in table.fields else "",
        rents=_rents(table),
        **{name: table.positive(name, 1.0) for name in ("buy", "keep") if name in table.fields},
        hours_a_day=_at_most(table, "hours_a_day", 24.0, 24.0),
        nodes=table.count("nodes", nodes),
        tokens=table.positive("tokens", Prices.tokens),
        **{name: _at_most(table, name, 1.0, 1.0) for name in ("mfu", "goodput") if name in table.fields},
        source=table.stated("source", example="contract 17, page 4"),
        date=str(table.day("date")),
    )
    if not found.rents and not found.buy:
        raise table.error("no price: give rents = [8000] (an hour of all nodes), buy = 6_200_000, or both")
    if found.keep and not found.buy:
        raise table.error("keep without buy: say what the cluster costs once, buy = 6_200_000")
    return found


def _rents(table: Table) -> tuple[float, ...]:
    rents = table.fields.get("rents", [])
    if not isinstance(rents, list):
        raise table.error(f"rents = {rents!r} must be a list: rents = [8000]")
    return tuple(Table(where=table.where, fields={"rents": rent}).positive("rents", 0.0) for rent in rents)


def _at_most(table: Table, key: str, default: float, most: float) -> float:
    value = table.positive(key, default)
    if value > most:
        cure = "a share: 0.52 means 52 %" if most == 1.0 else f"at most {most:g}"
        raise table.error(f"{key} = {value:g} must be {cure}")
    return value
