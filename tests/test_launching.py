"""The line between controller and ranks, the look at a stuck process, the lock: each with real processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from multiprocessing.connection import Listener

import pytest

from benchmarks import diagnosis
from benchmarks.control import Channel, ControlError, dial
from benchmarks.launch import LAUNCHERS, Job, torchrun
from benchmarks.measurement import Run
from benchmarks.spec import Place
from clusters.cluster import Cluster
from suites.launching import Launch
from suites.lock import CampaignLock, LockedError
from suites.runfolder import RunFolder, RunFolderError
from suites.trouble import Peer, hung, raised

KEY = "00" * 16
CHILD = """
import time
from benchmarks import diagnosis
def stuck_here():
    print(__import__("json").dumps(diagnosis.arm().to_dict()), flush=True)
    while True:
        time.sleep(0.01)
stuck_here()
"""


@pytest.fixture
def child():
    """A process armed for diagnosis, and its handle."""
    process = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True)
    yield process, diagnosis.Handle(**json.loads(process.stdout.readline()))
    process.kill()
    process.wait()


# -- diagnosis ---------------------------------------------------------------------------------------------------


def test_a_running_process_shows_its_stack(child):
    report = diagnosis.examine(child[1])
    assert report.state in ("running", "sleeping") and "stuck_here" in report.stack


def test_a_stopped_process_is_told_as_stopped_and_shows_its_stack(child):
    process, handle = child
    process.send_signal(signal.SIGSTOP)
    while diagnosis.state_of(handle) != "stopped":
        time.sleep(0.01)
    report = diagnosis.examine(handle)
    assert report.state == "stopped" and "stuck_here" in report.stack


def test_a_process_that_is_gone_is_told_so_and_its_pid_is_never_signalled(child):
    process, handle = child
    process.kill()
    process.wait()
    assert diagnosis.examine(handle).state == "gone" and not diagnosis.is_alive(handle)
    assert not diagnosis.signal_process(handle, signal.SIGTERM)
    reused = replace(handle, pid=os.getpid())  # another process has the pid by now
    assert diagnosis.state_of(reused) == "gone"
    assert not diagnosis.signal_process(reused, signal.SIGKILL)


def test_a_process_sees_its_own_main_thread():
    report = diagnosis.myself(threading.main_thread().ident)
    assert "test_a_process_sees_its_own_main_thread" in report.stack and not report.in_collective


# -- control -----------------------------------------------------------------------------------------------------


def listener():
    return Listener(("127.0.0.1", 0), authkey=bytes.fromhex(KEY))


def test_messages_go_both_ways():
    with listener() as listening:
        host, port = listening.address
        there: list[Channel] = []
        threading.Thread(target=lambda: there.append(Channel(listening.accept()))).start()
        here = dial(f"{host}:{port}", KEY)
        while not there:
            time.sleep(0.01)
        here.send("hello", rank=3)
        assert there[0].receive() == {"kind": "hello", "rank": 3}
        there[0].close()
        with pytest.raises((EOFError, OSError)):
            here.receive()


def test_a_wrong_key_is_refused():
    with listener() as listening:
        host, port = listening.address

        def accept():
            with pytest.raises(Exception):  # noqa: B017 - the other side's complaint, whatever it is
                listening.accept()

        thread = threading.Thread(target=accept)
        thread.start()
        with pytest.raises(ControlError, match="another launch"):
            dial(f"{host}:{port}", "11" * 16)
        thread.join()


def test_nobody_there_is_told_with_the_address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(ControlError, match=f"127.0.0.1:{port}"):
        dial(f"127.0.0.1:{port}", KEY, patience_s=0.3)


@pytest.mark.parametrize("data", [b"\xff", b"[]", b"{}", b"1"])
def test_garbage_on_the_line_is_an_error(data):
    with listener() as listening:
        host, port = listening.address
        threading.Thread(target=lambda: listening.accept().send_bytes(data)).start()
        with pytest.raises(ControlError):
            dial(f"{host}:{port}", KEY).receive()


# -- launching ---------------------------------------------------------------------------------------------------


def test_torchrun_tells_who_died_and_how():
    said = (
        "Root Cause (first observed failure):\n[0]:\n  time      : 2026-12-01_08:00:00\n  host      : n1\n"
        "  rank      : 2 (local_rank: 2)\n  exitcode  : -9 (pid: 77)\n  error_file: <N/A>\n"
        "  traceback : Signal 9 (SIGKILL) received by PID 77\n"
        "[1]:\n  rank      : 3 (local_rank: 3)\n  exitcode  : 7 (pid: 78)\n"
    )
    assert torchrun.deaths(said) == {2: "SIGKILL", 3: "exit status 7"}
    assert torchrun.deaths("nothing of the kind") == {}


def test_torchrun_is_for_one_node():
    with pytest.raises(ValueError, match="2 nodes"):
        torchrun.command(Job(place=Place(nodes=2), log_dir="logs"))


def test_a_launcher_that_ends_at_once_is_told_with_its_last_words(tmp_path):
    broken = replace(LAUNCHERS["torchrun"], command=lambda _: [sys.executable, "-c", "raise SystemExit('no ranks')"])
    launch = Launch(
        number=1, job=Job(place=Place(ranks_per_node=2), log_dir=str(tmp_path)), launcher=broken, group_timeout_s=10.0
    )
    trouble = launch.start(20.0)
    launch.kill()
    assert trouble and trouble.kind == "start" and "rank 0, 1" in trouble.reason and "no ranks" in trouble.log


def test_ranks_that_never_come_up_are_named_within_the_limit(tmp_path):
    sleeper = replace(LAUNCHERS["torchrun"], command=lambda _: [sys.executable, "-c", "import time; time.sleep(60)"])
    launch = Launch(number=1, job=Job(place=Place(), log_dir=str(tmp_path)), launcher=sleeper, group_timeout_s=10.0)
    begin = time.monotonic()
    trouble = launch.start(1.0)
    launch.kill()
    assert trouble and "rank 0 did not come up" in trouble.reason
    assert time.monotonic() - begin < 10 and launch.process.returncode is not None


# -- blame -------------------------------------------------------------------------------------------------------


def peers(n):
    handle = diagnosis.Handle(pid=1, born="", stack_path="")
    return {r: Peer(rank=r, node="n1", channel=None, handle=handle) for r in range(n)}


def report(stack, state="answering"):
    return diagnosis.Report(state=state, stack=stack)


COLLECTIVE = 'File "torch/distributed/distributed_c10d.py", line 1, in all_reduce'


@pytest.mark.parametrize(
    ("seen", "silent", "culprit"),
    [
        ({0: report(COLLECTIVE), 1: report("in sleep")}, [], 1),
        ({0: report(COLLECTIVE), 1: report(COLLECTIVE), 2: report("", "stopped")}, [2], 2),
        ({0: report("in sleep"), 1: report(COLLECTIVE, "stopped")}, [1], 1),
    ],
)
def test_the_hung_rank_is_not_one_of_its_victims(seen, silent, culprit):
    trouble = hung(peers(3), seen, silent)
    assert trouble.rank == culprit and f"rank {culprit}" in trouble.reason


def test_when_all_wait_nobody_is_blamed():
    assert "no single one" in hung(peers(2), {0: report(COLLECTIVE), 1: report(COLLECTIVE)}, []).reason


def entered(count, stack=COLLECTIVE, **more):
    return diagnosis.Report(state="answering", stack=stack, entered={"0": count, **more})


def test_of_ranks_that_all_wait_the_one_that_entered_the_fewest_collectives_is_missing():
    seen = {0: entered(101, **{"last all_reduce": 101}), 1: entered(100), 2: entered(101)}
    trouble = hung(peers(3), seen, [])
    assert trouble.rank == 1 and "rank 1 on n1 is missing: it waits elsewhere" in trouble.reason
    assert "it entered 100 collectives, the others 101 (all_reduce)" in trouble.reason
    early = hung(peers(3), {0: entered(101), 2: entered(101)}, [], {1: entered(99, stack="")})
    assert early.rank == 1 and "it is through; it entered 99 collectives" in early.reason
    ahead = hung(peers(3), {0: entered(100), 1: entered(101), 2: entered(100)}, [])
    assert "no single one" in ahead.reason, "one that ran ahead accuses nobody"
    asleep = hung(peers(3), {0: entered(101), 1: entered(100, stack="in sleep"), 2: entered(101, stack="in fill")}, [])
    assert asleep.rank == 1, "of two outside a collective, the one behind"


def test_the_rank_that_raised_first_by_itself_is_to_blame():
    lost = {"reason": "RuntimeError: Connection closed by peer [127.0.0.1]", "stack": ""}
    own = {"reason": "ValueError: bad shape", "stack": "the stack"}
    assert raised(peers(3), {0: lost, 2: own, 1: lost}).rank == 2
    assert raised(peers(3), {1: lost}).rank == 1


# -- lock and run folder -----------------------------------------------------------------------------------------


def cluster(tmp_path, name="a cluster"):
    return Cluster(name=name, path="", text="", sha256="", settings={"campaign": {"lock": str(tmp_path)}})


def test_the_lock_names_its_holder_and_goes_with_it(tmp_path):
    first, second = CampaignLock(cluster(tmp_path)), CampaignLock(cluster(tmp_path))
    first.acquire("runs/1")
    with pytest.raises(LockedError, match=rf"process {os.getpid()}.*runs/1"):
        second.acquire("runs/2")
    CampaignLock(cluster(tmp_path, "another")).acquire("runs/3")
    first.release()
    second.acquire("runs/2")
    second.release()


def test_a_lock_that_cannot_be_made_is_said(tmp_path):
    with pytest.raises(LockedError, match="cannot be opened"):
        CampaignLock(cluster(tmp_path / "none")).acquire("runs/1")


def run_head(name="r1"):
    return Run(id=name, suite="s", cluster="c", cluster_sha256="", started_at="")


def test_a_run_folder_is_never_written_over(tmp_path):
    RunFolder.create(tmp_path, run_head(), "text").close()
    with pytest.raises(RunFolderError, match="never written over"):
        RunFolder.create(tmp_path, run_head(), "text")


def test_a_cut_last_line_is_closed_off_before_more_is_appended(tmp_path):
    folder = RunFolder.create(tmp_path, run_head(), "text")
    folder.event("selected")
    folder.close()
    path = folder.path / "events.jsonl"
    path.write_bytes(path.read_bytes() + b'{"v":1,"kind":"ba')
    again = RunFolder.reopen(folder.path)
    again.event("ended")
    again.close()
    assert [json.loads(line)["kind"] for line in path.read_text().splitlines()] == ["selected", "ended"]
