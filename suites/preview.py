"""What a campaign with exactly these options would run: `--plan`.

The same preparation as the campaign's: a resumed run, a retest, -k, named or idle nodes all count. Nothing is started,
held or written. That a plan for many nodes cannot be started from here is a note, no error.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime

from suites import continuation, planview, timeouts
from suites.allocation import OF_SLURM, choose
from suites.controller import nested
from suites.nodes import NodesError, fold
from suites.options import Options
from suites.preparation import Prepared, left_out, prepare, wish_of


def preview(options: Options, selected: Sequence[str]) -> str:
    """The plan as text. UsageError where the campaign would refuse to begin."""
    said: list[str] = []
    made = prepare(options, said.append)
    pending = continuation.chosen(made.plan, selected, made.stored, made.options.retest)
    lines = [line.rstrip() for line in said] + _notes(made, selected)
    return planview.render(made.plan, pending=pending, notes=[*lines, *_places(made)])


def _notes(made: Prepared, selected: Sequence[str]) -> list[str]:
    found = [entry.line(datetime.now().date()) for entry in made.bad]
    if made.stored:
        what = f"tests again: {made.options.retest}" if made.options.retest else "measures what is missing"
        found.append(f"goes on with {made.path}, and {what}")
    if without := left_out(made.plan, made.options, selected):
        found.append(f"the outcome will be INCOMPLETE: {without}")
    return found


def _places(made: Prepared) -> list[str]:
    """Which nodes, who would start ranks on them, and the time-outs."""
    wish, cluster = wish_of(made.plan, made.options), []
    try:
        launcher, why = choose(wish, os.environ)
        found = [f"launcher: {launcher} ({why})"]
        if launcher in OF_SLURM:
            job = os.environ.get("SLURM_JOB_ID", "")
            cluster = timeouts.of_slurm(job, worst_s=made.plan.worst_case_s, now=datetime.now())
    except NodesError as error:
        found = [f"launcher: none from here: {error}"]
    if wish.nodelist:
        found.append(f"nodes: {fold(wish.nodelist)}")
    if wish.exclude:
        found.append(f"without: {fold(wish.exclude)}")
    return found + timeouts.lines(**nested(made.plan), cluster=cluster)
