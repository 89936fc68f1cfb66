"""What a killed run left is removed by the next, and nothing that might belong to a living one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.checkpoint.leftovers import OWNER, claim, clear, owner_is_dead


@pytest.fixture
def dead(tmp_path: Path) -> Path:
    """A folder whose owner has ended."""
    folder = tmp_path / "run-1"
    folder.mkdir()
    (folder / "rank0.bin").write_bytes(b"much")
    code = "import pathlib, sys; from benchmarks.checkpoint.leftovers import claim; claim(pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True, cwd=Path(__file__).parent.parent)
    return folder


def altered(folder: Path, **changed: str) -> None:
    owner = json.loads((folder / OWNER).read_text())
    (folder / OWNER).write_text(json.dumps({**owner, **changed}))


def test_a_living_owner_keeps_its_folder(tmp_path: Path):
    folder = tmp_path / "run-1"
    folder.mkdir()
    claim(folder)
    assert not owner_is_dead(folder)
    assert clear(tmp_path, "run-") == ([], ["run-1"])
    assert folder.exists()


def test_a_dead_owners_folder_is_removed_and_nothing_else(dead: Path):
    (dead.parent / "other").mkdir()
    assert clear(dead.parent, "run-") == (["run-1"], [])
    assert [p.name for p in dead.parent.iterdir()] == ["other"]


def test_a_process_id_that_was_used_again_is_not_the_owner(dead: Path):
    altered(dead, pid=str(os.getpid()))
    assert owner_is_dead(dead)


@pytest.mark.parametrize("where", [{"host": "another"}, {"boot": "another"}, {"namespace": "pid:[1]"}])
def test_an_owner_elsewhere_may_be_alive(dead: Path, where: dict[str, str]):
    altered(dead, **where)
    assert not owner_is_dead(dead)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"host": 1}'])
def test_a_folder_without_a_readable_owner_stays(dead: Path, text: str):
    (dead / OWNER).write_text(text)
    assert not owner_is_dead(dead)
    (dead / OWNER).unlink()
    assert clear(dead.parent, "run-") == ([], ["run-1"])


def test_another_users_folder_stays(dead: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert not owner_is_dead(dead)
