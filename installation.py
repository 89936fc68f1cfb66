"""The virtual environment `.venv/`: made once, pinned, and left alone until what it was made of changes.

`make` calls this before everything else, on the interpreter that `.venv/` is to be built on. So it uses the
standard library only, and tells an old interpreter in one line what it lacks. It touches no other environment.

Packages come from the index pip is set up for, from a folder (`--wheelhouse`: no network at all), or from the
interpreter itself (`--reuse`), as on clusters, where torch is the vendor's. What a reused interpreter has, and
pyproject.toml accepts, stays as it is.

>>> read_constraints("torch==2.13.0  # measured with")
{'torch': 'torch==2.13.0'}
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import site
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "made-of.json"
OLDEST = (3, 11)

# Runs inside the environment, where pip is: the packages it sees, but for those that a requirement refuses.
ACCEPTED = """
import importlib.metadata, json, re, sys
from pip._vendor.packaging.requirements import Requirement
plain = lambda name: re.sub(r"[-_.]+", "-", name).lower()
seen = {plain(d.name): d.version for d in importlib.metadata.distributions() if d.name}
asked = {plain(r.name): r.specifier for r in map(Requirement, sys.argv[1:])}
refused = {name for name in asked if not asked[name].contains(seen.get(name, "0"), prereleases=True)}
print(json.dumps(sorted(set(seen) - refused)))
"""


def main(words: list[str] | None = None) -> int:
    """Make or refresh `.venv/`, or fill a wheelhouse. 0: done; 4: one line says what is missing."""
    parser = argparse.ArgumentParser(description="make the virtual environment .venv/")
    parser.add_argument("--dev", action="store_true", help="the development tools too")
    parser.add_argument("--reuse", action="store_true", help="use the packages this interpreter has")
    parser.add_argument("--torch-index", default="", metavar="URL", help="take torch from this index")
    parser.add_argument("--wheelhouse", default="", metavar="FOLDER", help="take all from here, without a network")
    parser.add_argument("--download", default="", metavar="FOLDER", help="fill it for another machine's --wheelhouse")
    asked = parser.parse_args(words)
    try:
        check_interpreter()
        if asked.download:
            download(Path(asked.download), torch_index=asked.torch_index)
        else:
            make(asked)
    except ValueError as problem:
        print(f"setup: {problem}", file=sys.stderr)
        return 4
    except subprocess.CalledProcessError:
        where = f"is {asked.wheelhouse} from `make wheelhouse` with the same Python on the same kind of machine?"
        cure = where if asked.wheelhouse else "no network here? docs/install.md, 'Without a network'"
        print(f"setup: pip failed, its own lines above say why; {cure}", file=sys.stderr)
        return 4
    return 0


def make(asked: argparse.Namespace) -> None:
    """Bring `.venv/` up to what is asked. Returns at once where it already is."""
    made = read_stamp()
    rebuild = bool(made) and asked.reuse and made["reuses"] != sys.executable
    reuses = sys.executable if asked.reuse else made.get("reuses", "")
    extras = ["dev"] if asked.dev or "dev" in made.get("extras", []) else []
    wanted = {"reuses": reuses, "extras": extras, "asked_for": asked_for()}
    if made == wanted:
        return
    print("setup: making .venv/ (once; minutes, and gigabytes where torch brings CUDA)", flush=True)
    STAMP.unlink(missing_ok=True)
    if rebuild or not PYTHON.exists():
        create(reuse=bool(reuses), clear=rebuild)
    install(requirements(extras), reuse=bool(reuses), torch_index=asked.torch_index, wheelhouse=asked.wheelhouse)
    STAMP.write_text(json.dumps(wanted), encoding="utf-8")


def create(*, reuse: bool = False, clear: bool = False) -> None:
    """An empty environment on this interpreter; to reuse, its packages are seen behind our own."""
    options = (["--system-site-packages"] if reuse else []) + (["--clear"] if clear else [])
    subprocess.run([sys.executable, "-m", "venv", *options, str(VENV)], check=True)
    if reuse and sys.prefix != sys.base_prefix:  # itself a virtual environment: the option above passes it by
        link = next(VENV.glob("lib/python*/site-packages")) / "reused.pth"
        link.write_text("\n".join(site.getsitepackages()) + "\n", encoding="utf-8")


def install(wanted: list[str], *, reuse: bool, torch_index: str, wheelhouse: str) -> None:
    """Install the requirements at their pinned versions; torch first where it has an index of its own."""
    kept = accepted(wanted) if reuse else []
    if kept:
        print(f"setup: this interpreter's own torch stays: {'yes' if 'torch' in kept else 'no, it has none that fits'}")
    pins = VENV / "constraints.txt"
    pins.write_text("\n".join(pins_without(kept, constraints())) + "\n", encoding="utf-8")
    source = ["--no-index", "--find-links", wheelhouse] if wheelhouse else []
    if torch_index and "torch" not in kept:
        pip("install", "--no-deps", "-c", str(pins), "--index-url", torch_index, "torch")
        source = ["--extra-index-url", torch_index]  # for what only that build of torch needs
    pip("install", *source, "-c", str(pins), *wanted)


def download(folder: Path, *, torch_index: str) -> None:
    """Fill `folder` with every wheel that an installation by the same Python on the same platform needs."""
    if not PYTHON.exists():
        create()
    pins = str(ROOT / "constraints.txt")
    source = []
    if torch_index:
        pip("download", "--no-deps", "-d", str(folder), "-c", pins, "--index-url", torch_index, "torch")
        source = ["--find-links", str(folder), "--extra-index-url", torch_index]
    pip("download", *source, "-d", str(folder), "-c", pins, *requirements(["dev"]))
    print(f"setup: copy {folder}/ and this checkout to the other machine, then: WHEELHOUSE={folder} make accept")


def pip(*words: str) -> None:
    """Run the environment's own pip; CalledProcessError where it fails."""
    quiet = ["-qq", "--disable-pip-version-check", "--no-input"]
    subprocess.run([str(PYTHON), "-m", "pip", words[0], *quiet, *words[1:]], check=True)


