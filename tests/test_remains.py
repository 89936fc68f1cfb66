"""What a launch leaves behind is found by its token, named, and ended; nothing else is."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from benchmarks import remains, scratch
from benchmarks.gpumemory import unclaimed
from benchmarks.inventory import DriverError
from benchmarks.strangers import strangers

ORPHAN = """
import socket, time
held = socket.socket()
held.bind(("127.0.0.1", 0))
held.listen()
print(held.getsockname()[1], flush=True)
time.sleep(60)
"""


@pytest.fixture
def token():
    return uuid.uuid4().hex


def orphan(token):
    process = subprocess.Popen(
        [sys.executable, "-c", ORPHAN], env={**os.environ, remains.LAUNCH: token}, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    return process, process.stdout.readline().strip()


def test_an_orphan_is_named_with_the_port_it_holds_and_ended(token):
    process, port = orphan(token)
    other, _ = orphan(token + "0")
    try:
        (line,) = remains.remains(token, end=True)
        assert f"process {process.pid}" in line and f"port {port}" in line
        assert process.wait(10) == -9 and other.poll() is None, "only what carries the token is ended"
        assert remains.remains(token) == []
    finally:
        other.kill()
        other.wait()


def test_a_process_that_is_just_ending_is_none(token):
    process = subprocess.Popen([sys.executable, "-c", "pass"], env={**os.environ, remains.LAUNCH: token})
    assert remains.remains(token) == []
    process.wait()


def test_a_scratch_folder_is_named_and_removed(token, monkeypatch, tmp_path):
    monkeypatch.setenv(scratch.ROOT, str(tmp_path))
    path = scratch.make(token)
    assert remains.remains(token) == [f"folder {path}"] and Path(path).exists()
    assert remains.remains(token, end=True) == [] and not Path(path).exists()


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no /dev/shm here")
def test_shared_memory_counts_when_nobody_has_it_mapped(token):
    path = Path(f"/dev/shm/torch_{token}")
    path.write_bytes(b"x" * 4096)
    try:
        assert f"shared memory {path}" in remains.remains(token)
        holder = subprocess.Popen(
            [sys.executable, "-c", f"import mmap, time; f = open('{path}', 'r+b'); m = mmap.mmap(f.fileno(), 0); "
             "print('mapped', flush=True); time.sleep(60)"], stdout=subprocess.PIPE,
        )  # fmt: skip
        holder.stdout.readline()
        assert f"shared memory {path}" not in remains.remains(token)
        holder.kill()
        holder.wait()
    finally:
        path.unlink()


def test_this_process_is_not_its_own_remains(token):
    said = subprocess.run(
        [sys.executable, "-m", "benchmarks.remains"], env={**os.environ, remains.ASKED: token, "PYTHONPATH": "."},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert '"remains": []' in said.stdout


def test_a_launcher_that_still_lives_is_spared_with_its_children_and_nothing_else(token, monkeypatch, capsys):
    env = {**os.environ, remains.LAUNCH: token}
    launcher = subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], env=env, stdout=subprocess.PIPE, text=True)
    child = int(launcher.stdout.readline())
    left, _ = orphan(token)
    try:
        monkeypatch.setenv(remains.ASKED, token)
        monkeypatch.setenv(remains.SPARED, f"{socket.gethostname()}:{launcher.pid}")
        assert remains.main() == 0
        said = json.loads(capsys.readouterr().out)["remains"]
        assert len(said) == 1 and f"process {left.pid}" in said[0] and launcher.poll() is None
        assert remains.main() == 0 and json.loads(capsys.readouterr().out)["remains"] == []
        monkeypatch.setenv(remains.SPARED, f"elsewhere:{launcher.pid}")
        assert len(remains.remains(token, spared=0)) == 2
    finally:
        os.kill(child, signal.SIGKILL)
        launcher.kill()
        launcher.wait()
        left.kill()
        left.wait()


# -- GPU memory and strangers on GPUs ------------------------------------------------------------------------------

GPU = "0, NVIDIA H100 80GB HBM3, 123, GPU-aaaa, 81559, 550.1\n1, NVIDIA H100 80GB HBM3, 124, GPU-bbbb, 81559, 550.1"


def driver(apps):
    return lambda arguments: GPU if "query-gpu" in arguments[0] else apps


def memory(used, held):
    answers = {"--query-gpu=uuid,memory.used": used, "--query-compute-apps=gpu_uuid,used_memory": held}
    return lambda arguments: answers.get(arguments[0], GPU)


def test_memory_that_no_process_holds_is_named_with_its_gpu():
    used = "GPU-aaaa, 4\nGPU-bbbb, 42000\nGPU-zzzz, 42000"
    (said,) = unclaimed(ask=memory(used, ""), environ={})
    assert said.startswith("GPU 1: 41.0 GiB of its memory in use by no process")
    assert said in remains.remains("no such launch", ask=memory(used, ""))
    assert unclaimed(ask=memory(used, "GPU-bbbb, 41000\nGPU-bbbb, 600"), environ={}) == []
    assert unclaimed(ask=memory(used, "GPU-bbbb, [N/A]"), environ={}) == [], "unknown is not claimed"
    assert unclaimed(ask=memory(used, ""), environ={"CUDA_VISIBLE_DEVICES": "0"}) == []


def test_a_driver_that_fails_after_the_run_is_no_clean_node():
    def broken(_):
        raise DriverError("nvidia-smi failed (status 9)")

    assert unclaimed(ask=broken, environ={}) == ["GPU memory unknown: nvidia-smi failed (status 9)"]


def test_a_strangers_process_is_named_with_its_gpu():
    found = strangers(ask=driver("GPU-bbbb, 1, python3\nGPU-zzzz, 2, other"), environ={})
    assert [str(s) for s in found] == ["process 1 (python3) is on GPU 1"]


def test_our_own_process_is_no_stranger(token):
    process, _ = orphan(token)
    try:
        assert strangers(ask=driver(f"GPU-aaaa, {process.pid}, python3"), environ={}) == []
    finally:
        process.kill()
        process.wait()


def test_a_gpu_that_is_not_ours_is_not_asked_about():
    assert strangers(ask=driver("GPU-bbbb, 1, python3"), environ={"CUDA_VISIBLE_DEVICES": "0"}) == []
    assert strangers(ask=driver("GPU-bbbb, 1, python3"), environ={"CUDA_VISIBLE_DEVICES": ""}) == []


def test_a_line_that_cannot_be_read_is_an_error():
    with pytest.raises(DriverError, match="cannot be read"):
        strangers(ask=driver("Unknown Error"), environ={})
