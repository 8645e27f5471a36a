"""What routes share: the sender of a request, the documented errors, and how a refusal becomes a response.
Holds no route.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any, NamedTuple

from fastapi import Depends, Path, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from tenuto.errors import DatabaseError, NodeError, NotOurs, RequestRefused
from tenuto.lifecycle.service import ServiceState
from tenuto.service.access import EVERYBODY, Principal, Tokens, bearer
from tenuto.service.access import Scope as TokenScope
from tenuto.service.context import ServerContext
from tenuto.service.contract import ErrorBody, ErrorCode, JobBody, StatusBody, error_json
from tenuto.service.guard import AT_END, INTERNAL, REQUEST_ID
from tenuto.service.log import log
from tenuto.service.operations import Operations
from tenuto.service.rows import JobRow, instant
from tenuto.service.uploads import refused

# How often one user or address may ask: buckets of permits, refilled with time.
# Counts in this process only; `now` is given, and nothing sleeps.


MOST_KNOWN = 10_000


class _Bucket(NamedTuple):
    permits: float
    at: float


class RateLimits:
    """A bucket for each key: ``burst`` at most, refilled by ``per_s``."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._per_s = per_s
        self._burst = float(burst)
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def wait_s(self, key: str, now: float) -> float:
        """Takes a permit: 0 if there was one, else how long until there is one."""
        permits, at = self._buckets.pop(key, _Bucket(self._burst, now))
        permits = min(self._burst, permits + (now - at) * self._per_s)
        allowed = permits >= 1.0
        self._buckets[key] = _Bucket(permits - 1.0 if allowed else permits, now)
        while len(self._buckets) > MOST_KNOWN:  # the one unused for longest is full again, or nearly so
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1.0 - permits) / self._per_s


class Strikes:
    """Counts mistakes by key, such as wrong tokens by address, and refuses to look at too many."""

    def __init__(self, most: int = 10, within_s: float = 60.0) -> None:
        self._most = most
        self._within_s = within_s
        self._strikes: OrderedDict[str, deque[float]] = OrderedDict()

    def wait_s(self, key: str, now: float) -> float:
        """Counts one more: 0 while there were few, else how long until another is looked at."""
        known = self._strikes.pop(key, deque())
        while known and now - known[0] >= self._within_s:
            known.popleft()
        self._strikes[key] = known
        while len(self._strikes) > MOST_KNOWN:
            self._strikes.popitem(last=False)
        if len(known) >= self._most:
            return self._within_s - (now - known[0])
        known.append(now)
        return 0.0


READ_ON_S = 2.0
READ_ON_BYTES = 16 << 20
LARGEST_ID = 2**63 - 1


class Front:
    """What a route finds of its server, under `app.state.front`."""

    def __init__(self, parts: ServerContext, operations: Operations, tokens: Tokens | None) -> None:
        """`tokens`: None where every client is believed."""
        self.parts = parts
        self.operations = operations
        self.tokens = tokens
        self.rates = RateLimits(parts.settings.rate_per_s, parts.settings.burst)
        self.strikes = Strikes()
        self._under_way: Counter[str] = Counter()
        """Requests that are not answered yet, by user."""

    async def principal(self, request: Request) -> Principal:
        """The principal that sent a request; raises `RequestRefused` for a token that is missing or wrong."""
        address = request.client.host if request.client else ""
        if self.tokens is None:
            return EVERYBODY._replace(address=address)
        token = bearer(request.headers.get("authorization"))
        found = None if token is None else await self.parts.sql(self.tokens.principal, token)
        now = self.parts.clock.monotonic()
        if found is None:
            log("token_refused", 30, address=address)
            self.parts.metrics.refused_token()
            wait_s = self.strikes.wait_s(address, now) if token is not None else 0.0
            if wait_s:
                raise refused(
                    ErrorCode.RATE_LIMITED,
                    "Too many wrong tokens; try again later",
                    retry_after_s=wait_s,
                )
            raise refused(ErrorCode.UNAUTHORIZED, "A valid token is needed: Authorization: Bearer tnt_...")
        wait_s = self.rates.wait_s(found.user or "", now)
        if wait_s:
            raise refused(ErrorCode.RATE_LIMITED, "Too many requests; try again later", retry_after_s=wait_s)
        self._begin(found, request)
        return found._replace(address=address)

    def _begin(self, principal: Principal, request: Request) -> None:
        """Counts a request of a user until it is answered; refuses one more than there may be at once.

        A token that acts for all users has no limit but its own.
        """
        user = principal.user or ""
        shared = None if principal.acts_for_all else self.parts.limits.connections
        most = principal.limits.connections or shared
        if most is None:
            return
        if self._under_way[user] >= most:
            raise refused(
                ErrorCode.RATE_LIMITED,
                f"User {user} has {most} requests under way, as many as may be at once",
                retry_after_s=1.0,
            )
        self._under_way[user] += 1
        request.scope[AT_END].append(partial(self._end, user))

    def _end(self, user: str) -> None:
        self._under_way[user] -= 1
        if not self._under_way[user]:
            del self._under_way[user]


