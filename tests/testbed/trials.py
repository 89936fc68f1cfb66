"""How often a planted fault is named: many trials on one bed, whose ranks live from one trial to the next.

    python -m tests.testbed.trials --trials 10 --only loss,delay --results trials.jsonl   # as root
    python -m tests.testbed.trials --table --results trials.jsonl                         # what is there so far

A trial plants a fault at a random place, lets the living ranks play the tournament of a campaign, asks the project's
own search what to re-test, measures that, takes its conclusion, and lifts the fault. A process that keeps a core busy
runs beside. A trial is right where exactly the planted elements are accused, with kind and direction. Each is one line
of the results: what is there is not run again, so a long table is made in slices (`--seconds 240`).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from tabulate import tabulate

from benchmarks.launch import Job, Launcher
from benchmarks.links.spec import Links
from benchmarks.measurement import Config, Environment, Event, Measurement, Run, decode, now
from benchmarks.spec import Place, to_config
from clusters.loader import load
from reports import cabling
from reports.runs import StoredRun
from suites import search
from suites.launching import Launch
from suites.trouble import Trouble
from tests.testbed import campaign, launch
from tests.testbed.bed import Bed
from tests.testbed.demo import SETTINGS
from tests.testbed.faults import Fault, cpu_hog, planted

LIMIT_S = 120.0  # of one tournament
HANG_LIMIT_S = 20.0  # of one that is meant to hang
Draw = Callable[[random.Random], tuple[Fault, ...]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A kind of trial: what is planted where, on which bed, and what must be said."""

    draw: Draw
    truth: Callable[[tuple[Fault, ...]], set[str]]  # "kind title" of whoever must be accused
    bed: str = "flat"
    stop: bool = False  # a rank is stopped instead, in the middle


def anywhere(kind: str, amount: float, *, ways: Sequence[str] = ("transmit",)) -> Draw:
    """One fault of a kind, at a random host of eight and way."""
    return lambda dice: (
        Fault(kind=kind, host=dice.randrange(BEDS["flat"]["hosts"]), amount=amount, way=dice.choice(ways)),
    )


def one_side(dice: random.Random) -> tuple[Fault, ...]:
    """One side of one link, 10 % slow."""
    return (Fault(kind=dice.choice(("slow_transmit", "slow_receive")), host=dice.randrange(8), amount=0.1),)


def two_sides(dice: random.Random) -> tuple[Fault, ...]:
    """The sending side of one host and the receiving side of another, 10 % slow each."""
    one, other = dice.sample(range(8), 2)
    return Fault(kind="slow_transmit", host=one, amount=0.1), Fault(kind="slow_receive", host=other, amount=0.1)


def one_rail(dice: random.Random) -> tuple[Fault, ...]:
    """One side of one of two rails, 10 % slow."""
    kind = dice.choice(("slow_transmit", "slow_receive"))
    return (Fault(kind=kind, host=dice.randrange(BEDS["rails"]["hosts"]), rail=dice.randrange(2), amount=0.1),)


def side(fault: Fault) -> str:
    """What must be accused for a fault of one host."""
    place = f"node{fault.host} rail {fault.rail}"
    way = {"slow_transmit": "transmit", "slow_receive": "receive"}.get(fault.kind, fault.way)
    return {
        "loss": f"loss {place} {way}", "corruption": f"corruption node{fault.host} {way}",
        "delay": f"delay {place} either",  # a round trip cannot tell the direction
    }.get(fault.kind, f"nic {place} {way}")  # fmt: skip


def sides(faults: tuple[Fault, ...]) -> set[str]:
    """What must be accused for faults of hosts."""
    return set(map(side, faults))


def trunk(faults: tuple[Fault, ...]) -> set[str]:
    """What must be accused for one direction of the trunk between two leaves: up from one is down to the other."""
    leaf = faults[0].leaf if faults[0].way == "up" else 1 - faults[0].leaf
    return {f"uplink uplink leaf{leaf} to leaf{1 - leaf}"}


