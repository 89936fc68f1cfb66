"""After a launch: what of ours is still there, on every node it ran on.

The nodes are asked by `benchmarks.remains`, started on them by the same launcher as the ranks were. What is found was
started by this campaign: it carries the launch's token. Processes are ended, by their ids, and reported all the same.
A node that cannot be asked is reported, never taken for clean.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from benchmarks import remains
from benchmarks.launch import Job, Launcher
from benchmarks.launch.checkout import ROOT
from benchmarks.spec import Place

LIMIT_S = 30.0
ANSWER = re.compile(r'\{"node": .*\}')  # on one line, whatever a launcher writes before and after it


def leftovers(job: Job, launcher: Launcher, token: str, *, silent: Collection[str] = (), spared: int = 0) -> list[str]:
    """One line for each thing that remains of a launch: what and where.

    `silent` nodes are dead: they are not asked. `spared` is the process id of its launcher, where that still lives.
    """
    if not job.hosts:
        return [f"{what} on this machine" for what in remains.remains(token, end=True, spared=spared)]
    hosts = tuple(host for host in job.hosts if host not in silent)
    unknown = [f"unknown: {host} is silent, nobody can ask it" for host in job.hosts if host in silent]
    if not hosts:
        return unknown
    asking = replace(
        job, hosts=hosts, place=Place(nodes=len(hosts)), module="benchmarks.remains",
        log_dir=str(Path(job.log_dir) / "after"),
        env={
            **job.env, "PYTHONPATH": ROOT, remains.ASKED: token,
            remains.SPARED: f"{socket.gethostname()}:{spared or ''}",
        },
    )  # fmt: skip
    answers = {}
    for text in ANSWER.findall(_ask(asking, launcher)):
        with contextlib.suppress(ValueError):  # cut off: that node has not answered
            answer = json.loads(text)
            answers[answer["node"]] = answer["remains"]
    found = [f"{what} on {node}" for node, lines in sorted(answers.items()) for what in lines]
    if len(answers) < len(hosts):
        found.append(f"unknown: {len(hosts) - len(answers)} of {len(hosts)} nodes did not answer")
    return found + unknown


def _ask(job: Job, launcher: Launcher) -> str:
    """What all nodes print, from the launcher and from the file that it collects them in."""
    folder = Path(job.log_dir)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "launcher.log").open("wb") as log:
        process = subprocess.Popen(
            launcher.command(job), env={**launcher.environ(os.environ), **job.env}, cwd=folder,
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(LIMIT_S / 3)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    collected = Path(job.rank_log)
    return (folder / "launcher.log").read_text(errors="replace") + (
        collected.read_text(errors="replace") if collected.is_file() else ""
    )
