"""Money, by hand: break-even, cost of tokens and of a training, and what is refused."""

from __future__ import annotations

import math

import pytest

from reports import money
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


def test_the_command_prints_its_assumptions(tmp_path, capsys):
    run = sample_run.write(tmp_path / "run")
    asked = ["--hour", "8000", "--buy", "6.2e6", "--keep", "120e3", "--hours-a-day", "20", "--mfu", "0.52"]
    assert main(["money", str(run), *asked]) == 0
    said = capsys.readouterr().out
    assert "after 1.3 months" in said
    assert "assumed: the machine costs 8,000 an hour" in said
    assert "rented for 20 h a day" in said
    assert "below 52 %" in said or "below 52%" in said


def test_what_makes_no_sense_is_refused(tmp_path, capsys):
    run = sample_run.write(tmp_path / "run")
    for wrong in (["--hour", "0"], ["--hour", "nan"], ["--hour", "1", "--mfu", "52"], []):
        assert main(["money", str(run), *wrong]) == 4
    night = made_up_nights.write(tmp_path, 0)
    assert main(["money", str(night), "--hour", "1"]) == 4
    assert "no training.tokens_rate" in capsys.readouterr().err
