"""Training: steps of the reference model compute what one process computes, and are fast enough."""

from __future__ import annotations

import dataclasses
from typing import Any

from benchmarks.training.spec import Training
from clusters.cluster import Cluster
from suites.needs import needs


def training(cluster: Cluster) -> Training:
    """The job of the cluster file's [training] table; what it leaves out is the spec's default."""
    settings = {f.name: cluster.setting("training", f.name, f.default) for f in dataclasses.fields(Training)}
    return Training(**settings)


@needs(training, suites=("smoke", "acceptance", "nightly"))
def test_steps_compute_what_one_process_computes(verdicts: Any) -> None:
    """Loss and every gradient of this layout, in float64, against a single process."""
    verdicts("training.*_error").must_pass()


@needs(training)
def test_steps_are_fast_enough(verdicts: Any) -> None:
    """Step time, tokens per second and model FLOP/s of the slowest rank; a wrong step has none."""
    verdicts("training.*").must_pass()
