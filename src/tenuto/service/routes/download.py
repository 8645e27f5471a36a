"""`GET /download/{id}`, for scripts of two generations, `GET /download_partial/{id}`, and files one by one.
The codes are a table; which column counts is the setting `service.compat`.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from email.utils import formatdate
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response
from starlette.responses import FileResponse, MalformedRangeHeader
from starlette.types import Receive, Scope, Send

from tenuto.errors import NodeError
from tenuto.lifecycle.service import ServiceState
from tenuto.service.access import Principal
from tenuto.service.archive import ArchivedFile, listed_files, open_file
from tenuto.service.contract import ErrorCode, FileBody, FilesBody, StatusBody
from tenuto.service.routes.common import (
    OF_FILES,
    OF_JOB,
    ClosingResponse,
    Front,
    FrontOf,
    JobId,
    MayRead,
    cleaned,
    errors,
    no,
    node_trouble,
    not_started,
    status_json,
)
from tenuto.service.rows import JobRow

# A result on its way out: opened before the first byte, so that the cleaner cannot take it away.
# Decides nothing about which user may have it.


class ResultResponse(FileResponse):
    """A ZIP by its descriptor, with ranges; the descriptor is closed whatever happens."""

    def __init__(self, descriptor: int, row: JobRow) -> None:
        self._descriptor = descriptor
        digest = row.result_sha256 or ""
        status = os.fstat(descriptor)
        headers = {
            "etag": f'"{digest}"',
            "repr-digest": f"sha-256=:{base64.b64encode(bytes.fromhex(digest)).decode()}:",
            "last-modified": formatdate(status.st_mtime, usegmt=True),
            "cache-control": "private, no-cache",
            "content-security-policy": "sandbox",
        }
        super().__init__(
            f"/proc/self/fd/{descriptor}",
            headers=headers,
            media_type="application/zip",
            filename=f"results-{row.id}.zip",
            stat_result=status,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            os.close(self._descriptor)

    @classmethod
    def _parse_range_header(cls, http_range: str, file_size: int) -> list[tuple[int, int]]:
        """The ranges that are asked for; another text, or another unit, counts as absent."""
        try:
            return super()._parse_range_header(http_range, file_size)
        except MalformedRangeHeader:
            return []


def open_result(path: str) -> int | None:
    """A descriptor of a result; None if it is gone."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


router = APIRouter()

_S = ServiceState
_UNDER_WAY = (_S.QUEUED, _S.PROCESSING, _S.SUBMITTED, _S.RUNNING)
CODES: dict[str, dict[ServiceState, int]] = {
    "hybrid": {
        **dict.fromkeys(_UNDER_WAY, 202),
        _S.FAILED: 410,
        _S.KILLED: 410,
        _S.INVALID: 400,
        _S.UNKNOWN: 503,
        _S.CLEANED: 410,
    },
    "v1": {
        **dict.fromkeys(_UNDER_WAY, 202),
        _S.FAILED: 410,
        _S.KILLED: 410,
        _S.INVALID: 400,
        _S.UNKNOWN: 500,
        _S.CLEANED: 204,
    },
    "v2": {state: 200 for state in ServiceState if state is not _S.COMPLETED},
}
"""compat -> state -> HTTP status, of a job without a result to give."""

Wait = Annotated[float, Query(ge=0, le=60, description="Hold the answer until the job is final, in seconds.")]
_ZIP: dict[str, Any] = {"application/zip": {"schema": {"type": "string", "format": "binary"}}}
_BYTES: dict[str, Any] = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
PIECE = 1 << 18
_RESPONSES: dict[int | str, dict[str, Any]] = {
    **errors(*OF_JOB),
    200: {
        "description": "The result, or with `compat = v2` the status",
        "content": _ZIP,
        "model": StatusBody,
    },
    202: {"description": "Not ended yet", "model": StatusBody},
    204: {"description": "Cleaned (`compat = v1`)"},
    206: {"description": "A part of the result", "content": _ZIP},
    304: {"description": "The result is the one that If-None-Match names"},
    410: {"description": "Failed, Killed or Cleaned", "model": StatusBody},
    416: {"description": "The result has no such part"},
}


@router.get(
    "/download/{id}",
    summary="The result of a job as a ZIP, or where it stands",
    responses=_RESPONSES,
    response_class=Response,
)
async def download(
    request: Request, id: JobId, front: FrontOf, principal: MayRead, wait: Wait = 0.0
) -> Response:
    row = await front.operations.get_final(id, principal, wait)
    answer = await _answer(request, front, row)
    if isinstance(answer, ResultResponse):
        principal.acted("downloaded", row.id)
    return answer


@router.head(
    "/download/{id}",
    summary="The headers of the same, at once",
    responses=_RESPONSES,
    response_class=Response,
)
async def download_head(request: Request, id: JobId, front: FrontOf, principal: MayRead) -> Response:
    return await _answer(request, front, await front.operations.get(id, principal))


