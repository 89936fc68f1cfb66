"""Settings of a cluster file that load and mean nothing are refused, with the key and the cure."""

from __future__ import annotations

import pytest

from clusters.loader import ClusterError, load

LIMIT = """
[limits.exact]
metric = "gemm.error"
unit = "1"
ceiling = 1
source = "definition"
"""


@pytest.mark.parametrize(
    ("written", "default", "wanted"),
    [
        ("'big'", 1.0, r"sizes = 'big' must be a number"), ("1.5", 4, "must be a whole number"),
        ("true", 4, "must be a whole number"), ("1", False, "true or false"),
        ("3", "fp32", "must be text"), ("8", (8, 16), r"must be a list: \[8, 16\]"),
        ("[8, 'x']", (8,), "must be a list, each a whole number"),
    ],
)  # fmt: skip
def test_a_setting_of_another_kind_is_named(tmp_path, written, default, wanted):
    path = tmp_path / "rack.toml"
    path.write_text(f"[gemm]\nsizes = {written}\n")
    with pytest.raises(ValueError, match=rf"rack\.toml \[gemm\]: sizes = .*{wanted.removeprefix('sizes = ')}"):
        load(str(path)).setting("gemm", "sizes", default)


@pytest.mark.parametrize(("written", "default"), [("1", 2.0), ("1e3", 4), ("[1]", ()), ("[]", (8,)), ("'x'", None)])
def test_a_setting_of_the_kind_asked_for_is_taken(tmp_path, written, default):
    path = tmp_path / "rack.toml"
    path.write_text(f"[gemm]\nsizes = {written}\n")
    load(str(path)).setting("gemm", "sizes", default)


@pytest.mark.parametrize("rate", ["100", "400e9", "50"])
def test_a_rate_that_no_nic_has_is_refused(tmp_path, rate):
    path = tmp_path / "rack.toml"
    path.write_text(f"nodes = 2\n[network]\nkind = 'roce'\nnics_per_node = 8\nnic_rate = {rate}\nsource = 'sheet'\n")
    if rate == "400e9":
        assert load(str(path)).network.nic_rate == 400e9
    else:
        with pytest.raises(ClusterError, match="no NIC's rate in B/s, one direction: 400 Gb/s are 50e9"):
            load(str(path))


def test_a_limit_from_the_future_is_noted(tmp_path):
    path = tmp_path / "rack.toml"
    path.write_text(LIMIT + "date = 2999-01-01")
    assert any("dated in the future" in note and "exact" in note for note in load(str(path)).contradictions)
