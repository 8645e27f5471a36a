"""Services beside an experiment: started when they are added, stopped when it ends."""

from __future__ import annotations

from enum import Enum, unique


@unique
class ServiceState(Enum):
    """What a service is doing."""

    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"


class Service:
    """Something that runs beside the jobs of an experiment, such as a page that shows them.

    Override `start` and `stop`; both are called in the process of the experiment, once.
    """

    id = "service"

    def description(self) -> str:
        """What a person reads about it."""
        return type(self).__name__

    def start(self) -> None:
        """Begins; what it raises is raised by `add_service`."""

    def stop(self) -> None:
        """Ends; what it raises is reported, and the experiment ends all the same."""