async def _answer(request: Request, front: Front, row: JobRow) -> Response:
    if row.state is ServiceState.COMPLETED:
        descriptor = await front.parts.files(open_result, front.parts.place(row).result)
        if descriptor is not None:
            if _is_known(request, row):
                await front.parts.files(os.close, descriptor)
                return Response(status_code=304, headers={"etag": f'"{row.result_sha256}"'})
            return ResultResponse(descriptor, row)
        row = row._replace(state=ServiceState.CLEANED, message="")  # the cleaner was just here
    code = CODES[front.parts.settings.compat][row.state]
    if code == 204:
        return Response(status_code=204)
    headers = {"retry-after": "1"} if code in (202, 503) else {}
    return status_json(row, await front.operations.message(row), code, headers)


def _is_known(request: Request, row: JobRow) -> bool:
    given = request.headers.get("if-none-match", "")
    tags = [tag.strip(' "W/') for tag in given.split(",")]
    return row.result_sha256 is not None and (row.result_sha256 in tags or "*" in tags)


@router.get(
    "/download_partial/{id}",
    summary="The files of a job as they are now, as a ZIP",
    responses={
        **errors(*OF_FILES),
        200: {"description": "The files", "content": _ZIP},
    },
    response_class=Response,
)
async def download_partial(request: Request, id: JobId, front: FrontOf, principal: MayRead) -> Response:
    row = await front.operations.get(id, principal)
    if row.state in (ServiceState.QUEUED, ServiceState.PROCESSING):
        raise not_started(row)
    if row.state.is_final:
        descriptor = await _result(front, row)
        principal.acted("downloaded", row.id)
        return ResultResponse(descriptor, row)
    answer = await _partial(front, row)
    principal.acted("downloaded", row.id)
    return answer


@router.get(
    "/jobs/{id}/files",
    response_model=FilesBody,
    summary="The files that a job left",
    responses=errors(*OF_JOB, ErrorCode.NOT_STARTED, ErrorCode.CLEANED),
)
async def files(id: JobId, front: FrontOf, principal: MayRead) -> FilesBody:
    _, descriptor = await _ended(front, id, principal)
    found = await front.parts.files(listed_files, descriptor)
    return FilesBody(files=[FileBody(name=name, bytes=size) for name, size in found])


@router.get(
    "/jobs/{id}/files/{path:path}",
    summary="One file that a job left, without the ZIP",
    responses={
        **errors(*OF_JOB, ErrorCode.NOT_STARTED, ErrorCode.CLEANED),
        200: {"description": "The file", "content": _BYTES},
    },
    response_class=Response,
)
async def one_file(
    id: JobId,
    path: Annotated[str, Path(description="Its name in the ZIP.", max_length=4096)],
    front: FrontOf,
    principal: MayRead,
) -> Response:
    row, descriptor = await _ended(front, id, principal)
    found = await front.parts.files(open_file, descriptor, path)
    if found is None:
        listed = front.parts.shown_path(f"/jobs/{id}/files")
        raise no(ErrorCode.NOT_FOUND, f"The job left no file {path[:200]!a}; {listed} lists them", row)
    principal.acted("downloaded", row.id, file=path)
    name = quote(path.rpartition("/")[2], safe="")
    headers = {
        "content-disposition": f"attachment; filename*=UTF-8''{name}",
        "content-security-policy": "sandbox",
        "content-length": str(found.size),
    }
    return ClosingResponse(_read(found), media_type="application/octet-stream", headers=headers)


async def _ended(front: Front, id: int, principal: Principal) -> tuple[JobRow, int]:
    """A job that has ended, and a descriptor of its result."""
    row = await front.operations.get(id, principal)
    if not row.state.is_final:
        partial = front.parts.shown_path(f"/download_partial/{id}")
        raise no(
            ErrorCode.NOT_STARTED, f"The job has not ended; {partial} has its files as they are now", row
        )
    return row, await _result(front, row)


async def _result(front: Front, row: JobRow) -> int:
    """A descriptor of the result of a job that has ended."""
    if row.state is ServiceState.CLEANED:
        raise cleaned(row)
    if row.result_sha256 is None:
        raise no(ErrorCode.NOT_STARTED, "The job left no files", row)
    descriptor = await front.parts.files(open_result, front.parts.place(row).result)
    if descriptor is None:  # the cleaner was just here
        raise cleaned(row)
    return descriptor


async def _read(found: ArchivedFile) -> AsyncGenerator[bytes]:
    try:
        while piece := await asyncio.to_thread(found.read, PIECE):
            yield piece
    finally:
        found.close()


async def _partial(front: Front, row: JobRow) -> Response:
    node = front.parts.book.nodes.get(row.node or "")
    if node is None or row.payload_id is None:
        raise not_started(row)
    stream = node.stream_partial(front.parts.payload(row))
    try:
        first = await anext(stream)
    except StopAsyncIteration:
        first = b""
    except NodeError as error:
        raise node_trouble(error, row) from None
    headers = {
        "content-disposition": f'attachment; filename="partial-{row.id}.zip"',
        "content-security-policy": "sandbox",
    }
    return ClosingResponse(_chained(first, stream), media_type="application/zip", headers=headers)


async def _chained(first: bytes, rest: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    async with aclosing(rest):
        yield first
        async for piece in rest:
            yield piece