BEDS: dict[str, dict[str, Any]] = {
    "flat": {"hosts": 8, "rate_mbit": 50},
    "leaves": {"hosts": 8, "leaves": 2, "rate_mbit": 50},
    "rails": {"hosts": 6, "rails": 2, "rate_mbit": 50},
}
BOTH = ("transmit", "receive")
CASES = {
    "slow link, 10 %": Case(draw=one_side, truth=sides),
    "clean": Case(draw=lambda _: (), truth=sides),
    "loss, 2 %": Case(draw=anywhere("loss", 0.02, ways=BOTH), truth=sides),
    "delay, 0.3 ms": Case(draw=anywhere("delay", 0.0003, ways=BOTH), truth=sides),
    "corruption": Case(draw=anywhere("corruption", 0.01, ways=BOTH), truth=sides),
    "two faults": Case(draw=two_sides, truth=sides),
    "cable out": Case(draw=anywhere("cable_out", 0.0), truth=lambda f: {f"node{f[0].host}"}),
    "SIGSTOP": Case(draw=anywhere("stop", 0.0), truth=lambda f: {f"node{f[0].host}"}, stop=True),
    "trunk at half rate": Case(
        draw=lambda dice: (
            Fault(kind="slow_uplink", leaf=dice.randrange(2), way=dice.choice(("up", "down")), amount=0.5),
        ),
        truth=trunk, bed="leaves",
    ),
    "oversubscription 2:1": Case(
        draw=lambda _: (Fault(kind="oversubscription", amount=0.5),),
        truth=lambda _: {"oversubscription oversubscription leaf0 to leaf1"}, bed="leaves",
    ),
    "clean, two leaves": Case(draw=lambda _: (), truth=sides, bed="leaves"),
    "one rail of two, 10 %": Case(draw=one_rail, truth=sides, bed="rails"),
}  # fmt: skip
TWENTY = ("slow link, 10 %", "clean")  # twice as many trials of these


@dataclass(kw_only=True)
class Living:
    """A bed with living ranks, and what a campaign's folder would hold."""

    bed: Bed
    config: Config
    folder: Path
    launch: Launch | None = None
    measurements: list[Measurement] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    num_launches: int = 0

    def start(self) -> None:
        """Ranks on every host, where none live."""
        if self.launch is not None:
            return
        self.num_launches += 1
        place = Place(**{**self.config.place, "env": ()})
        state = str(self.bed.state)

        def command(job: Job) -> list[str]:
            return launch.command(
                state, "-m", job.module, log_dir=job.log_dir, ranks_per_host=job.place.ranks_per_node
            )  # fmt: skip

        launcher = Launcher(command=command, deaths=launch.deaths, address=lambda _: self.bed.controller)
        job = Job(place=place, log_dir=str(self.folder / f"launch-{self.num_launches}"))
        self.launch = Launch(number=self.num_launches, job=job, launcher=launcher, group_timeout_s=LIMIT_S + 60)
        if trouble := self.launch.start(60.0):
            raise RuntimeError(trouble.reason)

    def end(self) -> None:
        """End the ranks."""
        if self.launch is not None:
            self.launch.kill()
            self.launch = None

    def event(self, kind: str, **detail: Any) -> None:
        """What the search writes down."""
        self.events.append(Event(kind=kind, at=now(), detail=detail))

    def run(self, config: Config) -> Trouble | None:
        """One config on the living ranks."""
        self.start()
        assert self.launch
        trouble = self.launch.run(config, 1, lambda _, line: self.measurements.append(decode(Measurement, line)))
        if trouble:
            self.end()
        return trouble

    def stored(self) -> StoredRun:
        """The run so far."""
        assert self.launch
        environments = tuple(decode(Environment, line) for line in self.launch.environments)
        cluster = load(str(campaign.cluster_file(self.bed, settings=SETTINGS)))
        run = Run(
            id="trial", suite="fabric", cluster="bed", cluster_sha256="", started_at=now(), nodes=len(environments),
            configs=(self.config,),
        )  # fmt: skip
        return StoredRun(
            run=run, cluster=cluster, measurements=tuple(self.measurements), environments=environments,
            events=tuple(self.events), warnings=(), folder=self.folder,
        )  # fmt: skip

    def search(self) -> list[str]:
        """A whole search: "kind title" of whoever is accused, or of whom a trouble names."""
        self.measurements.clear()
        self.events = [e for e in self.events if e.kind == cabling.EVENT]
        if trouble := self.run(self.config):
            return [trouble.node]
        stored = self.stored()
        for config in search.follow_up(
            stored, stored.verdicts(today=date.today()), [self.config], self, stored.cluster
        ):
            if trouble := self.run(config):
                return [trouble.node]
        found = search.conclude(self.stored(), {self.config.id: 1}, stored.cluster)
        assert found is not None
        said = [f"{s['kind']} {s['title']}" for s in found.notes["suspects"]]
        return said if found.outcome == "ok" else [*said, found.reason]


