"""Ranks on the hosts of a bed: forked from one process that has imported torch, so that they start in a second.

    python -m tests.testbed.launch bed.json --log-dir logs --ranks-per-host 1 -m benchmarks.worker

Each rank enters its host, gets the variables that torchrun would give it, and runs the module. Its output
goes to LOG_DIR/rank3.log. When one rank dies, the others are ended and the status is 1; when this process
dies, the kernel ends its ranks. What it prints is read by `Ranks` and by whoever asks how a rank ended:

    rank 3 on node3 is process 4242
    rank 3 on node3 ended: SIGKILL
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.testbed.namespaces import become_host

ROOT = Path(__file__).resolve().parent.parent.parent
PR_SET_PDEATHSIG = 1
TERM_S = 3.0  # from TERM to KILL
STARTED = re.compile(r"^rank (\d+) on \S+ is process (\d+)$", re.MULTILINE)
ENDED = re.compile(r"^rank (\d+) on \S+ ended: (.+)$", re.MULTILINE)


class Ranks:
    """Ranks that were launched, from the side of the test. Leaving the block ends those that are left."""

    def __init__(self, command: list[str], *, log_dir: Path, env: dict[str, str] | None = None) -> None:
        self.log_dir = log_dir
        log_dir.mkdir(parents=True, exist_ok=True)
        self.output = log_dir / "launcher.log"
        with self.output.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
            )

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, where: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(3 * TERM_S)

    def pid(self, rank: int, limit_s: float = 60.0) -> int:
        """The rank's process, once it has started. TimeoutError where it does not."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end and self.process.poll() is None:
            if (started := dict(STARTED.findall(self.output.read_text()))).get(str(rank)):
                return int(started[str(rank)])
            time.sleep(0.02)
        raise TimeoutError(f"rank {rank} did not start:\n{self.output.read_text()}")

    def signal(self, rank: int, number: signal.Signals) -> None:
        """Send a signal to one rank: SIGSTOP hangs it, SIGKILL is its death."""
        os.kill(self.pid(rank), number)

    def wait(self, limit_s: float) -> int:
        """The launcher's status once all ranks have ended; subprocess.TimeoutExpired where they do not."""
        return self.process.wait(limit_s)

    def log(self, rank: int) -> str:
        """What a rank printed so far: nothing, where its file isn't open yet (a pid is told before)."""
        path = self.log_dir / f"rank{rank}.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def deaths(self) -> dict[int, str]:
        """Rank -> how it ended, of those that did not end well."""
        return deaths(self.output.read_text(encoding="utf-8"))


def command(state: Path | str, *words: str, log_dir: Path | str, ranks_per_host: int = 1, hosts: int = 0) -> list[str]:
    """The command line that runs `words` (-m MODULE ... or SCRIPT ...) on the first `hosts` hosts of a bed (0: all)."""
    options = ["--log-dir", str(log_dir), "--ranks-per-host", str(ranks_per_host), "--hosts", str(hosts)]
    return [sys.executable, "-m", "tests.testbed.launch", str(state), *options, *words]


def deaths(log: str) -> dict[int, str]:
    """Rank -> how it ended, from what a launcher printed: only ranks that did not end well."""
    return {int(rank): how for rank, how in ENDED.findall(log)}


def main() -> int:
    """Start the ranks and wait for them."""
    parser = argparse.ArgumentParser(description="run a module on every host of a test bed")
    parser.add_argument("state", help="the bed's state file")
    parser.add_argument("--log-dir", required=True)
    parser.add_argument("--ranks-per-host", type=int, default=1)
    parser.add_argument("--hosts", type=int, default=0, help="only the first so many (0: all)")
    parser.add_argument("-m", action="store_true", dest="is_module", help="the program is a module, not a script")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    bed = json.loads(Path(asked.state).read_text(encoding="utf-8"))
    bed["hosts"] = bed["hosts"][: asked.hosts or None]
    Path(asked.log_dir).mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    os.environ["OMP_NUM_THREADS"] = "1"  # read by torch when it is imported, so not too late only here
    import torch.distributed  # noqa: F401 - once, for all ranks

    gc.freeze()  # forked pages stay shared
    return watch(start(bed, asked), [host["name"] for host in bed["hosts"]], asked.ranks_per_host)


def start(bed: dict[str, Any], asked: argparse.Namespace) -> dict[int, int]:
    """Fork every rank. Returns process -> rank."""
    world = len(bed["hosts"]) * asked.ranks_per_host
    shared = {
        "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(asked.ranks_per_host),
        "MASTER_ADDR": bed["hosts"][0]["address"], "MASTER_PORT": str(20000 + os.getpid() % 10000),
        "TORCH_CPP_LOG_LEVEL": "ERROR",
    }  # fmt: skip
    ranks = {}
    for rank in range(world):
        number, local = divmod(rank, asked.ranks_per_host)
        own = {"RANK": str(rank), "LOCAL_RANK": str(local), "GROUP_RANK": str(number)}
        rail = local % bed["rails"] if asked.ranks_per_host > 1 else 0  # with a rank a rail, each has its own interface
        own["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", f"eth{rail}")
        if (pid := os.fork()) == 0:
            become_rank(bed["hosts"][number], bed["files"], {**shared, **own}, asked)
        ranks[pid] = rank
        print(f"rank {rank} on {bed['hosts'][number]['name']} is process {pid}", flush=True)
    return ranks


def become_rank(host: dict[str, str], files: dict[str, str], env: dict[str, str], asked: argparse.Namespace) -> None:
    """In the forked child: be the host, then run the program. Never returns."""
    status = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        log = os.open(f"{asked.log_dir}/rank{env['RANK']}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        become_host(host["name"], host["network"], files)
        os.environ.update(env)
        sys.argv = [asked.program, *asked.arguments]
        if asked.is_module:
            runpy.run_module(asked.program, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(asked.program, run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - the rank's boundary: it must not return into the launcher's code
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def watch(ranks: dict[int, int], names: list[str], ranks_per_host: int) -> int:
    """Wait for all ranks; when one does not end well, end the others. Returns 1 then, else 0."""
    failed = False
    try:
        while ranks and not failed:
            pid, status = os.wait()
            failed = report(ranks.pop(pid), names, ranks_per_host, os.waitstatus_to_exitcode(status))
    finally:
        for number in (signal.SIGCONT, signal.SIGTERM):  # a stopped rank hears TERM only once it goes on
            for pid in ranks:
                os.kill(pid, number)
        end = time.monotonic() + TERM_S
        while ranks:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            ranks.pop(pid, None)
            if not pid and time.monotonic() > end:
                for left in ranks:
                    os.kill(left, signal.SIGKILL)
            time.sleep(0 if pid else 0.02)
    return int(failed)


def report(rank: int, names: list[str], ranks_per_host: int, code: int) -> bool:
    """Print how a rank ended where it did not end well, and return whether it did not."""
    if code:
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        print(f"rank {rank} on {names[rank // ranks_per_host]} ended: {how}", flush=True)
    return bool(code)


if __name__ == "__main__":
    sys.exit(main())
