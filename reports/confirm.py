"""`confirm`: measures again what is suspect, beside a control that is not, until it is settled.

    python -m reports confirm runs/tonight --history runs

Each occasion is a campaign of its own that runs the suspect checks and one control, a check of which nothing is
suspect. Where single nodes are suspect, it runs on them and on twice as many others; else on all. An occasion on which
the control is off as well is disturbed and does not count. What the first undisturbed one contradicts was chance and
is not measured again; what two of them see is a regression. The re-runs are kept in RUN/confirm/, where `nightly` finds
them; they are no nights of the history.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from clusters import loader
from reports import runs
from reports.archive import Night, nights, read_night
from reports.nightly import CALM, CONFIRM, Report, nightly, reruns_of, table
from reports.rungs import Alarm, against_nights, judged
from reports.runs import RunError, StoredRun

TRIES = 4  # occasions at most: a cluster that is disturbed four times in a row is not measured by a fifth
APART_S = 1800.0  # before an occasion where all nodes share what is suspect: what disturbs them passes, mostly
PEERS_PER_SUSPECT = 2  # healthy nodes for each suspect one, so that the median is theirs
AS_BEFORE = ("launcher", "partition", "exclude", "known-bad", "container-image", "launcher-options", "salloc-options")
ROOT = Path(__file__).parent.parent

Measure = Callable[["Retry", Path], Path]
"""What to measure, and the folder for its run -> the run."""


@dataclass(frozen=True, kw_only=True)
class Retry:
    """What is measured again, and where."""

    tests: tuple[str, ...]  # with suspects
    control: str  # a check without any; "" where every check has one
    nodes: tuple[str, ...]  # () for the whole cluster as before


def plan(stored: StoredRun, tonight: Night, suspects: Sequence[Alarm], before: Sequence[Night]) -> Retry:
    """The least that settles these suspects."""
    tests = tuple(sorted({alarm.test for alarm in suspects}))
    return Retry(tests=tests, control=_control(stored, tonight, tests, before), nodes=_nodes(stored, suspects))


def _control(stored: StoredRun, tonight: Night, suspect: Sequence[str], before: Sequence[Night]) -> str:
    """The cheapest check that has a baseline and no suspect number."""
    based = {s.test for s in judged(tonight) if against_nights(s, tonight, before).shared.known.any()}
    seconds: dict[str, float] = defaultdict(float)
    test_of = {e.config: e.test for e in stored.run.expected}
    for event in stored.events:
        if event.kind == "batch":
            seconds[test_of.get(str(event.detail.get("config")), "")] += float(event.detail.get("seconds") or 0)
    free = sorted((seconds[test], test) for test in based - set(suspect))
    return free[0][1] if free else ""


def _nodes(stored: StoredRun, suspects: Sequence[Alarm]) -> tuple[str, ...]:
    """Suspect nodes and their controls; () where what all nodes share is suspect, or there are no others."""
    hosts = next((tuple(e.detail["hosts"]) for e in reversed(stored.events) if e.kind == "nodes"), ())
    bad = sorted({alarm.node for alarm in suspects})
    if "" in bad or not set(bad) <= set(hosts):
        return ()
    others = [host for host in hosts if host not in bad and host not in stored.excused]
    wanted = PEERS_PER_SUSPECT * len(bad)
    return (*bad, *others[:wanted]) if len(others) > wanted else ()


def disturbed(again: Night, control: str, before: Sequence[Night]) -> str:
    """Why an occasion does not count; "" where its control is as on other nights."""
    if not control:
        return ""
    controls = [s for s in judged(again) if s.test == control]
    if not controls:
        return f"its control {control} gave no number"
    for s in controls:
        if any(part.suspect.any() for part in against_nights(s, again, before).parts):
            return f"its control {s.title} was off as well"
    return ""


def _say(line: str) -> None:
    print(line, flush=True)  # whoever reads a log sees it before the half hour, not after it


def confirm(
    stored: StoredRun, root: Path, measure: Measure, *,
    say: Callable[[str], None] = _say, wait: Callable[[float], None] = time.sleep, apart_s: float | None = None,
) -> Report:  # fmt: skip
    """Measure until two undisturbed occasions have settled every suspect, or TRIES were not enough."""
    verdicts = stored.verdicts(today=date.today())
    report = nightly(stored, verdicts, root, again=reruns_of(stored.folder))
    if not report.climbed.suspects:
        say("nothing is suspect: there is nothing to measure again")
        return report
    tonight = read_night(stored.folder)
    before = [n for n in nights(root, cluster=tonight.cluster) if n.started < tonight.started and n.run != tonight.run]
    folder = stored.folder / CONFIRM
    folder.mkdir(exist_ok=True)
    for k in range(TRIES):
        suspects = report.climbed.suspects
        retry = plan(stored, tonight, suspects, before)
        control = retry.control or "none, as every check is suspect"
        say(f"{len(suspects)} suspect: {', '.join(retry.tests)}; control: {control}")
        shared = not retry.control or any(not alarm.node for alarm in suspects)
        pause = (APART_S if shared else 0.0) if apart_s is None else apart_s
        if pause:
            say(f"in {pause / 60:g} minutes, as what disturbs all nodes must pass first (--apart 0: at once)")
        wait(pause)
        again = measure(retry, folder)
        why = disturbed(read_night(again), retry.control, before)
        say(f"occasion {k + 1}: {again.name}: {f'disturbed, does not count: {why}' if why else 'undisturbed'}")
        if not why:
            with (folder / CALM).open("a") as file:
                file.write(f"{again.name}\n")
        report = nightly(stored, verdicts, root, again=reruns_of(stored.folder))
        if not report.climbed.suspects:
            break
    return report


def command(stored: StoredRun, retry: Retry, folder: Path, more: Sequence[str] = ()) -> list[str]:
    """The campaign of one occasion: started as the run was, with less to measure."""
    old = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in ("cluster", *AS_BEFORE):
        old.add_argument(f"--{name}", default="")
    try:
        was = vars(old.parse_known_args(shlex.split(stored.run.command)[1:])[0])
    except (argparse.ArgumentError, ValueError):
        raise RunError(f"{stored.folder}: nobody can tell how it was started ({stored.run.command!r})") from None
    words = [retry.control, *retry.tests] if retry.control else list(retry.tests)
    words += ["--cluster", _cluster(stored, was["cluster"]), "--suite", stored.run.suite]
    words += ["--run-dir", str(folder.resolve())]
    for name in AS_BEFORE:
        if value := was[name.replace("-", "_")]:
            words += [f"--{name}", str(Path(value).resolve()) if name == "known-bad" else value]
    hosts = next((e.detail for e in reversed(stored.events) if e.kind == "nodes"), {})
    names = retry.nodes or (hosts.get("hosts", ()) if hosts.get("launcher") not in ("torchrun", None) else ())
    if names:
        words += ["--nodes", str(len(names)), "--nodelist", ",".join(names)]
    return [sys.executable, "-m", "pytest", *words, *more]


def _cluster(stored: StoredRun, name: str) -> str:
    """The cluster file of the run, under its own name while it is still the same, else the copy that the run keeps."""
    path = str(Path(name).resolve()) if Path(name).is_file() else name
    try:
        if loader.load(path, nodes=stored.run.nodes).sha256 == stored.run.cluster_sha256:
            return path
    except loader.ClusterError:
        pass
    return str((stored.folder / runs.CLUSTER).resolve())


def campaign(stored: StoredRun, more: Sequence[str]) -> Measure:
    """Measures by a campaign of the suites, in a process of its own. RunError where it leaves no run."""

    def measure(retry: Retry, folder: Path) -> Path:
        there = set(folder.iterdir())
        done = subprocess.run(
            command(stored, retry, folder, more), cwd=ROOT, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        made = [path for path in sorted(set(folder.iterdir()) - there) if runs.is_run(path)]
        if not made:
            last = "\n".join(done.stdout.splitlines()[-8:])
            raise RunError(f"the re-run left no run (status {done.returncode}): say what it lacks after --\n{last}")
        return made[-1]

    return measure


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register `confirm`."""
    words = "measure again what is suspect, beside a control: 0 nothing, 1 a regression, 3 cannot say"
    parser = commands.add_parser("confirm", help=words, description=words)
    parser.add_argument("run", type=Path, help="tonight's run folder")
    parser.add_argument(
        "--history", type=Path, default=Path("runs"), metavar="DIR", help="the folder of earlier runs (runs)"
    )
    parser.add_argument(
        "--apart", type=float, metavar="MINUTES", help="before each occasion (0; 30 where all nodes share it)"
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be run, and run nothing")
    parser.add_argument("more", nargs="*", metavar="-- WORDS", help="further words for pytest suites, after --")
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    stored = runs.load(options.run)
    if options.dry_run:
        return _dry(stored, options)
    apart_s = None if options.apart is None else 60 * options.apart
    report = confirm(stored, options.history, campaign(stored, options.more), apart_s=apart_s)
    print(table(report))
    return report.status


def _dry(stored: StoredRun, options: argparse.Namespace) -> int:
    report = nightly(stored, stored.verdicts(today=date.today()), options.history, again=reruns_of(stored.folder))
    if report.climbed.suspects:
        tonight = read_night(stored.folder)
        before = [n for n in nights(options.history, cluster=tonight.cluster) if n.started < tonight.started]
        retry = plan(stored, tonight, report.climbed.suspects, before)
        print(shlex.join(command(stored, retry, stored.folder / CONFIRM, options.more)))
    return report.status
