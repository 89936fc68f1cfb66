"""What a check sees of the run: its own Verdicts, and one assertion over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

import pytest

from benchmarks.measurement import Expected, Verdict

GOOD = ("pass", "waived")
SHOWN = 8  # lines of failed verdicts in one assertion; the table and the page have them all


class VerdictFailure(pytest.fail.Exception):  # type: ignore[name-defined]
    """A check fails because of its Verdicts."""


class VerdictsOf:
    """verdicts("metric.pattern"): the Verdicts of one check's configs."""

    def __init__(
        self, every: Callable[[], Sequence[Verdict]], configs: Sequence[str], expected: Sequence[Expected]
    ) -> None:
        self._every, self._configs = every, set(configs)
        self._metrics = {e.metric for e in expected if e.config in self._configs}

    def __call__(self, pattern: str) -> Found:
        """The Verdicts on metrics that match a shell pattern."""
        mine = [v for v in self._every() if v.config in self._configs or not v.config]
        expected = any(fnmatchcase(metric, pattern) for metric in self._metrics)
        return Found(pattern, [v for v in mine if fnmatchcase(v.metric, pattern)], expected=expected)


class Found:
    """Some Verdicts, to be asserted together."""

    def __init__(self, pattern: str, verdicts: Sequence[Verdict], *, expected: bool) -> None:
        self.pattern, self.verdicts, self.expected = pattern, list(verdicts), expected

    def must_pass(self, *, only: str = "") -> None:
        """Every mandatory Verdict passes (or is waived), and there is at least one; else the check fails.

        Where the cluster file says that none applies, or limits none of what was measured, the check is skipped
        with that reason: it proved nothing. `only` says where the numbers exist at all, for a check that some
        clusters cannot have ("between three or more nodes").
        """
        __tracebackhide__ = True
        if only and not self.expected:
            pytest.skip(f"{self.pattern}: {only}")
        mandatory = [v for v in self.verdicts if v.mandatory or v.status not in ("fail", "noisy", "pass")]
        if mandatory and all(v.status == "not_applicable" for v in mandatory):
            pytest.skip(mandatory[0].reason)
        bad = [v for v in mandatory if v.status not in (*GOOD, "not_applicable", "no_baseline")]
        if bad:
            more = [f"... and {len(bad) - SHOWN} more"] if len(bad) > SHOWN else []
            raise VerdictFailure("\n".join([line(v) for v in bad[:SHOWN]] + more), pytrace=False)
        if not any(v.status in GOOD for v in mandatory):
            if self.expected:
                pytest.skip(f"{self.pattern}: measured, not judged: the cluster file has no mandatory limit on it")
            pytest.fail(f"no benchmark of this check emits {self.pattern}: it judges nothing", pytrace=False)


def line(v: Verdict) -> str:
    """One Verdict in one line: what and why; the table below says how to measure it again."""
    return f"{v.check}: {v.status}: {v.reason}"
