"""A real browser, driven over a pipe: pages at any width, light, dark and printed, and what they complain about.

    with Browser(tmp_path) as browser:
        shown = browser.show(page.as_uri(), width=375, dark=True)
        assert not shown.complaints

Chromium's own protocol: JSON messages that end in a zero byte, on file descriptors 3 and 4. Nothing is downloaded.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe",
)  # fmt: skip
ON_3_AND_4 = (  # a shell can name no descriptor above 9
    "import os, sys; into, out = os.dup(int(sys.argv[1])), os.dup(int(sys.argv[2])); os.dup2(into, 3); "
    "os.dup2(out, 4); [os.set_inheritable(fd, True) for fd in (3, 4)]; os.execvp(sys.argv[3], sys.argv[3:])"
)
WHOLE_PAGE = "({width: document.documentElement.scrollWidth, height: document.documentElement.scrollHeight})"

FAINT = """(() => {
  const one = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const colour = (css) => {
    one.clearRect(0, 0, 1, 1); one.fillStyle = css; one.fillRect(0, 0, 1, 1);
    return [...one.getImageData(0, 0, 1, 1).data];
  };
  const over = ([r, g, b, a], under) => [r, g, b].map((v, i) => v * a / 255 + under[i] * (1 - a / 255));
  const linear = (v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = (c) => c.reduce((sum, v, i) => sum + linear(v / 255) * [0.2126, 0.7152, 0.0722][i], 0);
  const paper = over(colour(getComputedStyle(document.body).backgroundColor), [255, 255, 255]);
  const found = new Set();
  for (const text of document.querySelectorAll("svg text")) {
    const box = text.getBoundingClientRect(), style = getComputedStyle(text);
    let under = paper;
    for (const each of document.elementsFromPoint(box.x + box.width / 2, box.y + box.height / 2).reverse()) {
      const own = getComputedStyle(each), drawn = ["rect", "path", "circle", "polygon"].includes(each.tagName);
      const fill = drawn ? colour(own.fill) : each.closest("svg") ? [0, 0, 0, 0] : colour(own.backgroundColor);
      if (drawn && own.fill !== "none") fill[3] *= own.opacity * own.fillOpacity;
      if (!drawn || own.fill !== "none") under = over(fill, under);
    }
    if (style.paintOrder.startsWith("stroke") && parseFloat(style.strokeWidth) >= 2)
      under = over(colour(style.stroke), under);
    const [high, low] = [light(over(colour(style.fill), under)), light(under)].sort((x, y) => y - x);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.5) found.add(`${text.getAttribute("class")} ${ratio.toFixed(2)}: ${text.textContent.slice(0, 20)}`);
  }
  return [...found];
})()"""  # words of charts whose contrast with what lies under them is below 4.5, the least of WCAG AA


@dataclass(kw_only=True)
class Shown:
    """One page as it was shown."""

    width: int  # what its content takes, pixels
    height: int
    complaints: list[str] = field(default_factory=list)  # console errors, exceptions, what could not be loaded
    image: bytes = b""  # PNG of the whole page


class Browser:
    """One browser with one page."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.events, self.number, self.unread = folder, [], 0, b""

    def __enter__(self) -> Browser:
        there, self.into = os.pipe()
        self.out, back = os.pipe()
        program = next(filter(None, map(shutil.which, NAMES)))
        command = [program, *QUIET, f"--user-data-dir={self.folder / 'profile'}", "about:blank"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", ON_3_AND_4, str(there), str(back), *command],
            pass_fds=(there, back), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(there)
        os.close(back)
        self.session = ""
        target = next(t for t in self.ask("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        session, self.session = self.session, ""
        if session:
            self.ask("Browser.close")
        self.process.wait(20)
        os.close(self.into)
        os.close(self.out)

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send one command and wait for its answer; what happens meanwhile is kept in `events`."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.into, json.dumps(message).encode() + b"\0")
        while True:
            got = self._message()
            if got.get("id") == self.number:
                assert "error" not in got, f"{method}: {got['error']}"
                return got["result"]
            self.events.append(got)

    def show(self, address: str, *, width: int, dark: bool = False, paper: bool = False, image: bool = False) -> Shown:
        """Load a page at a width and say what it takes, and what was wrong."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", media="print" if paper else "", features=[scheme])
        self.events.clear()
        self.ask("Page.navigate", url=address)
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self._message())
        size = self.evaluate(WHOLE_PAGE)
        shown = Shown(width=size["width"], height=size["height"], complaints=complaints(self.events))
        if image:
            clip = {"x": 0, "y": 0, "width": width, "height": shown.height, "scale": 1}
            taken = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
            shown.image = base64.b64decode(taken["data"])
        return shown

    def evaluate(self, script: str) -> Any:
        """What a script on the page says; promises are waited for."""
        said = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in said, said["exceptionDetails"]
        return said["result"].get("value")

    def faint_words(self, height: int) -> list[str]:
        """Words of charts on the page that is shown, so many pixels high, that stand out too little."""
        width = self.evaluate("innerWidth")
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        found: list[str] = self.evaluate(FAINT)
        return found

    def press(self, key: str) -> None:
        """Press and release one key."""
        code = {"Tab": 9, "Enter": 13}[key]
        for kind in ("rawKeyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def pdf(self, **options: Any) -> bytes:
        """The page that is shown, printed."""
        return base64.b64decode(self.ask("Page.printToPDF", **options)["data"])

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self.unread:
            more = os.read(self.out, 1 << 20)
            assert more, "the browser ended"
            self.unread += more
        raw, _, self.unread = self.unread.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        return message


def complaints(events: Sequence[dict[str, Any]]) -> list[str]:
    """Whatever the browser found wrong."""
    found = []
    for event in events:
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            found.append(str(params["exceptionDetails"].get("text")))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            found.append(f"console: {params['args']}")
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            found.append(params["entry"]["text"])
        elif method == "Network.loadingFailed":
            found.append(f"not loaded: {params.get('errorText')}")
    return found


def pages_of(pdf: bytes) -> int:
    """How many pages a printed document has."""
    return pdf.count(b"/Type /Page\n") or pdf.count(b"/Type /Page")
