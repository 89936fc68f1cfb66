"""Conditions bracket a measurement; throttling that lost speed disqualifies it, the power cap does not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.conditions import COUNTER_FIELDS, REASONS, STATE_FIELDS, delta, disqualifying, snapshot
from benchmarks.inventory import DriverError
from benchmarks.measurement import Measurement, decode, encode

UUID = "GPU-529b3263-c96d-b557-bc75-697f04917eda"


def gpu_line(*, reasons: int = 0, counters: tuple[int, ...] | None = (91403239, 91403239, 0, 0), **changed: str) -> str:
    """One GPU as `--query-gpu` prints it (575.51: counters in us; older drivers have none)."""
    state = {
        "uuid": UUID, "index": "0", "serial": "1653023100003", "sm_clock_mhz": "1980", "temperature_c": "41",
        "power_w": "119.30", "reasons": f"0x{reasons:016X}", "ecc_corrected": "0", "ecc_uncorrected": "0", **changed,
    }  # fmt: skip
    words = [state[name] for name in STATE_FIELDS] + [f"{c} us" for c in counters or ()]
    return ", ".join(words) + "\n"


def driver(line: str, *, has_counters: bool = True):
    def ask(arguments: tuple[str, ...]) -> str:
        if not has_counters and any("counters" in a for a in arguments):
            field = next(iter(COUNTER_FIELDS.values()))
            raise DriverError(f'nvidia-smi failed (status 2): Field "{field}" is not a valid field to query.')
        return line

    return ask


def bracket(before: str, after: str, *, has_counters: bool = True) -> dict:
    first = snapshot(ask=driver(before, has_counters=has_counters))
    return delta(first, snapshot(ask=driver(after, has_counters=has_counters)))


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node's /proc and /sys, small."""
    for name, text in {
        "proc/loadavg": "3.20 2.10 1.00 2/345 6789\n",
        "proc/stat": "cpu  1000 0 500 8000 100 0 50 350 0 0\ncpu0 1 2 3\n",
        "proc/net/snmp": "Tcp: RtoAlgorithm RetransSegs InErrs\nTcp: 1 1234 0\n",
        "proc/self/cgroup": "0::/slurm/job_7\n",
        "sys/fs/cgroup/slurm/job_7/cpu.stat": "usage_usec 9\nnr_throttled 3\nthrottled_usec 1500000\n",
        "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "4\n",
        "sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count": "1\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_counters_are_differences_and_load_is_a_state(node: Path):
    before = snapshot(ask=None, root=node)
    (node / "proc/stat").write_text("cpu  1100 0 500 8000 100 0 50 450 0 0\n")
    (node / "proc/net/snmp").write_text("Tcp: RtoAlgorithm RetransSegs InErrs\nTcp: 1 1240 0\n")
    (node / "sys/fs/cgroup/slurm/job_7/cpu.stat").write_text("throttled_usec 2000000\n")
    (node / "sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count").write_text("3\n")
    seen = delta(before, snapshot(ask=None, root=node))
    assert seen["cpu_steal"] == 0.5  # 100 of 200 jiffies
    assert seen["retransmits"] == 6
    assert seen["cgroup_throttled_s"] == pytest.approx(0.5)
    assert seen["cpu_thermal_events"] == 2
    assert seen["load_1m"] == 3.2
    assert "gpus" not in seen
    assert disqualifying(seen) == ""


def test_the_older_control_groups_are_read_too(node: Path):
    shutil.rmtree(node / "sys/fs/cgroup")
    (node / "proc/self/cgroup").write_text("5:cpu,cpuacct:/slurm\n1:name=systemd:/\n")
    (node / "sys/fs/cgroup/cpu/slurm").mkdir(parents=True)
    (node / "sys/fs/cgroup/cpu/slurm/cpu.stat").write_text("nr_throttled 3\nthrottled_time 1500000000\n")
    assert snapshot(ask=None, root=node).counters["cgroup_throttled_s"] == pytest.approx(1.5)


def test_a_machine_without_proc_has_fewer_counters_not_zeros(tmp_path: Path):
    here = snapshot(ask=None, root=tmp_path)
    assert here.counters == {}
    assert set(delta(here, here)) == {"seconds"}


def test_this_machine_is_read_and_its_conditions_are_a_record():
    seen = delta(snapshot(ask=None), snapshot(ask=None))
    record = Measurement(metric="gemm.flops", unit="FLOP/s", better="higher", conditions=seen)
    assert decode(Measurement, encode(record)).conditions == seen
    assert seen["retransmits"] >= 0


@pytest.mark.parametrize("bit", sorted(REASONS))
def test_which_reasons_disqualify(bit: int):
    seen = bracket(gpu_line(), gpu_line(reasons=bit))
    reason = disqualifying(seen)
    assert bool(reason) == (bit in (0x8, 0x20, 0x40, 0x80))
    if reason:
        assert REASONS[bit] in reason
        assert "1653023100003" in reason


def test_a_reason_seen_only_before_counts():
    assert "hardware thermal" in disqualifying(bracket(gpu_line(reasons=0x48), gpu_line()))


def test_throttling_between_the_samples_is_seen_by_the_counters():
    seen = bracket(gpu_line(), gpu_line(counters=(91403239, 91403239, 2_500_000, 0)))
    assert seen["gpu_throttle_by"] == "counters"
    assert seen["gpus"][0]["throttle_s"] == {"hardware thermal slowdown": 2.5}
    assert "2.5 s" in disqualifying(seen)


def test_the_power_cap_is_reported_with_its_time_and_does_not_disqualify():
    seen = bracket(gpu_line(), gpu_line(reasons=0x4, counters=(92403239, 91403239, 0, 0)))
    assert seen["gpus"][0]["throttle"] == ["software power cap"]
    assert seen["gpus"][0]["throttle_s"] == {"software power cap": 1.0}
    assert disqualifying(seen) == ""


def test_an_older_driver_is_sampled_and_the_conditions_say_so():
    seen = bracket(gpu_line(counters=None), gpu_line(reasons=0x80, counters=None), has_counters=False)
    assert seen["gpu_throttle_by"] == "two samples"
    assert "power brake" in disqualifying(seen)


def test_memory_errors_are_differences():
    seen = bracket(gpu_line(ecc_corrected="7"), gpu_line(ecc_corrected="9"))
    assert seen["gpus"][0]["ecc_corrected"] == 2
    assert seen["gpus"][0]["ecc_uncorrected"] == 0


def test_what_a_gpu_does_not_have_is_absent():
    seen = bracket(gpu_line(power_w="[N/A]", ecc_corrected="[N/A]"), gpu_line(power_w="[N/A]", ecc_corrected="[N/A]"))
    assert not {"power_w", "ecc_corrected"} & seen["gpus"][0].keys()


@pytest.mark.parametrize("after", [gpu_line(reasons=0).replace("0x", "ERR! 0x"), "garbage\n", ""])
def test_an_unknown_gpu_state_disqualifies(after: str):
    assert "unknown" in disqualifying(bracket(gpu_line(), after))


def test_a_driver_that_dies_disqualifies():
    def dead(_: tuple[str, ...]) -> str:
        raise DriverError("nvidia-smi failed (status 15): GPU is lost")

    seen = delta(snapshot(ask=driver(gpu_line())), snapshot(ask=dead))
    assert "GPU is lost" in disqualifying(seen)


def test_conditions_survive_the_record_and_the_decision_does_not_need_torch():
    seen = bracket(gpu_line(), gpu_line(reasons=0x40))
    assert disqualifying(json.loads(json.dumps(seen))) == disqualifying(seen) == seen["disqualified"]
    assert "disqualified" not in bracket(gpu_line(), gpu_line(reasons=0x4))


def test_a_rank_hands_the_reason_to_the_judge_with_every_number_of_the_work(monkeypatch: pytest.MonkeyPatch):
    import torch

    from benchmarks import conditions
    from benchmarks.gemm.spec import Gemm
    from benchmarks.spec import Place, to_config
    from benchmarks.worker import measure
    from benchmarks.world import World

    hot = iter([gpu_line(), gpu_line(reasons=0x40), *[gpu_line()] * 9])
    monkeypatch.setattr(conditions, "snapshot", lambda **_: snapshot(ask=driver(next(hot))))
    world = World(rank=0, size=1, local_rank=0, place=Place(), device=torch.device("cpu"), node="a", nodes=("a",))
    spec = Gemm(shapes=("64",), repetitions=2, sample_s=0.02, warm_up_s=0.05)
    flops, error, later, *_ = measure(to_config(spec, world.place), world)
    assert "hardware thermal slowdown" in flops.conditions["disqualified"]
    assert flops.conditions == error.conditions
    assert flops.conditions["seconds"] >= 0.05
    assert later.conditions["seconds"] != flops.conditions["seconds"]
