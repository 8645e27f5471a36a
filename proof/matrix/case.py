"""Owns what a case of the kill matrix is: who dies where, and what may follow from that.
Plays nothing; operations are named as `killing` names them.
"""

from __future__ import annotations

from typing import NamedTuple

DONE = "DONE"
FAILED = "ERROR FAILED exited with code 3"
CANCELLED = "ERROR CANCELLED no longer wanted"


class Case(NamedTuple):
    """Who dies where."""

    scheduler: str | None = None
    """The first scheduler, before this operation."""
    second: str | None = None
    """The second scheduler, before this operation."""
    runner: str | None = None
    """The first runner that gets there, before this operation."""
    payload: str | None = None
    """The first payload that gets there, before this operation of its own before it becomes the program."""
    victim: str | None = None
    """Whom the program kills: payload (itself), runner, the runner's parent if it is warm, or scheduler."""
    moment: str | None = None
    """When: start, middle or end of its work."""
    in_child: bool = False
    """The work is done by a child of the payload, which holds none of its descriptors."""
    together: bool = False
    """The second scheduler does not wait for the end of the first."""
    blow: str = "kill"
    """What befalls the first scheduler. kill: it dies at once. late: it stands still, alive, until the second
    one can get no further, and dies then. pause: the same, but it goes on in the end."""
    seen: bool = False
    """The work lasts until a scheduler after the first has seen it run, so that it has to be adopted."""
    launcher: str = "direct"
    """direct and warm: the work is a command. spawn: a Python task in an interpreter of its own. spare: the
    same, in one that was started before the job. cluster: a command, whose runner another system starts."""
    parent: str | None = None
    """The first warm parent, before this operation."""
    token: bool = False
    """The job needs both units of a token, and so does another one, which later schedulers submit too."""
    busy: bool = False
    """The token is in use when the first scheduler comes, so that it has to queue."""
    again: bool = False
    """The job had failed before, so that its directory is full of what the attempt before left."""

    end: str = DONE
    """How the job is to end, as a scheduler says it."""
    cancel: str | None = None
    """When each scheduler cancels the job: running, or pending, where its cluster starts nothing before all
    schedulers are gone."""
    fate: str | None = None
    """What the cluster does to a task. twice: starts it twice. lying: the same under one id, and says that it
    ended when the first of the two has. forgotten: starts it, and knows nothing of it from then on.
    unconfirmed: does not know whether anything of it is left when its runner was killed. deaf: does not hear
    that it is cancelled."""
    lasts_s: float | None = None
    """How long the work lasts, unless another begins."""
    orders: int = 1
    """How many jobs are submitted together; the runner of the first runs the others as further orders."""
    apart: bool = False
    """The locks that a runner of the cluster takes exclude nobody."""
    stands: bool = False
    """The runner is not killed: it stands still, its cluster says that its node is lost, and it goes on when
    the next attempt has begun; of a job that is cancelled, when the scheduler is gone; if the scheduler is
    struck as well, then."""

    def blows(self) -> int:
        struck = (self.scheduler, self.second, self.parent, self.runner, self.payload, self.victim)
        return sum(what is not None for what in struck)

    def repeats(self) -> int:
        """How often the work may have to be repeated."""
        killed = (
            self.runner is not None and not self.stands,
            self.payload is not None,
            self.victim in ("runner", "payload"),
        )
        return sum(killed) + self.again

    def may_fail(self) -> bool:
        """A payload that dies alone has failed, and is not tried again until it is submitted again."""
        return self.payload is not None or self.victim == "payload"

    def kills_of_schedulers(self) -> int:
        first = self.scheduler is not None and self.blow != "pause"
        return first + (self.second is not None) + (self.victim == "scheduler")

    def schedulers(self) -> int:
        """How many there are at least: one comes after all that are to be killed.

        After the end of a job that was cancelled, the next one would have it run again.
        """
        if self.stands and self.cancel is not None:
            return 1
        return 2 if self.second is None else 3
