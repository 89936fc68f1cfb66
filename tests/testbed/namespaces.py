"""Network namespaces that vanish with their owner.

A namespace has no name and no process in it: its owner holds it open by a file descriptor. When the owner
ends, even by SIGKILL, the kernel takes the namespace and every link in it away. So there is nothing to sweep.

    with Namespace() as host:
        host.run("ip", "link", "set", "lo", "up")
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWNET = 0x00020000, 0x04000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


class BedError(RuntimeError):
    """The machine refused something that the bed needs; the message holds its own words."""


class Namespace:
    """One network namespace, open until `close`."""

    def __init__(self) -> None:
        made = ["unshare", "--net", "sh", "-c", "echo; read _"]
        child = subprocess.Popen(made, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert child.stdout is not None
        ready = child.stdout.read(1)
        self.fd = os.open(f"/proc/{child.pid}/ns/net", os.O_RDONLY) if ready else -1
        _, said = child.communicate()
        if not ready:
            raise BedError(f"no network namespace: {said.decode().strip()}")

    def __enter__(self) -> Namespace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def path(self) -> str:
        """A path by which any process of this machine can enter, while the owner lives."""
        return f"/proc/{os.getpid()}/fd/{self.fd}"

    def close(self) -> None:
        """Let go; the kernel removes the namespace once no process is left in it."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    def command(self, *words: str) -> list[str]:
        """The command line that runs `words` inside."""
        return ["nsenter", f"--net={self.path}", *words]

    def run(self, *words: str, given: str = "") -> str:
        """Run a command inside and return what it printed; BedError where it fails."""
        return call(*self.command(*words), given=given)

    def batch(self, tool: str, lines: Iterable[str]) -> None:
        """Run many lines of `ip` or `tc` inside, in one process."""
        self.run(tool, "-batch", "-", given="\n".join(lines) + "\n")

    def socket(self) -> socket.socket:
        """A TCP socket inside, for use by any thread of this process: a socket stays where it was made."""

        def make() -> socket.socket:
            enter_network(self.fd)
            return socket.socket()

        with ThreadPoolExecutor(1) as apart:  # a thread of its own: only that thread enters
            return apart.submit(make).result()


def call(*words: str, given: str = "") -> str:
    """Run a command and return what it printed; BedError with its own words where it fails."""
    env = {**os.environ, "PATH": PATH}
    done = subprocess.run(words, input=given, capture_output=True, text=True, env=env, check=False)
    if done.returncode:
        raise BedError(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}\n{given}")
    return done.stdout


def enter_network(fd: int) -> None:
    """Move the calling thread into the network namespace behind `fd`."""
    _checked("setns", fd, CLONE_NEWNET)


def become_host(name: str, network: str, files: dict[str, str]) -> None:
    """Make this process a host: its network, its name, and its own copies of `files` (path -> replacement)."""
    fd = os.open(network, os.O_RDONLY)
    enter_network(fd)
    os.close(fd)
    _checked("unshare", CLONE_NEWNS | CLONE_NEWUTS)
    _checked("sethostname", name.encode(), len(name))
    _checked("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    for path, replacement in files.items():
        if Path(path).exists():
            _checked("mount", replacement.encode(), path.encode(), None, MS_BIND, None)


def _checked(function: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, function)(*arguments):
        number = ctypes.get_errno()
        raise BedError(f"{function}: {os.strerror(number)}")
