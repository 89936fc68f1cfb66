"""The check of one GPU: what it judges, how many layers it takes, and that it refuses politely without a GPU."""

import math

import pytest
import torch

from benchmarks.training.gpu_check import Rates, layers_that_fit, main, parser


def options(*words):
    return parser().parse_args(words)


@pytest.mark.parametrize(
    ("rates", "missed"),
    [
        ({"step": 600e12, "best_product": 750e12, "peak": 989e12, "sku": "h100-sxm"}, []),
        ({"step": 500e12, "best_product": 750e12, "peak": 989e12, "sku": "h200-sxm"}, ["best product", "MFU"]),
        ({"step": 560e12, "best_product": 750e12, "peak": 989e12, "sku": "h200-sxm"}, ["best product"]),
        ({"step": 540e12, "best_product": 700e12, "peak": 989e12, "sku": "h100-sxm"}, ["MFU"]),
        ({"step": 1000e12, "best_product": 1300e12, "peak": 2250e12, "sku": "b200-sxm"}, []),
        ({"step": math.nan, "best_product": 750e12, "peak": 989e12, "sku": "h100-sxm"}, ["best product", "MFU"]),
    ],
)
def test_goals_are_of_the_best_product_and_on_hopper_of_the_peak(rates, missed):
    problems = Rates(**rates).problems
    assert len(problems) == len(missed)
    assert all(word in problem for word, problem in zip(missed, problems, strict=True))


def test_as_many_layers_as_fit_and_at_most_four():
    found = [layers_that_fit(options(), memory) for memory in (80_000_000_000, 141_000_000_000, 288_000_000_000)]
    assert found == sorted(found)
    assert found[0] >= 1
    assert found[-1] == 4


def test_a_small_gpu_is_refused_with_what_would_fit():
    with pytest.raises(ValueError, match="use --model 8b"):
        layers_that_fit(options(), 24_000_000_000)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_measures_nothing(capsys):
    assert main([]) == 4
    shown = capsys.readouterr()
    assert "torch sees no GPU here" in shown.err
    assert shown.out == ""
