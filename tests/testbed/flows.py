"""Bandwidth and latency between hosts of the bed, measured with bare sockets.

For tests of the bed itself: they share nothing with the benchmarks, so that neither can hide the other's
mistake. Both ends are sockets of this process, each in its own host.

    bandwidth(bed, 0, 1)  ->  bytes per second, from host 0 to host 1
"""

from __future__ import annotations

import random
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.testbed.bed import Bed

PATIENCE_S = 10.0  # a wire that is silent for so long is dead
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
BUFFER = 4 << 20  # bytes: a whole transfer waits in the kernel, so that a busy CPU does not starve the wire


@dataclass(frozen=True)
class Flow:
    """What one transfer showed."""

    bytes_per_s: float
    wrong_bytes: int
    retransmits: int


def connect(bed: Bed, a: int, b: int, rail: int | None = 0) -> tuple[socket.socket, socket.socket]:
    """A connection from host a to host b (rail None: over control); OSError where none comes about."""
    with bed.hosts[b].socket() as listening:
        listening.settimeout(PATIENCE_S)
        listening.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)  # inherited by what it accepts
        listening.bind((bed.address(b, rail), 0))
        listening.listen()
        sender = bed.hosts[a].socket()
        sender.settimeout(PATIENCE_S)
        sender.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, BUFFER)
        sender.connect(listening.getsockname())
        receiver, _ = listening.accept()
    receiver.settimeout(PATIENCE_S)
    for end in (sender, receiver):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sender, receiver


def transfer(bed: Bed, a: int, b: int, *, rail: int | None = 0, num_bytes: int = 500_000) -> Flow:
    """Send random bytes from host a to host b and compare them there."""
    sent = random.Random(num_bytes).randbytes(num_bytes)
    sender, receiver = connect(bed, a, b, rail)
    with sender, receiver:
        threading.Thread(target=_push, args=(sender, sent), daemon=True).start()
        got = bytearray()
        while len(got) < num_bytes:
            if not (part := receiver.recv(1 << 18)):
                raise ConnectionError(f"host {a} hung up after {len(got)} of {num_bytes} bytes")
            if not got:
                begin = time.perf_counter()
                head = len(part)  # passed through before the clock ran
            got += part
        seconds = time.perf_counter() - begin
        return Flow(
            (num_bytes - head) / seconds, sum(x != y for x, y in zip(got, sent, strict=True)), _retransmits(sender)
        )


def bandwidth(bed: Bed, a: int, b: int, *, rail: int | None = 0, num_bytes: int = 500_000) -> float:
    """Bytes per second from host a to host b."""
    return transfer(bed, a, b, rail=rail, num_bytes=num_bytes).bytes_per_s


def simultaneous(bed: Bed, flows: Sequence[tuple[int, int]], *, num_bytes: int = 500_000) -> list[float]:
    """Bandwidth of each flow (from, to) while all of them send at once."""
    found = [0.0] * len(flows)
    gate = threading.Barrier(len(flows))

    def one(index: int, a: int, b: int) -> None:
        gate.wait(PATIENCE_S)
        found[index] = bandwidth(bed, a, b, num_bytes=num_bytes)

    threads = [threading.Thread(target=one, args=(i, a, b)) for i, (a, b) in enumerate(flows)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3 * PATIENCE_S)
    return found


def pairs(bed: Bed) -> list[tuple[int, int]]:
    """Every directed pair of hosts."""
    return [(a, b) for a in range(bed.num_hosts) for b in range(bed.num_hosts) if a != b]


def latencies(bed: Bed, a: int, b: int, *, rail: int | None = 0, times: int = 50) -> list[float]:
    """Half of each round trip of one byte, in seconds, sorted."""
    sender, receiver = connect(bed, a, b, rail)
    with sender, receiver:
        threading.Thread(target=_echo, args=(receiver,), daemon=True).start()
        found = []
        for _ in range(times):
            begin = time.perf_counter()
            sender.send(b"?")
            sender.recv(1)
            found.append((time.perf_counter() - begin) / 2)
    return sorted(found)


def reaches(bed: Bed, a: int, b: int, *, rail: int | None = 0) -> bool:
    """Whether host b answers host a, well before TCP would try a second time."""
    sender = bed.hosts[a].socket()
    sender.settimeout(0.5)
    with sender:
        try:
            sender.connect((bed.address(b, rail), 9))
        except ConnectionRefusedError:
            return True  # nobody listens there, and b itself has said so
        except OSError:
            return False
        return True


def _push(sender: socket.socket, data: bytes) -> None:
    try:
        sender.sendall(data)
    except OSError:
        return  # the reader gave up, and says so


def _echo(receiver: socket.socket) -> None:
    try:
        while data := receiver.recv(64):
            receiver.send(data)
    except OSError:
        return  # the other end is done


def _retransmits(sender: socket.socket) -> int:
    """Segments that this connection has sent again (tcpi_total_retrans of the kernel's struct tcp_info)."""
    info = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    return int.from_bytes(info[100:104], sys.byteorder)
