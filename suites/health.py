"""A node's own checks in under ten seconds: for Slurm's HealthCheckProgram, a Prolog, or by hand.

    python -m suites.health                          # this node, as it is
    python -m suites.health --cluster site/rack7.toml # and as the file says it should be

Only what one node can say of itself, without torch and without load: GPUs as many and of the kind that the file says,
no stranger on them, network ports with a link, memory and /dev/shm, free space where scratch files go. Exit status 0
fit, 1 not fit; one line of reason on standard output. With `--drain` the node drains itself (HealthCheckProgram runs as
root on the node; Slurm's own way). It knows nothing of Slurm's configuration: neither program is given SLURM_CONF.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

from benchmarks import inventory, scratch, strangers
from benchmarks.ports import ports
from clusters.cluster import Cluster
from clusters.loader import ClusterError, load

LIMIT_S = 9
FREE_BYTES = 1 << 30  # less than a GiB for scratch files: benchmarks would fail for that alone
SHM_BYTES = 64 << 20  # NCCL and torch keep their queues there


class TooLongError(Exception):
    """A check hung: a driver that does not answer is a finding."""


Check = Callable[[Cluster | None], Iterator[str]]


def gpus(cluster: Cluster | None) -> Iterator[str]:
    """GPUs: all there, of the kind that the file says."""
    found = inventory.gpus()
    if cluster is None or not cluster.gpus_per_node:
        return
    if len(found) != cluster.gpus_per_node:
        yield f"{len(found)} GPUs of {cluster.gpus_per_node}"
    if cluster.gpu and (other := sorted({g.name for g in found} - set(cluster.gpu.names))):
        yield f"GPU is {other[0]}, not {cluster.gpu.sku}"


def others(cluster: Cluster | None) -> Iterator[str]:  # noqa: ARG001
    """No process of a stranger on a GPU."""
    yield from map(str, strangers.strangers())


def links(cluster: Cluster | None) -> Iterator[str]:
    """Network ports: those that are switched on have a link."""
    found = ports()
    yield from (f"{port} has no link" for port, state in sorted(found.items()) if state == "down")
    if cluster and cluster.network.kind == "infiniband":
        up = sum("/" in port and state == "up" for port, state in found.items())
        if up < cluster.network.nics_per_node:
            yield f"{up} InfiniBand ports up of {cluster.network.nics_per_node}"


def room(cluster: Cluster | None) -> Iterator[str]:  # noqa: ARG001
    """Space for scratch files and shared memory."""
    for path, least in ((Path(scratch.root()), FREE_BYTES), (Path("/dev/shm"), SHM_BYTES)):
        if path.is_dir() and (free := shutil.disk_usage(path).free) < least:
            yield f"{path} has {free >> 20} MiB free of {least >> 20} needed"
        if path.is_dir() and not os.access(path, os.W_OK):
            yield f"{path} is not writable"


CHECKS: tuple[Check, ...] = (gpus, others, links, room)


def findings(cluster: Cluster | None, checks: Sequence[Check] = CHECKS) -> list[str]:
    """What is wrong with this node; [] where it is fit. A check that hangs is one, and ends the list."""
    found: list[str] = []
    old = signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LIMIT_S)
    try:
        for check in checks:
            try:
                found += check(cluster)
            except inventory.DriverError as error:
                found.append(str(error))
            except TooLongError:
                found.append(f"the check of {check.__name__} did not end within {LIMIT_S} s")
                break
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Check this node and say it in one line."""
    parser = argparse.ArgumentParser(prog="python -m suites.health", description="is this node fit, in under 10 s")
    parser.add_argument("--cluster", default="", metavar="NAME|FILE", help="what the node should be")
    parser.add_argument("--drain", action="store_true", help="drain this node where it is not fit")
    asked = parser.parse_args(words)
    node = socket.gethostname().partition(".")[0]
    try:
        found = findings(load(asked.cluster) if asked.cluster else None)
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 4
    reason = "; ".join(found).replace("\n", " ")
    print(f"{node}: {reason}" if found else f"{node}: fit")
    if found and asked.drain:
        words = ["scontrol", "update", f"nodename={node}", "state=drain", f"reason=rackproof health: {reason}"[:200]]
        done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        if done.returncode:
            print(f"{node}: could not be drained: {done.stderr.strip()}", file=sys.stderr)
    return int(bool(found))


def _too_long(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    raise TooLongError


if __name__ == "__main__":
    sys.exit(main())
