"""What the measured speed costs: per million tokens, per training, per missing percent of MFU; rent or buy.

    bill = worked_out(stored, stored.cluster.prices)
    bill.trained[0].offers[0].million.median         # in the prices' currency

Prices are the reader's (the table [prices] of the cluster file, or options of `python -m reports money`) and are shown
with the result, and so is everything assumed. A month has 730.5 hours, 30.44 days. Nothing is judged here.

>>> round(break_even_months(buy=6.2e6, keep=120e3, hour=8000, hours_a_day=20), 1)
1.3
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.measurement import params_key
from clusters.contradictions import LLAMA_70B
from clusters.prices import Prices
from reports.numbers import Number, numbers, title
from reports.quantities import share
from reports.runs import StoredRun
from reports.statistics import Estimate

HOURS_A_MONTH = 730.5
DAYS_A_MONTH = HOURS_A_MONTH / 24
GOODPUT = "lost_share_at_file_interval"  # a note of a save: time lost to checkpoints and failures


def break_even_months(*, buy: float, keep: float, hour: float, hours_a_day: float) -> float:
    """Months after which buying is cheaper than renting; infinite where keeping costs as much as renting.

    `buy` is paid once, `keep` a month (power, space, people), `hour` is the rent of the same machine per hour used.
    """
    saved = hour * hours_a_day * DAYS_A_MONTH - keep
    return buy / saved if saved > 0 else math.inf


def per_million(*, hour: float, tokens_rate: float, goodput: float = 1.0) -> float:
    """Cost of a million tokens at `tokens_rate` tokens a second of the whole machine."""
    return hour / 3600 / (tokens_rate * goodput) * 1e6


def training(*, hour: float, tokens_rate: float, tokens: float, goodput: float = 1.0) -> tuple[float, float]:
    """Days and cost of a training over so many tokens; `goodput` is the share of time that makes progress."""
    seconds = tokens / tokens_rate / goodput
    return seconds / 86400, seconds / 3600 * hour


def missing_percent(*, hour: float, mfu: float, hours_a_day: float = 24.0) -> float:
    """What one percentage point of MFU below `mfu` costs a month: the share of the rent that buys nothing.

    At MFU m the same work takes wanted / m as long, so each point of `wanted` is worth 0.01 / wanted of the spending.
    """
    return hour * hours_a_day * DAYS_A_MONTH * 0.01 / mfu


@dataclass(frozen=True, kw_only=True)
class Offer:
    """One rent, and what comes of it at a measured speed; low and high are the ends of the speed's interval."""

    hour: float  # of the nodes that were measured
    million: Estimate  # a million tokens
    cost: Estimate  # the whole training
    lost: float | None  # a month, to the MFU that is missing; None where nothing was promised or no MFU is known


@dataclass(frozen=True, kw_only=True)
class Trained:
    """One measured training and what it costs."""

    title: str
    rate: Estimate  # tokens per second, of all nodes that were measured
    mfu: float | None  # causal convention; None where the peak is not known
    model: str  # whose training the days are for
    days: Estimate  # of 24 hours
    offers: tuple[Offer, ...]
    reckoned: bool = False  # the 70B model was not measured: its speed follows from the FLOP/s of what was


@dataclass(frozen=True, kw_only=True)
class Bill:
    """Everything that can be said of a run's money, and what was assumed."""

    prices: Prices
    nodes: int  # that were measured
    trained: tuple[Trained, ...]
    points: tuple[tuple[float, float], ...]  # (rent an hour, what a percentage point of MFU costs a month)
    even: tuple[tuple[float, float], ...]  # (rent an hour, months until buying is cheaper), of the prices' nodes
    assumed: tuple[str, ...]


def worked_out(stored: StoredRun, prices: Prices) -> Bill:
    """What a run's measured speed costs at these prices. Without a measured training only rent against buying."""
    found = numbers(stored)
    goodput, said = _goodput(stored, prices)
    part = stored.run.nodes / prices.nodes
    rents = tuple(rent * part for rent in prices.rents)
    trained = [
        _trained(number, found, stored, prices=prices, rents=rents, goodput=goodput)
        for number in found
        if number.expected.metric == "training.tokens_rate"
    ]
    assumed = [said] if trained else []
    if part != 1:
        assumed.append(f"rents in proportion: {stored.run.nodes} of the {prices.nodes} nodes that they are for")
    if any(t.reckoned for t in trained):
        assumed.append("the 70B model runs at as many FLOP/s as what was measured, and fits")
    if any(t.mfu is not None for t in trained) and stored.cluster.gpu:
        peak = stored.cluster.gpu.bf16_flops / 1e12
        assumed.append(f"MFU of causal attention, of {peak:,.0f} dense bf16 TFLOP/s ({stored.cluster.gpu.source})")
    if prices.hours_a_day != 24 and prices.rents:
        assumed.append(f"rented {prices.hours_a_day:g} hours a day, {DAYS_A_MONTH:.2f} days a month")
    if prices.buy:
        assumed.append("a bought cluster is worth nothing afterwards, and no interest is paid")
    return Bill(
        prices=prices,
        nodes=stored.run.nodes,
        trained=tuple(trained),
        points=tuple(
            (rent, missing_percent(hour=rent, mfu=prices.mfu, hours_a_day=prices.hours_a_day))
            for rent in rents
            if prices.mfu
        ),
        even=tuple(
            (rent, break_even_months(buy=prices.buy, keep=prices.keep, hour=rent, hours_a_day=prices.hours_a_day))
            for rent in prices.rents
            if prices.buy
        ),
        assumed=tuple(assumed),
    )


