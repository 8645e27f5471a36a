"""The routes: each is one call of the state provider.
The guard decides before which client may ask.
"""

from __future__ import annotations

import contextlib
import math
import mimetypes
import re
import sys
from array import array
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import Body, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response, StreamingResponse

from tenuto.errors import BadQuestion, NotAllowed, NotFound, TenutoError
from tenuto.jobs.source import ActedAs, Action
from tenuto.monitor import shapes
from tenuto.monitor.logs import MOST_BYTES
from tenuto.monitor.provider import MOST_ROWS, MOST_TARGETS, LocalProvider
from tenuto.monitor.web.answers import Json, refusal, refused_by
from tenuto.monitor.web.guard import SESSION, PageGuard
from tenuto.monitor.web.notes import LONGEST_NOTE, Notes
from tenuto.monitor.web.registrations import Address, Registration, new_code
from tenuto.monitor.web.sessions import LONGEST_S, Sessions
from tenuto.monitor.web.stream import Hub, parse_log
from tenuto.workspace.points import FEWEST_POINTS, MOST_POINTS

PAGE = Path(__file__).parent / "page"
_FILE = re.compile(r"(?:[a-z0-9_-]+/)*[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.(?:js|css|svg|png|ico|woff2)", re.ASCII)
DONE = frozenset(one.value for one in ActedAs if one.acts)
"""Outcomes by which something was done, or would be."""
mimetypes.add_type("text/javascript", ".js")

Text = Annotated[str, Query(max_length=10_000)]
MaybeText = Annotated[str | None, Query(max_length=10_000)]
Texts = Annotated[Sequence[str], Query(max_length=MOST_ROWS)]
Offset = Annotated[int, Query(ge=0, le=1_000_000_000)]


class LoginBody(BaseModel):
    """A code."""

    model_config = ConfigDict(extra="forbid")
    code: str = Field(max_length=1_000)


class _JobBody(BaseModel):
    """A job as a person saw it."""

    model_config = ConfigDict(extra="forbid", strict=True)
    key: str = Field(max_length=10_000)
    attempt: int = Field(ge=0, le=1_000_000_000)


class ActionBody(BaseModel):
    """What to do, and to which jobs or groups."""

    model_config = ConfigDict(extra="forbid", strict=True)
    action: Literal["kill", "retry", "clean", "pause", "resume"]
    jobs: list[_JobBody] = Field(default_factory=list, max_length=MOST_TARGETS)
    groups: list[Annotated[str, Field(max_length=10_000)]] = Field(
        default_factory=list, max_length=MOST_TARGETS
    )
    dry_run: bool = False


class NoteBody(BaseModel):
    """What a person writes beside a group."""

    model_config = ConfigDict(extra="forbid", strict=True)
    group: str = Field(min_length=1, max_length=1_000)
    note: str = Field(default="", max_length=LONGEST_NOTE)
    pinned: bool = False


class ServerBody(BaseModel):
    """The server to change to."""

    model_config = ConfigDict(extra="forbid", strict=True)
    port: int = Field(ge=1, le=65_535)


class Monitor:
    """The parts that the routes need."""

    def __init__(
        self,
        provider: LocalProvider,
        sessions: Sessions,
        *,
        cookie: str,
        by: str = "the monitor",
        other_servers: Callable[[], Sequence[Registration]] = tuple,
    ) -> None:
        self.provider = provider
        self.sessions = sessions
        self.cookie = cookie
        self.by = by
        """The person that actions are done for."""
        self.hub = Hub(provider)
        self.notes = Notes(provider.workspace)
        self.other_servers = other_servers
        """Finds the servers of the same user, which a person may change to."""


def guarded(monitor: Monitor, *, hosts: list[str], bearer: str) -> PageGuard:
    """The whole application: routes behind the guard."""
    return PageGuard(make_app(monitor), monitor.sessions, cookie=monitor.cookie, hosts=hosts, bearer=bearer)


