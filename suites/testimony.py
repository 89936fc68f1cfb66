"""What a launcher's own output says of its ranks: how they ended, and their last words.

Two files beside each other: `launcher.log`, what the launcher printed, and `ranks.log`, what it collected from the
ranks, each line labelled. A rank's own log file, where it has one, is on its node.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import diagnosis
from benchmarks.launch import Job, Launcher
from benchmarks.launch.checkout import ROOT
from suites.trouble import Trouble

LAST_LINES = 15
CURE = f"every node needs this checkout at {ROOT} and the same Python: see its log"
ENOUGH_BYTES = 4 * 1024 * 1024  # of the collected output, from its end
BYSTANDERS = ("SIGTERM", "exit status 143", "exit status 75")  # ended because another rank was


@dataclass(frozen=True, kw_only=True)
class Testimony:
    """The output of one launch."""

    job: Job
    launcher: Launcher

    @property
    def log_path(self) -> Path:
        """The launcher's own output."""
        return Path(self.job.log_dir) / "launcher.log"

    def deaths(self) -> dict[int, str]:
        """Rank -> how it ended, as far as the launcher has said it by now."""
        logs = (str(self.log_path), self.job.rank_log)
        return self.launcher.deaths("\n".join(diagnosis.tail(path, 400) for path in logs))

    def words(self, rank: int) -> str:
        """The last lines that came from a rank (or, where only nodes are told apart, from its node)."""
        label = f"{self.launcher.label(self.job, rank)}: "
        lines = [line for line in _end_of(Path(self.job.rank_log)) if line.startswith(label)]
        return "\n".join(line.removeprefix(label) for line in lines[-LAST_LINES:])

    def completed(self, trouble: Trouble) -> Trouble:
        """The trouble with the rank's last words, where it has none."""
        if trouble.log or trouble.rank is None:
            return trouble
        return replace(trouble, log=self.words(trouble.rank))

    def culprit(self, lost: Sequence[int], *, patience_s: float, ended: Callable[[], bool]) -> tuple[int, str]:
        """Of ranks that are gone, the one that went first, and how; "" where the launcher does not say.

        Launchers end the other ranks as soon as one dies, so all may be gone by the time that we look.
        """
        end = time.monotonic() + patience_s
        while True:
            over = ended() or time.monotonic() > end
            told = self.deaths()
            if known := [rank for rank in lost if rank in told]:
                own = [rank for rank in known if not told[rank].startswith(BYSTANDERS)]
                if own or over:
                    rank = (own or known)[0]
                    return rank, told[rank]
            if over:
                return lost[0], ""
            time.sleep(0.05)

    def absent(self, ranks: Sequence[int]) -> tuple[str, str]:
        """What is known of ranks that never came: what the launcher complains of, or how those ended that did; and the
        last words of the first.
        """
        refused = self.launcher.complaint(diagnosis.tail(str(self.log_path), 400))
        told = self.deaths()
        own = [rank for rank in ranks if rank in told and not told[rank].startswith(BYSTANDERS)]
        ends = [f"rank {rank}: {told[rank]}" for rank in own or [rank for rank in ranks if rank in told]]
        words = next((said for rank in own if (said := self.words(rank))), "")
        return refused or "; ".join([*ends[:4], *([CURE] if own else [])]), words


def _end_of(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - ENOUGH_BYTES))
            return file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
