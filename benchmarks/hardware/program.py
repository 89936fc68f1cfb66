"""Programs of others, run to their end or to a deadline, with what they printed.

>>> Program.start("echo", "hello").finish(10.0)
'hello\\n'
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

LAST = 300  # characters of what a program said before it failed


class ProgramError(RuntimeError):
    """A program that failed or did not end; the message has its last words."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program that was started."""

    words: tuple[str, ...]
    process: subprocess.Popen[str]

    @classmethod
    def start(cls, *words: str) -> Program:
        """Start it. ProgramError where that is not possible."""
        try:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                errors="replace",
            )  # fmt: skip
        except OSError as error:
            raise ProgramError(f"{words[0]} does not start: {error.strerror}") from None
        return cls(words=words, process=process)

    def finish(self, deadline_s: float) -> str:
        """What it printed. ProgramError where it fails, or does not end in time: then it is ended."""
        try:
            said, _ = self.process.communicate(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            said = self.end()
            raise ProgramError(f"{self.words[0]} did not end within {deadline_s:g} s: {_last(said)}") from None
        if self.process.returncode:
            raise ProgramError(f"{self.words[0]} failed (status {self.process.returncode}): {_last(said)}")
        return said

    def end(self) -> str:
        """End it; what it printed until then."""
        self.process.kill()
        said, _ = self.process.communicate()
        return said


def _last(said: str) -> str:
    return " ".join(said.split())[-LAST:] or "it said nothing"
