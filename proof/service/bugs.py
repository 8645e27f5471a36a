"""Owns the bugs that are planted in servers and nodes, and the case that must give each away.
Planted from outside, in the process that is to have the bug.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from proof.service.case import APART, EMBEDDED, Case
from tenuto.errors import NodeRefusal
from tenuto.scheduler.jobs import Job
from tenuto.service.data_paths import DataPaths
from tenuto.service.node import runner
from tenuto.service.node.packer import Place
from tenuto.service.node.payloads import PayloadRow
from tenuto.service.node.runner import PayloadRunner
from tenuto.service.nodes import mark_of
from tenuto.service.requests import Requests


class Bug(NamedTuple):
    """A mistake, and where it shows."""

    stands_for: str
    plant: Callable[[], None]
    layout: str
    first: str
    second: str

    def case(self, name: str) -> Case:
        return Case(self.layout, self.first, self.second, name)


def _without_once() -> None:
    def job(*arguments: Any, **named: Any) -> Job:
        return Job(*arguments, **{**named, "once": False})

    setattr(runner, "Job", job)  # noqa: B010


def _without_key() -> None:
    take = PayloadRunner.take

    async def taken(self: PayloadRunner, key: str, *more: Any) -> Any:
        return await take(self, f"{key}-{os.urandom(4).hex()}", *more)

    def mark(self: PayloadRow) -> str:
        return mark_of(self.key.rpartition("-")[0], self.service, self.user_id, self.job_id)

    setattr(PayloadRunner, "take", taken)  # noqa: B010
    setattr(PayloadRow, "mark", property(mark))  # noqa: B010  its server does not see it
    setattr(PayloadRow, "refuse_other", lambda self, mark: None)  # noqa: B010


def _without_resume() -> None:
    async def nothing(self: PayloadRunner) -> None:
        return None

    PayloadRunner.resume = nothing  # type: ignore[method-assign]


def _without_take_over() -> None:
    Requests.take_over = lambda self: []  # type: ignore[method-assign]


def _swept() -> None:
    Requests.states_of = lambda self, directories: {}  # type: ignore[method-assign]
    DataPaths.was_accepted = lambda self, name: False  # type: ignore[method-assign]


def _moved_strictly() -> None:
    moved = runner._moved

    def strict(directory: str, place: Place) -> None:
        if not os.path.isdir(directory):
            raise NodeRefusal("the files of the job are gone")
        moved(directory, place)

    runner._moved = strict


BUGS: dict[str, Bug] = {
    "run again": Bug("a restarted node runs a job again that has failed", _without_once, APART, "S5", "N4"),
    "no key": Bug("a node takes a job it has already as a new one", _without_key, APART, "S4", "N6"),
    "no resume": Bug("a restarted node forgets open payloads", _without_resume, EMBEDDED, "N3", "S8"),
    "no take-over": Bug(
        "a restarted server forgets what it had claimed", _without_take_over, EMBEDDED, "S3", "N6"
    ),
    "sweep": Bug("the sweep at the start takes directories of live jobs", _swept, APART, "S3", "N6"),
    "moved strictly": Bug(
        "files that were moved before a crash count as lost", _moved_strictly, EMBEDDED, "N1", "S8"
    ),
}
