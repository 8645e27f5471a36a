"""The names of owners: the door of an owner, and its name there.
Holds no owner: what an owner does is in `scheduler.owners`.
"""

from enum import Enum, unique

from tenuto.errors import InvalidName
from tenuto.light import NamedTuple


@unique
class Door(Enum):
    """The three ways in; the value is the first part of an owner's name."""

    EXPERIMENTS = "experiments"
    SERVICE = "service"
    SEARCH = "search"

    @property
    def kind(self) -> str:
        """What a job of the door is called: experiment, service or search."""
        return "experiment" if self is Door.EXPERIMENTS else str(self.value)


class OwnerName(NamedTuple):
    """An owner in parts; as text ``experiments/NAME/RUN``, ``service/NODE`` or ``search/NAME``."""

    door: Door
    name: str
    """Of the experiment, the node or the search; it may contain slashes."""
    run: str = ""
    """Of an experiment only."""

    def __str__(self) -> str:
        return f"{self.door.value}/{self.name}/{self.run}" if self.run else f"{self.door.value}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> "OwnerName":
        """The parts of an owner's name; `InvalidName` if it is none."""
        word, _, name = text.partition("/")
        try:
            door = Door(word)
        except ValueError:
            doors = ", ".join(f"{door.value}/" for door in Door)
            raise InvalidName(f"{text!r:.100} names no owner: it must begin with one of {doors}") from None
        run = ""
        if door is Door.EXPERIMENTS:
            name, _, run = name.rpartition("/")
            if not run:
                raise InvalidName(f"{text!r:.100} names no run: write experiments/NAME/RUN")
        if not name:
            raise InvalidName(f"{text!r:.100} names no owner: a name must follow {door.value}/")
        return cls(door, name, run)


def run_owner(experiment_id: str, run_id: str) -> str:
    """The owner's name of a run."""
    return str(OwnerName(Door.EXPERIMENTS, experiment_id, run_id))
