"""What a launcher would run, printed: the command line of a job, or a manifest for Kubernetes.

    python -m benchmarks.launch srun --nodes 4 --ranks-per-node 8 --hosts n[1-4]
    python -m benchmarks.launch kubernetes --nodes 4 --ranks-per-node 8 --image registry.example/torch:1 > job.json

Nothing is started.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys

from benchmarks.launch import LAUNCHERS, Job, kubernetes
from benchmarks.launch.checkout import ROOT
from benchmarks.spec import Place


def main(words: list[str] | None = None) -> int:
    """Print what was asked for. Returns 4 where it cannot be."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.launch", description="print how ranks would be started")
    parser.add_argument("launcher", choices=[*sorted(LAUNCHERS), "kubernetes"])
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--ranks-per-node", type=int, default=1)
    parser.add_argument("--hosts", default="", help="node names, comma-separated or folded")
    parser.add_argument("--image", default="", help="a container image")
    parser.add_argument("--module", default="benchmarks.worker")
    parser.add_argument("--name", default="rackproof", help="of the Kubernetes objects")
    parser.add_argument("--jobset", action="store_true", help="a JobSet instead of a Service and an Indexed Job")
    parser.add_argument("--cpu", action="store_true", help="no GPUs are asked for")
    parser.add_argument("--checkout", default=ROOT, help="where the checkout lies in the image (kubernetes)")
    asked = parser.parse_args(words)
    try:
        print(_kubernetes(asked) if asked.launcher == "kubernetes" else _command(asked))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 4
    return 0


def _command(asked: argparse.Namespace) -> str:
    from ClusterShell.NodeSet import NodeSet

    place = Place(nodes=asked.nodes, ranks_per_node=asked.ranks_per_node)
    hosts = tuple(NodeSet(asked.hosts)) if asked.hosts else ()
    job = Job(place=place, hosts=hosts, log_dir="logs", image=asked.image, module=asked.module)
    return shlex.join(LAUNCHERS[asked.launcher].command(job))


def _kubernetes(asked: argparse.Namespace) -> str:
    if not asked.image:
        raise ValueError("pods run an image: name it with --image")
    manifest = kubernetes.render(
        image=asked.image, num_nodes=asked.nodes, ranks_per_node=asked.ranks_per_node, name=asked.name,
        module=asked.module, gpus=not asked.cpu, jobset=asked.jobset, checkout=asked.checkout,
    )  # fmt: skip
    return json.dumps(manifest, indent=2)


if __name__ == "__main__":
    sys.exit(main())
