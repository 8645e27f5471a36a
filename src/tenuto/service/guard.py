"""What every request passes first: its Host and Origin, no token in its URL; and what every answer carries.
Plain ASGI, so that streams pass untouched; what a principal may do is in `access`.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tenuto.clock import Randomness
from tenuto.errors import InvalidSetting
from tenuto.service.contract import ErrorCode, error_json
from tenuto.service.log import log, logger
from tenuto.web import host_names, is_served

SECRET_PARAMETERS = frozenset({"token", "access_token", "auth", "authorization", "api_key", "apikey", "key"})
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
NO_STORE = (b"cache-control", b"no-store")
REQUEST_ID = "tenuto.request_id"
"""Where a request's id is found in its scope."""
AT_END = "tenuto.at_end"
"""Where a request keeps the calls for after the answer."""
OWN_HEAD = "/download/"
"""Begins the only path that has a HEAD of its own, which does not wait for the job."""
_PREFIX = re.compile(r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._~-]+)+")
INTERNAL = "Something went wrong here; the log has it under {}"


class Complaint(NamedTuple):
    """Why a request goes no further."""

    code: ErrorCode
    message: str


def complaint(
    method: str, query: bytes, headers: Iterable[tuple[bytes, bytes]], allowed: frozenset[str]
) -> Complaint | None:
    """Why a request is refused for every sender; None if it may pass."""
    found: dict[bytes, list[str]] = {}
    for name, value in headers:
        found.setdefault(name, []).append(value.decode("latin-1"))
    hosts = found.get(b"host", [])
    if not is_served(hosts, allowed):
        return Complaint(
            ErrorCode.BAD_HOST,
            "This Host is not served here; the server's setting service.hosts names those that are",
        )
    if b"content-length" in found and b"transfer-encoding" in found:
        # A proxy in front may believe the one and we the other: a body there is a request here.
        return Complaint(ErrorCode.BAD_REQUEST, "The length of the body is given twice")
    if any(name.lower() in SECRET_PARAMETERS for name, _ in parse_qsl(query.decode("latin-1"), True)):
        return Complaint(
            ErrorCode.TOKEN_IN_URL,
            "A token does not belong into a URL, where logs keep it: send it as Authorization: Bearer",
        )
    if method not in SAFE_METHODS and _is_foreign(found, hosts[0]):
        return Complaint(ErrorCode.BAD_ORIGIN, "A page of another site may not do this")
    return None


def _is_foreign(headers: dict[bytes, list[str]], host: str) -> bool:
    if any(site.lower() == "cross-site" for site in headers.get(b"sec-fetch-site", [])):
        return True
    # Compared as text: an Origin that is no URL is a foreign one, too.
    return any(origin.partition("://")[2].lower() != host.lower() for origin in headers.get(b"origin", []))


IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class Proxies:
    """The proxies in front of a server: the path that they show it at, and which of them are believed."""

    def __init__(self, prefix: str | None = None, trusted: Iterable[str] = ()) -> None:
        """`InvalidSetting` for a prefix that is no path, and for a text that is no address or network."""
        self.prefix = (prefix or "").rstrip("/")
        if self.prefix and not _PREFIX.fullmatch(self.prefix):
            raise InvalidSetting(f"service.prefix: {prefix!r} is no path such as /tenuto")
        try:
            self._trusted = [ipaddress.ip_network(one, strict=False) for one in trusted]
        except ValueError as error:
            raise InvalidSetting(
                f"service.trusted_proxies: {error}; give addresses or networks, such as 127.0.0.1"
            ) from None

    def seen_through(self, scope: Scope) -> Scope:
        """A request as its sender made it, below the prefix or above it; others' words are not believed."""
        path = scope["path"]
        if self.prefix and (path == self.prefix or path.startswith(f"{self.prefix}/")):
            path = path[len(self.prefix) :]
        if self.prefix:
            scope = {**scope, "root_path": self.prefix, "path": f"{self.prefix}{path}"}
        client = scope.get("client")
        sender = None if client is None else _address(client[0])
        if sender is None or not self._is_trusted(sender):
            return scope
        said: dict[bytes, list[str]] = {}
        for name, value in scope["headers"]:
            if name.startswith(b"x-forwarded-"):
                said.setdefault(name, []).extend(value.decode("latin-1").split(","))
        for word in reversed(said.get(b"x-forwarded-for", [])):  # the nearest proxy wrote the last one
            address = _address(word.strip())
            if address is None or not self._is_trusted(sender):
                break
            sender = address
        scheme = said.get(b"x-forwarded-proto", [""])[-1].strip().lower()
        headers = scope["headers"]
        if host := said.get(b"x-forwarded-host", [""])[-1].strip():
            headers = [(name, value) for name, value in headers if name != b"host"]
            headers.append((b"host", host.encode("latin-1")))
        scheme = scheme if scheme in ("http", "https") else scope.get("scheme", "http")
        return {**scope, "client": (str(sender), 0), "scheme": scheme, "headers": headers}

    def _is_trusted(self, address: IpAddress) -> bool:
        return any(address in network for network in self._trusted)


