"""How often each planted fault is named, on real ranks over real, shaped links: one trial of every kind (as root).

make bench ARGS="-k culprits"                                      # about eight minutes
python -m tests.testbed.trials --trials 10 --results trials.jsonl  # the whole table, in as many sittings as it takes
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.testbed import trials


@pytest.mark.machine("root")
def test_culprits_of_every_kind(benchmark: Any, tmp_path: Path) -> None:
    """Prints the table; whoever is not named shows there."""
    results = tmp_path / "trials.jsonl"
    benchmark.pedantic(trials.main, args=(["--trials", "1", "--results", str(results)],), rounds=1)
    assert len(results.read_text(encoding="utf-8").splitlines()) == len(trials.CASES) + len(trials.TWENTY)
