"""Who shows an experiment to a person: a seam for the command line.
A script that runs by itself has no reporter, and prints only what must be said.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

from tenuto.experiments.status import RunState
from tenuto.lifecycle.events import Event

if TYPE_CHECKING:
    from tenuto.experiments.experiment import experiment


class Reporter(Protocol):
    """Hears of every experiment that is opened while it is the current one."""

    def opened(self, xp: experiment) -> None:
        """An experiment was entered."""
        ...

    def hear(self, event: Event) -> None:
        """An event of an open experiment; called in a thread of the scheduler's."""
        ...

    def closed(self, xp: experiment, state: RunState) -> None:
        """An experiment was left; its jobs will not be told any more."""
        ...

    def planned(self, xp: experiment) -> None:
        """An experiment that runs nothing was left: `xp.plan` or `xp.jobs` says what it would have run."""
        ...


current_reporter: ContextVar[Reporter | None] = ContextVar("tenuto_reporter", default=None)
