"""Whole campaigns for tests: a copy of the checkout with planted checks, driven by `python -m pytest`.

Real ranks, the real controller, the real judge; only what is measured is planted (tests/planted). A copy is
used so that a test's suite is the whole suite, as a contributor's own benchmark would be. It is copied compiled:
else every campaign would compile all of it again.
"""

from __future__ import annotations

import compileall
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import reports.runs as runs

ROOT = Path(__file__).parent.parent
ROOMS = ("benchmarks", "clusters", "reference_model", "reports", "suites")
CLUSTER = """
name = "{name}"
description = "planted"
nodes = 1
ranks_per_node = 2

[limits.rate]
metric = "planted.rate"
unit = "B/s"
floor = 0.5e9
source = "definition: planted"

[limits.rate_possible]
metric = "planted.rate"
unit = "B/s"
ceiling = 1e12
physical = true
source = "definition: planted"

[limits.time]
metric = "planted.time"
unit = "s"
ceiling = 1.0
source = "definition: planted"
"""


@dataclass
class Finished:
    """A campaign that came to its end: exit status, what it printed, its run folder."""

    code: int
    output: str
    folder: Path

    @property
    def stored(self) -> runs.StoredRun:
        """The run, read back."""
        return runs.load(self.folder)


class Checkout:
    """A copy of the checkout whose suite is only what the test plants."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for room in ROOMS:
            compileall.compile_dir(ROOT / room, quiet=2)
            shutil.copytree(ROOT / room, folder / room)
        for name in ("conftest.py", "pyproject.toml"):
            shutil.copy(ROOT / name, folder / name)
        for path in (folder / "suites").glob("test_*.py"):
            path.unlink()
        shutil.copytree(
            ROOT / "tests" / "planted", folder / "benchmarks" / "planted", ignore=shutil.ignore_patterns("__pycache__")
        )
        (folder / "benchmarks" / "planted" / "__init__.py").touch()
        table = folder / "benchmarks" / "spec.py"
        table.write_text(table.read_text().replace("BENCHMARKS = {", 'BENCHMARKS = {\n    "planted": "Planted",'))
        self.cluster()

    def cluster(self, extra: str = "", *, text: str = CLUSTER, name: str = "") -> Path:
        """Write the cluster file planted.toml; `extra` is appended. The name is this copy's own (the lock's)."""
        path = self.folder / "planted.toml"
        path.write_text(text.format(name=name or f"planted-{os.getpid()}-{self.folder.name}") + extra)
        return path

    def plant(self, *causes: str, limit_s: float = 10.0, suites: str = '("acceptance", "nightly")') -> None:
        """One check per cause in suites/test_planted.py."""
        lines = ["from benchmarks.planted.spec import Planted", "from suites.needs import needs", ""]
        for cause in causes:
            lines += [
                f"@needs(lambda cluster: Planted(cause={cause!r}, limit_s={limit_s}), suites={suites})",
                f"def test_{cause.replace(' ', '_')}(verdicts):",
                '    verdicts("planted.*").must_pass()',
                "",
            ]
        (self.folder / "suites" / "test_planted.py").write_text("\n".join(lines))

    def command(self, *options: str) -> list[str]:
        """The campaign's command line."""
        return [sys.executable, "-m", "pytest", "suites", "--cluster", "planted.toml", *options]

    def start(self, *options: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a campaign in the background, in a session of its own."""
        with self.terminal.open("w", encoding="utf-8") as terminal:
            return subprocess.Popen(
                self.command(*options), cwd=self.folder, env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **(env or {})},
                text=True, stdout=terminal, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def finish(self, process: subprocess.Popen[str], timeout_s: float = 180.0) -> Finished:
        """Wait for a campaign and find its folder."""
        process.wait(timeout_s)
        return Finished(code=process.returncode, output=self.said(), folder=self.newest())

    @property
    def terminal(self) -> Path:
        """Where the newest campaign prints."""
        return self.folder / "terminal.txt"

    def said(self) -> str:
        """What the newest campaign printed so far."""
        return self.terminal.read_text(encoding="utf-8")

    def run(self, *options: str, env: dict[str, str] | None = None) -> Finished:
        """A whole campaign."""
        return self.finish(self.start(*options, env=env))

    def newest(self) -> Path:
        """The newest run folder; a path that does not exist where there is none."""
        found = sorted((self.folder / "runs").glob("*/run.json"), key=lambda p: p.stat().st_mtime)
        return found[-1].parent if found else self.folder / "runs" / "none"
