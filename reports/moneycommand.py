"""`money RUN`: a run's bill on the terminal, at the prices of its cluster file or of the command line.

python -m reports money RUN
python -m reports money RUN --hour 8000 --tokens 1.5e12 --buy 6.2e6 --keep 120e3 --hours-a-day 20
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from tabulate import tabulate

from clusters.prices import Prices
from reports import runs
from reports.money import Bill, Trained, amount, amount_of_tokens, months, terms, worked_out
from reports.quantities import digits, share
from reports.runs import RunError, StoredRun
from reports.statistics import Estimate

OPTIONS = ("buy", "keep", "hours_a_day", "tokens", "mfu", "goodput")


def prices_of(stored: StoredRun, options: argparse.Namespace) -> Prices:
    """The cluster file's prices, with what the command line says instead. RunError where neither names one."""
    given = {name: value for name in OPTIONS if (value := getattr(options, name)) is not None}
    if options.hour:
        given["rents"] = tuple(options.hour)
    filed = stored.cluster.prices
    if filed is None and not given.keys() & {"rents", "buy"}:
        raise RunError(
            f"no prices: {stored.folder}/cluster.toml has no [prices], so give --hour PRICE (of all its nodes), "
            "and --buy PRICE to compare; docs/cluster-files.md says how a file names them"
        )
    prices = dataclasses.replace(filed or Prices(nodes=stored.run.nodes), **given)
    if prices.keep and not prices.buy:
        raise RunError("--keep without --buy: say what the cluster costs once, --buy PRICE")
    if not given.keys() & {"rents", "buy", "keep"}:
        return prices
    source = "the command line" if filed is None else f"the command line, else {filed.source}"
    return dataclasses.replace(prices, source=source, date="")


def text(bill: Bill) -> str:
    """The bill as text: what was measured costs, what is missing costs, rent or buy, and what was assumed."""
    currency = bill.prices.currency
    parts = [_of_training(trained, bill) for trained in bill.trained]
    if not bill.trained:
        parts.append("no training was measured: what tokens cost is not known")
    if bill.points:
        head = ("a percentage point of MFU below " + share(bill.prices.mfu), "a month")
        rows = [(f"at {amount(rent, currency)} an hour", amount(cost, currency)) for rent, cost in bill.points]
        parts.append(_table(rows, head))
    if bill.even:
        head = ("renting against owning", "buying is cheaper after")
        rows = [(f"at {amount(rent, currency)} an hour", months(after)) for rent, after in bill.even]
        parts.append(_table(rows, head))
    dated = f" ({bill.prices.source}{', ' + bill.prices.date if bill.prices.date else ''})"
    parts.append(f"prices: {terms(bill.prices)}{dated}")
    parts.append("assumed: " + "; ".join(bill.assumed))
    return "\n\n".join(parts)


def _of_training(trained: Trained, bill: Bill) -> str:
    currency, tokens = bill.prices.currency, amount_of_tokens(bill.prices.tokens)
    said = f"{trained.title}: {digits(trained.rate.median)} tokens/s of {bill.nodes} nodes"
    if trained.mfu is not None:
        said += f", {share(trained.mfu)} MFU"
    days = f"{tokens} of {trained.model} take {_between(trained.days, digits)} days of 24 hours"
    rows = [
        (
            f"at {amount(offer.hour, currency)} an hour",
            _between(offer.million, amount),
            _between(offer.cost, amount),
            "–" if offer.lost is None else amount(offer.lost),
        )
        for offer in trained.offers
    ]
    head = ("", "a million tokens", tokens, "MFU that is missing, a month")
    return "\n".join([said, days, *([_table(rows, head)] if rows else [])])


def _between(value: Estimate, shown: Callable[[float], str]) -> str:
    """The middle, and both ends where they differ."""
    middle, low, high = (shown(v) for v in (value.median, value.low, value.high))
    return middle if low == high else f"{middle} ({low} to {high})"


def _table(rows: Sequence[Sequence[str]], head: tuple[str, ...]) -> str:
    align = ("left", *["right"] * (len(head) - 1))
    made: str = tabulate(rows, headers=head, tablefmt="simple", disable_numparse=True, colalign=align)
    return made


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register `money`."""
    words = "what the measured speed costs: per million tokens, per training; rent or buy"
    parser = commands.add_parser(
        "money",
        help=words,
        description=f"{words}. Prices are those of the table [prices] in the cluster file; options stand instead.",
    )
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument(
        "--hour", type=_positive, action="append", metavar="PRICE", help="rent of all nodes; again for another offer"
    )
    parser.add_argument("--tokens", type=_positive, metavar="N", help="of the training (1.5e12)")
    parser.add_argument("--goodput", type=_share_of, metavar="SHARE", help="of the time that counts (as measured)")
    parser.add_argument("--mfu", type=_share_of, metavar="SHARE", help="the MFU that was promised")
    parser.add_argument("--buy", type=_positive, metavar="PRICE", help="of all nodes, once")
    parser.add_argument("--keep", type=_positive, metavar="PRICE", help="of a month of owning them")
    parser.add_argument("--hours-a-day", type=_hours, metavar="H", help="that they are used (24)")
    parser.set_defaults(command=_run)


def _positive(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text} is no positive number")
    return value


def _share_of(text: str) -> float:
    value = _positive(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f"{text} is no share: 0.52 means 52 %")
    return value


def _hours(text: str) -> float:
    value = _positive(text)
    if value > 24:
        raise argparse.ArgumentTypeError(f"{text}: a day has 24 hours")
    return value


def _run(options: argparse.Namespace) -> int:
    stored = runs.load(options.run)
    print(text(worked_out(stored, prices_of(stored, options))))
    return 0
