"""Lustre's own words are read: plain and composite layouts, fill of every OST, one that is full or gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.storage.lustre import (
    LustreError,
    evidence,
    inactive,
    parse_df,
    parse_getstripe,
    target_problems,
    targets_of,
)

PLAIN = """\
checkpoint
lmm_stripe_count:  4
lmm_stripe_size:   1048576
lmm_pattern:       raid0
lmm_layout_gen:    0
lmm_stripe_offset: 5
\tobdidx\t\t objid\t\t objid\t\t group
\t     5\t     157834736\t    0x9685df0\t   0xac0000400
\t     3\t     158138579\t    0x96d00d3\t   0xb40000400
\t    43\t     158987015\t    0x979f307\t  0x1040000400
\t    57\t     161523633\t    0x9a0a7b1\t  0x1180000400
"""
COMPOSITE = """\
/scratch/rank0.bin
  lcm_layout_gen:    4
  lcm_mirror_count:  1
  lcm_entry_count:   2
    lcme_id:             1
    lcme_flags:          init
    lcme_extent.e_start: 0
    lcme_extent.e_end:   1048576
      lmm_stripe_count:  0
      lmm_stripe_size:   1048576
      lmm_pattern:       mdt
      lmm_stripe_offset: 0

    lcme_id:             2
    lcme_flags:          init
    lcme_extent.e_start: 1048576
    lcme_extent.e_end:   EOF
      lmm_stripe_count:  2
      lmm_stripe_size:   4194304
      lmm_pattern:       raid0
      lmm_stripe_offset: 1
      lmm_pool:          flash
      lmm_objects:
      - 0: { l_ost_idx: 1, l_fid: [0x100010000:0x2:0x0] }
      - 1: { l_ost_idx: 0, l_fid: [0x100000000:0x2:0x0] }
"""
DF = """\
UUID                   1K-blocks        Used   Available Use% Mounted on
scratch-MDT0000_UUID    31138048        1272    28000000   1% /scratch[MDT:0]
scratch-OST000f_UUID   529449792        1260   524063440   1% /scratch[OST:15]
scratch-OST0010_UUID   529449792   514063428    10000000  98% /scratch[OST:16]
scratch-OST0011_UUID   529449792   264724896   264724896  50% /scratch[OST:17]
OST0012             : inactive device

filesystem_summary:  1588349376   778789584   798788336  50% /scratch
"""
GONE = DF.replace("OST0012             : inactive device", "scratch-OST0012_UUID : inactive device")


def test_a_plain_layout():
    striping = parse_getstripe(PLAIN)
    assert (striping.stripe_size, striping.targets, striping.pool) == (2**20, (5, 3, 43, 57), "")


def test_a_composite_layout_counts_where_data_is():
    striping = parse_getstripe(COMPOSITE)
    assert (striping.stripe_size, striping.targets, striping.pool) == (4 * 2**20, (1, 0), "flash")


def test_a_file_without_objects_is_an_error_not_zero_stripes():
    with pytest.raises(LustreError, match="no objects"):
        parse_getstripe("stripe_count:  1 stripe_size:   1048576 stripe_offset: -1\n")


def test_the_targets_are_those_that_hold_data():
    targets = parse_df(DF)
    assert [t.index for t in targets] == [15, 16, 17]
    assert targets[2].fill == 0.5
    assert targets[1].free_bytes == 10_000_000 * 1024


def test_a_full_target_is_named_although_the_file_system_has_space():
    uneven, full = target_problems(DF, bytes_needed=3 * 10**9)
    assert "OSTs are filled unevenly" in uneven
    assert "OST 16 is 97% full with 10.2 GB free" in full
    assert any("OST 17" in p for p in target_problems(DF, bytes_needed=3 * 300 * 10**9))


def test_a_target_that_is_gone_is_named():
    assert inactive(GONE) == ["scratch-OST0012"]
    assert "scratch-OST0012 is inactive" in target_problems(GONE, bytes_needed=0)[0]
    assert target_problems("", bytes_needed=0) == ["lfs df shows no OST"]


def test_evidence_counts_objects_per_target():
    answers = {"getstripe": PLAIN, "df": GONE}
    seen = evidence(Path("/scratch"), {Path("a"): 4000, Path("b"): 800}, ask=lambda words: answers[words[0]])
    assert seen["objects_per_ost"] == {3: 2, 5: 2, 43: 2, 57: 2}
    assert seen["bytes_per_ost"] == {3: 1200, 5: 1200, 43: 1200, 57: 1200}
    assert (seen["stripe_counts"], seen["stripe_sizes"], seen["osts"], seen["osts_used"]) == ([4], [2**20], 3, 4)
    assert seen["osts_inactive"] == ["scratch-OST0012"]
    assert seen["ost_fill_max"] == pytest.approx(0.971, abs=1e-3)


def test_without_the_tools_the_reason_is_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    assert "install the Lustre client's tools" in evidence(Path("/scratch"), {Path("a"): 1})["lustre_error"]


IN_YAML = """
lmm_stripe_count:  2
lmm_stripe_size:   4194304
lmm_pattern:       raid0
lmm_layout_gen:    0
lmm_stripe_offset: 7
lmm_pool:          flash
lmm_objects:
      - l_ost_idx: 7
        l_fid:     0x100070000:0x2a5:0x0
      - l_ost_idx: 3
        l_fid:     0x100030000:0x2a8:0x0
"""


def test_the_yaml_form_is_read_too():
    striping = parse_getstripe(IN_YAML)
    assert (striping.stripe_size, striping.targets, striping.pool) == (4 * 2**20, (7, 3), "flash")


def test_the_targets_of_a_ranks_files_are_named():
    answers = {"a": PLAIN, "b": IN_YAML}
    assert targets_of([Path("a"), Path("b")], ask=lambda words: answers[words[1]]) == "OST 3, 5, 7, 43, 57"
    assert targets_of([Path("a")], ask=lambda _: "nothing") == targets_of([]) == ""
