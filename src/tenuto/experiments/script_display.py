"""The display of a script that a person started by itself: bars at a terminal, or below a notebook's cell.
Experiments that are open together share one. What an experiment does is not influenced.
"""

from __future__ import annotations

import html
import sys
from collections.abc import Sequence
from typing import Any

from tenuto.clock import SystemClock
from tenuto.experiments.display import LiveProgress, ProgressDisplay, signs_for, steers_terminal
from tenuto.experiments.overview import Overview
from tenuto.jobs.screen import Screen, ScreenLine, Size
from tenuto.light import late
from tenuto.settings import process_environment
from tenuto.workspace.machine import this_machine

IPython: Any = late("IPython")
IPython_display: Any = late("IPython.display")
NOTEBOOK_SIZE = Size(100, 20)


class _Shown:
    """What is on the terminal now."""

    display: ProgressDisplay | None = None


def script_display() -> ProgressDisplay | None:
    """The display of the open experiments, or a new one; None where no person would see it."""
    if _Shown.display is None or not _Shown.display.is_open:
        _Shown.display = _new_display()
    return _Shown.display


def _new_display() -> ProgressDisplay | None:
    overview = Overview(SystemClock(), this_machine().files)
    notebook = _notebook()
    if notebook is not None:
        return LiveProgress(overview, NotebookScreen(notebook), signs_for(sys.stderr))
    environ = process_environment()
    if not steers_terminal(sys.stderr, environ):
        return None
    return LiveProgress(overview, Screen(sys.stderr, color="NO_COLOR" not in environ), signs_for(sys.stderr))


def _notebook() -> Any:
    """The module that shows something below the cell that runs; None outside of a notebook."""
    if "ipykernel" not in sys.modules:
        return None
    return IPython_display if getattr(IPython.get_ipython(), "kernel", None) is not None else None


class NotebookScreen(Screen):
    """The lines below a cell, drawn again and again; what was drawn last stays there."""

    keeps_last = True

    def __init__(self, notebook: Any) -> None:
        super().__init__(sys.stderr, color=False, size=lambda _: NOTEBOOK_SIZE)
        self._notebook = notebook
        self._handle: Any = None

    def draw(self, lines: Sequence[ScreenLine]) -> None:
        """Replace the lines."""
        text = html.escape("\n".join(line.text for line in lines))
        shown = self._notebook.HTML(f"<pre>{text}</pre>")
        if self._handle is None:
            self._handle = self._notebook.display(shown, display_id=True)
        else:
            self._handle.update(shown)

    def clear(self) -> None:
        """Let the last lines stay; the next ones come below another cell."""
        self._handle = None
