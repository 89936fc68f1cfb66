"""The test bed does what it says: each fault is measured, on the links that it names and on no others.

Rates are compared with the rate that the bed itself set, so these are no claims about the machine: the
fastest of several transfers is taken, which a busy machine can only slow.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.testbed import flows, launch
from tests.testbed.bed import Bed, shaping
from tests.testbed.faults import Fault, cpu_hog, planted, somewhere

pytestmark = [pytest.mark.machine("root"), pytest.mark.slow]

RATE_MBIT = 50
PAYLOAD = 1448 / 1514  # of a full frame on Ethernet, TCP with time stamps
MOST = 1.05  # of that: no more fits through the wire
Pairs = set[tuple[int, int]]


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    """Four hosts, two on each leaf, two rails."""
    with Bed(hosts=4, rails=2, leaves=2, rate_mbit=RATE_MBIT) as made:
        yield made


def share(bed: Bed, a: int, b: int, *, rail: int = 0) -> float:
    """Bandwidth from a to b as a share of what the link should carry: the best of up to four transfers.

    Where a clock began late on a busy machine, it shows more than the wire carries: that transfer says nothing. A wire
    that really carries more does so each time, and ends as 0.
    """
    line = RATE_MBIT * 1e6 / 8 * PAYLOAD
    best = 0.0
    for _ in range(4):
        found = flows.bandwidth(bed, a, b, rail=rail, num_bytes=150_000) / line
        best = max(best, found if found < MOST else 0.0)
        if best > 0.97:
            break
    return best


def slow_pairs(bed: Bed, *, rail: int = 0) -> Pairs:
    """Directed pairs that carry less than 85 % of what they should."""
    return {(a, b) for a, b in flows.pairs(bed) if share(bed, a, b, rail=rail) < 0.85}


def dead_pairs(bed: Bed, *, rail: int | None = 0) -> Pairs:
    """Directed pairs that do not reach each other."""
    return {(a, b) for a, b in flows.pairs(bed) if not flows.reaches(bed, a, b, rail=rail)}


def touching(*hosts: int, sends: bool = True, receives: bool = True) -> Pairs:
    """Pairs of the four hosts in which one of `hosts` sends or receives."""
    every = {(a, b) for a in range(4) for b in range(4) if a != b}
    return {(a, b) for a, b in every if (sends and a in hosts) or (receives and b in hosts)}


def across(sender: int) -> Pairs:
    """Pairs from the hosts of one leaf to those of the other."""
    inside, outside = ((0, 1), (2, 3)) if sender == 0 else ((2, 3), (0, 1))
    return {(a, b) for a in inside for b in outside}


def test_healthy_links_carry_the_rate_they_are_given(bed: Bed) -> None:
    shares = {(a, b, rail): share(bed, a, b, rail=rail) for a, b in flows.pairs(bed) for rail in (0, 1)}
    assert all(s > 0.9 for s in shares.values()), shares


@pytest.mark.parametrize(
    ("fault", "slowed"),
    [
        (Fault(kind="slow_transmit", host=1, amount=0.3), touching(1, receives=False)),
        (Fault(kind="slow_receive", host=1, amount=0.3), touching(1, sends=False)),
        (Fault(kind="slow_link", host=2, amount=0.3), touching(2)),
        (Fault(kind="slow_uplink", leaf=0, way="up", amount=0.7), across(0)),
        (Fault(kind="slow_uplink", leaf=0, way="down", amount=0.7), across(1)),
    ],
    ids=lambda value: str(value) if isinstance(value, Fault) else "",
)
def test_a_slow_element_slows_exactly_its_pairs_on_its_rail(bed: Bed, fault: Fault, slowed: Pairs) -> None:
    with planted(bed, fault):
        assert slow_pairs(bed) == slowed
        assert slow_pairs(bed, rail=1) == set()
    assert slow_pairs(bed) == set()


def test_the_amount_is_the_share_that_is_lost(bed: Bed) -> None:
    with planted(bed, Fault(kind="slow_transmit", host=0, amount=0.3)):
        assert 0.6 < share(bed, 0, 1) < 0.8


def test_a_fault_of_every_rail_is_on_every_rail(bed: Bed) -> None:
    with planted(bed, Fault(kind="slow_transmit", host=3, rail=None, amount=0.3)):
        assert slow_pairs(bed, rail=0) == slow_pairs(bed, rail=1) == touching(3, receives=False)


def test_two_faults_at_once_are_both_there(bed: Bed) -> None:
    faults = [Fault(kind="slow_transmit", host=0, amount=0.3), Fault(kind="slow_receive", host=3, amount=0.3)]
    with planted(bed, *faults):
        assert slow_pairs(bed) == touching(0, receives=False) | touching(3, sends=False)


def test_oversubscription_shows_only_in_simultaneous_flows(bed: Bed) -> None:
    line = RATE_MBIT * 1e6 / 8 * PAYLOAD
    with planted(bed, Fault(kind="oversubscription", amount=0.5)):
        assert slow_pairs(bed) == set()
        together = flows.simultaneous(bed, [(0, 2), (1, 3)])
    assert sum(together) < 1.2 * line  # two flows share what one of them can fill


def test_loss_makes_the_sender_repeat_itself_and_spares_the_others(bed: Bed) -> None:
    with planted(bed, Fault(kind="loss", host=1, amount=0.05)):
        repeated = {(a, b) for a, b in flows.pairs(bed) if flows.transfer(bed, a, b).retransmits}
    assert repeated & touching(1, receives=False) == touching(1, receives=False)
    assert repeated - touching(1) == set()


def test_loss_can_sit_on_the_receiving_side(bed: Bed) -> None:
    with planted(bed, Fault(kind="loss", host=1, amount=0.05, way="receive")):
        assert flows.transfer(bed, 0, 1).retransmits > 0
        assert flows.transfer(bed, 0, 2).retransmits == 0


def test_delay_adds_to_every_round_trip_of_its_host_only(bed: Bed) -> None:
    delay_s = 2e-3
    with planted(bed, Fault(kind="delay", host=0, amount=delay_s)):
        fastest = {(a, b): flows.latencies(bed, a, b)[0] for a, b in flows.pairs(bed)}
    assert {pair for pair, seconds in fastest.items() if seconds >= delay_s / 2} == touching(0)


def test_corruption_spoils_what_one_host_sends_unseen_by_tcp(bed: Bed) -> None:
    with planted(bed, Fault(kind="corruption", host=2, amount=0.2)):
        wrong = {(a, b) for a, b in flows.pairs(bed) if flows.transfer(bed, a, b).wrong_bytes}
        assert wrong == touching(2, receives=False)
    assert flows.transfer(bed, 2, 0).wrong_bytes == 0


def test_a_pulled_cable_has_no_carrier_and_control_goes_on(bed: Bed) -> None:
    with planted(bed, Fault(kind="cable_out", host=1)):
        assert "NO-CARRIER" in bed.hosts[1].run("ip", "link", "show", "eth0")
        assert dead_pairs(bed) == touching(1)
        assert dead_pairs(bed, rail=1) == dead_pairs(bed, rail=None) == set()
    assert comes_true(lambda: not dead_pairs(bed), limit_s=10)  # after the hosts have asked for addresses again


@pytest.mark.parametrize(
    ("fault", "cut"),
    [
        (Fault(kind="partition", host=1), touching(1)),
        (Fault(kind="partition", leaf=1), across(0) | across(1)),
    ],
    ids=lambda value: str(value) if isinstance(value, Fault) else "",
)
def test_a_partition_is_silent(bed: Bed, fault: Fault, cut: Pairs) -> None:
    with planted(bed, fault):
        assert dead_pairs(bed) == cut
        assert "NO-CARRIER" not in bed.hosts[1].run("ip", "link", "show", "eth0")
    assert comes_true(lambda: not dead_pairs(bed), limit_s=10)


def test_this_machine_reaches_every_host_over_control(bed: Bed) -> None:
    for host, namespace in enumerate(bed.hosts):
        with namespace.socket() as listening:
            listening.bind((bed.address(host, None), 0))
            listening.listen()
            with socket.create_connection(listening.getsockname(), timeout=5) as found:
                assert found.getsockname()[0] == bed.controller


def test_an_unknown_fault_names_the_known_ones(bed: Bed) -> None:
    with pytest.raises(ValueError, match="there are slow_transmit, slow_receive"), planted(bed, Fault(kind="gremlin")):
        pass


def test_a_trunk_that_slows_single_flows_is_not_called_oversubscribed(bed: Bed) -> None:
    with pytest.raises(ValueError, match="slow_uplink"), planted(bed, Fault(kind="oversubscription", amount=0.6)):
        pass


def test_a_random_fault_lies_on_the_bed_and_says_where(bed: Bed) -> None:
    faults = [somewhere(bed, "slow_transmit", 0.1, random.Random(seed)) for seed in range(50)]
    assert {fault.host for fault in faults} == {0, 1, 2, 3}
    assert str(faults[0]) == f"slow_transmit of node{faults[0].host}, rail {faults[0].rail}, 10%"


def test_two_beds_do_not_see_each_other(bed: Bed) -> None:
    with Bed(hosts=2, rate_mbit=RATE_MBIT) as other, planted(other, Fault(kind="cable_out", host=0)):
        assert other.interface != bed.interface
        assert flows.reaches(bed, 0, 1)
        assert not flows.reaches(other, 0, 1)


def test_a_bed_vanishes_when_its_owner_is_killed() -> None:
    program = (
        "import sys, time\nfrom tests.testbed.bed import Bed\n"
        "with Bed(hosts=3) as bed:\n    print(bed.interface, flush=True)\n    time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=launch.ROOT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        interface = owner.stdout.readline().strip()
        assert Path(f"/sys/class/net/{interface}").exists()
        owner.kill()
    assert comes_true(lambda: not Path(f"/sys/class/net/{interface}").exists(), limit_s=10)


def test_a_bucket_holds_a_frame_and_less_than_a_message() -> None:
    for rate_mbit in (1, 20, 100, 1000):
        bucket = int(shaping("eth0", rate_mbit).split("burst ")[1].split("b ")[0])
        assert 1514 < bucket <= 16384


def test_a_hog_ends_with_its_block() -> None:
    with cpu_hog() as hog:
        assert hog.poll() is None
    assert hog.poll() is not None


REDUCE = """
import socket, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.full((1000,), float(dist.get_rank()))
dist.all_reduce(x)
print(socket.gethostname(), socket.gethostbyname(socket.gethostname()), x[0].item(), flush=True)
while len(sys.argv) > 1:
    dist.all_reduce(x)
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    """A program for ranks: one all_reduce, or with an argument, all_reduce for ever."""
    path = tmp_path / "reduce.py"
    path.write_text(REDUCE)
    return str(path)


