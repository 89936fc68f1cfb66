"""Several layouts in one launch, each beside its prediction: what more stages, replicas or tensor parallel ranks cost.

    torchrun --nproc-per-node=4 -m benchmarks training --sweep dp4 tp2,dp2 pp4 pp2,dp2:zbv:2 --micro-batches 8

Every layout must use all ranks. It is proven, then timed, as the benchmark does with one; the options are that
benchmark's. A table goes to stdout, records to --records FILE. With --against FILE, an earlier sweep's records (of
fewer nodes, say), the table says which share of that rate a rank keeps. Exit: 0 measured, 1 a layout is wrong, 4 usage.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.__main__ import add_fields, place_of
from benchmarks.measurement import Measurement, RecordError, decode, encode
from benchmarks.spec import Place
from benchmarks.training.spec import Training

COLUMNS = ("layout", "step s", "predicted", "tokens/s", "kept", "bubble", "as planned", "network", "waits for")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line, on every rank."""
    options = parser().parse_args(argv)
    place = place_of(options.device)
    try:
        specs = list(specs_of(options, place))
        before = earlier(options.against)
    except (ValueError, OSError) as error:
        print(f"python -m benchmarks training --sweep: {error}", file=sys.stderr)
        return 4
    return measure(specs, place, options, before)


def parser() -> argparse.ArgumentParser:
    """The layouts, and the training benchmark's own options."""
    assert __doc__
    made = argparse.ArgumentParser(
        prog="python -m benchmarks training --sweep", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    made.add_argument(
        "--sweep", nargs="+", required=True, metavar="LAYOUT",
        help="tp2,pp2,dp1; with :zbv:2 behind it its schedule and stages per rank",
    )  # fmt: skip
    made.add_argument("--records", type=Path, help="a file for the records, JSON lines")
    made.add_argument("--against", type=Path, help="records of an earlier sweep")
    made.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where ranks compute")
    add_fields(made, Training)
    return made


def specs_of(options: argparse.Namespace, place: Place) -> Iterator[Training]:
    """One spec a layout. ValueError where one cannot run here."""
    fields = {f.name: getattr(options, f.name) for f in dataclasses.fields(Training)}
    for text in options.sweep:
        spec = spec_of(text, fields)
        spec.check(place)
        yield spec


def spec_of(text: str, fields: Mapping[str, Any]) -> Training:
    """The spec of these fields in a layout such as "pp4" or, with its schedule and stages per rank, "pp4:zbv:2"."""
    layout, _, schedule = text.partition(":")
    schedule, _, stages = schedule.partition(":")
    own = {"layout": layout, "schedule": schedule or fields["schedule"]}
    return Training(**{**fields, **own, "stages_per_rank": int(stages or fields["stages_per_rank"])})


def earlier(path: Path | None) -> dict[str, float]:
    """Tokens per second of a rank by layout without its replicas, from records. ValueError where they are none."""
    found = {}
    try:
        for line in path.read_text().splitlines() if path else ():
            m = decode(Measurement, line)
            if m.metric == "training.tokens_rate" and m.samples:
                found[series(m)] = median(m.samples) / (m.subject.ranks or 1)
    except RecordError as error:
        raise ValueError(f"{path} holds no records: {error}") from None
    return found


def series(m: Measurement) -> str:
    """What is compared over numbers of nodes: the same model, layout and schedule with more or fewer replicas."""
    layout = ",".join(part for part in str(m.params["layout"]).split(",") if not part.startswith("dp"))
    return f"{m.params['model']} {layout} {m.params['schedule']}"


def measure(specs: list[Training], place: Place, options: argparse.Namespace, before: dict[str, float]) -> int:
    """Run every spec on every rank; rank 0 tells."""
    import torch.distributed as dist

    from benchmarks.training.run import run
    from benchmarks.world import open_world

    os.environ.update({name: value for spec in specs for name, _, value in (pair.partition("=") for pair in spec.env)})
    world, rows, wrong = open_world(place, timeout_s=300), [], False
    for spec in specs:
        if world.is_first and (warning := spec.warning(place)):
            print(f"warning: {spec.layout}: {warning}", file=sys.stderr)
        found = {m.metric: m for m in run(spec, world)}
        if world.is_first:
            wrong |= any(m.outcome != "ok" for m in found.values())
            rows.append(row(found, before))
            if options.records:
                with options.records.open("a") as file:
                    file.writelines(encode(m) + "\n" for m in found.values())
    wrong = world.gather(wrong)[0]
    if world.is_first:
        print(table(rows))
    world.barrier()
    dist.destroy_process_group()
    return int(wrong)


def row(found: dict[str, Measurement], before: dict[str, float]) -> list[Any]:
    """One layout's line of the table."""
    step, tokens = found["training.step.time"], found["training.tokens_rate"]
    if step.outcome != "ok":
        return [step.params["layout"], step.reason]
    bubble, network = found.get("training.bubble"), found.get("training.network_share")
    rank_rate = median(tokens.samples) / (tokens.subject.ranks or 1)
    reference = before.get(series(tokens))
    waits = {k: v for k, v in step.notes["split"].items() if k in ("tp", "cp", "dp", "pp")}
    longest = max(waits, key=lambda axis: waits[axis], default="")
    return [
        step.params["layout"], median(step.samples), step.notes["predicted"]["step_s"], median(tokens.samples),
        f"{rank_rate / reference:.1%}" if reference else "-",
        f"{median(bubble.samples):.1%}" if bubble else "-", f"{bubble.notes['predicted']:.1%}" if bubble else "-",
        f"{median(network.samples):.1%}" if network else "-", f"{longest} {waits[longest]:.1%}" if longest else "-",
    ]  # fmt: skip


def table(rows: list[list[Any]]) -> str:
    """The table as text."""
    from tabulate import tabulate

    return str(tabulate(rows, headers=COLUMNS, floatfmt=".4g"))


if __name__ == "__main__":
    sys.exit(main())
