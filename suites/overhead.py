"""What a campaign cost beside measuring: launches and their parts, and the gaps around benchmarks.

>>> line([])
''
"""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.measurement import Event


def line(events: Iterable[Event]) -> str:
    """One line for the end of a run: launches, seconds until ranks were up, seconds around benchmarks; "" for none."""
    launches = [e.detail for e in events if e.kind == "launch"]
    batches = [e.detail for e in events if e.kind == "batch"]
    if not launches:
        return ""
    slowest = max(launches, key=lambda launch: float(launch["seconds"]))
    places = len({str(launch["place"]) for launch in launches})
    whole = f"{len(launches)} for {places} kind(s) of world"
    return (
        f"not measuring: {sum(float(x['seconds']) for x in launches):.1f} s in launches ({whole}; the slowest "
        f"{float(slowest['seconds']):.1f} s, of it import {float(slowest['import_s']):.1f} s and group "
        f"{float(slowest['group_s']):.1f} s), {sum(float(x['overhead_s']) for x in batches):.1f} s around "
        f"{len(batches)} benchmark(s)"
    )