def ranks(bed: Bed, tmp_path: Path, *words: str, ranks_per_host: int = 1) -> launch.Ranks:
    """Launch a program on every host."""
    return launch.Ranks(
        launch.command(bed.state, *words, log_dir=tmp_path, ranks_per_host=ranks_per_host), log_dir=tmp_path
    )


def comes_true(said: Callable[[], bool], *, limit_s: float) -> bool:
    """Whether something becomes true in time."""
    end = time.monotonic() + limit_s
    while not said() and time.monotonic() < end:
        time.sleep(0.02)
    return said()


def alive(pid: int) -> bool:
    """Whether a process still runs."""
    return Path(f"/proc/{pid}").exists()


def test_ranks_are_hosts_and_talk_over_the_rails(bed: Bed, tmp_path: Path, script: str) -> None:
    with ranks(bed, tmp_path, script, ranks_per_host=2) as launched:
        assert launched.wait(60) == 0, launched.output.read_text()
        said = [launched.log(rank).split() for rank in range(8)]
    assert [name for name, _, _ in said] == [f"node{rank // 2}" for rank in range(8)]
    assert {total for _, _, total in said} == {"28.0"}
    assert launched.deaths() == {}


def test_a_killed_rank_ends_the_launch_and_is_named(bed: Bed, tmp_path: Path, script: str) -> None:
    with ranks(bed, tmp_path, script, "for-ever") as launched:
        pids = [launched.pid(rank) for rank in range(4)]
        assert comes_true(lambda: "6.0" in launched.log(3), limit_s=60)
        launched.signal(2, signal.SIGKILL)
        assert launched.wait(30) == 1
        assert launched.deaths()[2] == "SIGKILL"
    assert not any(map(alive, pids))


