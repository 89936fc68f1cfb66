"""The line between the controller and one rank: JSON messages over one authenticated TCP connection.

The rank dials; the controller listens. A message is a dict with a "kind". A rank that dies closes its
connection, which tells the controller at once and by name; a controller that dies closes all of them,
which ends the ranks. No shared folder is needed, and neither side imports torch for it.

    rank -> controller    hello, ready, record, done, failed, report
    controller -> rank    start, batch, diagnose, stop
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection
from typing import Any

ADDRESS = "RACKPROOF_CONTROL"  # host:port of the controller
KEY = "RACKPROOF_KEY"  # hex; proves that a connection belongs to this launch
SILENT_S = 4  # a machine that answers nothing for so long is gone
MAX_MESSAGE = 256 * 1024 * 1024  # bytes; a longer one is no message of ours

Message = dict[str, Any]


class ControlError(RuntimeError):
    """The other side is not there, or is not who it should be."""


class Channel:
    """One end of the line. Sending is safe from several threads; receiving is for one."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self.connection = connection
        _watch(connection)
        self._lock = threading.Lock()

    def send(self, kind: str, **fields: Any) -> None:
        """Send one message. OSError where the other side is gone."""
        data = json.dumps({"kind": kind, **fields}).encode()
        with self._lock:
            self.connection.send_bytes(data)

    def receive(self) -> Message:
        """The next message. EOFError or OSError where the other side is gone; ControlError on garbage."""
        data = self.connection.recv_bytes(MAX_MESSAGE)
        try:
            message = json.loads(data)
        except ValueError as error:
            raise ControlError(f"not a message: {error}") from None
        if not isinstance(message, dict) or "kind" not in message:
            raise ControlError("not a message: no kind")
        return message

    def free_port(self) -> socket.socket:
        """A free port on the interface that reaches the controller, held until the socket is closed."""
        with socket.socket(fileno=os.dup(self.connection.fileno())) as line:
            family, host = line.family, line.getsockname()[0]
        held = socket.socket(family)
        held.bind((host, 0))
        return held

    def close(self) -> None:
        """Hang up; closing twice is allowed."""
        self.connection.close()


def _watch(connection: Connection[Any, Any]) -> None:
    """Let the kernel notice within SILENT_S that the other machine no longer answers, though nothing closed the line.

    Its kernel answers even where the process hangs, so only a machine or a network that is gone is noticed.
    """
    with socket.socket(fileno=os.dup(connection.fileno())) as line:
        if line.family not in (socket.AF_INET, socket.AF_INET6):
            return
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, SILENT_S - 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT_S * 1000)


def dial(address: str, key: str, *, patience_s: float = 30.0) -> Channel:
    """Connect to the controller at host:port, trying again until `patience_s` is spent.

    Raises ControlError with the address where nobody answers or the key is refused.
    """
    host, _, port = address.rpartition(":")
    end = time.monotonic() + patience_s
    while True:
        try:
            return Channel(Client((host, int(port)), authkey=bytes.fromhex(key)))
        except AuthenticationError:
            raise ControlError(f"the controller at {address} refused our key: it belongs to another launch") from None
        except (OSError, EOFError) as error:
            if time.monotonic() > end:
                raise ControlError(f"no controller answers at {address}: {error}") from None
            time.sleep(0.1)
