"""The bed: N hosts, each a network namespace, joined by shaped links, leaf switches and a spine.

Every link is shaped to a rate well below what the CPU can carry, so that the wire decides and not the
scheduler: only then is a link that is 10 % slow visible. A host has one interface per rail (eth0, eth1 ...)
and `ctl0`, which joins the hosts and this machine over a bridge of its own that no fault ever touches.

    with Bed(hosts=4, rails=2, rate_mbit=100) as bed:
        bed.hosts[0].run("ping", "-c1", bed.address(1))

The fabric lives in a namespace of its own; on this machine there is one interface per bed, for control. All
of it vanishes with the process that made it, however that ends.
"""

from __future__ import annotations

import json
import random
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.testbed.namespaces import BedError, Namespace, call

# 198.18.0.0/15 is set apart for benchmarks of networks (RFC 2544), so no real network is hidden by it.
RAIL_NET = "198.18.{rail}.{host}"
CONTROL_NET = "198.19.{slot}.{host}"


class Bed:
    """Hosts 0 ... N-1 in `leaves` equal groups. Use it as a context manager."""

    def __init__(self, *, hosts: int, rails: int = 1, leaves: int = 1, rate_mbit: float = 100) -> None:
        if not (1 <= leaves <= hosts <= 200 and hosts % leaves == 0 and 1 <= rails <= 8):
            raise ValueError("1 to 200 hosts in equal leaves, and 1 to 8 rails")
        self.num_hosts, self.rails, self.leaves, self.rate_mbit = hosts, rails, leaves, rate_mbit

    def __enter__(self) -> Bed:
        with ExitStack() as undo:
            self.folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="testbed-")))
            self.fabric = undo.enter_context(Namespace())
            self.hosts = [undo.enter_context(Namespace()) for _ in range(self.num_hosts)]
            self._wire_fabric()
            self._take_slot()
            undo.callback(call, "ip", "link", "del", self.interface)
            self._wire_hosts()
            self._write_files()
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    # -- names ------------------------------------------------------------------------------------------------

    @property
    def interface(self) -> str:
        """This machine's only interface of the bed."""
        return f"testbed{self.slot}"

    @property
    def controller(self) -> str:
        """The address at which hosts reach this machine."""
        return CONTROL_NET.format(slot=self.slot, host=254)

    @property
    def state(self) -> Path:
        """The file by which a launcher finds the hosts."""
        return self.folder / "bed.json"

    def name(self, host: int) -> str:
        """What the host calls itself."""
        return f"node{host}"

    def address(self, host: int, rail: int | None = 0) -> str:
        """The host's address on a rail, or (None) on the control network."""
        if rail is None:
            return CONTROL_NET.format(slot=self.slot, host=host + 1)
        return RAIL_NET.format(rail=rail, host=host + 1)

    def leaf(self, host: int) -> int:
        """The leaf switch that the host hangs on."""
        return host * self.leaves // self.num_hosts

    def members(self, leaf: int) -> list[int]:
        """The hosts of a leaf."""
        return [host for host in range(self.num_hosts) if self.leaf(host) == leaf]

    @property
    def uplink_mbit(self) -> float:
        """Rate of a leaf's uplink that is not oversubscribed."""
        return self.rate_mbit * self.num_hosts / self.leaves

    # -- rates ------------------------------------------------------------------------------------------------

    def shape_transmit(self, host: int, rail: int, rate_mbit: float) -> None:
        """What the host can send on a rail."""
        self.hosts[host].batch("tc", [shaping(f"eth{rail}", rate_mbit)])

    def shape_receive(self, host: int, rail: int, rate_mbit: float) -> None:
        """What the host can receive on a rail."""
        self.fabric.batch("tc", [shaping(port(rail, host), rate_mbit)])

    def shape_uplink(self, leaf: int, rail: int, rate_mbit: float, *, way: str) -> None:
        """What a leaf can send to the spine ("up") or receive from it ("down") on a rail."""
        device = {"up": f"r{rail}up{leaf}", "down": f"r{rail}down{leaf}"}[way]
        self.fabric.batch("tc", [shaping(device, rate_mbit)])

    # -- building ---------------------------------------------------------------------------------------------

    def _wire_fabric(self) -> None:
        """Switches, uplinks, and the cables to the hosts."""
        rails = range(self.rails)
        links = ["link set lo up", *bridge("ctl")]
        shapes = []
        for rail in rails:
            links += [line for leaf in range(self.leaves) for line in bridge(switch(rail, leaf))]
            if self.leaves > 1:
                links += bridge(f"r{rail}spine")
                for leaf in range(self.leaves):
                    up, down = f"r{rail}up{leaf}", f"r{rail}down{leaf}"
                    links += [
                        f"link add {up} type veth peer name {down}",
                        f"link set {up} master {switch(rail, leaf)} up",
                        f"link set {down} master r{rail}spine up",
                    ]
                    shapes += [shaping(up, self.uplink_mbit), shaping(down, self.uplink_mbit)]
        for host, namespace in enumerate(self.hosts):
            links += cable(f"ctl{host}", "ctl0", namespace.path, "ctl")
            for rail in rails:
                here = port(rail, host)
                links += cable(here, f"eth{rail}", namespace.path, switch(rail, self.leaf(host)))
                shapes.append(shaping(here, self.rate_mbit))
        self.fabric.batch("ip", links)
        self.fabric.batch("tc", shapes)

    def _wire_hosts(self) -> None:
        """The hosts' own interfaces."""
        for host, namespace in enumerate(self.hosts):
            lines = ["link set lo up"]
            for rail in (None, *range(self.rails)):
                device = "ctl0" if rail is None else f"eth{rail}"
                lines += [f"addr add {self.address(host, rail)}/24 dev {device}", f"link set {device} up"]
            namespace.batch("ip", lines)
            namespace.batch("tc", [shaping(f"eth{rail}", self.rate_mbit) for rail in range(self.rails)])

    def _take_slot(self) -> None:
        """Join this machine to the control network, on a subnet that no other bed uses."""
        for self.slot in random.sample(range(1, 255), 20):
            link = f"link add {self.interface} type veth peer name root netns {self.fabric.path}"
            try:
                call("ip", *link.split())
                break
            except BedError as error:
                if "File exists" not in str(error):
                    raise
        else:
            raise BedError("no free control network: are there hundreds of beds on this machine?")
        self.fabric.batch("ip", ["link set root master ctl up"])
        call("ip", "addr", "add", f"{self.controller}/24", "dev", self.interface)
        call("ip", "link", "set", self.interface, "up")

    def _write_files(self) -> None:
        """The hosts' own /etc/hosts (a look-up that must ask elsewhere stalls for seconds), and the state."""
        lines = ["127.0.0.1 localhost"]
        for host in range(self.num_hosts):
            for rail in (None, *range(self.rails)):
                address, name = self.address(host, rail), self.name(host)
                lines += [f"{address} {name}", f"::ffff:{address} {name}"]
        files = {"/etc/hosts": "\n".join(lines) + "\n", "/etc/nsswitch.conf": "hosts: files\n"}
        replaced = {}
        for path, text in files.items():
            replaced[path] = str(self.folder / Path(path).name)
            Path(replaced[path]).write_text(text, encoding="utf-8")
        hosts = [
            {"name": self.name(host), "network": namespace.path, "address": self.address(host, None)}
            for host, namespace in enumerate(self.hosts)
        ]
        self.state.write_text(
            json.dumps({"controller": self.controller, "rails": self.rails, "hosts": hosts, "files": replaced}),
            encoding="utf-8",
        )


def port(rail: int, host: int) -> str:
    """The fabric's end of a host's cable."""
    return f"r{rail}host{host}"


def switch(rail: int, leaf: int) -> str:
    """A leaf switch of a rail."""
    return f"r{rail}leaf{leaf}"


def bridge(name: str) -> list[str]:
    """Lines of `ip` for a switch."""
    return [f"link add {name} type bridge", f"link set {name} up"]


def cable(here: str, there: str, network: str, master: str) -> list[str]:
    """Lines of `ip` for a cable from a switch's port `here` to a host's interface `there`."""
    return [
        f"link add {here} type veth peer name {there} netns {network}",
        f"link set {here} master {master} up",
    ]


def shaping(device: str, rate_mbit: float) -> str:
    """The line of `tc` that holds what leaves `device` to a rate.

    The bucket (1.3 ms of the rate, 4 to 16 kB) holds more than a frame and far less than a message: with a
    larger one, short messages pass unshaped.
    """
    bucket = int(min(16384, max(4096, rate_mbit * 1e6 / 8 * 1.3e-3)))
    return f"qdisc replace dev {device} root tbf rate {rate_mbit * 1000:.0f}kbit burst {bucket}b latency 50ms"
