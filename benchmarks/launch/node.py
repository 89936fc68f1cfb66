"""Ranks of one node, started by whoever holds the other end of standard input: the far side of the ssh launcher.

    echo '{"world": 2, "first": 0, "ranks": 2, "module": "this", "env": {}}' | python -m benchmarks.launch.node

The first line of standard input says what to start; secrets among the variables thus never stand on a command line.
Standard input then stays open: when it ends, whoever asked is gone, and the ranks are ended. Each line that a rank
prints is labelled with its number. When one rank ends badly, that is said and the others are ended.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import IO, Any

from benchmarks.launch.torchrun import how

TERM_S = 10.0  # from TERM to KILL
GONE = "the launcher is gone"


def main() -> int:
    """Start the ranks that the first line asks for and wait for them. Returns 1 where one ended badly."""
    asked: dict[str, Any] = json.loads(sys.stdin.readline())
    ranks = {asked["first"] + local: start(asked, local) for local in range(asked["ranks"])}
    labellers = [threading.Thread(target=label, args=(rank, p.stdout)) for rank, p in ranks.items()]
    for thread in labellers:
        thread.start()
    gone = threading.Event()
    threading.Thread(target=_await_end, args=(sys.stdin, gone), daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: gone.set())
    bad = watch(ranks, gone)
    for thread in labellers:
        thread.join(1.0)  # a process that a rank left behind may hold its output open
    sys.stdout.flush()
    os._exit(bad)


def start(asked: dict[str, Any], local: int) -> subprocess.Popen[bytes]:
    """Start one rank with the variables of torchrun."""
    own = {
        "RANK": str(asked["first"] + local), "WORLD_SIZE": str(asked["world"]), "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(asked["ranks"]),
    }  # fmt: skip
    command = [*asked.get("wrap", []), asked.get("python") or sys.executable, "-m", asked["module"]]
    return subprocess.Popen(
        command, env={**os.environ, **asked["env"], **own}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


def label(rank: int, output: IO[bytes] | None) -> None:
    """Print each line of a rank's output with its number in front."""
    for line in output or ():
        print(f"{rank}: {line.decode(errors='replace').rstrip()}", flush=True)


def watch(ranks: dict[int, subprocess.Popen[bytes]], gone: threading.Event) -> int:
    """Wait until all have ended well; else say which did not and end the rest. Returns 0 or 1."""
    while True:
        status = {rank: p.poll() for rank, p in ranks.items()}
        running = None in status.values()
        bad = {rank: code for rank, code in status.items() if code}
        for rank, code in bad.items():
            print(f"rank {rank} on {socket.gethostname()} ended: {how(code)}", flush=True)
        if bad or not running:
            break
        if gone.wait(0.05):
            print(GONE, file=sys.stderr, flush=True)
            break
    end(list(ranks.values()))
    return int(bool(bad) or gone.is_set())


def end(processes: list[subprocess.Popen[bytes]]) -> None:
    """TERM, ten seconds, KILL: to these processes and what they started in their sessions."""
    for number in (signal.SIGCONT, signal.SIGTERM):
        for process in (p for p in processes if p.poll() is None):
            os.killpg(process.pid, number)
    last = time.monotonic() + TERM_S
    while any(p.poll() is None for p in processes) and time.monotonic() < last:
        time.sleep(0.05)
    for process in (p for p in processes if p.poll() is None):
        os.killpg(process.pid, signal.SIGKILL)


def _await_end(stream: IO[str], gone: threading.Event) -> None:
    while stream.readline():
        pass
    gone.set()


if __name__ == "__main__":
    sys.exit(main())