async def front_of(request: Request) -> Front:
    # Not a plain function: FastAPI calls those in a thread, for every request.
    front: Front = request.app.state.front
    return front


FrontOf = Annotated[Front, Depends(front_of)]


def allow(scope: TokenScope) -> Callable[..., Any]:
    """The dependency of a route that needs a scope; its result is the principal."""

    async def principal(request: Request) -> Principal:
        front: Front = request.app.state.front  # a dependency of a dependency costs as much as its route
        found = await front.principal(request)
        if not found.may(scope):
            raise refused(ErrorCode.FORBIDDEN, f"The token lacks the scope {scope.value}")
        return found

    principal.scope = scope  # type: ignore[attr-defined]  # a test looks for it on every route
    return principal


MaySubmit = Annotated[Principal, Depends(allow(TokenScope.SUBMIT))]
MayRead = Annotated[Principal, Depends(allow(TokenScope.READ))]
MayMeasure = Annotated[Principal, Depends(allow(TokenScope.METRICS))]
MayAdminister = Annotated[Principal, Depends(allow(TokenScope.ADMIN))]
JobId = Annotated[
    int, Path(description="The id that the upload was answered with.", le=LARGEST_ID, ge=-LARGEST_ID)
]


def errors(*codes: ErrorCode) -> dict[int | str, dict[str, Any]]:
    """The documentation of a route's errors, by HTTP status."""
    always = (
        ErrorCode.BAD_HOST,
        ErrorCode.TOKEN_IN_URL,
        ErrorCode.UNAUTHORIZED,
        ErrorCode.FORBIDDEN,
        ErrorCode.RATE_LIMITED,
        ErrorCode.DATABASE_UNAVAILABLE,
        ErrorCode.INTERNAL,
        ErrorCode.TOO_SLOW,
        ErrorCode.METHOD_NOT_ALLOWED,
    )
    by_status: dict[int, list[str]] = {}
    for code in dict.fromkeys((*codes, *always)):
        by_status.setdefault(code.http_status, []).append(f"`{code.value}`")
    return {
        status: {"model": ErrorBody, "description": ", ".join(names)}
        for status, names in sorted(by_status.items())
    }


OF_JOB = (ErrorCode.BAD_ID, ErrorCode.BAD_PARAMETER, ErrorCode.NOT_FOUND)
_LACKING = (ErrorCode.NOT_STARTED, ErrorCode.CLEANED, ErrorCode.NOT_OURS, ErrorCode.NODE_UNAVAILABLE)
OF_FILES = (*OF_JOB, *_LACKING)


# Answers


def job_body(row: JobRow, message: str) -> JobBody:
    told = {name: getattr(row, name) for name in JobBody.model_fields if name in _AS_THEY_ARE}
    instants = {name: instant(getattr(row, name)) for name in ("created_at", "started_at", "ended_at")}
    return JobBody.model_validate({**told, **instants, "status": row.state, "message": message})


_AS_THEY_ARE = frozenset(JobRow._fields) - {"message", "callback"}


