"""The account of a training step on the page: what is shown, and that no note can break it."""

import math

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.measurement import Measurement, Subject
from reports.stepnotes import facts, panel

WORLD = Subject(group="world", ranks=4)


def found(*, flops=None, columns=None, **step):
    return {
        "training.step.time": Measurement(
            metric="training.step.time", unit="s", better="lower", samples=(1.0,), notes=step, columns=columns or {}
        ),
        "training.flops": Measurement(metric="training.flops", unit="FLOP/s", better="higher", notes=flops or {}),
        "training.tokens_rate": Measurement(
            metric="training.tokens_rate", unit="1/s", better="higher", samples=(400.0,), subject=WORLD
        ),
    }


def test_every_convention_is_shown_with_its_peak():
    flops = {"MFU, causal": 0.509, "HFU, causal": 0.55, "peak": 989e12, "peak_source": "data sheet"}
    rows = dict(facts(found(flops=flops)))
    assert rows["tokens of one rank"] == "100/s"
    assert rows["MFU, causal"] == "50.9 %"
    assert rows["peak"] == "989 TFLOP/s, dense bf16: data sheet"
    assert dict(facts(found(flops={"MFU": "unknown: give it with --peak"})))["MFU"].endswith("--peak")


def test_a_collective_that_differs_from_its_plan_is_named():
    row = {"pipeline_rank": 0, "axis": "tp", "operation": "all_gather", "count": 3, "bytes": 12}
    rows = dict(facts(found(collectives=[{**row, "planned_count": 3, "planned_bytes": 12}])))
    assert rows["collectives"] == "1 of 1 kinds as planned, 12 B in all"
    rows = dict(facts(found(collectives=[{**row, "planned_count": 4, "planned_bytes": 16}])))
    assert rows["collectives"].startswith("0 of 1")
    assert rows["all_gather along tp, pipeline rank 0"] == "3 of 12 B, planned 4 of 16 B"


def test_memory_is_that_of_the_fullest_rank_of_each_stage():
    rows = dict(facts(found(columns={"peak_bytes": [1e9, 2e9, 3e9, 4e9]}, predicted_bytes=[2.5e9, 3.5e9])))
    assert rows["memory of pipeline rank 0"] == "2 GB at most, planned 2.5 GB"
    assert rows["memory of pipeline rank 1"] == "4 GB at most, planned 3.5 GB"


def test_the_straggler_the_loss_and_what_is_hidden():
    rows = dict(
        facts(
            found(
                straggler={"waited_for": 0.3, "rank": 7, "node": "n2"}, losses=[5.0, 4.0], hidden={"dp": 0.8},
                variation=0.01, p95_s=1.5, memory_use={"share_of_copy": 0.78},
            )
        )
    )  # fmt: skip
    assert rows["slowest at its own work"].startswith("rank 7 on n2: the others wait for it for 30 %")
    assert rows["loss"] == "5 at first, 4 after 2 steps"
    assert rows["communication along dp"] == "80 % of it hidden"
    assert rows["memory traffic"].startswith("78 %")


def test_a_warning_of_the_benchmark_is_shown():
    assert ("warning", "groups cross nodes") in facts(found(warning="groups cross nodes"))


def test_names_are_escaped():
    table = panel("x", found(straggler={"waited_for": 0.3, "rank": 7, "node": "<script>"}))
    assert "<script>" not in table.chart


def test_nothing_noted_is_no_table():
    assert panel("x", {}) is None


anything = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text() | st.just(math.nan),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)
NAMES = (
    "p95_s", "variation", "straggler", "hidden", "collectives", "memory_use", "predicted_bytes", "losses",
    "gradient_norms",
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(NAMES), anything), st.lists(anything, max_size=4))
def test_whatever_stands_in_the_notes_a_page_is_made(notes, peaks):
    facts(found(columns={"peak_bytes": peaks}, flops=notes, **notes))
