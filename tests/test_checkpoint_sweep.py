"""The sweep writes what it says, tries every way in every round, and advises the fewest writers that are fast."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.checkpoint.sweep import Way, advice, sweep, ways
from benchmarks.storage.aligned import Staging
from benchmarks.world import World
from tests.ranks import on_ranks


def test_the_fewest_writers_within_five_percent_are_advised():
    rates = {
        Way(ranks=1, threads=1): [50.0, 60.0, 55.0],
        Way(ranks=1, threads=2): [90.0, 96.0, 97.0],
        Way(ranks=2, threads=1): [93.0, 95.0, 99.0],
        Way(ranks=8, threads=4): [100.0, 100.0, 10.0],
    }
    assert advice(rates) == (Way(ranks=1, threads=2), 0.96)
    assert advice({way: [rate] for way, rate in zip(rates, (1.0, 2.0, 2.0, 9.0), strict=True)})[0].ranks == 8


def test_every_number_of_ranks_is_tried_and_stripes_on_lustre_only():
    assert {way.ranks for way in ways(6, lustre=False)} == {1, 2, 4, 6}
    assert {way.stripes for way in ways(2, lustre=False)} == {0}
    assert {way.stripes for way in ways(2, lustre=True)} == {1, 4, -1}
    assert Way(ranks=2, threads=2, stripes=4).label == "2 ranks per node, 2 threads, stripe count 4"


def test_the_sweep_is_a_word_of_the_benchmark(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        main(["checkpoint", "--sweep"])
    assert end.value.code == 4
    assert "checkpoint --sweep: error: the following arguments are required: --directory" in capsys.readouterr().err


@pytest.mark.slow
def test_every_way_writes_the_same_bytes_in_every_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def case(world: World) -> tuple[dict[Way, list[float]], list[int]]:
        sizes: list[int] = []
        write = Staging.write
        monkeypatch.setattr(Staging, "write", lambda *words: sizes.append(write(*words)))
        return sweep(world, tmp_path, node_bytes=3 * 2**20 + 4, rounds=2), sizes

    answers = on_ranks(2, case, deadline_s=200.0)
    rates = answers[0][0]
    assert set(rates) == set(ways(2, lustre=False))
    assert all(len(samples) == 2 and min(samples) > 0 for samples in rates.values())
    written = [sum(sizes) for _, sizes in answers]
    assert sum(written) == len(rates) * 2 * (3 * 2**20 + 4)
    assert list(tmp_path.iterdir()) == []
