"""Owns that a group can share a workspace, and that one which is not shared is refused with a sentence."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tenuto.errors import DirectoryUnusable
from tenuto.experiments.workspace import make_root
from tenuto.workspace.machine import this_machine

from .scripts import Place, eventually, python, run, tenuto
from .test_slots import ended, started

LAB = 54321
"""A group that no machine has."""


def member(user: int, command: list[str]) -> list[str]:
    """A command of a user of the lab, who may read the interpreter wherever it lies."""
    rights = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
    ids = ["--reuid", str(user), "--regid", str(user), "--groups", str(LAB)]
    return ["setpriv", *ids, *rights, *command]


def closed_to_the_lab(workspace: Path) -> list[str]:
    needed = {True: 0o2770, False: 0o660}
    return [
        f"{path} {stat.filemode(path.lstat().st_mode)}"
        for path in (workspace, *workspace.rglob("*"))
        if not path.is_symlink()
        and (
            path.stat().st_gid != LAB
            or path.stat().st_mode & needed[path.is_dir()] != needed[path.is_dir()]
            or path.stat().st_mode & 0o007
        )
    ]


def test_two_members_of_a_group_share_a_workspace(place: Place, require: Callable[[str], None]) -> None:
    require("right to mount a disk")  # that of root, who alone can be two users
    os.chown(place.directory, -1, LAB)
    place.directory.chmod(0o2770)
    first = place.script(
        """
os.umask(0o022)
with experiment("ws", "first", raise_on_failure=False):
    Note.C(name="kept").submit()
    Fail.C(name="bad").submit()
    Hold.C(name="held").submit()
""",
        name="first.py",
    )
    body = 'with experiment("ws", "second"):\n    [Note.C(name=name).submit() for name in ("kept", "new")]'
    with started(place, ["env", f"TENUTO_WORKSPACE_GROUP={LAB}", *member(64001, python(first))], 3) as one:
        eventually(lambda: sorted(place.ledger()) == ["bad", "held", "kept"], "the jobs of one member")
        place.script(body, name="first.py")
        second = run(member(64002, python(first)), place.directory, TENUTO_SLOTS="3")
        assert second.returncode == 0, second.stderr
        assert sorted(place.ledger()) == ["bad", "held", "kept", "new"], "one is reused"
        (held,) = place.workspace.glob("jobs/*.Hold/*")
        killed = run(member(64002, tenuto("kill", held.name, "-w", "ws")), place.directory)
        assert "is another user's: only that user can stop it" in killed.stdout + killed.stderr
        place.release.touch()
        ended(one)
    assert not list(held.glob("*.failed"))
    assert closed_to_the_lab(place.workspace) == []
    (bad,) = place.workspace.glob("jobs/*.Fail/*")
    cleaned = run(member(64002, tenuto("clean", "state = error", "--yes", "-w", "ws")), place.directory)
    assert not bad.exists(), cleaned.stdout + cleaned.stderr


def test_a_workspace_that_is_not_shared_is_refused_with_what_to_do(tmp_path: Path) -> None:
    files, own = this_machine().files, str(os.getegid())
    root = tmp_path / "above" / "ws"
    make_root(files, str(root), None)
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    make_root(files, str(root), own)
    assert stat.S_IMODE(root.stat().st_mode) == 0o2770, "it holds nothing yet"
    make_root(files, str(root), None)
    assert stat.S_IMODE(root.stat().st_mode) == 0o2770, "who does not name the group uses it as it is"

    root.chmod(0o700)
    (root / "jobs").mkdir()
    with pytest.raises(DirectoryUnusable, match=rf"not shared with.*chgrp -R {own} {root} && chmod"):
        make_root(files, str(root), own)
    with pytest.raises(DirectoryUnusable, match="this machine has no group 'no such group'"):
        make_root(files, str(root), "no such group")
