"""One ssh connection a host, each with `benchmarks.launch.node` at its far end; ClusterShell holds them.

    python -m benchmarks.launch.fanout --hosts=n1,n2 --ranks-per-node=8 --rank-log=ranks.log --module=benchmarks.worker

What ranks print goes to the rank log; what hosts and ssh say goes to standard output, each line with its host. When a
host ends badly or cannot be reached, the others are let go. When this process ends, however it ends, the far ends see
their input close and end their ranks.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import sys
from pathlib import Path
from typing import IO, Any

from ClusterShell.Event import EventHandler
from ClusterShell.Task import task_self

from benchmarks.launch import container
from benchmarks.launch.checkout import ROOT
from benchmarks.launch.forwarded import forwarded

CONNECT_S = 15
OF_RANK = re.compile(rb"^\d+: ")


class Collector(EventHandler):  # type: ignore[misc]
    """Sorts what the hosts say, and lets all go when one fails."""

    def __init__(self, rank_log: IO[bytes]) -> None:
        self.rank_log = rank_log
        self.failed: dict[str, int] = {}
        self.workers: list[Any] = []

    def ev_read(self, worker: Any, node: str, sname: str, msg: bytes) -> None:
        """One line of a host."""
        if sname == worker.SNAME_STDOUT and OF_RANK.match(msg):
            self.rank_log.write(msg + b"\n")
            self.rank_log.flush()
        elif msg.startswith(b"rank "):
            print(msg.decode(errors="replace"), flush=True)
        else:
            print(f"{node}: {msg.decode(errors='replace')}", flush=True)

    def ev_hup(self, worker: Any, node: str, rc: int) -> None:  # noqa: ARG002
        """A host's connection ended."""
        if rc and not self.failed:
            self.failed[node] = rc
            why = "ssh could not reach it or was refused" if rc == 255 else f"exit status {rc}"
            print(f"{node}: ended: {why}", flush=True)
            for other in self.workers:
                other.set_write_eof()


def main() -> int:
    """Start the ranks on every host and wait for them."""
    parser = argparse.ArgumentParser(description="start ranks on hosts over ssh")
    parser.add_argument("--hosts", required=True)
    parser.add_argument("--ranks-per-node", type=int, required=True)
    parser.add_argument("--rank-log", required=True, type=Path)
    parser.add_argument("--module", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--image", default="")
    parser.add_argument("ssh_options", nargs="*")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(1))
    with asked.rank_log.open("ab") as rank_log:
        return start(asked, Collector(rank_log))


def start(asked: argparse.Namespace, collector: Collector) -> int:
    """One worker a host, in the order given: the first host has rank 0. Returns 1 where one failed."""
    hosts = asked.hosts.split(",")
    task = task_self()
    task.set_info("fanout", len(hosts) + 1)  # ranks live until all are done: none may wait for another's end
    task.set_info("connect_timeout", CONNECT_S)
    task.set_info("ssh_options", shlex.join(["-oBatchMode=yes", *asked.ssh_options]))
    line = f"cd {shlex.quote(ROOT)} && exec {shlex.quote(asked.python)} -m benchmarks.launch.node"
    for number, host in enumerate(hosts):
        given = {
            "world": len(hosts) * asked.ranks_per_node, "first": number * asked.ranks_per_node,
            "ranks": asked.ranks_per_node, "module": asked.module, "env": forwarded(os.environ),
            "wrap": container.inside(asked.image, [], mount=ROOT), "python": container.PYTHON if asked.image else "",
        }  # fmt: skip
        worker = task.shell(line, nodes=host, handler=collector, stdin=True, stderr=True)
        worker.write(json.dumps(given).encode() + b"\n")
        collector.workers.append(worker)
    task.resume()
    return int(bool(collector.failed))


if __name__ == "__main__":
    sys.exit(main())
