"""Owns the kill points of a server (S1-S9) and a node (N1-N7): where each lies, and how a process dies there.
Wraps functions of the service from outside: no module of Tenuto knows of it.
"""

from __future__ import annotations

import _thread
import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from functools import partial, wraps
from typing import Any

from proof.matrix.killing import claim
from tenuto.lifecycle.service import ServiceState
from tenuto.scheduler.scheduler import Scheduler
from tenuto.service import http_node
from tenuto.service.data_paths import DataPaths
from tenuto.service.http_node import HttpNode
from tenuto.service.local_node import LocalNode
from tenuto.service.node import runner
from tenuto.service.node.payloads import Payloads
from tenuto.service.node.runner import PayloadRunner
from tenuto.service.periodic import Periodic
from tenuto.service.requests import Requests
from tenuto.workspace import trash

SERVER_POINTS = {
    "S1": "the files of an upload are synced",
    "S2": "the row is in",
    "S3": "the job is claimed",
    "S4": "the node has it",
    "S5": "the row is Submitted",
    "S6": "half a ZIP has arrived",
    "S7": "the result is renamed",
    "S8": "the row is final",
    "S9": "the end of the job is asked for",
}
NODE_POINTS = {
    "N1": "the files of a payload are moved",
    "N2": "its row is in",
    "N3": "its job is submitted",
    "N4": "the marker is written",
    "N5": "the result is packed",
    "N6": "the row is final",
    "N7": "the directory is in the trash",
}
CLEAN_EVERY_S = 0.2
Blow = Callable[[], None]


def blow_at(path: str) -> Blow:
    """What kills this process, once in a case: `path` is made by the first process that is struck."""

    def strike() -> None:
        if claim(path):
            # To this thread: sent to the process, it would go on until another thread took the signal.
            signal.pthread_kill(_thread.get_ident(), signal.SIGKILL)

    return strike


def arm(point: str, path: str) -> None:
    """Has this process die at a kill point."""
    _ARMED[point](blow_at(path))


def clean_when_told(flag: str) -> None:
    """Has a node remove ended payloads as soon as a file exists, however young they are."""
    old, init = Payloads.old, Periodic.__init__

    def old_when_told(self: Payloads, max_age_ms: int, *more: Any) -> Any:
        return old(self, -1000, *more) if os.path.exists(flag) else []

    @wraps(init)
    def often(self: Periodic, name: str, round: Any, every_s: float, *more: Any) -> None:
        init(self, name, round, CLEAN_EVERY_S if name == "node_cleaner" else every_s, *more)

    setattr(Payloads, "old", old_when_told)  # noqa: B010
    setattr(Periodic, "__init__", often)  # noqa: B010


def _always(result: Any, arguments: tuple[Any, ...]) -> bool:
    return True


def _after(
    owner: Any, name: str, strike: Blow, when: Callable[[Any, tuple[Any, ...]], bool] = _always
) -> None:
    """Strikes after a function has returned, if its result and arguments are the awaited ones."""
    function = getattr(owner, name)

    @wraps(function)
    def plain(*arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        if when(result, arguments):
            strike()
        return result

    @wraps(function)
    async def awaited(*arguments: Any, **named: Any) -> Any:
        result = await function(*arguments, **named)
        if when(result, arguments):
            strike()
        return result

    setattr(owner, name, awaited if asyncio.iscoroutinefunction(function) else plain)


def _moved_to(wanted: Callable[[ServiceState], bool], result: Any, arguments: tuple[Any, ...]) -> bool:
    return result is not None and wanted(arguments[2])


def _claimed(result: Any, arguments: tuple[Any, ...]) -> bool:
    return bool(result)


def _at_node(strike: Blow) -> None:
    for node in (LocalNode, HttpNode):
        _after(node, "submit", strike)


def _half_a_zip(strike: Blow) -> None:
    pieces, replace = http_node._pieces, os.replace

    async def halved(answer: Any) -> AsyncIterator[bytes]:
        async for piece in pieces(answer):
            yield piece[: len(piece) // 2]
            strike()
            yield piece[len(piece) // 2 :]

    def linked(source: str, target: str) -> None:
        if source.endswith(".part"):
            strike()
        replace(source, target)

    http_node._pieces = halved
    os.replace = linked  # type: ignore[assignment]


def _renamed(result: Any, arguments: tuple[Any, ...]) -> bool:
    return str(arguments[1]).endswith("/result.zip")


def _before_settling(strike: Blow) -> None:
    settle = PayloadRunner._settle

    async def struck(self: PayloadRunner, *arguments: Any) -> None:
        strike()
        await settle(self, *arguments)

    setattr(PayloadRunner, "_settle", struck)  # noqa: B010


_ARMED: dict[str, Callable[[Blow], None]] = {
    "S1": lambda strike: _after(DataPaths, "sync", strike),
    "S2": lambda strike: _after(Requests, "add", strike),
    "S3": lambda strike: _after(Requests, "claim", strike, _claimed),
    "S4": _at_node,
    "S5": lambda strike: _after(Requests, "move", strike, partial(_moved_to, ServiceState.SUBMITTED.__eq__)),
    "S6": _half_a_zip,
    "S7": lambda strike: _after(os, "replace", strike, _renamed),
    "S8": lambda strike: _after(Requests, "move", strike, partial(_moved_to, lambda state: state.is_final)),
    "S9": lambda strike: _after(Requests, "terminate", strike),
    "N1": lambda strike: _after(runner, "_moved", strike),
    "N2": lambda strike: _after(Payloads, "add", strike),
    "N3": lambda strike: _after(Scheduler, "submit_async", strike),
    "N4": _before_settling,
    "N5": lambda strike: _after(runner, "pack", strike),
    "N6": lambda strike: _after(Payloads, "end", strike),
    "N7": lambda strike: _after(trash, "discard", strike),
}
