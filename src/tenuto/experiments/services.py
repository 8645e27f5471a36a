"""Services beside an experiment: started when they are added, stopped when it ends.
Starts and stops a service, and does no work of it; `web_service` and `process_service` are two kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, unique
from pathlib import Path


@unique
class ServiceState(Enum):
    """What a service is doing."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


class Service:
    """Something that runs beside the jobs of an experiment, such as a page that shows them.

    Override `start` and `stop`; both are called in the process of the experiment, once.
    """

    id = "service"
    """Names it in events and logs; of several with one name in a run, the later ones get a number."""
    tells_when_running = False
    """True if it is not running yet when `start` returns, and calls `move` when it is."""
    log: Path | None = None
    """Where it may write what it has to say; known once it is added."""
    _state = ServiceState.STOPPED
    _message: str | None = None
    _listener: Callable[[Service], None] | None = None

    @property
    def state(self) -> ServiceState:
        """What it is doing."""
        return self._state

    @property
    def message(self) -> str | None:
        """Why it failed, if it did."""
        return self._message

    @property
    def url(self) -> str | None:
        """Where to look at it, if it is something to look at."""
        return None

    def description(self) -> str:
        """What a person reads about it."""
        return type(self).__name__

    def start(self) -> None:
        """Begins; what it raises is raised by `add_service`."""

    def stop(self) -> None:
        """Ends; what it raises is reported, and the experiment ends all the same."""

    def move(self, state: ServiceState, message: str | None = None) -> None:
        """Goes to another state, and says so to its run; from any thread."""
        self._state, self._message = state, message
        if self._listener is not None:
            self._listener(self)