def test_a_stopped_rank_hangs_and_is_gone_after_the_block(bed: Bed, tmp_path: Path, script: str) -> None:
    with ranks(bed, tmp_path, script, "for-ever") as launched:
        pids = [launched.pid(rank) for rank in range(4)]
        assert comes_true(lambda: "6.0" in launched.log(3), limit_s=60)
        launched.signal(1, signal.SIGSTOP)
        state = Path(f"/proc/{pids[1]}/stat")
        assert comes_true(lambda: state.read_text().rsplit(")", 1)[1].split()[0] == "T", limit_s=5)
        assert launched.process.poll() is None  # nobody notices a hang by itself
    assert not any(map(alive, pids))


def test_ranks_end_with_their_launcher(bed: Bed, tmp_path: Path, script: str) -> None:
    with ranks(bed, tmp_path, script, "for-ever") as launched:
        pids = [launched.pid(rank) for rank in range(4)]
        os.kill(launched.process.pid, signal.SIGKILL)
        assert comes_true(lambda: not any(map(alive, pids)), limit_s=10)


def test_a_rank_that_raises_says_so_in_its_log(bed: Bed, tmp_path: Path) -> None:
    path = tmp_path / "raise.py"
    path.write_text("import os, time\nif os.environ['RANK'] == '1': raise RuntimeError('no such GPU')\ntime.sleep(60)")
    with ranks(bed, tmp_path, str(path)) as launched:
        assert launched.wait(30) == 1
    assert launched.deaths() == {1: "exit status 1"}
    assert "no such GPU" in launched.log(1)
