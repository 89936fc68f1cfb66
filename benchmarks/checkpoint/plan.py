"""What a checkpoint would write, to the byte, and what a time limit would ask of the storage. Runs nothing.

    python -m benchmarks checkpoint --dry-run --model 70b --layout tp8,pp4,dp16 --within 30
    python -m benchmarks checkpoint --dry-run --model 405b --layout tp8,pp16,dp8 --cluster h100-512-reference

Decimal (GB) and binary (GiB) sizes are printed side by side, because published checkpoint sizes mix them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from benchmarks.checkpoint.shards import CHECKPOINT_BYTES, CONTENTS, rank_shards, total_bytes
from clusters.loader import load
from clusters.physics import daly_interval, lost_share
from clusters.table import ClusterError
from reference_model.layout import Layout
from reference_model.shape import SHAPES, shape_of


def main(argv: Sequence[str]) -> int:
    """The command line. 0: printed; 4: the model, the layout or the cluster file is refused."""
    options = parser().parse_args(argv)
    try:
        print("\n".join(page(options)))
    except (ValueError, ClusterError) as error:
        print(f"python -m benchmarks checkpoint --dry-run: {error}", file=sys.stderr)
        return 4
    return 0


def parser() -> argparse.ArgumentParser:
    """Options: what is saved by whom, how fast it should be, and how often something fails."""
    assert __doc__
    made = argparse.ArgumentParser(
        prog="python -m benchmarks checkpoint --dry-run", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    made.add_argument("--dry-run", action="store_true", required=True)
    made.add_argument("--model", default="70b", choices=sorted(SHAPES))
    made.add_argument("--layout", default="tp8,pp4,dp16", help='how it is spread: "tp8,pp4,dp16"')
    made.add_argument("--contents", default="", choices=["", *CONTENTS], help="default: all of them")
    made.add_argument("--ranks-per-node", type=int, default=8)
    made.add_argument("--within", type=float, default=30.0, help="seconds until durable")
    made.add_argument("--cluster", default="", help="cluster file: what its network could carry")
    made.add_argument("--mtbf", type=float, default=0.0, help="seconds between failures of the whole job, on average")
    return made


def page(options: argparse.Namespace) -> Iterator[str]:
    """The lines of the plan."""
    shape, layout = shape_of(options.model), Layout.parse(options.layout)
    yield f"{shape.name}: {shape.parameters:,} parameters as {layout} on {layout.ranks} ranks"
    for contents in [options.contents] if options.contents else CONTENTS:
        per_rank = [saved_bytes(options.model, layout, rank, contents) for rank in range(layout.ranks)]
        total = total_bytes(shape, layout, contents)
        assert sum(per_rank) == total, "the parts do not add up to the whole"
        most = max(range(layout.ranks), key=per_rank.__getitem__)
        least = min(range(layout.ranks), key=per_rank.__getitem__)
        nodes = [sum(per_rank[i : i + options.ranks_per_node]) for i in range(0, layout.ranks, options.ranks_per_node)]
        yield ""
        yield f"{contents}: {CHECKPOINT_BYTES[contents]} bytes per parameter"
        yield f"  whole checkpoint  {both(total)} in {layout.ranks} files of ranks and .metadata"
        yield f"  a rank            {both(per_rank[most])} at most (rank {most}), {both(per_rank[least])} at least"
        yield f"  a node            {both(max(nodes))} at most, of {len(nodes)} nodes"
        rate = total / options.within
        of_node = max(nodes) / options.within
        yield f"  {f'in {options.within:g} s':<17} {rate / 1e9:,.3g} GB/s in all, {of_node / 1e9:.3g} GB/s a node"
        yield from _network(options, len(nodes), rate)
        yield from _goodput(options)


def saved_bytes(model: str, layout: Layout, rank: int, contents: str) -> int:
    """Bytes that one rank writes."""
    return sum(s.bytes for s in rank_shards(SHAPES[model], layout, rank, contents) if s.saved_here)


def both(size: int) -> str:
    """A size in bytes, decimal and binary."""
    unit = 1 if size < 1e9 else 0
    decimal, binary = ((1e6, "MB"), (2**20, "MiB")) if unit else ((1e9, "GB"), (2**30, "GiB"))
    return f"{size:,} B = {size / decimal[0]:.4g} {decimal[1]} = {size / binary[0]:.4g} {binary[1]}"


def _network(options: argparse.Namespace, num_nodes: int, rate: float) -> Iterator[str]:
    if options.cluster:
        carried = num_nodes * load(options.cluster).network.node_rate
        if carried:
            verdict = "possible" if carried >= rate else "impossible: no storage can be that fast"
            yield f"  the network       carries {carried / 1e9:,.0f} GB/s from {num_nodes} nodes at most: {verdict}"


def _goodput(options: argparse.Namespace) -> Iterator[str]:
    if options.mtbf:
        best = daly_interval(save_s=options.within, mtbf_s=options.mtbf)
        lost = lost_share(interval_s=best, save_s=options.within, restart_s=300.0, mtbf_s=options.mtbf)
        yield f"  best interval     {best:.0f} s of training between saves: {lost:.1%} of the time lost (Daly)"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
