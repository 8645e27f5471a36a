"""A server in the test's own process, without sockets: its application is called directly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tenuto.service.context import Offered
from tenuto.service.decisions import Quota
from tenuto.service.nodes import Node
from tenuto.service.server import Server, ServerPlan
from tenuto.settings.service import ServiceSettings
from tenuto.workspace.machine import this_machine
from tenuto.workspace.ports import Machine

T = TypeVar("T")


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def make_server(
    directory: Path,
    nodes: Mapping[str, Node] | None = None,
    database: str = "",
    machine: Machine | None = None,
    **settings: Any,
) -> Server:
    """A server that was not started: nothing moves by itself."""
    names = tuple(nodes or {"absent": None})
    services = {"example": Offered("example", Quota(5, 10), names)}
    made = ServiceSettings(data=directory / "data", **settings)
    url = database or str(directory / "db.sqlite")
    server = Server(ServerPlan(made, url, services, "0"), nodes or {}, machine or this_machine())
    MADE.append(server)
    return server


MADE: list[Server] = []
"""Servers that a fixture closes after each test."""


async def ask(
    app: Any,
    method: str,
    path: str,
    headers: Mapping[str, str] | None = None,
    body: bytes | Sequence[bytes] = b"",
    send: Callable[[dict[str, Any]], Awaitable[None]] | None = None,
) -> Reply:
    """Calls an application once; ``send`` sees each message of the answer first."""
    pieces = [body] if isinstance(body, bytes) else list(body)
    waiting = [
        {"type": "http.request", "body": piece, "more_body": n + 1 < len(pieces)}
        for n, piece in enumerate(pieces)
    ]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if waiting:
            return waiting.pop(0)
        await asyncio.sleep(3600)
        return {"type": "http.disconnect"}

    async def sending(message: dict[str, Any]) -> None:
        if send is not None:
            await send(message)
        sent.append(message)

    named = {"host": "localhost", **(headers or {})}
    where, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": where,
        "raw_path": where.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in named.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 5000),
    }
    await app(scope, receive, sending)
    start = sent[0]
    answered = {name.decode().lower(): value.decode() for name, value in start["headers"]}
    return Reply(start["status"], answered, b"".join(message.get("body", b"") for message in sent[1:]))


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(coroutine, 60))