@contextmanager
def living(name: str) -> Iterator[Living]:
    """A bed of BEDS with a topology where it has leaves."""
    with ExitStack() as undo:
        bed = undo.enter_context(Bed(**BEDS[name]))
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="trials-")))
        place = Place(nodes=bed.num_hosts, ranks_per_node=bed.rails)
        spec = Links(
            bandwidth_sizes=(65536,), passes=2, meet="nodes" if bed.rails > 1 else "ranks", limit_s=LIMIT_S,
            flows=(1, bed.num_hosts // 2) if bed.leaves > 1 else (),
        )  # fmt: skip
        made = Living(bed=bed, config=to_config(spec, place), folder=folder)
        undo.callback(made.end)
        if bed.leaves > 1:
            tables = [
                f'[nodes."{",".join(map(bed.name, bed.members(leaf)))}"]\nleaf = "leaf{leaf}"\n'
                for leaf in range(bed.leaves)
            ]
            (folder / cabling.PLAN).write_text("\n".join(tables), encoding="utf-8")
            kept = {"file": cabling.PLAN, "source": "the bed", "sha256": cabling.digest(folder / cabling.PLAN)}
            made.event(cabling.EVENT, plan=kept)
        yield made


def trial(on: Living, name: str, number: int) -> dict[str, Any]:
    """One trial of a case; its place follows from the number."""
    case, dice = CASES[name], random.Random(f"{name} {number}")
    faults = case.draw(dice)
    on.start()
    begin = time.monotonic()
    hangs = case.stop or name == "cable out"
    kept = on.config
    on.config = replace(kept, limit_s=HANG_LIMIT_S) if hangs else kept
    try:
        if case.stop:
            assert on.launch
            handle = on.launch.peers[faults[0].host].handle
            stopper = threading.Timer(1.5, signal_one, (handle.pid,))
            stopper.start()
            found = on.search()
            stopper.join()
        else:
            with planted(on.bed, *faults):
                found = on.search()
                if hangs:
                    on.end()
    finally:
        on.config = kept
    truth = case.truth(faults)
    return {
        "case": name, "trial": number, "planted": [str(f) for f in faults], "truth": sorted(truth),
        "said": sorted(found), "right": sorted(found) == sorted(truth), "seconds": round(time.monotonic() - begin, 1),
    }  # fmt: skip


def signal_one(pid: int) -> None:
    """Stop one rank."""
    os.kill(pid, signal.SIGSTOP)


def table(results: Sequence[dict[str, Any]]) -> str:
    """Rightly named, of how many trials; on healthy beds: trials without an accusation."""
    rows = []
    for name in CASES:
        mine = [r for r in results if r["case"] == name]
        if mine:
            right = sum(r["right"] for r in mine)
            seconds = sum(r["seconds"] for r in mine) / len(mine)
            rows.append([name, BEDS[CASES[name].bed]["hosts"], f"{right} of {len(mine)}", f"{seconds:.0f} s"])
    return tabulate(
        rows, headers=["planted", "hosts", "named rightly, nobody else accused", "a trial"], tablefmt="github"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The command line. 0: every trial right, 1: some not."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.testbed.trials", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--trials", type=int, default=10, help="of each kind; twice as many of a slow link and of none")
    parser.add_argument("--first", type=int, default=0, help="begin with this number: two shells share a table (0)")
    parser.add_argument("--only", default="", help="kinds by the beginning of their names, with commas between")
    parser.add_argument("--results", type=Path, default=Path("trials.jsonl"), help="read and appended to")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no trial begins after so long")
    parser.add_argument("--table", action="store_true", help="only print what is there")
    asked = parser.parse_args(argv)
    begin = time.monotonic()
    text = asked.results.read_text(encoding="utf-8") if asked.results.exists() else ""
    results = [json.loads(line) for line in text.splitlines()]
    done = {(r["case"], r["trial"]) for r in results}
    wanted = [w.strip() for w in asked.only.split(",") if w.strip()]
    cases = [name for name in CASES if not wanted or any(name.startswith(w) for w in wanted)]
    todo = [
        (name, number)
        for number in range(asked.first, 2 * asked.trials)
        for name in cases
        if number < asked.trials * (2 if name in TWENTY else 1) and not asked.table and (name, number) not in done
    ]
    for bed in BEDS:
        mine = [(name, number) for name, number in todo if CASES[name].bed == bed]
        if not mine or time.monotonic() - begin > asked.seconds:
            continue
        with living(bed) as on, cpu_hog(), asked.results.open("a", encoding="utf-8") as out:
            for name, number in mine:
                if time.monotonic() - begin > asked.seconds:
                    break
                results.append(trial(on, name, number))
                out.write(json.dumps(results[-1]) + "\n")
                out.flush()
                print(results[-1], file=sys.stderr)
    print(table(results))
    return int(not all(r["right"] for r in results))


if __name__ == "__main__":
    sys.exit(main())
