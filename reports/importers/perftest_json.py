"""The report that perftest writes with --out_json: settings and one result, as the columns of its printed table.

Early versions wrote no valid JSON: names and words without quotes, a comma after the last entry. Both are read. A
report does not say its bandwidth's unit; the message rate beside it does, since one follows from the other.

>>> text = 'test_info: {\\ntest: RDMA_Write_Latency_Test,\\n},\\nresults: {\\nMsgSize: 8,\\nt_typical: 2.42,\\n},\\n'
>>> parse(f'{{\\n{text}}}\\n')["results"]
{'MsgSize': '8', 't_typical': '2.42'}
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from reports.importers.figures import Figure

ENTRY = re.compile(r'^"?([\w.]+)"?\s*:\s*(.*?)\s*,?$')
COLUMNS = {
    "MsgSize": "#bytes", "n_iterations": "#iterations", "MsgRate": "MsgRate[Mpps]", "t_min": "t_min[usec]",
    "t_max": "t_max[usec]", "t_typical": "t_typical[usec]", "t_avg": "t_avg[usec]", "t_stdev": "t_stdev[usec]",
    "percentile_99": "99% percentile[usec]", "percentile_99.9": "99.9% percentile[usec]",
}  # fmt: skip
RATES = ("BW_peak", "BW_average")
UNITS = {"MB/sec": 2.0**20, "Gb/sec": 1e9 / 8}  # B/s
NEAR = 0.01  # the two units are a factor of 119 apart
Sections = dict[str, dict[str, str]]


def parse(text: str) -> Sections:
    """Section -> entry -> what is written there. ValueError, with the line, for what is no whole report."""
    try:
        found = json.loads(text, parse_float=str, parse_int=str)
    except (ValueError, RecursionError):
        return _unquoted(text)
    if not isinstance(found, dict) or not all(isinstance(section, dict) for section in found.values()):
        raise ValueError("this JSON is no report of perftest: its sections are missing")
    return {name: {key: str(value) for key, value in section.items()} for name, section in found.items()}


def _unquoted(text: str) -> Sections:
    """The early form: an entry a line."""
    sections: Sections = {}
    depth, entries = 0, None
    for number, line in enumerate(text.splitlines(), 1):
        word = line.strip()
        entry = ENTRY.match(word)
        if word in ("{", "}", "},", ""):
            depth += {"{": 1, "": 0}.get(word, -1)
            entries = None
        elif entry and entry[2] == "{":
            depth += 1
            entries = sections.setdefault(entry[1], {})
        elif entry and entries is not None:
            entries[entry[1]] = entry[2].strip('"')
        else:
            raise ValueError(f"line {number} is no entry of a report: {word[:80]!r}")
    if depth or not sections:
        raise ValueError("not a whole report: the test died, or the file is cut")
    return sections


def columns(results: Mapping[str, str]) -> dict[str, Figure]:
    """A result under the heads of the printed table. ValueError for what is no number, or a rate without unit."""
    found = {COLUMNS[key]: Figure.of(token) for key, token in results.items() if key in COLUMNS}
    if "#bytes" not in found:
        raise ValueError("the result has no MsgSize")
    if "BW_average" not in results:
        return found
    average, messages = Figure.of(results["BW_average"]), found.get("MsgRate[Mpps]")
    moved = messages.value * 1e6 * found["#bytes"].value if messages else 0.0
    unit = next((u for u, scale in UNITS.items() if moved and abs(average.value * scale / moved - 1) < NEAR), "")
    if not unit:
        raise ValueError(f"BW_average {average.value:g} is in no unit that its MsgRate agrees with")
    return found | {f"{key.replace('_', ' ')}[{unit}]": Figure.of(results[key]) for key in RATES if key in results}
