"""The guard before the routes: Host, Origin, login, bodies; and the headers of every answer.
Plain ASGI, because a middleware that wraps answers would break the stream.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from typing import Any

from starlette.responses import Response

from tenuto.monitor.web.answers import refusal
from tenuto.monitor.web.sessions import Sessions
from tenuto.web import host_names, is_served

MOST_BYTES = 1 << 20
BODY_S = 30.0
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
HEADERS = (
    (b"content-security-policy", CSP.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
OPEN = frozenset({"/", "/healthz", "/api/login"})
CODES = "/api/codes"
SESSION = "tenuto.session"
"""Where the scope of a request names its session, by its cookie."""

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class PageGuard:
    """Lets through to an application only allowed requests."""

    def __init__(
        self, app: App, sessions: Sessions, *, cookie: str, hosts: Collection[str], bearer: str
    ) -> None:
        """`hosts`: the names by which the server may be called, besides loopback's names.

        `bearer`: the secret of the registration file, which may ask for codes.
        """
        self._app = app
        self._sessions = sessions
        self._cookie = cookie
        self._hosts = host_names(hosts)
        self._bearer = bearer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        send = _with_headers(scope["path"], send)
        refused = self._refused(scope)
        if refused is None and scope["method"] not in ("GET", "HEAD", "OPTIONS"):
            refused, receive = await _with_body(scope, receive)
        if refused is not None:
            await refused(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refused(self, scope: Scope) -> Response | None:
        """The answer to a request that may not pass; None if it may."""
        path = scope["path"]
        hosts = _values(scope, b"host")
        if not is_served(hosts, self._hosts):
            return refusal(400, "bad_host", "this server is called by another name: see --allow-host")
        origins = _values(scope, b"origin")
        if origins and origins != [f"{scope.get('scheme', 'http')}://{hosts[0]}"]:
            return refusal(403, "forbidden", "a page of another server may not ask this one")
        sites = _values(scope, b"sec-fetch-site")
        if path != "/" and any(site.lower() in ("cross-site", "same-site") for site in sites):
            return refusal(403, "forbidden", "a page of another server may not ask this one")
        if path in OPEN or path.startswith("/static/"):
            return None
        if path == CODES:
            given = (_values(scope, b"authorization") or [""])[0].encode("utf-8", "surrogatepass")
            if secrets.compare_digest(given, f"Bearer {self._bearer}".encode()):
                return None
            return refusal(401, "unauthenticated", "ask with `tenuto ui --login`")
        cookie, keys = _cookie(scope, self._cookie), _values(scope, b"x-tenuto-key")
        if cookie is None or len(keys) != 1 or not self._sessions.is_open(cookie, keys[0]):
            return refusal(401, "unauthenticated", "log in: `tenuto ui --login` prints a new link")
        scope[SESSION] = cookie
        return None


def _values(scope: Scope, name: bytes) -> list[str]:
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return [value.decode("latin-1") for key, value in headers if key.lower() == name]


def _cookie(scope: Scope, name: str) -> str | None:
    """The value of a cookie; browsers send those of other ports of this machine too."""
    for part in ";".join(_values(scope, b"cookie")).split(";"):
        key, _, value = part.strip().partition("=")
        if key == name:
            return value
    return None


def _with_headers(path: str, send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            added = [*HEADERS, *([(b"cache-control", b"no-store")] if path.startswith("/api") else [])]
            names = {name for name, _ in added}
            kept = [(name, value) for name, value in message.get("headers", ()) if name.lower() not in names]
            message = {**message, "headers": [*kept, *added]}
        await send(message)

    return sending


async def _with_body(scope: Scope, receive: Receive) -> tuple[Response | None, Receive]:
    """The whole body, read before the application is asked: it is small, or refused."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    break
                body += message.get("body", b"")
                if len(body) > MOST_BYTES:
                    return refusal(413, "too_large", f"a body has at most {MOST_BYTES} bytes"), receive
                if not message.get("more_body"):
                    break
    except TimeoutError:
        return refusal(400, "bad_request", f"the body did not arrive within {BODY_S:g} s"), receive
    kinds = [kind.partition(";")[0].strip().lower() for kind in _values(scope, b"content-type")]
    if body and kinds != ["application/json"]:
        return refusal(
            415, "unsupported_type", "a body is JSON: send Content-Type: application/json"
        ), receive
    is_given = False

    async def replay() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": bytes(body), "more_body": False}

    return None, replay