def status_json(row: JobRow, message: str, code: int, headers: dict[str, str] | None = None) -> JSONResponse:
    body = StatusBody(id=row.id, status=row.state, message=message)
    return JSONResponse(body.model_dump(mode="json"), code, headers)


def error_response(error: RequestRefused) -> JSONResponse:
    """The response of a refusal."""
    code = ErrorCode(error.code)
    status = ServiceState(error.status) if error.status else ServiceState.UNKNOWN
    headers = {}
    if error.retry_after_s is not None:
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after_s)))
    elif code.http_status in (503, 507):
        headers["retry-after"] = "5"
    if code is ErrorCode.UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse(error_json(code, str(error), error.job_id, status), code.http_status, headers)


def no(code: ErrorCode, message: str, row: JobRow) -> RequestRefused:
    """The refusal of something that a job does not have."""
    return refused(code, message, job_id=row.id, status=row.state.value)


def cleaned(row: JobRow) -> RequestRefused:
    return no(ErrorCode.CLEANED, "The files of the job were removed after their time", row)


def node_trouble(error: NodeError, row: JobRow) -> RequestRefused:
    """The refusal of what the node of a job does not give."""
    if isinstance(error, NotOurs):
        return no(ErrorCode.NOT_OURS, str(error), row)
    return no(ErrorCode.NODE_UNAVAILABLE, f"The node of the job does not answer: {error}", row)


def not_started(row: JobRow) -> RequestRefused:
    return no(ErrorCode.NOT_STARTED, "The job has not started yet", row)


class ClosingResponse(StreamingResponse):
    """A stream that is closed with its answer, also if the client goes away in the middle of it."""

    def __init__(self, pieces: AsyncGenerator[Any], **more: Any) -> None:
        super().__init__(pieces, **more)
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._pieces):
            await super().__call__(scope, receive, send)


class EarlyResponse(JSONResponse):
    """The refusal of an upload whose body is still on its way: read on for a while, so that it is seen.

    A client that is still writing when the connection is closed gets a reset, and never reads the answer.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.headers["connection"] = "close"
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        left = READ_ON_BYTES
        try:
            async with asyncio.timeout(READ_ON_S):
                while left > 0:
                    message = await receive()
                    if message["type"] == "http.disconnect" or not message.get("more_body"):
                        break
                    left -= len(message.get("body", b""))
        except TimeoutError:
            pass
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def early(error: RequestRefused) -> EarlyResponse:
    plain = error_response(error)
    response = EarlyResponse(None, plain.status_code)
    response.body = plain.body
    response.raw_headers = plain.raw_headers
    return response


# Handlers of exceptions


async def on_refusal(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestRefused)
    return error_response(error)


async def on_database(request: Request, error: Exception) -> JSONResponse:
    log("stage_failed", 40, stage="http", why=str(error))
    return error_response(
        refused(ErrorCode.DATABASE_UNAVAILABLE, "The database of the server does not answer")
    )


async def on_validation(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where, name = (*first["loc"], "")[:2]
    if where == "path":
        return error_response(refused(ErrorCode.BAD_ID, "The id of a job is a number"))
    return error_response(refused(ErrorCode.BAD_PARAMETER, f"Invalid {name}: {first['msg']}"))


async def on_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    code, message = {
        404: (ErrorCode.NOT_FOUND, "There is no such path here; /swagger shows all there are"),
        405: (ErrorCode.METHOD_NOT_ALLOWED, f"Not by {request.method}; /swagger shows how a path is called"),
    }.get(error.status_code, (ErrorCode.BAD_REQUEST, str(error.detail)))
    response = JSONResponse(error_json(code, message), error.status_code)
    for name, value in (error.headers or {}).items():
        response.headers[name] = value
    return response


async def on_anything(request: Request, error: Exception) -> JSONResponse:
    """Something unforeseen: the guard logs it, and the client learns under which id."""
    return JSONResponse(error_json(ErrorCode.INTERNAL, INTERNAL.format(request.scope[REQUEST_ID])), 500)


HANDLERS: dict[Any, Any] = {
    Exception: on_anything,
    RequestRefused: on_refusal,
    DatabaseError: on_database,
    RequestValidationError: on_validation,
    HTTPException: on_http,
}
