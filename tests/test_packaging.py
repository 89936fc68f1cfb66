"""The checkout keeps its promises: commands, pins, the map in the README, and nothing of one machine."""

from __future__ import annotations

import ast
import fnmatch
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import installation

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("clusters", "benchmarks", "reference_model", "suites", "reports")
LONGEST_MODULE = 400
LONGEST_TEST = 600  # a list of cases, read one at a time
BINARY = {".png", ".gz"}

# One letter in brackets each, so that this file does not name what it forbids.
MACHINE = re.compile(r"/wor[k]/|/tmp/ven[v]|/roo[t]/|/home/(?!me/)[a-z]+/|/opt/(wheel[s]|pyp[i])")
REGISTRY = re.compile(r"pyp[i]\.org|pythonhoste[d]\.org|download\.pytorc[h]|conda\.anacond[a]")


def tracked() -> list[str]:
    """Paths of all files of the checkout, as git knows them."""
    if not (ROOT / ".git").exists():
        pytest.skip("no git checkout: nobody knows which files are the project's")
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for path in done.stdout.splitlines() if (ROOT / path).exists()]


def texts() -> dict[str, str]:
    """Path -> content of every tracked text file."""
    return {path: (ROOT / path).read_text(encoding="utf-8") for path in tracked() if Path(path).suffix not in BINARY}


def modules() -> dict[str, str]:
    """Path -> source of every tracked Python file."""
    return {path: text for path, text in texts().items() if path.endswith(".py")}


def asked(*extras: str) -> list[Requirement]:
    """The requirements of pyproject.toml."""
    return [Requirement(line) for line in installation.requirements(list(extras))]


def map_of_readme() -> dict[str, str]:
    """Path or pattern -> its words, from the README's section "Map"."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## Map\n")[1].split("\n## ")[0]
    lines = [line.split(maxsplit=1) for line in section.split("```")[1].splitlines() if line.strip()]
    assert all(len(line) == 2 for line in lines), f"a line of the map lacks its words: {lines}"
    return dict(lines)


def test_make_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    assert phony and set(phony[1].split()) == targets
    shown = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"^  make ([a-z-]+) +\S", shown, re.MULTILINE)) == targets


def test_every_requirement_is_pinned_within_its_range() -> None:
    pins = installation.read_constraints(installation.constraints())
    for requirement in asked("dev"):
        pin = Requirement(pins[canonicalize_name(requirement.name)])
        (version,) = pin.specifier
        assert version.operator == "==", f"{pin} is no pin"
        assert requirement.specifier.contains(version.version), f"pyproject asks for {requirement}, pinned is {pin}"


def test_what_requirements_bring_along_is_pinned_too() -> None:
    """But for torch's CUDA libraries: torch itself names them exactly, and each build names others."""
    pins = installation.read_constraints(installation.constraints())
    todo, seen = asked("dev"), set()
    while todo:
        name = canonicalize_name(todo.pop().name)
        if name in seen or (name not in pins and re.match(r"nvidia-|cuda-|triton|pytorch-triton", name)):
            continue
        seen.add(name)
        brought = [Requirement(line) for line in importlib.metadata.distribution(name).requires or []]
        todo += [r for r in brought if r.marker is None or r.marker.evaluate({"extra": ""})]
    assert seen - set(pins) == set(), "add these to constraints.txt"


def test_constraints_hold_nothing_twice_and_only_releases() -> None:
    lines = [line for line in installation.constraints().splitlines() if line and not line.startswith("#")]
    assert len(lines) == len(installation.read_constraints(installation.constraints()))
    assert not any(Version(line.split("==")[1]).is_prerelease for line in lines)


def test_packages_that_stay_are_not_pinned() -> None:
    """A reused interpreter's torch must not be replaced because the pin is another version."""
    assert installation.pins_without(["torch"], "torch==2.13.0\n# why\nnumpy==2.4.6  # this") == ["numpy==2.4.6"]


def test_a_changed_pin_sets_up_again_and_a_changed_comment_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    before = installation.asked_for()
    text = installation.constraints()
    monkeypatch.setattr(installation, "constraints", lambda: "# another word\n" + text)
    assert installation.asked_for() == before
    monkeypatch.setattr(installation, "constraints", lambda: text.replace("torch==2.13.0", "torch==2.13.1"))
    assert installation.asked_for() != before


def test_an_old_interpreter_is_refused_with_the_cure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 2))
    assert installation.main([]) == 4
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "is Python 3.9" in said and "PYTHON=/path/to/python3.11 make accept" in said


def test_an_interpreter_without_venv_is_refused_with_the_cure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    assert installation.main([]) == 4
    assert "apt-get install python3-venv" in capsys.readouterr().err


def test_what_the_rooms_import_is_asked_for() -> None:
    """A package that only happens to be installed is missing on the next machine."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {canonicalize_name(r.name) for r in asked(*project["optional-dependencies"])}
    distributions = importlib.metadata.packages_distributions()
    stray = set()
    for path, source in modules().items():
        for name in imported(ast.parse(source)) - set(sys.stdlib_module_names) - {*ROOMS, "tests", "installation"}:
            owners = {canonicalize_name(owner) for owner in distributions.get(name, [name])}
            if not owners & declared:
                stray.add(f"{path}: {name}")
    assert stray == set()


def imported(tree: ast.AST) -> set[str]:
    """Top-level names of the modules that are imported unconditionally: not inside a `try`."""
    optional = {id(node) for t in ast.walk(tree) if isinstance(t, ast.Try) for node in ast.walk(t)}
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in optional:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


def test_every_file_is_on_the_map() -> None:
    patterns = map_of_readme()
    lost = [path for path in tracked() if not any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)]
    assert lost == [], "add these to the map in README.md"


def test_the_map_names_no_file_that_is_gone_and_is_brief() -> None:
    paths, patterns = tracked(), map_of_readme()
    assert [p for p in patterns if not fnmatch.filter(paths, p)] == []
    assert [p for p, words in patterns.items() if not 3 <= len(words.split()) <= 8] == []


def test_no_file_names_a_path_of_one_machine_or_a_registry() -> None:
    found = {
        f"{path}: {match[0]}"
        for path, text in texts().items()
        for pattern in (MACHINE, REGISTRY)
        for match in pattern.finditer(text)
    }
    assert found == set()


def test_no_module_is_a_drawer() -> None:
    """A module is named after its noun; `utils` is where nouns get lost."""
    drawers = {"utils", "util", "common", "helpers", "misc"}
    assert [path for path in modules() if drawers & set(Path(path).with_suffix("").parts)] == []


def test_no_module_is_too_long_to_read() -> None:
    lengths = {path: source.count("\n") for path, source in modules().items()}
    limits = {path: LONGEST_TEST if path.startswith("tests/test_") else LONGEST_MODULE for path in lengths}
    assert {path: n for path, n in lengths.items() if n > limits[path]} == {}


def test_every_module_says_what_it_is() -> None:
    silent = [path for path, source in modules().items() if source and ast.get_docstring(ast.parse(source)) is None]
    assert silent == []


def test_the_licence_is_whole() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text and "END OF TERMS AND CONDITIONS" in text
    assert len(text.split()) > 1500
