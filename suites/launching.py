"""Living ranks: start them once, give them one benchmark after the other, end them.

A Launch owns the listening end of the control line. It writes nothing to the run folder and judges nothing;
the controller does. A benchmark that goes wrong comes back as a Trouble that names a rank and shows its stack
and log; the launch is over then, since what the other ranks still have in flight is unknown.
"""

from __future__ import annotations

import os
import queue
import random
import secrets
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.connection import Listener, wait
from pathlib import Path
from typing import Any

from benchmarks import diagnosis, flightrecorder, remains, scratch
from benchmarks.control import ADDRESS, KEY, SILENT_S, ControlError, Message
from benchmarks.launch import Job, Launcher
from benchmarks.launch.checkout import ROOT
from benchmarks.measurement import Config, encode
from suites import afterstate, arrivals, timeouts, trouble
from suites.testimony import Testimony
from suites.trouble import Peer, Trouble

GRACE_S = 2.0  # after the first sign of trouble, for the other ranks' messages to arrive
TERM_S = 10.0  # from TERM to KILL
FEW_ENV = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore", "TORCH_CPP_LOG_LEVEL": "ERROR"}
OnRecord = Callable[[int, str], None]


@dataclass(kw_only=True)
class Launch:
    """Ranks of one place, from start to stop."""

    number: int
    job: Job
    launcher: Launcher
    group_timeout_s: float  # of the process group: longer than any benchmark, so that we diagnose first
    peers: dict[int, Peer] = field(default_factory=dict)
    environments: list[str] = field(default_factory=list)
    start_s: float = 0.0
    import_s: float = 0.0  # slowest rank: until torch was imported
    group_s: float = 0.0  # slowest rank: until the process group was up
    silent: set[int] = field(default_factory=set)  # ranks whose machine no longer answers
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    process: subprocess.Popen[bytes] | None = None
    _remaining: list[str] | None = None  # what was found left behind already

    @property
    def name(self) -> str:
        """What a scheduler calls the steps of this launch."""
        return f"rackproof-{self.token}"

    @property
    def testimony(self) -> Testimony:
        """What the launcher has said so far."""
        return Testimony(job=self.job, launcher=self.launcher)

    def start(self, limit_s: float) -> Trouble | None:
        """Start the ranks and wait until all are ready; a Trouble names those that are not."""
        begin = time.monotonic()
        Path(self.job.log_dir).mkdir(parents=True, exist_ok=True)
        key = secrets.token_hex(16)
        address = self.launcher.address(self.job)
        bound = address if address.startswith("127.") else "0.0.0.0"
        with Listener((bound, 0), backlog=self.job.place.ranks) as listener:
            _, port = listener.address
            self._spawn({ADDRESS: f"{address}:{port}", KEY: key})
            found = self._gather_peers(listener, key, begin + limit_s)
        found = found or arrivals.unfit(self.peers) or self._await_ready(begin + limit_s)
        self.start_s = time.monotonic() - begin
        return found

    def run(self, config: Config, attempt: int, on_record: OnRecord) -> Trouble | None:
        """Let all ranks run one config; every record goes to `on_record(rank, line)` as it comes.

        The ranks get the benchmark's limit less a margin, in which a hang is diagnosed: within the limit the
        hung rank is named.
        """
        end = time.monotonic() + config.limit_s - min(5.0, config.limit_s / 5)
        pending, raised = set(self.peers), {}
        lost = [r for r in self.peers if not self._send(r, "batch", config=encode(config), attempt=attempt)]
        while pending - set(lost) and time.monotonic() < end:
            for rank, message in self._messages(pending - set(lost), min(end, time.monotonic() + 0.5)):
                if message is None:
                    lost.append(rank)
                elif (message.get("config"), message.get("attempt")) != (config.id, attempt):
                    continue  # the late answer to an earlier diagnosis
                elif message["kind"] == "record":
                    on_record(rank, message["line"])
                else:
                    pending.discard(rank)
                    if message["kind"] == "failed":
                        raised[rank] = message
            if lost or raised:
                end = min(end, time.monotonic() + (GRACE_S if not self.silent else GRACE_S / 4))
        if lost:
            return self._died(lost)
        if raised:
            return self.testimony.completed(trouble.raised(self.peers, raised))
        return self._hung(pending) if pending else None

    def stop(self) -> None:
        """Let the ranks go home; end those that do not, and first what they left behind: it keeps their launcher."""
        end = time.monotonic() + TERM_S
        going = {rank for rank in self.peers if self._send(rank, "stop")}
        while going and time.monotonic() < end:
            going -= {rank for rank, message in self._messages(going, end) if message is None}
        if not going and not self._ended_within(GRACE_S):
            self._remaining = self._remains()
        self._reap(max(GRACE_S, end - time.monotonic()))

    def kill(self) -> None:
        """End everything this launch started, by pid, and nothing else."""
        for peer in self.peers.values():
            peer.channel.close()  # a rank whose controller hangs up exits by itself
        for peer in self._here():
            diagnosis.signal_process(peer.handle, signal.SIGKILL)
        self._reap(TERM_S / 5)

    def leftovers(self) -> list[str]:
        """What of ours still remains, on every node: processes, ports, shared memory, folders, Slurm steps."""
        found = self._remaining if self._remaining is not None else self._remains()
        return found + [f"Slurm step {step}" for step in self.launcher.left(replace(self.job, name=self.name))]

    @property
    def _scratch(self) -> Path:
        return scratch.folder(self.token)

    def _spawn(self, control: dict[str, str]) -> None:
        place = dict(pair.split("=", 1) for pair in self.job.place.env)
        path = os.pathsep.join(filter(None, (ROOT, os.environ.get("PYTHONPATH", ""))))
        few = {name: os.environ.get(name, value) for name, value in (FEW_ENV | flightrecorder.SWITCH).items()}
        nccl = timeouts.nccl(self.group_timeout_s) if self.job.place.backend == "nccl" else {}
        own = {**few, **nccl, "PYTHONPATH": path, **self.job.env, **place, remains.LAUNCH: self.token, **control}
        job = replace(self.job, env=own, name=self.name, port=random.randrange(20000, 32000))
        with self.testimony.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.launcher.command(job), env={**self.launcher.environ(os.environ), **own}, cwd=self.job.log_dir,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def _gather_peers(self, listener: Listener, key: str, end: float) -> Trouble | None:
        arrived: queue.Queue[Peer] = queue.Queue()
        threading.Thread(target=arrivals.accept, args=(listener, bytes.fromhex(key), arrived), daemon=True).start()
        wanted = self.job.place.ranks
        while len(self.peers) < wanted:
            try:
                peer = arrived.get(timeout=0.2)
            except queue.Empty:
                if self.process and self.process.poll() is not None:
                    return self._never_up(f"the launcher ended ({self.process.returncode}) before rank {{}} came")
                if time.monotonic() > end:
                    return self._never_up("rank {} did not come up in time")
            else:
                self.peers[peer.rank] = peer
        return None

    def _await_ready(self, end: float) -> Trouble | None:
        start = {
            "launch": self.number, "place": asdict(self.job.place), "timeout_s": self.group_timeout_s,
            "token": self.token, "master": self.peers[0].meeting_point,
        }  # fmt: skip
        for rank in self.peers:
            self._send(rank, "start", **start)
        pending, raised = set(self.peers), dict[int, Message]()
        while pending:
            if time.monotonic() > end:
                found = trouble.raised(self.peers, raised) if raised else self._hung(pending)
                return replace(found, kind="start")
            for rank, message in self._messages(pending, min(end, time.monotonic() + 0.5)):
                if message is None:
                    return replace(self._died([rank]), kind="start")
                if message["kind"] == "failed":
                    raised[rank] = message
                    pending.discard(rank)
                    end = min(end, time.monotonic() + GRACE_S)
                if message["kind"] == "ready":
                    pending.discard(rank)
                    self.import_s = max(self.import_s, message["import_s"])
                    self.group_s = max(self.group_s, message["group_s"])
                    self.environments += filter(None, [message["environment"]])
        return replace(trouble.raised(self.peers, raised), kind="start") if raised else None

    def _send(self, rank: int, kind: str, **fields: Any) -> bool:
        try:
            self.peers[rank].channel.send(kind, **fields)
        except OSError:
            return False
        return True

    def _messages(self, ranks: set[int], end: float) -> list[tuple[int, Message | None]]:
        """What arrived from these ranks, waiting until `end` at most; None for a rank that is gone."""
        by_connection: dict[Any, int] = {self.peers[r].channel.connection: r for r in ranks}
        got: list[tuple[int, Message | None]] = []
        for ready in wait(list(by_connection), timeout=max(0.0, end - time.monotonic())):
            rank = by_connection[ready]
            try:
                got.append((rank, self.peers[rank].channel.receive()))
            except (EOFError, OSError, ControlError) as error:
                if isinstance(error, TimeoutError):
                    self.silent.add(rank)
                got.append((rank, None))
        return got

    def _died(self, lost: Sequence[int]) -> Trouble:
        """The launcher knows how its ranks ended; give it a moment to say so."""
        process = self.process
        silent = next((r for r in lost if r in self.silent), None)
        if silent is not None:
            return trouble.died(self.peers[silent], f"its machine has not answered for {SILENT_S} s")
        rank, how = self.testimony.culprit(
            lost, patience_s=TERM_S / 2, ended=lambda: process is None or process.poll() is not None
        )
        return self.testimony.completed(trouble.died(self.peers[rank], how))

    def _hung(self, pending: set[int]) -> Trouble:
        answers = self._ask(set(self.peers))
        seen = {rank: answers[rank] for rank in sorted(pending & set(answers))}
        done = {rank: answers[rank] for rank in sorted(set(answers) - pending)}
        silent = sorted(pending - set(seen))
        for rank in silent:
            seen[rank] = self._examine(self.peers[rank], list(seen))
        return self.testimony.completed(trouble.hung(self.peers, seen, silent, done))

    def _ask(self, ranks: set[int]) -> dict[int, diagnosis.Report]:
        for rank in ranks:
            self._send(rank, "diagnose", of=rank, handle=self.peers[rank].handle.to_dict())
        seen: dict[int, diagnosis.Report] = {}
        end = time.monotonic() + 1.5
        while time.monotonic() < end and ranks - set(seen):
            for rank, message in self._messages(ranks - set(seen), end):
                if message is None:
                    seen[rank] = diagnosis.Report(state="gone")
                elif message["kind"] == "report":
                    seen[rank] = diagnosis.Report.from_message(message)
        return seen

    def _examine(self, peer: Peer, answering: list[int]) -> diagnosis.Report:
        """Look at a silent rank from outside: from here, or through a rank of its node that answers."""
        if peer.node == socket.gethostname():
            return diagnosis.examine(peer.handle)
        neighbour = next((r for r in answering if self.peers[r].node == peer.node), None)
        if neighbour is None:
            return diagnosis.Report(state="silent: no rank of its node answers")
        self._send(neighbour, "diagnose", of=peer.rank, handle=peer.handle.to_dict())
        end = time.monotonic() + 3.0
        while time.monotonic() < end:
            for _, message in self._messages({neighbour}, end):
                if message and message["kind"] == "report" and message["of"] == peer.rank:
                    return diagnosis.Report.from_message(message)
        return diagnosis.Report(state="silent")

    def _never_up(self, reason: str) -> Trouble:
        missing = [r for r in range(self.job.place.ranks) if r not in self.peers]
        ends, words = self.testimony.absent(missing)
        reason = reason.format(", ".join(map(str, missing))) + (f" ({ends})" if ends else "")
        log = "\n".join(filter(None, (words, diagnosis.tail(str(self.testimony.log_path)))))
        return Trouble(kind="start", reason=reason, log=log)

    def _remains(self) -> list[str]:
        """What the nodes find of ours; a machine that is gone is not asked."""
        silent = {self.peers[r].node for r in self.silent}
        living = self.process.pid if self.process and self.process.poll() is None else 0
        job = replace(self.job, name=self.name)
        return afterstate.leftovers(job, self.launcher, self.token, silent=silent, spared=living)

    def _ended_within(self, patience_s: float) -> bool:
        try:
            return self.process is None or self.process.wait(patience_s) is not None
        except subprocess.TimeoutExpired:
            return False

    def _here(self) -> list[Peer]:
        return [p for p in self.peers.values() if p.node == socket.gethostname()]

    def _reap(self, patience_s: float) -> None:
        """Wait for the launcher, then TERM, then KILL; remove this node's scratch folder."""
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if self.process is None or self.process.poll() is not None:
                break
            if number is not None:
                os.killpg(self.process.pid, number)
            self._ended_within(patience_s if number is None else TERM_S)
        self.launcher.end(replace(self.job, name=self.name))
        for peer in self._here():
            diagnosis.signal_process(peer.handle, signal.SIGKILL)
        shutil.rmtree(self._scratch, ignore_errors=True)
