"""Which workspace an experiment last used from a directory, so that commands find it from there.
A hint and no more: it is kept beside the settings of a person, and may be missing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from tenuto.errors import TenutoError
from tenuto.settings import state_directory
from tenuto.workspace.ports import Files

_LONGEST = 4096


def remember_workspace(files: Files, workspace: Path) -> None:
    """Note that an experiment was run from the working directory with this workspace."""
    content = os.fsencode(workspace)
    with contextlib.suppress(OSError, TenutoError):  # no home, a full disk: then it is not found so easily
        file = _file(Path.cwd())
        try:
            if files.read(file, _LONGEST) == content:
                return
        except FileNotFoundError:
            files.make_directory(os.path.dirname(file))
        files.replace(file, content, durable=False)


def last_workspace(files: Files, directory: Path) -> Path | None:
    """The workspace that was last used from a directory; None if that is not known."""
    try:
        return Path(os.fsdecode(files.read(_file(directory), _LONGEST)))
    except (OSError, TenutoError):
        return None


def _file(directory: Path) -> str:
    digest = hashlib.sha256(os.fsencode(directory)).hexdigest()[:32]
    return f"{state_directory()}/workspaces/{digest}"
