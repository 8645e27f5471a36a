"""Owns errors of a disk in words: what cannot be used, why, and what to do."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tenuto import experiment
from tenuto.errors import DirectoryUnusable
from tenuto.experiments.workspace import worded_error
from tenuto.workspace.machine import this_machine


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (errno.ENOSPC, "DISK_FULL: {place} cannot be written: the disk at {mount} ("),
        (errno.EDQUOT, "run it again"),
        (errno.ENOSPC, "`tenuto clean --orphans -w {directory}`"),
        (errno.EROFS, "is read-only: use another workspace, or have it remounted"),
        (errno.EACCES, "belongs to user"),
        (errno.ENOTDIR, "{place} cannot be used: Not a directory: use another workspace"),
    ],
)
def test_an_error_says_what_and_what_to_do(code: int, said: str, tmp_path: Path) -> None:
    place = str(tmp_path / "ws" / "jobs")
    mount = str(tmp_path)
    while not os.path.ismount(mount):
        mount = os.path.dirname(mount)
    text = worded_error(OSError(code, os.strerror(code), place), str(tmp_path / "ws"))
    assert said.format(place=place, mount=mount, directory=tmp_path / "ws") in text


@pytest.mark.parametrize("place", ["/proc/nope", "/proc/nope/deeper", "{here}/file/ws"])
def test_a_workspace_that_cannot_be_made_is_refused_with_a_sentence(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    place = place.format(here=tmp_path)
    with (
        pytest.raises(DirectoryUnusable, match=r"cannot be used: .*: use another workspace"),
        experiment(place, "x"),
    ):
        pass
    with pytest.raises(OSError, match=r"nope|file"):
        this_machine().files.make_directory(place)
