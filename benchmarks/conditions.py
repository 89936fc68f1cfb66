"""What went on around a measurement: a snapshot before, one after, and what changed between them.

    before = snapshot()
    ...                                     # measure
    conditions = delta(before, snapshot())  # travels with the Measurement; "disqualified" says why it does not count

Reads /proc, /sys and `nvidia-smi`; a counter the machine lacks is absent. Standard library only, so that the
decision can be shared with what must not import torch. It brackets, it does not watch: throttling between the
two snapshots is seen by the driver's cumulative counters (recent drivers) or not at all, and the conditions say
which ("gpu_throttle_by").
"""

from __future__ import annotations

import errno
import os
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.inventory import Ask, DriverError, ask_nvidia_smi, known

# The driver's mask of what holds the clocks down (nvml.h, nvmlClocksEventReason*).
REASONS = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clocks",
}
# The specific ones first: the driver sets "hardware slowdown" beside each of the others of the hardware.
DISQUALIFYING = ("hardware thermal slowdown", "hardware power brake", "software thermal slowdown", "hardware slowdown")

STATE_FIELDS = {
    "uuid": "uuid",
    "index": "index",
    "serial": "serial",
    "sm_clock_mhz": "clocks.sm",
    "temperature_c": "temperature.gpu",
    "power_w": "power.draw",
    "reasons": "clocks_throttle_reasons.active",
    "ecc_corrected": "ecc.errors.corrected.volatile.total",
    "ecc_uncorrected": "ecc.errors.uncorrected.volatile.total",
}
# Microseconds since the driver was loaded; drivers before about 565 do not know these.
COUNTER_FIELDS = {
    "software power cap": "clocks_event_reasons_counters.sw_power_cap",
    "software thermal slowdown": "clocks_event_reasons_counters.sw_thermal_slowdown",
    "hardware thermal slowdown": "clocks_event_reasons_counters.hw_thermal_slowdown",
    "hardware power brake": "clocks_event_reasons_counters.hw_power_brake_slowdown",
}
COUNTERS = ("cpu_jiffies", "cpu_steal_jiffies", "cgroup_throttled_s", "cpu_thermal_events", "retransmits", "xids")


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Counters and states of this node at one moment. `gpus`: one dict per GPU, keyed as STATE_FIELDS."""

    at: float  # seconds on the monotonic clock
    load_1m: float | None = None
    counters: dict[str, float] = field(default_factory=dict)
    gpus: tuple[dict[str, Any], ...] = ()
    gpu_error: str = ""


def snapshot(*, ask: Ask | None = ask_nvidia_smi, root: Path = Path("/"), gpu: str = "") -> Snapshot:
    """The node now. `gpu` (a uuid or an index) asks for that GPU only, `ask=None` for none (ranks on the CPU).

    `root` holds dev/, proc/ and sys/. A driver that fails is recorded in `gpu_error`, which disqualifies:
    nobody knows whether it throttled.
    """
    try:
        states, error = _gpu_states(ask, gpu) if ask else (), ""
    except DriverError as failure:
        states, error = (), str(failure)
    counters = {
        **_cpu_times(root),
        "cgroup_throttled_s": _cgroup_throttled(root),
        "cpu_thermal_events": _cpu_thermal_events(root),
        "retransmits": _retransmits(root),
        "xids": _xids(root) if states or error else None,
    }
    return Snapshot(
        at=time.monotonic(), load_1m=_load(root), gpus=states, gpu_error=error,
        counters={k: v for k, v in counters.items() if v is not None},
    )  # fmt: skip


def delta(before: Snapshot, after: Snapshot) -> dict[str, Any]:
    """What happened between two snapshots, as plain values for `Measurement.conditions`.

    seconds, load_1m, cpu_steal (share of CPU time), cgroup_throttled_s, cpu_thermal_events, retransmits, xids;
    with GPUs: `gpus`, a list of dicts (clock, temperature, ECC deltas, `throttle` reasons seen, `throttle_s` each);
    `disqualified`, the reason, only where `disqualifying` finds one.
    """
    changed = {
        k: after.counters[k] - before.counters[k] for k in COUNTERS if k in after.counters and k in before.counters
    }
    jiffies, steal = changed.pop("cpu_jiffies", 0.0), changed.pop("cpu_steal_jiffies", None)
    conditions: dict[str, Any] = {"seconds": round(after.at - before.at, 3), **changed}
    if steal is not None and jiffies > 0:
        conditions["cpu_steal"] = round(steal / jiffies, 4)
    if after.load_1m is not None:
        conditions["load_1m"] = after.load_1m
    if error := before.gpu_error or after.gpu_error:
        conditions["gpu_error"] = error
    if before.gpus or after.gpus:
        earlier = {g["uuid"]: g for g in before.gpus}
        later = {g["uuid"] for g in after.gpus}
        conditions["gpus"] = [_gpu_delta(earlier.get(g["uuid"]), g) for g in after.gpus]
        conditions["gpu_throttle_by"] = "counters" if all("counters" in g for g in after.gpus) else "two samples"
        if lost := sorted(set(earlier) ^ later):
            conditions.setdefault("gpu_error", f"{', '.join(lost)} was not there both before and after")
    if reason := disqualifying(conditions):
        conditions["disqualified"] = reason
    return conditions


def disqualifying(conditions: dict[str, Any]) -> str:
    """Why a measurement under these conditions does not count, or "".

    Thermal slowdown, hardware slowdown and power brake do; the software power cap is normal under GEMM and
    is only reported (DESIGN: rules of honest measurement). Unknown GPU state disqualifies too.
    """
    if error := conditions.get("gpu_error"):
        return f"GPU state unknown: {error}"
    for gpu in conditions.get("gpus", []):
        bad = [r for r in DISQUALIFYING if r in gpu.get("throttle", [])]
        if bad:
            spent = "".join(f", {gpu['throttle_s'][r]:.3g} s" for r in bad[:1] if r in gpu.get("throttle_s", {}))
            name = gpu.get("serial") or gpu.get("uuid", "")
            return (
                f"{bad[0]} of gpu{gpu.get('index')} ({name}) while measuring{spent}, "
                f"{gpu.get('temperature_c')} C, {gpu.get('sm_clock_mhz')} MHz: check cooling and power, measure again"
            )
    return ""


def _gpu_states(ask: Ask, gpu: str) -> tuple[dict[str, Any], ...]:
    which = (f"--id={gpu}",) if gpu else ()
    fields = {**STATE_FIELDS, **COUNTER_FIELDS}
    try:
        answer = ask((*which, f"--query-gpu={','.join(fields.values())}", "--format=csv,noheader,nounits"))
    except DriverError as error:
        if "is not a valid field" not in str(error):
            raise
        fields = STATE_FIELDS
        answer = ask((*which, f"--query-gpu={','.join(fields.values())}", "--format=csv,noheader,nounits"))
    return tuple(_state(line, list(fields)) for line in (answer or "").splitlines() if line.strip())


def _state(line: str, names: list[str]) -> dict[str, Any]:
    values = [known(v) for v in line.split(",")]
    if len(values) != len(names) or not values[0]:
        raise DriverError(f"nvidia-smi printed a GPU state that cannot be read: {line.strip()!r}")
    got = dict(zip(names, values, strict=True))
    if not re.fullmatch(r"0x[0-9a-fA-F]+", got["reasons"]) or not got["index"].isdigit():
        raise DriverError(f"the driver does not tell what holds the clocks down: {line.strip()!r}")
    state: dict[str, Any] = {
        "uuid": got["uuid"], "index": int(got["index"]), "serial": got["serial"], "reasons": int(got["reasons"], 16),
    }  # fmt: skip
    for name in ("sm_clock_mhz", "temperature_c", "power_w", "ecc_corrected", "ecc_uncorrected"):
        if (value := _number(got[name])) is not None:
            state[name] = value
    counters = {n: v / 1e6 for n in COUNTER_FIELDS if (v := _number(got.get(n, ""))) is not None}
    if set(DISQUALIFYING) - {"hardware slowdown"} <= counters.keys():
        state["counters"] = counters
    return state


def _gpu_delta(before: dict[str, Any] | None, after: dict[str, Any]) -> dict[str, Any]:
    before = before or {}
    mask = before.get("reasons", 0) | after["reasons"]
    seen = [name for bit, name in REASONS.items() if mask & bit]
    shown = {k: v for k, v in after.items() if k not in ("reasons", "counters", "ecc_corrected", "ecc_uncorrected")}
    if "counters" in after and "counters" in before:
        spent = {k: v - before["counters"][k] for k, v in after["counters"].items() if k in before["counters"]}
        shown["throttle_s"] = {k: round(v, 6) for k, v in spent.items() if v > 0}
        seen += [k for k in shown["throttle_s"] if k not in seen]
    for name in ("ecc_corrected", "ecc_uncorrected"):
        if name in before and name in after:
            shown[name] = after[name] - before[name]
    return {**shown, "throttle": [r for r in seen if r != "idle"]}


def _number(text: str) -> float | None:
    match = re.match(r"-?\d+(\.\d+)?", text)  # "91403239", "91403239 us", "41"
    return float(match[0]) if match else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _load(root: Path) -> float | None:
    words = _text(root / "proc/loadavg").split()
    return float(words[0]) if words else None


def _cpu_times(root: Path) -> dict[str, float | None]:
    """Jiffies of all CPUs together, and those the hypervisor took (proc(5): the 8th number is steal)."""
    words = _text(root / "proc/stat").partition("\n")[0].split()
    if len(words) < 9 or words[0] != "cpu":
        return {}
    return {"cpu_jiffies": float(sum(map(int, words[1:9]))), "cpu_steal_jiffies": float(words[8])}


def _retransmits(root: Path) -> float | None:
    """TCP segments sent again since boot (RFC 1213 tcpRetransSegs)."""
    lines = [line.split() for line in _text(root / "proc/net/snmp").splitlines() if line.startswith("Tcp:")]
    return float(dict(zip(*lines, strict=False)).get("RetransSegs", "nan")) if len(lines) == 2 else None


def _cgroup_throttled(root: Path) -> float | None:
    """Seconds this process' control group was held back by its CPU quota (version 2, then version 1)."""
    groups = dict(
        line.split(":", 2)[1:] for line in _text(root / "proc/self/cgroup").splitlines() if line.count(":") >= 2
    )
    unified = root / "sys/fs/cgroup" / groups.get("", "/").lstrip("/") / "cpu.stat"
    names = [n for n in groups if "cpu" in n.split(",")]
    legacy = root / "sys/fs/cgroup/cpu" / groups[names[0]].lstrip("/") / "cpu.stat" if names else unified
    for path, key, scale in ((unified, "throttled_usec", 1e-6), (legacy, "throttled_time", 1e-9)):
        if match := re.search(rf"^{key} (\d+)", _text(path), re.MULTILINE):
            return int(match[1]) * scale
    return None


def _cpu_thermal_events(root: Path) -> float | None:
    found = sorted(root.glob("sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count"))
    return float(sum(int(_text(p) or 0) for p in found)) if found else None


def _xids(root: Path) -> float | None:
    """GPU error reports (Xid) in the kernel's log; None where this user may not read it."""
    try:
        log = os.open(root / "dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    count = 0
    try:
        while record := os.read(log, 8192):
            count += b"NVRM: Xid" in record
    except OSError as error:
        if error.errno != errno.EAGAIN:  # the end of the log; anything else leaves the count unknown
            return None
    finally:
        os.close(log)
    return float(count)
