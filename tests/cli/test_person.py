"""Owns what a person is called in what is said of an action."""

from __future__ import annotations

import getpass
import os

import pytest

from tenuto.cli.console import person


def test_a_person_has_a_name() -> None:
    assert person() == getpass.getuser()


@pytest.mark.parametrize("error", [KeyError("uid not found"), OSError("no name")])
def test_a_person_in_a_container_without_names_has_a_number(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def nameless() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", nameless)
    assert person() == f"user {os.getuid()}"
