"""The run folder's one writer: append-only files, flushed line by line.

    run.json            the Run: what was expected, before anything was measured
    cluster.toml        the cluster file as it was
    measurements.jsonl  environments.jsonl  events.jsonl
    logs/               output of launchers and ranks
    index.html          the page; verdicts.jsonl and junit.xml beside it: views, made again at any time

Nothing is rewritten: a crash costs at most the line being written. A small reserve is kept on the disk, so
that a run that fills it can still say how it ended. `reports/runs.py` reads what is written here.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import IO, Any

from benchmarks.measurement import Environment, Event, Measurement, Run, encode, now

RESERVE_BYTES = 256 * 1024


class RunFolderError(RuntimeError):
    """The run folder cannot be made or written; the message says which and why."""


class RunFolder:
    """One run's folder, open for appending."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.full = ""  # why not everything is written, once that is so
        self._files: dict[str, IO[str]] = {}
        self._reserve = path / ".reserve"

    @classmethod
    def create(cls, root: Path, run: Run, cluster_text: str) -> RunFolder:
        """A new folder root/run.id with the head of the run, durable. RunFolderError where it cannot be."""
        folder = cls(root / run.id)
        try:
            folder.path.mkdir(parents=True, exist_ok=False)
            (folder.path / "logs").mkdir()
            (folder.path / "cluster.toml").write_text(cluster_text)
            for name in ("measurements", "environments", "events"):
                (folder.path / f"{name}.jsonl").touch()
            _write_durably(folder.path / "run.json", encode(run) + "\n")
            folder._reserve.write_bytes(b"\0" * RESERVE_BYTES)
        except FileExistsError:
            raise RunFolderError(f"{folder.path} is there already: a run is never written over") from None
        except OSError as error:
            raise RunFolderError(
                f"cannot write the run folder {folder.path}: {error.strerror}; choose another place with --run-dir"
            ) from None
        return folder

    @classmethod
    def reopen(cls, path: Path) -> RunFolder:
        """An existing folder, to append to. A last line that was cut by a crash is closed off first."""
        folder = cls(path)
        try:
            for name in ("measurements", "environments", "events"):
                _drop_cut_line(path / f"{name}.jsonl")
            folder._reserve.write_bytes(b"\0" * RESERVE_BYTES)
        except OSError as error:
            raise RunFolderError(f"cannot write to the run folder {path}: {error.strerror}") from None
        return folder

    def measurement(self, record: Measurement) -> None:
        """Append one measurement."""
        self._append("measurements", encode(record))

    def environment(self, record: Environment) -> None:
        """Append one node's environment."""
        self._append("environments", encode(record))

    def event(self, kind: str, **detail: Any) -> None:
        """Append one event, with the time now."""
        self._append("events", encode(Event(kind=kind, at=now(), detail=detail)))

    def sync(self) -> None:
        """Make everything appended so far durable; where that fails, `full` says so.

        Some file systems say only now that a line never reached the disk (a quota, a server that is full).
        """
        for name, file in self._files.items():
            try:
                os.fsync(file.fileno())
            except OSError as error:
                self.full = f"{self.path / name}.jsonl is not durable: {error.strerror}"

    def close(self) -> None:
        """Sync and close; the reserve is given back."""
        self.sync()
        for file in self._files.values():
            with contextlib.suppress(OSError):
                file.close()
        self._files.clear()
        self._reserve.unlink(missing_ok=True)

    def _append(self, name: str, line: str) -> None:
        """RunFolderError where the line cannot be written; only the reserve is used from then on."""
        file = self._files.get(name)
        try:
            if file is None:
                file = self._files[name] = (self.path / f"{name}.jsonl").open("a", buffering=1)
            start = os.fstat(file.fileno()).st_size
            file.write(line + "\n")
            file.flush()
        except OSError as error:
            self.full = f"cannot write {self.path / name}.jsonl: {error.strerror}"
            self._reserve.unlink(missing_ok=True)
            if file is not None:
                self._files[name] = _discard(file, self.path / f"{name}.jsonl", start)
            cure = "; free some space, then finish it with --resume" if error.errno == errno.ENOSPC else ""
            raise RunFolderError(self.full + cure) from None


def _discard(file: IO[str], path: Path, size: int) -> IO[str]:
    """Drop a half-written line and what is buffered of it; the file open again."""
    with contextlib.suppress(OSError):
        os.ftruncate(file.fileno(), size)
    os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())  # the buffer's rest goes nowhere
    with contextlib.suppress(OSError):
        file.close()
    return path.open("a", buffering=1)


def _drop_cut_line(path: Path) -> None:
    data = path.read_bytes() if path.exists() else b""
    if data and not data.endswith(b"\n"):
        os.truncate(path, data.rfind(b"\n") + 1)


def _write_durably(path: Path, text: str) -> None:
    partial = path.with_suffix(".partial")
    with partial.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    fd = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
