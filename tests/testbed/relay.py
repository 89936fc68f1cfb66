"""A wire that delays frames or flips a bit in them: copies frames between two interfaces, one way impaired.

    python relay.py r0host3 r0wire3 --delay-us 300
    python relay.py r0host3 r0wire3 --corrupt 0.01

It runs in the namespace where both interfaces are, says "ready" and ends when it is told to. Only frames
from the first interface to the second are impaired. A flipped bit is not seen by TCP: between hosts of one
machine the kernel leaves checksums to hardware that is not there, as a NIC that spoils data before it computes
the checksum would. Kernels with netem need none of this; this one asks for nothing but packet sockets.
"""

from __future__ import annotations

import argparse
import collections
import random
import select
import socket
import time

SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 15, 23
ETH_P_ALL = 3
LONGEST = 70_000  # bytes of a frame with its offload header: the kernel joins segments up to 64 KiB
SO_RCVBUFFORCE = 33
HEADERS = 200  # bytes; a shorter frame carries no data worth spoiling


def open_interface(name: str) -> socket.socket:
    """A packet socket that sees what arrives on an interface, with the kernel's offload header in front."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    opened.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    opened.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 8 << 20)
    opened.bind((name, ETH_P_ALL))
    opened.setblocking(False)
    return opened


def forward(frame: bytes, to: socket.socket) -> None:
    """Send a frame on; a full queue drops it, as a switch would."""
    try:
        to.send(frame)
    except OSError:
        return


def corrupted(frame: bytes) -> bytes:
    """The frame with the lowest bit of its last byte flipped."""
    return frame[:-1] + bytes([frame[-1] ^ 1])


def arrived(side: socket.socket, at_most: int = 64) -> list[bytes]:
    """Frames that wait on an interface."""
    frames = []
    while len(frames) < at_most:
        try:
            frames.append(side.recv(LONGEST))
        except BlockingIOError:
            break
    return frames


def relay(first: socket.socket, second: socket.socket, *, delay_s: float, corrupt: float) -> None:
    """Copy frames both ways until the process is ended."""
    draw = random.Random(1)
    late: collections.deque[tuple[float, bytes]] = collections.deque()
    while True:
        patience = max(0.0, late[0][0] - time.perf_counter()) if late else None
        readable, _, _ = select.select((first, second), (), (), patience)
        while late and late[0][0] <= time.perf_counter():
            forward(late.popleft()[1], second)
        for frame in arrived(second) if second in readable else ():
            forward(frame, first)
        for frame in arrived(first) if first in readable else ():
            spoil = len(frame) > HEADERS and draw.random() < corrupt
            late.append((time.perf_counter() + delay_s, corrupted(frame) if spoil else frame))
            if not delay_s:
                forward(late.popleft()[1], second)


def main() -> None:
    """Relay between the two interfaces named."""
    parser = argparse.ArgumentParser(description="a wire that delays or corrupts, one way")
    parser.add_argument("first")
    parser.add_argument("second")
    parser.add_argument("--delay-us", type=float, default=0.0)
    parser.add_argument("--corrupt", type=float, default=0.0, help="share of frames")
    asked = parser.parse_args()
    sides = open_interface(asked.first), open_interface(asked.second)
    print("ready", flush=True)
    relay(*sides, delay_s=asked.delay_us / 1e6, corrupt=asked.corrupt)


if __name__ == "__main__":
    main()
