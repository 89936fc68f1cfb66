"""What the measured speed costs: per million tokens, per training, per missing percent of MFU; rent or buy.

    python -m reports money RUN --hour 8000 --tokens 1.5e12 --buy 6.2e6 --keep 120e3 --hours-a-day 20

Prices are the reader's, in one currency, and are printed with the result. A month has 730.5 hours, 30.44 days.
Nothing is judged here.

>>> round(break_even_months(buy=6.2e6, keep=120e3, hour=8000, hours_a_day=20), 1)
1.3
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from tabulate import tabulate

from reports import runs
from reports.numbers import Number, numbers, title
from reports.quantities import digits
from reports.runs import RunError, StoredRun

HOURS_A_MONTH = 730.5
DAYS_A_MONTH = HOURS_A_MONTH / 24


def break_even_months(*, buy: float, keep: float, hour: float, hours_a_day: float) -> float:
    """Months after which buying is cheaper than renting; infinite where keeping costs as much as renting.

    `buy` is paid once, `keep` a month (power, space, people), `hour` is the rent of the same machine per hour used.
    """
    saved = hour * hours_a_day * DAYS_A_MONTH - keep
    return buy / saved if saved > 0 else math.inf


def per_million(*, hour: float, tokens_rate: float) -> float:
    """Cost of a million tokens at `tokens_rate` tokens a second of the whole machine."""
    return hour / 3600 / tokens_rate * 1e6


def training(*, hour: float, tokens_rate: float, tokens: float, goodput: float = 1.0) -> tuple[float, float]:
    """Days and cost of a training over so many tokens; `goodput` is the share of time that makes progress."""
    seconds = tokens / tokens_rate / goodput
    return seconds / 86400, seconds / 3600 * hour


def missing_percent(*, hour: float, mfu: float) -> float:
    """What one percentage point of MFU below `mfu` costs a month: the share of the rent that buys nothing.

    At MFU m the same work takes wanted / m as long, so each point of `wanted` is worth 0.01 / wanted of the spending.
    """
    return hour * HOURS_A_MONTH * 0.01 / mfu


def table(stored: StoredRun, options: argparse.Namespace) -> str:
    """Everything that can be said of a run, with what was assumed."""
    found = [n for n in numbers(stored) if n.expected.metric == "training.tokens_rate"]
    if not found:
        raise RunError(f"{stored.folder} measured no training.tokens_rate: nothing says how fast it trains")
    parts = [_of_training(number, options) for number in found]
    assumed = [f"the machine costs {options.hour:,.0f} an hour", f"{options.goodput:.0%} of the time makes progress"]
    if options.mfu:
        cost = missing_percent(hour=options.hour, mfu=options.mfu)
        parts.append(f"each percentage point of MFU below {options.mfu:.0%} costs {cost:,.0f} a month")
    if options.buy:
        months = break_even_months(
            buy=options.buy, keep=options.keep, hour=options.hour, hours_a_day=options.hours_a_day
        )
        when = f"after {months:.1f} months" if math.isfinite(months) else "never: keeping it costs as much as renting"
        parts.append(f"buying is cheaper than renting {when}")
        assumed.append(
            f"bought for {options.buy:,.0f} and {options.keep:,.0f} a month, rented for {options.hours_a_day:g} h a day"
        )
    return "\n\n".join([*parts, "assumed: " + "; ".join(assumed)])


def _of_training(number: Number, options: argparse.Namespace) -> str:
    rate = number.typical
    rows = []
    for name, tokens_rate in (("measured", rate.median), ("at the slow end", rate.low), ("at the fast end", rate.high)):
        days, cost = training(
            hour=options.hour, tokens_rate=tokens_rate, tokens=options.tokens, goodput=options.goodput
        )
        million = per_million(hour=options.hour, tokens_rate=tokens_rate)
        rows.append((name, f"{tokens_rate:,.0f}", digits(million), digits(days), f"{cost:,.0f}"))
    head = ("", "tokens/s", "a million tokens", "days", f"{options.tokens:.3g} tokens")
    text = tabulate(rows, headers=head, tablefmt="simple", disable_numparse=True, colalign=("left", *["right"] * 4))
    return f"{title(number.expected)}\n{text}"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register `money`."""
    words = "what the measured speed costs: per million tokens, per training; rent or buy"
    parser = commands.add_parser("money", help=words, description=words)
    parser.add_argument("run", type=Path, help="a run folder that measured training")
    parser.add_argument("--hour", type=_positive, required=True, metavar="PRICE", help="of the whole machine")
    parser.add_argument("--tokens", type=_positive, default=1.5e12, metavar="N", help="of the training (1.5e12)")
    parser.add_argument("--goodput", type=_share, default=1.0, metavar="SHARE", help="of the time that counts (1)")
    parser.add_argument("--mfu", type=_share, metavar="SHARE", help="the MFU that was promised")
    parser.add_argument("--buy", type=_positive, metavar="PRICE", help="of the machine, once")
    parser.add_argument("--keep", type=_positive, default=0.0, metavar="PRICE", help="of a month of owning it (0)")
    parser.add_argument("--hours-a-day", type=_positive, default=24.0, metavar="H", help="that it would be rented (24)")
    parser.set_defaults(command=_run)


def _positive(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text} is no positive number")
    return value


def _share(text: str) -> float:
    value = _positive(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f"{text} is no share: 0.52 means 52 %")
    return value


def _run(options: argparse.Namespace) -> int:
    print(table(runs.load(options.run), options))
    return 0
