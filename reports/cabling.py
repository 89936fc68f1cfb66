"""What a run knows of its fabric: where its nodes sit, and which cables are not where the plan has them.

The campaign keeps the topology file in the run folder (and what was found plugged, where that was given), so that
the page can be built again anywhere. Reading the files themselves is `reports.localise.topology`'s.

    topology = topology_of(stored)
    for suspect in miscabled(stored):
        print(suspect.title, suspect.evidence)
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from reports.localise import Suspect, Topology, topology
from reports.runs import RunError, StoredRun

EVENT = "topology"  # {"plan" | "found": {"file": in the run folder, "source": where it came from, "sha256": of it}}
PLAN, FOUND = "topology.txt", "cabling.txt"


def read(path: Path) -> Topology:
    """The topology in a file of any of the three forms. ValueError, with the cure, where it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ValueError(
            f"{path}: cannot be read ({said}): name a TOML file, a Slurm topology.conf, or what ibnetdiscover printed"
        ) from None
    return topology.read(text, source=path.name)


def digest(path: Path) -> str:
    """The hash by which a kept file is known to be the one that was given."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def topology_of(stored: StoredRun) -> Topology | None:
    """The topology that the run was given; None where it was given none. RunError where the kept file is another."""
    return _kept(stored, "plan")


def miscabled(stored: StoredRun) -> list[Suspect]:
    """Ports that are not cabled as planned, where both the plan and what was found name cables."""
    plan, found = _kept(stored, "plan"), _kept(stored, "found")
    if plan is None or found is None:
        return []
    return [
        Suspect(kind="cable", where=said.partition(": ")[0], confidence=1.0, evidence=said)
        for said in topology.miscabled(plan=plan, found=found)
    ]


def unchecked(stored: StoredRun) -> str:
    """Why cables were not held against the plan, where that was asked for; "" where they were, or it was not."""
    plan, found = _kept(stored, "plan"), _kept(stored, "found")
    if found is None:
        return ""
    lacking = [what for what, seen in (("the plan", plan), ("what was found", found)) if not (seen and seen.cables)]
    return f"cabling was not checked: {' and '.join(lacking)} names no cables" if lacking else ""


def _kept(stored: StoredRun, which: str) -> Topology | None:
    told = [e.detail[which] for e in stored.events if e.kind == EVENT and which in e.detail]
    if not told:
        return None
    path = stored.folder / str(told[-1]["file"])
    try:
        if digest(path) != told[-1]["sha256"]:
            raise RunError(f"{path}: not the file that the run was given ({told[-1]['source']}); put it back")
        return replace(read(path), source=str(told[-1]["source"]))
    except OSError as error:
        raise RunError(f"{path}: {error.strerror}; put back the copy of {told[-1]['source']}") from None
    except ValueError as error:
        raise RunError(str(error)) from None