def _goodput(stored: StoredRun, prices: Prices) -> tuple[float, str]:
    """The share of the time that makes progress, and who says so."""
    if prices.goodput:
        return prices.goodput, f"{share(prices.goodput)} of the time makes progress: given with the prices"
    noted = [m.notes.get(GOODPUT) for m in stored.measurements if m.outcome == "ok"]
    measured = [float(lost) for lost in noted if isinstance(lost, int | float) and 0 <= lost < 1]
    if measured:
        lost = min(measured)
        return (
            1 - lost,
            f"{share(1 - lost)} of the time makes progress: from the measured saves and the stated failures",
        )
    return 1.0, "all of the time makes progress: nothing measured or stated says otherwise"


def _trained(
    number: Number, found: list[Number], stored: StoredRun, *, prices: Prices, rents: tuple[float, ...], goodput: float
) -> Trained:
    flops = next((n for n in found if n.name == ("training.flops", params_key(number.expected.params))), None)
    mfu = _mfu(flops, stored) if flops else None
    model, rate, reckoned = str(number.expected.params.get("model", "the model")), number.typical, False
    if flops and stored.cluster.gpu and not _is_70b(model):
        per_token = LLAMA_70B.flops_per_token(sequence=int(number.expected.params.get("sequence", 8192)))
        rate, model, reckoned = _each(flops.typical, lambda value: value / per_token), "70b", True
    return Trained(
        title=title(number.expected),
        rate=number.typical,
        mfu=mfu,
        model=model,
        reckoned=reckoned,
        days=_each(rate, lambda r: training(hour=0.0, tokens_rate=r, tokens=prices.tokens, goodput=goodput)[0]),
        offers=tuple(_offer(hour, rate, prices=prices, goodput=goodput, mfu=mfu) for hour in rents),
    )


def _offer(hour: float, rate: Estimate, *, prices: Prices, goodput: float, mfu: float | None) -> Offer:
    lost = None
    if mfu is not None and prices.mfu:
        points = max(0.0, prices.mfu - mfu) * 100
        lost = points * missing_percent(hour=hour, mfu=prices.mfu, hours_a_day=prices.hours_a_day)
    return Offer(
        hour=hour,
        million=_each(rate, lambda r: per_million(hour=hour, tokens_rate=r, goodput=goodput)),
        cost=_each(rate, lambda r: training(hour=hour, tokens_rate=r, tokens=prices.tokens, goodput=goodput)[1]),
        lost=lost,
    )


def _is_70b(model: str) -> bool:
    """The whole 70B model, not some layers of it."""
    return "70b" in model.lower() and "layers" not in model


def _mfu(flops: Number, stored: StoredRun) -> float | None:
    """MFU of a measured training; None where the GPU's peak is not known or is another type's."""
    config = next((c for c in stored.run.configs if c.id == flops.expected.config), None)
    if stored.cluster.gpu is None or config is None or flops.expected.params.get("dtype", "bf16") != "bf16":
        return None
    gpus = int(config.place.get("nodes", 1)) * int(config.place.get("ranks_per_node", 1))
    return flops.typical.median / (gpus * stored.cluster.gpu.bf16_flops)


def _each(rate: Estimate, of: Callable[[float], float]) -> Estimate:
    """An estimate of what follows from a rate: the fast end of the rate is the cheap one."""
    ends = sorted((of(rate.low), of(rate.high)))
    return Estimate(of(rate.median), ends[0], ends[1], rate.n)


def amount(value: float, currency: str = "") -> str:
    """Money as people say it.

    >>> amount(4.7312), amount(6.2e6, "USD"), amount(145_312.6)
    ('4.73', '6.2 M USD', '145,313')
    """
    if not math.isfinite(value):
        return "never"
    if abs(value) >= 1e6:
        text = f"{value / 1e6:,.2f}".rstrip("0").rstrip(".") + " M"
    elif abs(value) >= 1000:
        text = f"{value:,.0f}"
    else:
        text = f"{value:.3g}" if abs(value) < 1 else f"{value:.2f}".removesuffix(".00")
    return f"{text} {currency}".strip()


def amount_of_tokens(tokens: float) -> str:
    """Tokens as people say them.

    >>> amount_of_tokens(1.5e12), amount_of_tokens(2e6)
    ('1.5 trillion tokens', '2 million tokens')
    """
    for factor, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if tokens >= factor:
            return f"{tokens / factor:,.4g} {name} tokens"
    return f"{tokens:,.0f} tokens"


def months(value: float) -> str:
    """Months until buying is cheaper, in words.

    >>> months(4.62), months(math.inf)
    ('4.6 months', 'never')
    """
    return f"{value:.1f} months" if math.isfinite(value) else "never"


def terms(prices: Prices) -> str:
    """The prices in one line."""
    said = [f"rent of {amount(rent, prices.currency)} an hour" for rent in prices.rents]
    if prices.buy:
        said.append(f"{amount(prices.buy, prices.currency)} to buy")
    if prices.keep:
        said.append(f"{amount(prices.keep, prices.currency)} a month to keep")
    if prices.mfu:
        said.append(f"{share(prices.mfu)} MFU promised")
    return f"{prices.nodes} {'node' if prices.nodes == 1 else 'nodes'}: {', '.join(said)}"
