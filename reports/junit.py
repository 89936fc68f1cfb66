"""JUnit XML from Verdicts: one test case each, so that a CI system shows what the page shows.

Only `pass` and `waived` are green. `not_applicable` is skipped, with the cluster file's reason. Everything
else is a failure or an error: a number that is missing is never green and never skipped. An advisory limit
that is missed is green, with the words in its output, as it does not reject.

    write(stored, verdicts, Path("junit.xml"))
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from xml.etree.ElementTree import Element, ElementTree, SubElement, indent

from benchmarks.measurement import Verdict
from reports.runs import StoredRun

NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0 has no such characters
ELEMENT = {
    "fail": "failure",
    "noisy": "failure",
    "missing": "error",
    "error": "error",
    "impossible": "error",
    "no_baseline": "error",
    "not_applicable": "skipped",
}  # a status that is not here is green


def write(stored: StoredRun, verdicts: Sequence[Verdict], path: Path) -> None:
    """Write the XML file."""
    tree = ElementTree(document(stored, verdicts))
    indent(tree)
    tree.write(path, encoding="utf-8", xml_declaration=True)


def document(stored: StoredRun, verdicts: Sequence[Verdict]) -> Element:
    """The <testsuites> element: one suite, one case per Verdict, and one for the run as a whole."""
    outcome, reasons = stored.explain(verdicts)
    cases = [_case(v) for v in verdicts]
    whole = Element("testcase", classname="run", name="outcome")
    SubElement(whole, "system-out").text = _text(f"{outcome}: {', '.join(reasons)}")
    if outcome in ("REJECTED", "INCOMPLETE"):
        kind = "failure" if outcome == "REJECTED" else "error"
        SubElement(whole, kind, message=_text(f"{outcome}: {', '.join(reasons)}"), type=outcome)
    cases.append(whole)
    kinds = Counter(child.tag for case in cases for child in case)
    totals = {
        "tests": str(len(cases)),
        "failures": str(kinds["failure"]),
        "errors": str(kinds["error"]),
        "skipped": str(kinds["skipped"]),
    }
    root = Element("testsuites", totals)
    suite = SubElement(root, "testsuite", totals, name=_text(f"{stored.run.cluster} {stored.run.suite}"))
    suite.set("timestamp", stored.run.started_at.rstrip("Z"))
    properties = SubElement(suite, "properties")
    for name, value in (("run", stored.run.id), ("revision", stored.run.revision), ("outcome", outcome)):
        SubElement(properties, "property", name=name, value=_text(value))
    suite.extend(cases)
    return root


def _case(v: Verdict) -> Element:
    name = v.check + (f" {v.bound} {v.limit}" if v.limit else "")
    case = Element("testcase", classname=_text(v.test.replace("/", ".") or "limits"), name=_text(name))
    tag = ELEMENT.get(v.status)
    if tag and not v.mandatory and v.status in ("fail", "noisy", "no_baseline"):
        SubElement(case, "system-out").text = _text(f"advisory, {v.status}: {v.reason}")
    elif tag == "skipped":
        SubElement(case, tag, message=_text(v.reason))
    elif tag:
        SubElement(case, tag, message=_text(f"{v.status}: {v.reason}"), type=v.status).text = _text(f"again: {v.again}")
    elif v.reason:
        SubElement(case, "system-out").text = _text(v.reason)
    return case


def _text(value: str) -> str:
    return NOT_XML.sub("�", value)
