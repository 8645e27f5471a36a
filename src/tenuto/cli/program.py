"""How this program is called here, for commands that a person can copy as they are shown.
It runs none of them.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

import click

from tenuto.settings import process_environment


def called_as() -> list[str]:
    """How this program was called, so that a command we show can be typed: it need not be on the PATH."""
    name = sys.argv[0]
    if os.path.basename(name) == "__main__.py":
        return ["python", "-m", "tenuto"]
    found = shutil.which("tenuto", path=process_environment().get("PATH"))
    if found is not None and os.path.exists(name) and os.path.samefile(found, name):
        return ["tenuto"]
    return [short_path(name)]


def short_path(path: str | Path) -> str:
    """A path as a person here would write it."""
    near = os.path.relpath(path)
    return str(path) if near.startswith("..") else near


def hint(command: str) -> str:
    """A command of ours, ``tenuto why ID``, as it leads to the same workspace when it is copied."""
    context = click.get_current_context(silent=True)
    given = context.params.get("workspace") if context is not None else None
    program = (
        shlex.join(called_as()) if os.path.basename(sys.argv[0]) in ("__main__.py", "tenuto") else "tenuto"
    )
    shown = command.replace("tenuto", program, 1) if command.startswith("tenuto ") else command
    if not given or not command.startswith("tenuto "):
        return shown
    return f"{shown} -w {shlex.quote(str(given))}"
