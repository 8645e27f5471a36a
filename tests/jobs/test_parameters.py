"""Owns stored parameters as people see them, and that hostile ones do no harm."""

from __future__ import annotations

import pytest

from tenuto.jobs.parameters import changed, read_stored

from .workspaces import MACHINE, Builder, document, params


def test_stored_parameters_are_flat_and_compared_with_their_types(workspace: Builder) -> None:
    one = workspace.job("a", params=params(lr=1, shape={"$tuple": [1, 2]}, path={"$path": "/x"}))
    two = workspace.job("b", params=params(lr=True, shape={"$tuple": [1, 2]}, path={"$path": "/x"}))
    first, second = (read_stored(MACHINE.files, workspace.layout.job(*key)) for key in (one, two))
    assert first.parameters == {"lr": 1, "shape": [1, 2], "path": "/x"}
    assert [(found.path, found.here, found.there) for found in changed(first, second)] == [("lr", 1, True)]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        document('{"values": {"a": {"$ref": 0}}}', 0),
        document('{"values": {"a": {"$ref": 0}, "b": [{"$ref": true}]}}', 0),
        document('{"values": 1, "init_tasks": "x", "origin": 7}', 0),
        document('{"upstream": 3}', 0),
        document("", -5),
        '{"format": "tenuto-config", "version": 99, "objects": [], "value": 1}',
        "[" * 100_000,
    ],
)
def test_parameters_that_nobody_wrote_do_no_harm(workspace: Builder, content: str) -> None:
    key = workspace.job("a", params=content)
    read_stored(MACHINE.files, workspace.layout.job(*key))
    workspace.view.detail(key)
    assert key in list(workspace.view.job_keys()), "it is shown all the same"
