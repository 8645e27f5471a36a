"""A workspace as a person names it: a path, or a name from the settings."""

from __future__ import annotations

import os.path
from pathlib import Path

from tenuto.workspace.layout import Layout


class Workspace:
    """The directory that keeps jobs, experiments and results."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(os.path.abspath(os.path.expanduser(path)))
        self.layout = Layout(str(self.path))

    def __repr__(self) -> str:
        return f"Workspace({str(self.path)!r})"
