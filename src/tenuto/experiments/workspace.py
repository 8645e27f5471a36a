"""A workspace as a person names it: a path, or a name from the settings."""

from __future__ import annotations

import os.path
from pathlib import Path

from tenuto.settings import Settings, expanded
from tenuto.workspace.layout import Layout


class Workspace:
    """The directory that keeps jobs, experiments and results."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(os.path.abspath(expanded(path)))
        self.layout = Layout(str(self.path))

    @classmethod
    def named(cls, given: Path | str | Workspace | None, settings: Settings) -> Workspace:
        """A workspace as it is; the one that the settings call so; or a path."""
        return given if isinstance(given, Workspace) else cls(settings.workspace(given))

    def __repr__(self) -> str:
        return f"Workspace({str(self.path)!r})"
