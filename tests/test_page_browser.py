"""Pages in a real browser: at three widths, light, dark and printed, by keyboard, without JavaScript, and for all eyes.

One browser for all of it. What it finds wrong (console errors, what cannot be loaded, sideways scrolling) fails; so
does any serious finding of axe, the accessibility checker.
"""

from __future__ import annotations

import dataclasses
import json
from datetime import date
from importlib.resources import files

import pytest

from reports import archive, comparepage, nightly, nightlypage, page, runs, sides, trend
from reports.before import Before
from reports.compare import compare
from tests import made_up_nights, sample_run, test_culprits
from tests.browser import Browser, pages_of
from tests.searched_run import searched
from tests.test_page import HOSTILE

pytestmark = [pytest.mark.slow, pytest.mark.machine("chromium")]

TODAY = date(2026, 12, 1)
WIDTHS = (375, 768, 1280)
PAGES = ("run", "empty", "blame", "compare", "history", "nightly")
SHEETS = ("run", "empty", "crowded")
LETTER, A4 = (8.5, 11.0), (8.27, 11.69)  # inches
LONG = "a-host-name-that-nobody-can-read-to-its-end-" * 4


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A page of each kind, and runs that have nothing, or far too much."""
    root = tmp_path_factory.mktemp("pages")
    stored = runs.load(sample_run.write(root / "sample"))
    verdicts = stored.verdicts(today=TODAY)
    empty = dataclasses.replace(stored, measurements=(), environments=(), events=())
    crowd = [
        dataclasses.replace(
            v, metric=f"{v.metric}.m{i}", limit=f"{v.limit}-{i}", reason=f"{LONG}{HOSTILE}{i}", subject=LONG
        )
        for i in range(40)
        for v in verdicts
    ]
    nights = [made_up_nights.write(root / "nights", night) for night in range(12)]
    slow = {"collectives.all_reduce.busbw": 0.94}
    tonight = runs.load(made_up_nights.write(root / "nights", 12, factor=slow))
    every = archive.nights(root / "nights")
    sample_run.write(root / "other", seed=9, slower=1.06)
    before, after = (sides.load_side(str(root / name)) for name in ("sample", "other"))
    report = nightly.nightly(tonight, tonight.verdicts(today=TODAY), root / "nights")
    shown = Before.of(tonight, baseline=runs.load(nights[3]), nights=every)
    (root / "searched").mkdir()
    blamed = test_culprits.follow_up(searched(root / "searched", fault=test_culprits.slow_sender))
    blamed = dataclasses.replace(blamed, measurements=(*blamed.measurements, test_culprits.concluded(blamed)))
    made = {
        "run": page.page(stored, verdicts),
        "empty": page.page(empty, empty.verdicts(today=TODAY)),
        "crowded": page.page(stored, crowd),
        "blame": page.page(blamed, blamed.verdicts(today=TODAY)),
        "compare": comparepage.page([compare(before, after)]),
        "history": trend.page(trend.trends(every, "*"), metric="*", node=""),
        "nightly": nightlypage.page(report, tonight, every),
        "night": page.page(tonight, tonight.verdicts(today=TODAY), before=shown),
    }
    for name, text in made.items():
        (root / f"{name}.html").write_text(text)
    return {name: (root / f"{name}.html").as_uri() for name in made}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.mark.parametrize("name", [*PAGES, "night"])
def test_a_page_fits_every_width_and_nothing_complains(browser, pages, name):
    for width in WIDTHS:
        for dark in (False, True):
            shown = browser.show(pages[name], width=width, dark=dark)
            assert not shown.complaints
            assert shown.width <= width, (name, width, dark)


@pytest.mark.parametrize("name", [*PAGES, "night"])
def test_a_page_can_be_read_by_all(browser, pages, name):
    axe = files("axe_core_python").joinpath("axe.min.js").read_text()
    for width, dark in ((375, False), (1280, True)):
        browser.show(pages[name], width=width, dark=dark)
        browser.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        browser.evaluate(axe)
        found = json.loads(browser.evaluate("axe.run().then((found) => JSON.stringify(found.violations))"))
        told = [f"{f['id']} ({f['impact']}): {f['help']}: {[n['html'][:160] for n in f['nodes'][:3]]}" for f in found]
        grave = [line for f, line in zip(found, told, strict=True) if f["impact"] in ("serious", "critical")]
        assert not grave, (name, width, dark)


@pytest.mark.parametrize("name", [*PAGES, "night"])
def test_the_words_of_charts_stand_out_from_what_lies_under_them(browser, pages, name):
    """Axe cannot tell: it does not know what a shape under a word is filled with."""
    for dark in (False, True):
        shown = browser.show(pages[name], width=1280, dark=dark)
        assert browser.faint_words(shown.height) == [], (name, dark)


@pytest.mark.parametrize("name", SHEETS)
def test_one_sheet_is_printed_to_sign(browser, pages, name):
    for width, height in (LETTER, A4):
        browser.show(pages[name], width=1280)
        assert pages_of(browser.pdf(paperWidth=width, paperHeight=height, preferCSSPageSize=False)) == 1
    assert browser.show(pages[name], width=375).width <= 375
    shown = browser.show(pages[name], width=800, paper=True)
    assert not shown.complaints
    ends = [f"document.querySelector('{of}').getBoundingClientRect().bottom" for of in (".signatures", ".sheet")]
    signed, paper = map(browser.evaluate, ends)
    assert signed <= paper  # room is left for both signatures, however much there is to tell


def test_the_whole_page_is_printed_when_asked(browser, pages):
    browser.show(pages["run"], width=1280)
    browser.evaluate("document.querySelector('#whole').click()")
    assert pages_of(browser.pdf()) > 2


def test_a_command_is_copied_by_its_button_and_selected_without(browser, pages):
    browser.show(pages["run"], width=1280)
    assert browser.evaluate("document.querySelectorAll('code.command').length") > 20
    script = "document.querySelectorAll('button.copy').length == document.querySelectorAll('code.command').length"
    assert browser.evaluate(script)
    browser.evaluate("document.querySelector('button.copy').click()")
    said = browser.evaluate(
        "new Promise((done) => setTimeout(() => done(document.querySelector('button.copy').textContent), 300))"
    )
    assert said in ("copied", "selected")
    select = "getComputedStyle(document.querySelector('code.command')).userSelect"
    assert browser.evaluate(select) == "all"


def test_the_keyboard_reaches_what_can_be_used_and_shows_where_it_is(browser, pages):
    browser.show(pages["run"], width=1280)
    reached = []
    for _ in range(40):
        browser.press("Tab")
        reached.append(browser.evaluate("document.activeElement.tagName + ' ' + document.activeElement.className"))
        assert browser.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none", reached
    assert {name.split()[0] for name in reached} >= {"A", "SUMMARY", "BUTTON", "CODE"}


def test_without_javascript_nothing_is_lost(browser, pages):
    browser.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        shown = browser.show(pages["run"], width=1280)
        assert not shown.complaints
        words = browser.evaluate("document.body.innerText")
    finally:
        browser.ask("Emulation.setScriptExecutionDisabled", value=False)
    for expected in ("REJECTED", "What failed", "links.bandwidth", "Money", "4.6 months"):
        assert expected in words
