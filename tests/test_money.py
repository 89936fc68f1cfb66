"""Money, by hand: break-even, cost of tokens and of a training, and what is refused."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest

from clusters import loader
from reports import money, runs
from reports.commands import main
from tests import made_up_nights, sample_run


@pytest.mark.parametrize(("hour", "months"), [(8000, 1.3), (2400, 4.6)])
def test_break_even_of_a_machine_that_is_rented_twenty_hours_a_day(hour, months):
    # 8,000 x 20 x 30.44 = 4.87 M a month, less 0.12 M: 6.2 M are saved in 1.3 months; at 2,400 in 4.6
    found = money.break_even_months(buy=6.2e6, keep=120e3, hour=hour, hours_a_day=20)
    assert round(found, 1) == months


def test_what_costs_more_to_keep_than_to_rent_never_pays():
    assert money.break_even_months(buy=1.0, keep=1e9, hour=10, hours_a_day=24) == math.inf


def test_a_training_by_hand():
    # 1e12 tokens at 1e6 a second are 1e6 s = 11.574 days = 277.8 h
    days, cost = money.training(hour=1000, tokens_rate=1e6, tokens=1e12)
    assert days == pytest.approx(11.574, abs=1e-3)
    assert cost == pytest.approx(277_778, abs=1)
    assert money.training(hour=1000, tokens_rate=1e6, tokens=1e12, goodput=0.5)[0] == pytest.approx(2 * days)
    assert money.per_million(hour=3600, tokens_rate=1e6) == pytest.approx(1.0)


def test_half_the_promised_mfu_costs_half_the_rent():
    # of 50 % MFU, 25 points are missing: each is worth 1/50 of the month's rent
    assert 25 * money.missing_percent(hour=100, mfu=0.5) == pytest.approx(100 * 730.5 / 2)


def test_an_hour_that_is_not_paid_for_costs_no_mfu():
    whole, part = (money.missing_percent(hour=100, mfu=0.5, hours_a_day=hours) for hours in (24, 20))
    assert part == pytest.approx(whole * 20 / 24)


def bill(folder, **changes):
    stored = runs.load(sample_run.write(folder))
    return money.worked_out(stored, dataclasses.replace(stored.cluster.prices, **changes))


def test_a_bill_by_hand(tmp_path):
    found = bill(tmp_path / "run")
    (trained,) = found.trained
    rate = trained.rate.median
    # 16 GPUs of 989 dense bf16 TFLOP/s; the sample's FLOPs are 449.22 GF a token: near 16,480 tokens/s
    assert trained.mfu == pytest.approx(16480 * 449.22e9 / (16 * 989e12), rel=0.01)
    # 4 % of the time is lost to saves and failures, as the save's notes say
    assert trained.days.median == pytest.approx(1.5e12 / rate / 0.96 / 86400)
    assert trained.days.low < trained.days.median < trained.days.high
    dear, cheap = trained.offers
    assert dear.million.median == pytest.approx(250 / 3600 / rate / 0.96 * 1e6)
    assert dear.cost.median == pytest.approx(1.5e6 * dear.million.median)
    # a month's rent, 20 h a day: what is missing of 52 % bought nothing
    assert dear.lost == pytest.approx(250 * 20 * 30.4375 * (1 - trained.mfu / 0.52))
    assert cheap.lost == pytest.approx(dear.lost * 75 / 250)
    assert [round(months, 1) for _, months in found.even] == [1.3, 4.6]
    assert any("96 %" in said for said in found.assumed)


def test_prices_are_of_the_nodes_that_they_name(tmp_path):
    half, whole = bill(tmp_path / "a", nodes=4), bill(tmp_path / "b")
    assert half.trained[0].offers[0].million.median == pytest.approx(whole.trained[0].offers[0].million.median / 2)
    assert half.even == whole.even
    assert any("2 of the 4 nodes" in said for said in half.assumed)


def test_another_model_is_reckoned_by_its_flops_and_says_so(tmp_path):
    stored = runs.load(sample_run.write(tmp_path / "run"))
    small = {"model": "70b (4 of 80 layers)"}
    renamed = lambda e: dataclasses.replace(e, params={**e.params, **small}) if "model" in e.params else e  # noqa: E731
    run = dataclasses.replace(stored.run, expected=tuple(map(renamed, stored.run.expected)))
    other = dataclasses.replace(stored, run=run, measurements=tuple(map(renamed, stored.measurements)))
    (trained,) = money.worked_out(other, stored.cluster.prices).trained
    assert trained.reckoned
    assert trained.model == "70b"
    assert trained.days.median == pytest.approx(1.5e12 / 16480 / 0.96 / 86400, rel=0.01)
    assert any("as many FLOP/s" in said for said in money.worked_out(other, stored.cluster.prices).assumed)


def test_the_command_takes_the_prices_of_the_cluster_file(tmp_path, capsys):
    run = sample_run.write(tmp_path / "run")
    assert main(["money", str(run)]) == 0
    said = capsys.readouterr().out
    assert "quote 7 of the vendor, 2026-11-02" in said
    assert "4.6 months" in said
    assert main(["money", str(run), "--goodput", "0.5"]) == 0
    assert "50 % of the time makes progress: given with the prices" in capsys.readouterr().out


def test_the_command_prints_its_assumptions(tmp_path, capsys):
    run = sample_run.write(tmp_path / "run")
    asked = ["--hour", "8000", "--hour", "2400", "--buy", "6.2e6", "--keep", "120e3", "--hours-a-day", "20"]
    assert main(["money", str(run), *asked, "--mfu", "0.52"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"at 8,000 USD an hour +1\.3 months", said)
    assert re.search(r"at 2,400 USD an hour +4\.6 months", said)
    assert "the command line" in said
    assert "rented 20 hours a day" in said
    assert "below 52 %" in said


def test_what_makes_no_sense_is_refused(tmp_path, capsys):
    run = sample_run.write(tmp_path / "run")
    for wrong in (["--hour", "0"], ["--hour", "nan"], ["--hour", "1", "--mfu", "52"], ["--hours-a-day", "25"]):
        assert main(["money", str(run), *wrong]) == 4
    night = made_up_nights.write(tmp_path, 0)
    assert main(["money", str(night)]) == 4
    assert "no prices" in capsys.readouterr().err
    assert main(["money", str(night), "--hour", "1", "--keep", "5"]) == 4
    assert "--keep without --buy" in capsys.readouterr().err
    assert main(["money", str(night), "--hour", "1"]) == 0
    assert "no training was measured" in capsys.readouterr().out


# -- the table [prices] ------------------------------------------------------------------------------------------

GOOD = {"rents": "[8000]", "source": '"quote 7"', "date": "2026-11-30"}


def load_prices(tmp_path, **fields):
    lines = "\n".join(f"{name} = {value}" for name, value in {**GOOD, **fields}.items() if value)
    path = tmp_path / "c.toml"
    path.write_text(f"nodes = 4\n[prices]\n{lines}\n")
    return loader.load(str(path), nodes=2).prices


def test_prices_are_of_all_nodes_that_the_file_is_written_for(tmp_path):
    assert load_prices(tmp_path).nodes == 4
    assert load_prices(tmp_path, nodes="8").nodes == 8


@pytest.mark.parametrize(
    ("fields", "cure"),
    [
        ({"source": ""}, "add one, such as source"),
        ({"source": '"tbd"'}, "placeholder"),
        ({"date": ""}, "write date ="),
        ({"rents": "[0]"}, "above zero"),
        ({"rents": "8000"}, "must be a list"),
        ({"rents": ""}, "no price"),
        ({"keep": "5"}, "keep without buy"),
        ({"mfu": "52"}, "0.52 means 52 %"),
        ({"hours_a_day": "25"}, "at most 24"),
        ({"buy": "inf"}, "no number"),
        ({"rent": "[1]"}, "do you mean 'rents'"),
    ],
)
def test_what_is_no_price_is_refused_with_the_cure(tmp_path, fields, cure):
    with pytest.raises(loader.ClusterError, match=re.escape(cure)) as refused:
        load_prices(tmp_path, **fields)
    assert "[prices]" in str(refused.value)


def test_the_reference_contract_breaks_even_after_months_not_years():
    found = loader.load("h100-512-reference").prices
    months = [
        money.break_even_months(buy=found.buy, keep=found.keep, hour=rent, hours_a_day=found.hours_a_day)
        for rent in found.rents
    ]
    assert [round(m, 1) for m in months] == [1.3, 4.6]
