"""Faults by name: each is planted on a bed, does what it says, and is lifted without a trace.

    with planted(bed, Fault(kind="slow_transmit", host=3, amount=0.1)):
        ...                                  # what node3 sends is 10 % slower, what it receives is not

A fault is also the truth that a localiser is judged against: its kind, element and direction. Faults of
ranks (SIGSTOP, SIGKILL) are signals to a launch: see `launch.Ranks.signal`.
"""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.bed import Bed, port, switch
from tests.testbed.namespaces import BedError

RELAY = Path(__file__).with_name("relay.py")
TABLES = itertools.count(1)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that is wrong. `amount` is a share (of the rate, of the frames) but for delay: seconds."""

    kind: str
    host: int = -1
    rail: int | None = 0  # None: every rail
    leaf: int = -1
    amount: float = 0.0
    way: str = "transmit"  # seen from the host: transmit | receive; from the leaf: up | down

    def rails(self, bed: Bed) -> list[int]:
        """The rails that it sits on."""
        return list(range(bed.rails)) if self.rail is None else [self.rail]

    def __str__(self) -> str:
        """The truth in words: slow_transmit of node3, rail 0, 10 %."""
        place = f"node{self.host}" if self.host >= 0 else f"leaf {self.leaf}" if self.leaf >= 0 else "every leaf"
        words = [place, "every rail" if self.rail is None else f"rail {self.rail}"]
        if self.kind in DIRECTED:
            words.append(self.way)
        if self.amount:
            words.append(f"{self.amount * 1e3:g} ms" if self.kind == "delay" else f"{self.amount:.0%}")
        return f"{self.kind} of {', '.join(words)}"


@contextmanager
def planted(bed: Bed, *faults: Fault) -> Iterator[None]:
    """Plant faults for as long as the block runs. ValueError for a kind that does not exist."""
    with ExitStack() as undo:
        for fault in faults:
            if fault.kind not in FAULTS:
                raise ValueError(f"no fault {fault.kind!r}: there are {', '.join(FAULTS)}")
            FAULTS[fault.kind](bed, fault, undo)
        yield


def slow_transmit(bed: Bed, fault: Fault, undo: ExitStack) -> None:
    """What the host sends is slower by `amount`."""
    for rail in fault.rails(bed):
        bed.shape_transmit(fault.host, rail, bed.rate_mbit * (1 - fault.amount))
        undo.callback(bed.shape_transmit, fault.host, rail, bed.rate_mbit)


def slow_receive(bed: Bed, fault: Fault, undo: ExitStack) -> None:
    """What the host receives is slower by `amount`."""
    for rail in fault.rails(bed):
        bed.shape_receive(fault.host, rail, bed.rate_mbit * (1 - fault.amount))
        undo.callback(bed.shape_receive, fault.host, rail, bed.rate_mbit)


def slow_link(bed: Bed, fault: Fault, undo: ExitStack) -> None:
    """Both directions of the host's cable are slower by `amount`."""
    slow_transmit(bed, fault, undo)
    slow_receive(bed, fault, undo)


def slow_uplink(bed: Bed, fault: Fault, undo: ExitStack) -> None:
    """One direction (`way`: up or down) of a leaf's uplink is slower by `amount`."""
    for rail in fault.rails(bed):
        bed.shape_uplink(fault.leaf, rail, bed.uplink_mbit * (1 - fault.amount), way=fault.way)
        undo.callback(bed.shape_uplink, fault.leaf, rail, bed.uplink_mbit, way=fault.way)


def oversubscription(bed: Bed, fault: Fault, undo: ExitStack) -> None:
    """Every uplink carries less than its hosts can send together (0.5: two to one), but a single flow whole."""
    if bed.uplink_mbit * (1 - fault.amount) < bed.rate_mbit:
        raise ValueError("so thin an uplink slows single flows too: that is slow_uplink")
    for leaf in range(bed.leaves):
        for way in ("up", "down"):
            slow_uplink(bed, Fault(kind="slow_uplink", leaf=leaf, rail=fault.rail, way=way, amount=fault.amount), undo)


def loss(bed: Bed, fault: Fault, undo: ExitStack) -> None:
    """A share of the frames that the host sends (`way` transmit) or should receive is lost."""
    for rail in fault.rails(bed):
        hook = {"transmit": "ingress", "receive": "egress"}[fault.way]  # of the switch's port
        rule = f"numgen random mod 100000 < {round(fault.amount * 100_000)} drop"
        chain = f'type filter hook {hook} device "{port(rail, fault.host)}" priority 0;'
        filter_frames(bed, "netdev", chain, [rule], undo)


