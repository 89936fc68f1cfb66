"""A checkpoint is whole or it is none: nothing cut, altered or missing passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.checkpoint.manifest import NAME, ManifestError, newest, read_manifest, write_manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "step-3"
    folder.mkdir()
    (folder / "a.distcp").write_bytes(b"12345")
    write_manifest(folder, {"files": {"a.distcp": 5}, "tensors": {"w@0": "abc"}})
    return folder


def test_it_reads_back(folder: Path):
    assert read_manifest(folder) == {"files": {"a.distcp": 5}, "tensors": {"w@0": "abc"}}
    assert [p.name for p in folder.iterdir() if "partial" in p.name] == []


def test_every_cut_is_seen(folder: Path):
    text = (folder / NAME).read_bytes()
    for length in range(len(text)):
        (folder / NAME).write_bytes(text[:length])
        with pytest.raises(ManifestError):
            read_manifest(folder)


def test_an_altered_manifest_is_seen(folder: Path):
    (folder / NAME).write_text((folder / NAME).read_text().replace("abc", "abd"))
    with pytest.raises(ManifestError, match="altered"):
        read_manifest(folder)


def test_a_missing_or_cut_file_is_named(folder: Path):
    (folder / "a.distcp").write_bytes(b"123")
    with pytest.raises(ManifestError, match=r"a\.distcp has 3 bytes, the manifest says 5"):
        read_manifest(folder)
    (folder / "a.distcp").unlink()
    with pytest.raises(ManifestError, match=r"a\.distcp is missing"):
        read_manifest(folder)


def test_the_newest_whole_checkpoint_is_found(folder: Path):
    for name in ("step-4", "step-10", "step-x"):
        (folder.parent / name).mkdir()
    write_manifest(folder.parent / "step-4", {"files": {}, "tensors": {}})
    assert newest(folder.parent) == folder.parent / "step-4"  # step-10 never finished
    (folder.parent / "step-4" / NAME).write_text("{")
    assert newest(folder.parent) == folder
    assert newest(folder) is None
