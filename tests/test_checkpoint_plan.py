"""The plan of a checkpoint prints exact bytes, in both units, and what a limit asks of storage and network."""

from __future__ import annotations

import pytest

from benchmarks.checkpoint.plan import both, main, saved_bytes
from reference_model.layout import Layout


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["--dry-run", *words]) == 0
    return capsys.readouterr().out


def test_the_70b_checkpoint(capsys: pytest.CaptureFixture[str]):
    out = printed(capsys, "--model", "70b", "--within", "30", "--cluster", "h100-512-reference", "--mtbf", "36000")
    assert "70,553,706,496 parameters as tp8,pp4,dp16 on 512 ranks" in out
    assert "987,754,479,624 B = 987.8 GB = 919.9 GiB in 512 files" in out
    assert "in 30 s           32.9 GB/s in all, 0.53 GB/s a node" in out
    assert "carries 25,600 GB/s from 64 nodes at most: possible" in out
    assert "best interval     1450 s" in out  # sqrt(2 x 30 x 36000) (1 + 0.0068 + 0.00005) - 30


def test_what_the_network_cannot_carry_is_said(capsys: pytest.CaptureFixture[str]):
    out = printed(capsys, "--contents", "mixed", "--within", "0.01", "--cluster", "h100-ethernet-100g")
    assert "impossible: no storage can be that fast" in out


@pytest.mark.parametrize("model", ["8b", "70b", "405b"])
def test_every_rank_writes_and_they_are_close_to_even(model: str):
    layout = Layout(tp=8, pp=2, dp=4)
    sizes = [saved_bytes(model, layout, rank, "mixed") for rank in range(layout.ranks)]
    assert min(sizes) > 0.85 * max(sizes)


def test_a_layout_that_is_not_understood_is_refused(capsys: pytest.CaptureFixture[str]):
    assert main(["--dry-run", "--layout", "tp8pp4"]) == 4
    assert "write it as" in capsys.readouterr().err


def test_sizes_come_in_both_units():
    assert both(987_754_479_624) == "987,754,479,624 B = 987.8 GB = 919.9 GiB"
    assert both(2**20) == "1,048,576 B = 1.049 MB = 1 MiB"
