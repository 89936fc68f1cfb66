"""Where a campaign's checkpoints go: `--checkpoint-dir` before the cluster file, and never where the results lie.

Results on the file system under test would be lost with it, and would be written while it is measured.

    cluster = under_test(cluster, options.checkpoint_dir)
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from clusters.cluster import Cluster
from reports.runs import StoredRun
from suites.options import UsageError

TABLE, KEY = "checkpoint", "directory"


def under_test(cluster: Cluster, folder: str) -> Cluster:
    """The cluster with `folder` as the place of its checkpoints and token files; "": as its file says."""
    if not folder:
        return cluster
    place = {**cluster.settings.get(TABLE, {}), KEY: str(Path(folder).absolute())}
    return replace(cluster, settings={**cluster.settings, TABLE: place})


def before(stored: StoredRun) -> str:
    """The folder that a run saved to; "" where it saved nothing, or to a temporary one."""
    saved = (config.spec.get(KEY, "") for config in stored.run.configs if config.benchmark == TABLE)
    return next(map(str, saved), "")


def refuse_results_on(cluster: Cluster, runs: Path) -> None:
    """UsageError where run folders would lie on the file system under test, as far as this machine sees it."""
    named = str(cluster.settings.get(TABLE, {}).get(KEY, ""))
    if not named or not Path(named).is_dir():
        return
    nearest = next(p for p in (runs.absolute(), *runs.absolute().parents) if p.exists())
    if nearest.stat().st_dev == Path(named).stat().st_dev:
        raise UsageError(
            f"{runs} is on the file system under test ({named}): results would be written while it is measured, and "
            f"lost with it; give a folder elsewhere: --run-dir"
        )
