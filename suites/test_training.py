"""Training: steps of the reference model compute what one process computes, and are fast enough."""

from __future__ import annotations

import dataclasses
from typing import Any

from benchmarks.training.spec import Training
from clusters.cluster import Cluster
from suites.needs import needs


def training(cluster: Cluster) -> Training:
    """The job of the cluster file's [training] table; what it leaves out is the spec's default."""
    defaults = {f.name: f.default for f in dataclasses.fields(Training)} | data_sheet(cluster)
    return Training(**{name: cluster.setting("training", name, default) for name, default in defaults.items()})


def data_sheet(cluster: Cluster) -> dict[str, float]:
    """What the cluster file's GPU and network should do: for MFU, and for the planned step beside the measured one."""
    gpu, per_node = cluster.gpu, cluster.gpus_per_node
    if gpu is None or not per_node:
        return {}
    return {
        "peak": gpu.bf16_flops, "memory_rate": gpu.memory_bandwidth, "inside_rate": gpu.nvlink_bandwidth,
        "between_rate": cluster.network.node_rate / per_node,
    }  # fmt: skip


@needs(training, suites=("smoke", "acceptance", "nightly"))
def test_steps_compute_what_one_process_computes(verdicts: Any) -> None:
    """Loss and every gradient of this layout, in float64, against a single process."""
    verdicts("training.*_error").must_pass()


@needs(training)
def test_steps_are_fast_enough(verdicts: Any) -> None:
    """Step time, tokens per second and model FLOP/s of the slowest rank; a wrong step has none."""
    verdicts("training.*").must_pass()
