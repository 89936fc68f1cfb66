"""A real sshd on every node of a Slurm bed, with keys of its own: for launchers that go over ssh.

with SlurmBed() as bed, Sshd(bed) as sshd:
    subprocess.run(["ssh", *sshd.options, sshd.address("n1"), "hostname"])
"""

from __future__ import annotations

import subprocess
from contextlib import ExitStack

from tests.testbed.namespaces import PATH, call
from tests.testbed.slurm import WITH_US, SlurmBed, until

CONF = """
Port 22
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
MaxStartups 100
"""


class Sshd:
    """One daemon a node. Use it as a context manager."""

    def __init__(self, bed: SlurmBed) -> None:
        self.bed = bed
        self.folder = bed.folder / "ssh"
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Sshd:
        self.folder.mkdir()
        for key in ("host", "user"):
            call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / key))
        (self.folder / "sshd.conf").write_text(CONF.format(folder=self.folder), encoding="utf-8")
        with ExitStack() as undo:
            for name in self.bed.names:
                self.start(name)
                undo.callback(self.stop, name)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    @property
    def options(self) -> list[str]:
        """What ssh must be told to come in."""
        return [
            "-i", str(self.folder / "user"), "-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null",
            "-oLogLevel=ERROR", "-oIdentitiesOnly=yes",
        ]  # fmt: skip

    def address(self, name: str) -> str:
        """Where a node is reached."""
        return self.bed.address(self.bed.names.index(name), None)

    def start(self, name: str) -> None:
        """Start a node's daemon and wait until it lets us in."""
        script = f"mkdir -p /run/sshd && exec /usr/sbin/sshd -D -e -f {self.folder}/sshd.conf"
        with (self.folder / f"{name}.log").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                [*WITH_US, *self.bed.inside(name, "sh", "-c", script)], stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, env={"PATH": PATH},
            )  # fmt: skip
        words = ["ssh", *self.options, self.address(name), "true"]
        until(lambda: subprocess.run(words, capture_output=True).returncode == 0, f"no sshd on {name}: ",
              (self.folder / f"{name}.log").read_text, limit_s=30)  # fmt: skip

    def stop(self, name: str) -> None:
        """End a node's daemon; connections that it serves live on."""
        for pid in [pid for pid, words in self.bed.processes(name).items() if "sshd.conf" in words]:
            subprocess.run(["kill", str(pid)], check=False, capture_output=True)
        self._daemons[name].kill()
        self._daemons[name].wait()