def partition(bed: Bed, fault: Fault, undo: ExitStack) -> None:
    """Nothing passes between the host (or all hosts of `leaf`) and the others, and every carrier stays up."""
    inside = bed.members(fault.leaf) if fault.leaf >= 0 else [fault.host]
    outside = [host for host in range(bed.num_hosts) if host not in inside]
    for rail in fault.rails(bed):
        groups = [", ".join(bed.address(host, rail) for host in group) for group in (inside, outside)]
        rules = [f"ip saddr {{ {a} }} ip daddr {{ {b} }} drop" for a, b in (groups, groups[::-1])]
        filter_frames(bed, "bridge", "type filter hook forward priority 0;", rules, undo)


def cable_out(bed: Bed, fault: Fault, undo: ExitStack) -> None:
    """The host's cable is pulled: its interface has no carrier."""
    for rail in fault.rails(bed):
        bed.fabric.run("ip", "link", "set", port(rail, fault.host), "down")
        undo.callback(bed.fabric.run, "ip", "link", "set", port(rail, fault.host), "up")


def delay(bed: Bed, fault: Fault, undo: ExitStack) -> None:
    """What the host sends (or receives) arrives `amount` seconds later; the rate stays."""
    put_relay(bed, fault, ["--delay-us", f"{fault.amount * 1e6:g}"], undo)


def corruption(bed: Bed, fault: Fault, undo: ExitStack) -> None:
    """One bit is wrong in a share of the frames that the host sends (or receives), unseen by TCP."""
    put_relay(bed, fault, ["--corrupt", f"{fault.amount:g}"], undo)


FAULTS: dict[str, Callable[[Bed, Fault, ExitStack], None]] = {
    "slow_transmit": slow_transmit,
    "slow_receive": slow_receive,
    "slow_link": slow_link,
    "slow_uplink": slow_uplink,
    "oversubscription": oversubscription,
    "loss": loss,
    "partition": partition,
    "cable_out": cable_out,
    "delay": delay,
    "corruption": corruption,
}
DIRECTED = ("slow_uplink", "loss", "delay", "corruption")


def put_relay(bed: Bed, fault: Fault, words: list[str], undo: ExitStack) -> None:
    """Cut the host's cable at the switch and join the ends with a relay."""
    for rail in fault.rails(bed):
        here, wire, master = port(rail, fault.host), f"wire{rail}h{fault.host}", switch(rail, bed.leaf(fault.host))
        bed.fabric.batch("ip", [
            f"link set {here} nomaster",
            f"link add {wire} type veth peer name {wire}s",
            f"link set {wire} up",
            f"link set {wire}s master {master} up",
        ])  # fmt: skip
        undo.callback(bed.fabric.batch, "ip", [f"link del {wire}", f"link set {here} master {master}"])
        sides = [here, wire] if fault.way == "transmit" else [wire, here]
        command = bed.fabric.command(sys.executable, "-I", str(RELAY), *sides, *words)
        relay = undo.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        undo.callback(relay.kill)
        assert relay.stdout is not None
        if relay.stdout.readline() != b"ready\n":
            raise BedError(f"no relay: {relay.stdout.read().decode()}")


def filter_frames(bed: Bed, family: str, chain: str, rules: list[str], undo: ExitStack) -> None:
    """Add a table of its own with one chain to the fabric's packet filter."""
    table = f"fault{next(TABLES)}"
    text = "\n".join([f"table {family} {table} {{", "chain frames {", chain, *rules, "}", "}", ""])
    bed.fabric.run("nft", "-f", "-", given=text)
    undo.callback(bed.fabric.run, "nft", "delete", "table", family, table)


@contextmanager
def cpu_hog() -> Iterator[subprocess.Popen[bytes]]:
    """A process that keeps one core busy while the block runs."""
    with subprocess.Popen([sys.executable, "-I", "-c", "while True: pass"]) as hog:
        try:
            yield hog
        finally:
            hog.kill()


def somewhere(bed: Bed, kind: str, amount: float, draw: random.Random) -> Fault:
    """A fault of a kind at a random place, in a random direction where it has one."""
    way = draw.choice(("up", "down") if kind == "slow_uplink" else ("transmit", "receive"))
    return Fault(
        kind=kind, host=draw.randrange(bed.num_hosts), leaf=draw.randrange(bed.leaves), rail=draw.randrange(bed.rails),
        amount=amount, way=way,
    )  # fmt: skip
