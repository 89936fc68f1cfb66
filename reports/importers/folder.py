"""An import as a run folder, so that its numbers are judged, shown and compared like measured ones.

What is expected of such a run is what the file holds: nothing says what a suite would have asked for, so its
outcome is never better than INCOMPLETE. A file that was not read whole, or holds what cannot be, adds a check
of its own that says so.

    python -m reports import all_reduce.txt --as nccl-tests --cluster h100-sxm-ndr400 --into runs/vendor
    python -m reports table runs/vendor
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.measurement import Event, Expected, Measurement, Run, encode, now
from clusters.cluster import Cluster
from reports.importers.source import Imported
from reports.runs import CLUSTER, EVENTS, HEAD, MEASUREMENTS

FILE_METRIC = "import.file"


def write(imported: Imported, *, cluster: Cluster, folder: Path, command: str = "") -> None:
    """Write the folder. FileExistsError where there is one: a run is never changed."""
    folder.mkdir(parents=True)
    records = [*imported.measurements, *_problem(imported)]
    nodes, sku = imported.nodes or cluster.nodes, cluster.gpu.sku if cluster.gpu else ""
    run = Run(
        id=folder.name, suite="import", cluster=cluster.name, cluster_sha256=cluster.sha256, started_at=now(),
        nodes=nodes, scope={"sku": sku, "nodes": nodes, "backend": imported.backend}, command=command,
        expected=tuple(_expected(record, imported) for record in records),
    )  # fmt: skip
    detail = {"file": imported.path, "tool": imported.tool, "problems": [p.sentence for p in imported.problems]}
    events = [Event(kind="imported", at=now(), detail=detail), Event(kind="ended", at=now())]
    (folder / CLUSTER).write_text(cluster.text)
    (folder / MEASUREMENTS).write_text("".join(f"{encode(record)}\n" for record in records))
    (folder / EVENTS).write_text("".join(f"{encode(event)}\n" for event in events))
    (folder / HEAD).write_text(f"{encode(run)}\n")  # last: a folder without its head is no run


def _expected(record: Measurement, imported: Imported) -> Expected:
    columns = record.columns
    per = "pair" if "a" in columns else "rank" if "rank" in columns else "world"
    return Expected(
        metric=record.metric, unit=record.unit, better=record.better, config=record.config, params=record.params,
        test=f"import {Path(imported.path).name}", per=per, units=len(columns["samples"]) if columns else 1,
    )  # fmt: skip


def _problem(imported: Imported) -> list[Measurement]:
    if not imported.problems:
        return []
    said = [f"line {p.line}: {p.sentence}" if p.line else p.sentence for p in imported.problems]
    more = f" and {len(said) - 5} more" if len(said) > 5 else ""
    return [
        Measurement(
            metric=FILE_METRIC, unit="1", better="equal", config="imported", outcome="error",
            reason=f"{imported.path} was not read whole and sound: {'; '.join(said[:5])}{more}",
        )
    ]  # fmt: skip
