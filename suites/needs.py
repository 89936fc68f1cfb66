"""What a check needs measured: `@needs` ties a pytest check to the specs of its benchmarks.

    @needs(lambda cluster: Gemm(sizes=cluster.setting("gemm", "sizes", (1024,))))
    def test_every_device_reaches_its_rate(verdicts):
        verdicts("gemm.*").must_pass()

The lambda is called with the cluster before anything is collected or selected: what is expected of a run
comes from here, for every check of the suite, and `-k` cannot make it smaller. A suite is a name
(smoke, acceptance, nightly, node); a check belongs to those it lists.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from benchmarks.spec import Spec
from clusters.cluster import Cluster

SUITES = ("smoke", "acceptance", "nightly", "node", "fabric")
FOLDER = Path(__file__).parent
F = TypeVar("F", bound=Callable[..., None])
Build = Callable[[Cluster], Spec | Sequence[Spec]]


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check of a suite: its pytest node id and how its specs follow from the cluster."""

    test: str  # suites/test_gemm.py::test_every_device_reaches_its_rate
    build: Build

    def specs(self, cluster: Cluster) -> list[Spec]:
        """The specs it needs on this cluster; at least one."""
        try:
            built: Any = self.build(cluster)
        except TypeError as error:
            raise ValueError(f"{cluster.path}: a setting that {self.test} reads has the wrong type: {error}") from None
        specs = list(built) if isinstance(built, Iterable) else [built]
        if not specs:
            raise ValueError(f"{self.test} asks for nothing on {cluster.name}: a check that measures nothing is none")
        return specs


def needs(build: Build, *, suites: Sequence[str] = ("acceptance", "nightly")) -> Callable[[F], F]:
    """Mark a check with the specs it needs and the suites it belongs to.

    Raises ValueError for a suite that does not exist.
    """
    if unknown := set(suites) - set(SUITES):
        raise ValueError(f"no suite {', '.join(sorted(unknown))}: there are {', '.join(SUITES)}")

    def mark(function: F) -> F:
        function.needs = (build, tuple(suites))  # type: ignore[attr-defined]
        return function

    return mark


def checks(suite: str, folder: Path = FOLDER) -> list[Check]:
    """Every check of a suite, in file and line order, read from the modules themselves.

    Raises ValueError where a test in the folder has no `@needs`, or a module skips itself: it would judge nothing.
    """
    found: list[Check] = []
    for path in sorted(folder.glob("test_*.py")):
        try:
            module = importlib.import_module(f"{folder.name}.{path.stem}")
        except pytest.skip.Exception as skipped:
            raise ValueError(
                f"{folder.name}/{path.name} skips itself ({skipped}): what is skipped proves nothing; take the skip "
                f"out, or exempt its metrics in the cluster file: [not_applicable]"
            ) from None
        for name, function in vars(module).items():
            if not name.startswith("test_") or not callable(function):
                continue
            if not hasattr(function, "needs"):
                raise ValueError(f"{folder.name}/{path.name}::{name} has no @needs: it measures nothing")
            build, suites = function.needs
            if suite in suites:
                found.append(Check(test=f"{folder.name}/{path.name}::{name}", build=build))
    return found
