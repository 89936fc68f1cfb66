"""The rule for tests that need something of the machine: skip with the reason, and in CI fail."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest


def item(what: str) -> Any:
    """A test that is marked `machine(what)`."""
    return SimpleNamespace(iter_markers=lambda _name: [SimpleNamespace(args=(what,))])


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine of an ordinary user with no tools."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(conftest.shutil, "which", lambda *_args, **_named: None)
    monkeypatch.delenv("CI", raising=False)
    return monkeypatch


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(("what", "cure"), [("root", "sudo"), ("slurm", "sudo"), ("chromium", "install chromium")])
def test_elsewhere_it_is_skipped_with_the_cure(what: str, cure: str) -> None:
    with pytest.raises(pytest.skip.Exception, match=cure):
        conftest.pytest_runtest_setup(item(what))


@pytest.mark.parametrize("what", ["root", "slurm", "chromium"])
def test_in_ci_a_skip_is_a_failure(bare: pytest.MonkeyPatch, what: str) -> None:
    bare.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="CI must run this"):
        conftest.pytest_runtest_setup(item(what))


def test_root_without_tools_is_told_what_to_install(bare: pytest.MonkeyPatch) -> None:
    bare.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(pytest.skip.Exception, match="apt-get install iproute2 nftables"):
        conftest.pytest_runtest_setup(item("root"))


def test_a_test_that_needs_nothing_runs() -> None:
    conftest.pytest_runtest_setup(SimpleNamespace(iter_markers=lambda _name: []))


def test_a_need_that_nobody_can_probe_is_an_error() -> None:
    with pytest.raises(KeyError, match="teapot"):
        conftest.pytest_runtest_setup(item("teapot"))
