"""What the terminal shows while a campaign runs: which benchmark, k of n, time left.

[ 3/12] collectives all_reduce ............... ok     2.1 s   about 40 s left
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.measurement import Config
from benchmarks.spec import Place

WIDTH = 48


@dataclass(kw_only=True)
class Progress:
    """Lines of progress over `write(text)`; time left is guessed from how the limits were used so far."""

    write: Callable[[str], None]
    _spent_s: float = 0.0
    _limits_s: float = 0.0
    _left_s: float = 0.0

    def launching(self, place: Place, number: int) -> None:
        """Ranks are about to be started."""
        what = "GPU" if place.device == "cuda" else "CPU"
        where = f" on {place.nodes} nodes" if place.nodes > 1 else ""
        self.write(f"launch {number}: {place.ranks} {what} ranks over {place.backend}{where}\n")

    def again(self, count: int) -> None:
        """`count` benchmarks were too noisy to judge."""
        self.write(f"measured again, since the limit lies inside the noise: {count} benchmark(s)\n")

    def begin(self, k: int, configs: Sequence[Config]) -> None:
        """Config k of `configs` (from 1) is about to run."""
        self._left_s = sum(c.limit_s for c in configs[k:])
        head = f"[{k:>2}/{len(configs)}] {title(configs[k - 1])} "
        self.write(head.ljust(WIDTH, ".") + " ")

    def end(self, config: Config, seconds: float, reason: str) -> None:
        """It is done, or failed for `reason`."""
        self._spent_s += seconds
        self._limits_s += config.limit_s
        left = self._left_s * self._spent_s / self._limits_s
        tail = f"   about {left:.0f} s left" if self._left_s else ""
        self.write(f"{'ERROR' if reason else 'ok':<5} {seconds:6.1f} s{tail}\n")
        if reason:
            self.write(f"        {reason}\n")


def title(config: Config) -> str:
    """A config in two or three words: the benchmark and what tells it from its siblings."""
    words = [
        str(config.spec[key]) for key in ("op", "dtype", "group", "variant", "tool", "model") if config.spec.get(key)
    ]
    words += [key.replace("_", " ") for key in ("in_place", "uneven", "deferred", "graph") if config.spec.get(key)]
    if config.spec.get("together") is False:
        words.append("in turn")
    return " ".join([config.benchmark, *words])
