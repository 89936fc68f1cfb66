"""A contract against physics and against itself: each contradiction is told with its arithmetic."""

from __future__ import annotations

import pytest

from clusters import hardware
from clusters.contradictions import Contract, contradictions
from clusters.loader import ClusterError, load


def test_the_reference_contract_contradicts_itself():
    """Worked by hand: 449.22 GFLOP x 420 / 989 TFLOP/s; 988 GB / 30 s; 6.2 M / (8,000 x 20 x 30.44 - 0.12 M) ..."""
    lines = load("h100-512-reference").contradictions
    for said in (
        "= 19% MFU; 52% would be 1,145 tokens/s/GPU",
        "published for 70B in bf16 on H100 is 50.9%",
        "memory at 2 TB/s: h100-sxm has 3.35 TB/s",
        "TF32 at 2,000 TFLOP/s: h100-sxm has 989 dense in bf16, and TF32 is half of that, 494",
        "988 GB / 30 s = 33 GB/s, 16% of that; at 200 GB/s a save takes 4.9 s",
        "m = 10.6 micro-batches, and m / (m + 7) = 60%",
        "2 x 12 / (88 + 2 x 12) = 21%",
        "= 1.3; at 2,400 an hour 6,200,000 / (2,400 x 20 x 30.4 - 120,000) = 4.6",
    ):
        assert any(said in line for line in lines), said
    assert len(lines) == 8


def test_a_contract_that_holds_together_is_left_alone():
    sound = Contract(
        mfu=0.45, tokens_rate=991, memory_bandwidth=3.35e12, tf32_flops=494e12, save_s=30, storage_rate=33e9,
        use_4_stages=0.78, use_8_stages=0.60, network_share_ndr400=0.12, network_share_hdr200=0.21,
        price=6.2e6, running_cost=120e3, rents=(8000, 2400), hours_a_day=20, break_even_months=4.6,
    )  # fmt: skip
    assert contradictions(sound, gpu=hardware.gpu("h100-sxm")) == ()
    assert contradictions(Contract(), gpu=None) == ()


def test_renting_that_costs_less_than_owning_never_breaks_even():
    contract = Contract(price=1e6, running_cost=1e6, rents=(100.0,), break_even_months=12)
    assert contradictions(contract, gpu=None) == ("12 months to break even: at 100 an hour never",)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("mfy = 0.5", r"\[contract\]: unknown key 'mfy' \(do you mean 'mfu'"),
        ("mfu = nan", r"\[contract\]: mfu = nan"),
        ("rents = 8000", r"rents = 8000 must be a list of numbers"),
        ("rents = [0]", r"rents = 0 must be above zero"),
    ],
)
def test_a_contract_of_nonsense_is_refused(line, expected, tmp_path):
    path = tmp_path / "site.toml"
    path.write_text(f"[contract]\n{line}")
    with pytest.raises(ClusterError, match=expected):
        load(str(path))
