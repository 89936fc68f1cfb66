"""What a fixed run's page says, word for word and chart for chart, against the kept one: review sees what changed.

python -m tests.test_page_golden      # keep what the page says now; then look at the difference, and at the page
"""

from __future__ import annotations

import hashlib
import re
import sys
import tempfile
from datetime import date
from html.parser import HTMLParser
from pathlib import Path

from reports import page, runs
from tests import sample_run

KEPT = Path(__file__).parent / "fixtures" / "page" / "sample.txt"
INLINE = {"b", "span", "a", "code", "del", "ins", "label", "sub", "sup"}
SILENT = {"style", "script"}


class Reader(HTMLParser):
    """The words of a page in lines, each chart as its words and a digest of its shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = [""]
        self.chart: list[str] | None = None
        self.label, self.silent = "", 0

    def handle_starttag(self, tag, attrs):
        if tag == "svg":
            self.chart, self.label = [], dict(attrs).get("aria-label", "")
        if self.chart is not None:
            self.chart.append(f"{tag} {attrs}")
            return
        self.silent += tag in SILENT
        if tag not in INLINE:
            self.lines.append("")
        if tag in ("h1", "h2", "h3"):
            self.lines[-1] = "#" * int(tag[1]) + " "
        elif tag in ("td", "th", "dt", "dd"):
            self.lines[-1] = "| "

    def handle_endtag(self, tag):
        if tag == "svg":
            digest = hashlib.sha256("\n".join(self.chart).encode()).hexdigest()[:10]
            self.lines.append(f"[chart of {len(self.chart)} shapes, {digest}: {self.label}]")
            self.chart = None
        self.silent -= tag in SILENT
        if tag not in INLINE and self.chart is None:
            self.lines.append("")

    def handle_data(self, data):
        if self.chart is not None:
            self.chart.append(data)
        elif not self.silent:
            self.lines[-1] += re.sub(r"\s+", " ", data)


def said(folder: Path) -> str:
    """What the page of the sample run says, without what differs between machines."""
    stored = runs.load(sample_run.write(folder))
    reader = Reader()
    reader.feed(page.page(stored, stored.verdicts(today=date(2026, 12, 1))))
    text = "\n".join(line.strip() for line in reader.lines if line.strip(" |#"))
    return re.sub(r"[./]\S*bin/pytest", "pytest", text.replace(str(folder), "RUN")) + "\n"


def test_the_page_says_what_it_said(tmp_path):
    assert said(tmp_path / "sample") == KEPT.read_text(encoding="utf-8"), (
        f"look at the page, then keep it: {Path(sys.executable).name} -m tests.test_page_golden"
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        KEPT.write_text(said(Path(folder) / "sample"), encoding="utf-8")
    print(KEPT)
