"""What Lustre says of a file and of its targets: over how many OSTs it is striped, and how full each of them is.

Reads `lfs getstripe` and `lfs df`. One full OST fails a save while the file system shows free space, and files
that all lie on few OSTs are slow while the rest idle.

>>> parse_df("scratch-OST0000_UUID  1000  900  100  90% /scratch[OST:0]")[0].free_bytes
102400
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIMEOUT_S = 60.0
FULL = 0.95
IMBALANCE = 0.17  # qos_threshold_rr's default: beyond it new files are no longer given out in turn

Ask = Callable[[tuple[str, ...]], str]


class LustreError(RuntimeError):
    """`lfs` failed or printed what cannot be read."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """One object storage target (OST)."""

    index: int
    size_bytes: int
    used_bytes: int
    free_bytes: int  # available to users

    @property
    def fill(self) -> float:
        """Share in use, 0 to 1."""
        return self.used_bytes / self.size_bytes if self.size_bytes else 1.0


@dataclass(frozen=True, kw_only=True)
class Striping:
    """How one file is laid out: of a composite layout, the components that hold data."""

    stripe_size: int
    targets: tuple[int, ...]  # OST index of each object
    pool: str = ""


def ask_lfs(arguments: tuple[str, ...]) -> str:
    """What `lfs ARGUMENTS` prints. LustreError where it is absent, fails, or hangs."""
    if not shutil.which("lfs"):
        raise LustreError("lfs is not installed: install the Lustre client's tools to see stripes and OSTs")
    try:
        done = subprocess.run(["lfs", *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise LustreError(f"lfs {arguments[0]} did not answer within {TIMEOUT_S:.0f} s: an OST may hang") from None
    if done.returncode:
        raise LustreError(f"lfs {arguments[0]} failed: {' '.join(done.stderr.split())[:200]}")
    return done.stdout


def parse_getstripe(text: str) -> Striping:
    """The layout that `lfs getstripe FILE` prints, plain or composite. LustreError where there are no objects."""
    sizes = [int(n) for n in re.findall(r"lmm_stripe_size:\s*(\d+)", text)]
    pools = re.findall(r"lmm_pool:\s*(\S+)", text)
    listed = [int(n) for n in re.findall(r"l_ost_idx:\s*(\d+)", text)]
    table = re.findall(r"^\s+(\d+)\s+\d+\s+0x[0-9a-f]+\s+\S+\s*$", text, re.MULTILINE)
    targets = tuple(listed or map(int, table))
    if not sizes or not targets:
        raise LustreError(f"lfs getstripe shows no objects: {' '.join(text.split())[:120]}")
    return Striping(stripe_size=sizes[-1], targets=targets, pool=pools[-1] if pools else "")


def parse_df(text: str) -> list[Target]:
    """The OSTs that `lfs df` prints (in KiB), in order. Inactive ones have no numbers and are left out."""
    pattern = r"^\S+-OST[0-9a-fA-F]+\S*\s+(\d+)\s+(\d+)\s+(\d+)\s+\d+%\s.*\[OST:(\d+)\]"
    return [
        Target(index=int(m[4]), size_bytes=int(m[1]) * 1024, used_bytes=int(m[2]) * 1024, free_bytes=int(m[3]) * 1024)
        for m in re.finditer(pattern, text, re.MULTILINE)
    ]


def inactive(text: str) -> list[str]:
    """Names of the OSTs that `lfs df` shows without numbers: data on them cannot be reached."""
    return re.findall(
        r"^(\S+-OST[0-9a-fA-F]+)\S*\s*:?\s*(?:inactive device|Resource temporarily|.*error)", text, re.MULTILINE
    )


def targets_of(files: Iterable[Path], ask: Ask = ask_lfs) -> str:
    """The OSTs that hold `files`, in words: "OST 3, 7"; "" where Lustre does not tell."""
    try:
        found = {index for path in files for index in parse_getstripe(ask(("getstripe", str(path)))).targets}
    except LustreError:
        return ""
    return f"OST {', '.join(map(str, sorted(found)))}" if found else ""


def evidence(folder: Path, files: Mapping[Path, int], ask: Ask = ask_lfs) -> dict[str, Any]:
    """Stripes of `files` (with their bytes) and state of the OSTs under `folder`, as plain values.

    Each file's bytes are shared out evenly over its objects. {"lustre_error": why} where unknown.
    """
    try:
        stripings = [parse_getstripe(ask(("getstripe", str(path)))) for path in files]
        df = ask(("df", str(folder)))
    except LustreError as error:
        return {"lustre_error": str(error)}
    targets = parse_df(df)
    objects = Counter(index for striping in stripings for index in striping.targets)
    of_targets: Counter[int] = Counter()
    for striping, size in zip(stripings, files.values(), strict=True):
        of_targets.update({index: size // len(striping.targets) for index in striping.targets})
    fills = sorted(target.fill for target in targets)
    return {
        "stripe_counts": sorted({len(s.targets) for s in stripings}),
        "stripe_sizes": sorted({s.stripe_size for s in stripings}),
        "pools": sorted({s.pool for s in stripings if s.pool}),
        "osts": len(targets), "osts_used": len(objects), "objects_per_ost": dict(sorted(objects.items())),
        "bytes_per_ost": dict(sorted(of_targets.items())),
        "ost_fill_min": fills[0] if fills else None, "ost_fill_max": fills[-1] if fills else None,
        "osts_inactive": inactive(df),
    }  # fmt: skip


def target_problems(text: str, *, bytes_needed: int) -> list[str]:
    """What of `lfs df`'s OSTs would fail a save of `bytes_needed` spread evenly, one sentence each."""
    targets = parse_df(text)
    found = [f"{name} is inactive: data on it cannot be reached" for name in inactive(text)]
    if not targets:
        return [*found, "lfs df shows no OST"]
    fills = [target.fill for target in targets]
    if max(fills) - min(fills) > IMBALANCE:
        found.append(
            f"OSTs are filled unevenly, {min(fills):.0%} to {max(fills):.0%}: Lustre then gives new files to the "
            "emptiest few, which all ranks share; migrate files (lfs migrate)"
        )
    share = bytes_needed / len(targets)
    short = [target for target in targets if target.fill >= FULL or target.free_bytes < share]
    return found + [
        f"OST {target.index} is {target.fill:.0%} full with {target.free_bytes / 1e9:.3g} GB free: a save fails on it "
        "while the file system shows space; migrate files or leave it out of the pool"
        for target in short
    ]
