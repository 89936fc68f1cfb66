"""Links on real wires: hosts with shaped cables and planted faults, and the tables must tell which is which."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.measurement import Measurement, decode
from tests.testbed import launch
from tests.testbed.bed import Bed
from tests.testbed.faults import Fault, planted

HOSTS, LEAVES, RATE_MBIT = 4, 2, 100.0
LIMIT_S = 120.0
# Windows of 512 KiB take 42 ms at this rate: the wire decides, not the scheduler.
OPTIONS = (
    "--bandwidth-sizes", "131072", "--bandwidth-budget-s", "0.3", "--latency-budget-s", "0.1", "--passes", "2",
    "--min-repetitions", "2",
)  # fmt: skip

pytestmark = [pytest.mark.slow, pytest.mark.machine("root")]
Run = Callable[..., dict[str, list[Measurement]]]


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with Bed(hosts=HOSTS, leaves=LEAVES, rate_mbit=RATE_MBIT) as built:
        yield built


@pytest.fixture
def links(bed: Bed, tmp_path: Path) -> Run:
    """Run the links benchmark on the bed with some options; its measurements by metric."""

    def run(*options: str) -> dict[str, list[Measurement]]:
        words = launch.command(bed.state, "-m", "benchmarks", "links", *OPTIONS, *options, log_dir=tmp_path)
        with launch.Ranks(words, log_dir=tmp_path) as ranks:
            status = ranks.wait(LIMIT_S)
            assert status == 0, "\n".join(ranks.log(rank)[-2000:] for rank in range(HOSTS))
            lines = [line for line in ranks.log(0).splitlines() if line.startswith("{")]
        found: dict[str, list[Measurement]] = {}
        for m in (decode(Measurement, line) for line in lines):
            found.setdefault(m.metric, []).append(m)
        return found

    return run


def rows(table: Measurement, column: str) -> dict[tuple[int, int], Any]:
    """A column by ordered pair."""
    return dict(zip(zip(table.columns["a"], table.columns["b"], strict=True), table.columns[column], strict=True))


def medians(table: Measurement) -> dict[tuple[int, int], float]:
    return {pair: statistics.median(samples) for pair, samples in rows(table, "samples").items()}


def test_a_host_that_sends_slowly_shows_in_its_rows_and_in_no_others(bed: Bed, links: Run) -> None:
    with planted(bed, Fault(kind="slow_transmit", host=2, amount=0.5)):
        (bandwidth,) = links()["links.bandwidth"]
    found = medians(bandwidth)
    wire = RATE_MBIT * 1e6 / 8
    for (a, _), rate in found.items():
        assert rate < wire * 1.02  # more than the wire carries is a wrong measurement
        assert (rate < wire * 0.52) == (a == 2)
    assert set(rows(bandwidth, "path").values()) == {"network"}


def test_loss_is_told_from_delay_by_the_counters_beside_the_pair(bed: Bed, links: Run) -> None:
    with planted(bed, Fault(kind="loss", host=1, amount=0.02)):
        found = links()
    (bandwidth,), (wrong,) = found["links.bandwidth"], found["links.wrong_elements"]
    resent = {pair: lost.get("tcp_retransmits", 0) for pair, lost in rows(bandwidth, "lost").items()}
    from_the_host = [count for (a, _), count in resent.items() if a == 1]
    elsewhere = [count for pair, count in resent.items() if 1 not in pair]
    assert min(from_the_host) > max(elsewhere)
    assert {samples[0] for samples in rows(wrong, "samples").values()} == {0.0}  # TCP repairs what is lost


def test_a_narrow_trunk_shows_only_when_flows_run_together(bed: Bed, links: Run) -> None:
    ways = ("--flows", "1,2", "--window", "16", "--bandwidth-budget-s", "1", "--min-repetitions", "1", "--passes", "1")
    clean = links(*ways)
    with planted(bed, Fault(kind="oversubscription", amount=0.5)):
        narrow = links(*ways)
    for direction in ("up", "down"):
        gain = {
            name: both(run, direction) / alone(run, direction) for name, run in (("clean", clean), ("narrow", narrow))
        }
        assert gain["clean"] > 1.6  # two flows carry twice as much as one
        assert gain["narrow"] < 1.3  # two flows share what one had
        assert alone(narrow, direction) == pytest.approx(alone(clean, direction), rel=0.2)


def test_a_message_that_shares_a_full_trunk_comes_late(bed: Bed, links: Run) -> None:
    ways = ("--congestion", "true", "--congestion-trips", "50", "--bandwidth-budget-s", "0", "--min-repetitions", "1")
    clean = links(*ways)
    with planted(bed, Fault(kind="slow_uplink", leaf=0, way="up", amount=0.9)):
        full = links(*ways)
    # a window of the other pair waits in the trunk's queue of up to 50 ms, and the message behind it
    late, usual = (
        statistics.median(run["links.congestion.mean_factor"][0].columns["loaded_s"]) for run in (full, clean)
    )
    assert late > 3 * usual


def alone(run: dict[str, list[Measurement]], direction: str) -> float:
    return flows(run, 1, direction)


def both(run: dict[str, list[Measurement]], direction: str) -> float:
    return flows(run, 2, direction)


def flows(run: dict[str, list[Measurement]], count: int, direction: str) -> float:
    """The best bandwidth of so many flows together, B/s: the scheduler only ever takes from it."""
    found = run["links.flows.bandwidth"]
    (m,) = [m for m in found if (m.params["flows"], m.params["direction"]) == (count, direction)]
    return max(m.samples)