def _address(text: str) -> IpAddress | None:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


class Guard:
    """The outermost layer of a server or node."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Iterable[str],
        randomness: Randomness,
        observe: Callable[[Scope, int, float], None] | None = None,
        monotonic: Callable[[], float],
        proxies: Proxies | None = None,
    ) -> None:
        self._app = app
        self._hosts = host_names(hosts)
        self._randomness = randomness
        self._observe = observe
        self._monotonic = monotonic
        self._proxies = proxies or Proxies()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        request_id = self._randomness.nonce()[:16]
        began = self._monotonic()
        scope, prefix = self._proxies.seen_through(scope), self._proxies.prefix
        is_head = scope["method"] == "HEAD" and not scope["path"].startswith(prefix + OWN_HEAD)
        answer = _Answer(send, request_id, is_head=is_head)
        at_end: list[Callable[[], None]]
        if is_head:  # the answer to a GET, without its body
            scope = {**scope, "method": "GET"}
        scope[REQUEST_ID] = request_id
        scope[AT_END] = at_end = []
        try:
            found = complaint(scope["method"], scope["query_string"], scope["headers"], self._hosts)
            if found is not None:
                await answer.error(found.code, found.message)
            elif prefix and scope["path"] == prefix:  # links of a page are read from where it lies
                await answer.redirect(f"{prefix}/")
            else:
                await self._app(scope, receive, answer.send)
        except (ClientDisconnect, _HeadersSent):
            if not is_head:
                log("client_gone", request=request_id, path=scope["path"])
        except Exception:
            fields = {"stage": "http", "request": request_id}
            logger.exception("a request failed", extra={"action": "stage_failed", "fields": fields})
            if answer.status is None:
                await answer.error(ErrorCode.INTERNAL, INTERNAL.format(request_id))
            elif not answer.is_complete:
                raise  # the answer has begun: the connection must break, so that the client can see it
        finally:
            for call in at_end:
                call()
            if self._observe is not None and answer.status is not None:
                self._observe(scope, answer.status, self._monotonic() - began)


class _HeadersSent(OSError):
    """The answer to a HEAD is complete; as if the client had gone away."""


class _Answer:
    """The answer: adds the headers that everything carries, and remembers the status."""

    def __init__(self, send: Send, request_id: str, *, is_head: bool = False) -> None:
        self._send = send
        self._is_head = is_head
        self._request_id = request_id.encode()
        self.status: int | None = None
        self.is_complete = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers: list[Any] = [*message.get("headers", ()), *SECURITY_HEADERS]
            if not any(name.lower() == b"cache-control" for name, _ in headers):
                headers.append(NO_STORE)
            headers.append((b"x-request-id", self._request_id))
            message = {**message, "headers": headers}
            if self._is_head:
                await self._send(message)
                self.is_complete = True
                message = {"type": "http.response.body", "body": b""}
        elif self._is_head:
            raise _HeadersSent  # nothing more is made: a stream would last for ever
        elif message["type"] == "http.response.body":
            self.is_complete = not message.get("more_body", False)
        await self._send(message)

    async def redirect(self, to: str) -> None:
        await self._whole(308, [(b"location", to.encode())], b"")

    async def error(self, code: ErrorCode, message: str) -> None:
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        await self._whole(code.http_status, headers, json.dumps(error_json(code, message)).encode())

    async def _whole(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        headers.append((b"content-length", str(len(body)).encode()))
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        if not self._is_head:
            await self.send({"type": "http.response.body", "body": body})