def accepted(wanted: list[str]) -> list[str]:
    """Names of the packages that the environment sees and no requirement refuses."""
    done = subprocess.run([str(PYTHON), "-c", ACCEPTED, *wanted], stdout=subprocess.PIPE, text=True, check=True)
    return list(json.loads(done.stdout))


def requirements(extras: list[str]) -> list[str]:
    """What pyproject.toml asks for."""
    import tomllib  # absent before 3.11, which check_interpreter has refused by now

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]


def constraints() -> str:
    """constraints.txt, as it is."""
    return (ROOT / "constraints.txt").read_text(encoding="utf-8")


def read_constraints(text: str) -> dict[str, str]:
    """Package name -> its line, without comments."""
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    return {re.sub(r"[-_.]+", "-", re.split(r"[=<>~!\[; ]", line)[0]).lower(): line for line in lines if line}


def pins_without(kept: list[str], text: str) -> list[str]:
    """The constraints, but for packages that stay as they are."""
    return [line for name, line in read_constraints(text).items() if name not in kept]


def asked_for() -> str:
    """Changes when a requirement or a pinned version does; a comment changes nothing."""
    text = json.dumps([read_constraints(constraints()), requirements(["dev"])])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_interpreter() -> None:
    """ValueError where this interpreter cannot carry the environment."""
    if sys.version_info < OLDEST:
        raise ValueError(
            f"{sys.executable} is Python {sys.version_info[0]}.{sys.version_info[1]}, this needs 3.11 or newer: "
            "install one, or name one: PYTHON=/path/to/python3.11 make accept"
        )
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        raise ValueError(
            f"{sys.executable} has no venv module: apt-get install python3-venv (Debian, Ubuntu)"
        ) from None


def read_stamp() -> dict[str, Any]:
    """What `.venv/` was made of; empty where it is absent or unfinished."""
    if not (STAMP.exists() and PYTHON.exists()):
        return {}
    return dict(json.loads(STAMP.read_text(encoding="utf-8")))


if __name__ == "__main__":
    sys.exit(main())
