"""The examples in the modules' own words run and say what they claim."""

from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = (
    "checkpoint.shards", "checkpoint.spec", "checkpoint.manifest", "checkpoint.leftovers", "checkpoint.pattern",
    "storage.filesystem", "storage.identity", "storage.lustre", "storage.traffic", "gemm.spec", "memory.spec",
    "inventory",
)  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_the_example_runs(name: str):
    found = doctest.testmod(importlib.import_module(f"benchmarks.{name}"))
    assert found.attempted > 0
    assert found.failed == 0