def make_app(monitor: Monitor) -> FastAPI:
    """The routes of section 4, without the guard."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        monitor.hub.open()
        yield
        monitor.hub.close()

    app = FastAPI(
        title="tenuto ui",
        version=monitor.provider.version or "0",
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        default_response_class=Json,
        redirect_slashes=False,
    )
    _add_page(app)
    _add_session(app, monitor)
    _add_lists(app, monitor.provider)
    _add_job(app, monitor.provider)
    _add_views(app, monitor.provider)
    _add_panels(app, monitor.provider)
    _add_actions(app, monitor)
    _add_notes(app, monitor)
    _add_servers(app, monitor)
    _add_stream(app, monitor)
    _add_errors(app)
    return app


def _add_page(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    def page() -> Response:
        return _file("index.html", "text/html; charset=utf-8")

    @app.get("/static/{name:path}", include_in_schema=False)
    def static(name: str) -> Response:
        if _FILE.fullmatch(name) is None:
            raise NotFound(f"there is no file {name!r:.100}")
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return _file(name, f"{kind}; charset=utf-8" if kind.startswith("text/") else kind)

    @app.get("/healthz")
    def health() -> Response:
        return Json({"ok": True})


def _file(name: str, kind: str) -> Response:
    path = PAGE / name
    if not path.is_file():
        raise NotFound(f"there is no file {name!r:.100}")
    return FileResponse(path, media_type=kind, headers={"cache-control": "no-cache"})


def _add_session(app: FastAPI, monitor: Monitor) -> None:
    @app.post("/api/login")
    def login(body: LoginBody) -> Response:
        is_throttled = monitor.sessions.is_throttled
        found = monitor.sessions.login(body.code)
        if found is None and is_throttled:
            return refusal(429, "too_many", "too many wrong codes: wait a minute, or use a right one")
        if found is None:
            text = "this code was used, is too old, or is wrong: `tenuto ui --login` prints a new link"
            return refusal(401, "unauthenticated", text)
        answer = Json({"key": found.key})
        answer.set_cookie(
            monitor.cookie,
            found.cookie,
            max_age=int(LONGEST_S),
            path="/",
            httponly=True,
            samesite="strict",
        )
        return answer

    @app.post("/api/logout", status_code=204)
    def logout(request: Request) -> Response:
        monitor.sessions.logout(request.scope[SESSION])
        answer = Response(status_code=204)
        answer.delete_cookie(monitor.cookie, path="/", httponly=True, samesite="strict")
        return answer

    @app.post("/api/codes")
    def codes() -> Response:
        return Json({"code": monitor.sessions.new_code()})


def _add_lists(app: FastAPI, provider: LocalProvider) -> None:
    @app.get("/api/about")
    def about() -> Response:
        return Json(provider.about())

    @app.get("/api/overview")
    def overview() -> Response:
        return Json(provider.overview())

    @app.get("/api/groups")
    def groups(
        kind: MaybeText = None, offset: Offset = 0, limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 100
    ) -> Response:
        return Json(provider.groups(kind, offset, limit))

    @app.get("/api/jobs")
    def jobs(
        group: MaybeText = None,
        filter: Text = "",
        sort: Text = "",
        offset: Offset = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 100,
    ) -> Response:
        return Json(provider.jobs(group, filter, sort, offset, limit))


def _add_job(app: FastAPI, provider: LocalProvider) -> None:
    @app.get("/api/job")
    def job(key: Text) -> Response:
        return Json(provider.job(key))

    @app.get("/api/why")
    def why(key: Text) -> Response:
        return Json(provider.why(key))

    @app.get("/api/log")
    def log(
        key: Text,
        stream: Literal["out", "err"] = "out",
        earlier: Annotated[int, Query(ge=0, le=100_000)] = 0,
        tail: Annotated[int | None, Query(ge=0, le=MOST_BYTES)] = None,
        start: Annotated[int | None, Query(alias="from", ge=0, le=1 << 53)] = None,
        limit: Annotated[int | None, Query(ge=0, le=MOST_BYTES)] = None,
    ) -> Response:
        return Json(provider.log(key, stream, earlier, tail, start, limit))


def _add_views(app: FastAPI, provider: LocalProvider) -> None:
    @app.get("/api/graph")
    def graph(
        group: Text, around: MaybeText = None, depth: Annotated[int, Query(ge=0, le=1_000)] = 2
    ) -> Response:
        return Json(provider.graph(group, around, depth))

    @app.get("/api/timeline")
    def timeline(
        group: Annotated[list[str] | None, Query(max_length=100)] = None,
        start: Annotated[int | None, Query(alias="from", ge=0, le=253_000_000_000_000)] = None,
        end: Annotated[int | None, Query(alias="to", ge=0, le=253_000_000_000_000)] = None,
        width: Annotated[int, Query(ge=1, le=10_000)] = 400,
        by: Literal["slot", "task"] = "slot",
    ) -> Response:
        return Json(provider.timeline(group or (), start, end, width, by))

    @app.get("/api/history")
    def history(group: Text, points: Annotated[int, Query(ge=2, le=2_000)] = 100) -> Response:
        return Json(provider.history(group, points))

    @app.get("/api/results")
    def results(
        group: Text,
        task: MaybeText = None,
        offset: Offset = 0,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1_000,
        importance: MaybeText = None,
    ) -> Response:
        return Json(provider.results(group, task, offset, limit, importance))

    @app.get("/api/metrics")
    def metrics(
        key: Texts = (),
        group: MaybeText = None,
        filter: Text = "",
        name: Texts = (),
        points: Annotated[int, Query(ge=FEWEST_POINTS, le=MOST_POINTS)] = 1000,
        since: Annotated[float | None, Query(allow_inf_nan=False)] = None,
        limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 200,
        packed: Literal["steps", "times"] | None = None,
    ) -> Response:
        found = provider.metrics(key, group, filter, name, points, since, limit)
        if packed is not None:
            pack(found, with_times=packed == "times")
        return Json(found)


def _add_panels(app: FastAPI, provider: LocalProvider) -> None:
    def panel(path: str, ask: Callable[[], Any]) -> None:
        def answer() -> Response:
            return Json(ask())

        app.get(path, name=path.rpartition("/")[2])(answer)

    panel("/api/tokens", provider.tokens)
    panel("/api/queue", provider.queue)
    panel("/api/nodes", provider.nodes)
    panel("/api/cleanup", provider.cleanup)

    @app.get("/api/archive")
    def archive(group: Text) -> Response:
        return Json(provider.archive(group))

    @app.get("/api/carbon")
    def carbon(group: MaybeText = None) -> Response:
        return Json(provider.carbon(group))


def _add_actions(app: FastAPI, monitor: Monitor) -> None:
    @app.post("/api/actions")
    def actions(body: Annotated[ActionBody, Body()]) -> Response:
        is_of_groups = body.action in (Action.PAUSE.value, Action.RESUME.value)
        targets = [(job.key, job.attempt) for job in body.jobs]
        if is_of_groups:
            targets += [(group, 0) for group in body.groups]
        elif body.groups:
            raise BadQuestion(f"{body.action} is for jobs: name them in `jobs`")
        done = monitor.provider.act(body.action, targets, dry_run=body.dry_run, by=monitor.by)
        has_acted = any(one["outcome"] in DONE for one in done["outcomes"])
        if has_acted:
            return Json(done)
        text = "nothing was done: see the outcome of each job"
        return Json({"error": "conflict", "message": text, **done}, 409)


def _add_notes(app: FastAPI, monitor: Monitor) -> None:
    @app.get("/api/notes")
    def notes() -> Response:
        return Json({"notes": monitor.notes.read()})

    @app.post("/api/notes")
    def note(body: Annotated[NoteBody, Body()]) -> Response:
        if monitor.provider.read_only:
            raise NotAllowed("this server only shows: start `tenuto ui` without --read-only to write notes")
        if (body.note or body.pinned) and not monitor.provider.has_group(body.group):
            raise NotFound(f"there is no run, service or search {body.group!r:.200} to write a note on")
        return Json({"notes": monitor.notes.write(body.group, body.note, body.pinned)})


def _add_servers(app: FastAPI, monitor: Monitor) -> None:
    """Other workspaces whose pages this user serves; a new code of one of them logs the browser in there."""

    @app.get("/api/servers")
    def servers() -> Response:
        found = [{"workspace": one.workspace, "port": one.port} for one in monitor.other_servers()]
        return Json({"servers": found})

    @app.post("/api/servers")
    def change(body: Annotated[ServerBody, Body()]) -> Response:
        for one in monitor.other_servers():
            if one.port == body.port and (code := new_code(one)) is not None:
                return Json({"login": f"{Address(one.host, one.port).url}#code={code}"})
        raise NotFound(f"no server of yours answers on port {body.port}")


def _add_stream(app: FastAPI, monitor: Monitor) -> None:
    @app.get("/api/events")
    async def events(request: Request, log: MaybeText = None, metrics: Texts = ()) -> Response:
        log_request = parse_log(log) if log else None
        since = request.headers.get("last-event-id")
        cookie = request.scope[SESSION]
        frames = monitor.hub.frames(since, log_request, metrics, lambda: monitor.sessions.is_known(cookie))
        return StreamingResponse(frames, media_type="text/event-stream")


def _add_errors(app: FastAPI) -> None:
    async def refused(request: Request, error: Exception) -> Response:
        return refused_by(error)

    for kind in (TenutoError, OSError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, refused)


# -- curves as a plot wants them: columns of machine numbers, not of digits ------------------------------

_LEAST, _MOST = 1e-30, 1e30
_FINE = 1e-3
"""Of the largest value: where all lie closer together, a plot would show what 32 bits round."""


def pack(found: shapes.MetricsJson, *, with_times: bool) -> None:
    """Packs the points of all curves of an answer."""
    for curve in (curve for job in found["jobs"] for curve in job["curves"]):
        steps, times, values = curve["steps"], curve["times"], curve["values"]
        bits, even = _bits(values), _is_even(steps)
        curve["packed"] = {
            "steps": [steps[0], steps[1] - steps[0]] if even else steps,
            "even": even,
            "values": _text("f" if bits == 32 else "d", values),
            "bits": bits,
            "times": _text("d", times) if with_times else None,
            "newest": max((time for time in times if time is not None), default=None),
        }
        curve["steps"], curve["times"], curve["values"] = [], [], []


def _is_even(steps: Sequence[int]) -> bool:
    apart = steps[1] - steps[0] if len(steps) > 2 else 0
    return apart > 0 and steps == list(range(steps[0], steps[0] + apart * len(steps), apart))


def _bits(values: Sequence[float | None]) -> int:
    sizes = [abs(one) for one in values if one]
    if not sizes or not _LEAST < min(sizes) <= max(sizes) < _MOST:
        return 64
    known = [one for one in values if one is not None]
    return 32 if max(known) - min(known) > _FINE * max(sizes) else 64


def _text(kind: str, numbers: Iterable[float | None]) -> str:
    column = array(kind, [math.nan if one is None else one for one in numbers])
    if sys.byteorder == "big":
        column.byteswap()
    return b64encode(column.tobytes()).decode()
