"""How many collectives of all ranks this process has entered, as torch's flight recorder counts them.

When ranks wait for each other, the one that entered the fewest is who the others wait for, whatever its stack says. The
recorder is on where TORCH_FR_BUFFER_SIZE is above 0 (for gloo too); where it is off, or torch is not loaded, nothing is
known. Reading it takes no part in the groups, so a hang cannot reach it.

>>> entered()  # torch is not loaded here
{}
"""

from __future__ import annotations

import json
import sys

SWITCH = {"TORCH_FR_BUFFER_SIZE": "256"}
OF_ALL = ("0", "1")  # the groups that every rank makes first: the measured one, and the one for control


def entered() -> dict[str, int]:
    """Group -> collectives entered, and under "last OPERATION" the newest entry's number; {} where nothing is known."""
    torch = sys.modules.get("torch")
    dump = getattr(getattr(getattr(torch, "_C", None), "_distributed_c10d", None), "_dump_fr_trace_json", None)
    if dump is None:
        return {}
    try:
        found = json.loads(dump(includeCollectives=True, onlyActive=False))
    except (RuntimeError, ValueError, TypeError):  # another torch's recorder
        return {}
    status = found.get("pg_status", {})
    counts = {g: int(status[g]["last_enqueued_collective"]) for g in OF_ALL if g in status}
    entries = [e for e in found.get("entries", ()) if not e.get("is_p2p") and str(e.get("pg_id")) in OF_ALL]
    if entries:
        newest = max(entries, key=lambda e: e["record_id"])
        counts[f"last {newest['profiling_name'].rpartition(':')[2]}"] = int(newest["collective_seq_id"])
    return counts
