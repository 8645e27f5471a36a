"""`POST /upload`, `GET /services`, `GET /jobs`, `GET /jobs/{id}`, and `POST /terminate/{id}`."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse

from tenuto.errors import RequestRefused
from tenuto.lifecycle.service import ServiceState
from tenuto.service.context import Offered
from tenuto.service.contract import (
    ErrorCode,
    InputBody,
    JobBody,
    JobsBody,
    ServiceBody,
    ServiceLimits,
    ServicesBody,
    StatusBody,
    UploadForm,
)
from tenuto.service.operations import UPLOADED, UploadHead
from tenuto.service.routes.common import (
    LARGEST_ID,
    OF_JOB,
    FrontOf,
    JobId,
    MayRead,
    MaySubmit,
    early,
    errors,
    job_body,
    status_json,
)
from tenuto.service.routes.download import Wait
from tenuto.service.rows import Page, instant

router = APIRouter()

_E = ErrorCode
_FORM: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"multipart/form-data": {"schema": UploadForm.model_json_schema()}},
    },
    "parameters": [
        {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": "The same key and the same upload are the same job.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
        }
    ],
}


@router.post(
    "/upload",
    status_code=201,
    response_model=StatusBody,
    summary="Upload files, to be run by a service",
    openapi_extra=_FORM,
    responses=errors(
        _E.TOO_MANY_QUEUED,
        _E.MISSING_FIELD,
        _E.BAD_USER_ID,
        _E.UNKNOWN_SERVICE,
        _E.NO_RUN_SH,
        _E.BAD_RUN_SH,
        _E.MISSING_INPUT,
        _E.UNEXPECTED_FILE,
        _E.BAD_ARCHIVE,
        _E.CALLBACKS_OFF,
        _E.BAD_CALLBACK,
        _E.BAD_NAME,
        _E.DUPLICATE_NAME,
        _E.TOO_MANY_PARTS,
        _E.BAD_FIELD,
        _E.BAD_MULTIPART,
        _E.BAD_IDEMPOTENCY_KEY,
        _E.WRONG_USER,
        _E.BAD_ORIGIN,
        _E.TOO_SLOW,
        _E.TOO_LARGE,
        _E.IDEMPOTENCY_MISMATCH,
        _E.DRAINING,
        _E.DISK_FULL,
        _E.QUOTA_BYTES,
    ),
)
async def upload(request: Request, front: FrontOf, principal: MaySubmit) -> JSONResponse:
    headers = request.headers
    length = headers.get("content-length", "")
    head = UploadHead(
        headers.get("content-type", ""),
        int(length) if length.isdecimal() else None,
        headers.get("idempotency-key"),
    )
    try:
        row = await front.operations.upload(head, request.stream(), principal)
    except RequestRefused as error:
        return early(error)
    code = 200 if front.parts.settings.compat == "v1" else 201
    return status_json(row._replace(state=ServiceState.QUEUED), UPLOADED, code)


@router.get(
    "/services",
    response_model=ServicesBody,
    summary="The services, what each takes and allows",
    responses=errors(),
)
async def services(front: FrontOf, principal: MayRead) -> ServicesBody:
    offered = front.parts.services.values()
    return ServicesBody(services=[_service(one) for one in offered if principal.may_ask_for(one.name)])


def _service(offered: Offered) -> ServiceBody:
    limits = {name: getattr(offered.settings, name) for name in ServiceLimits.model_fields}
    inputs = [InputBody(name=one.pattern, required=one.is_required) for one in offered.inputs]
    return ServiceBody(
        name=offered.name,
        description=offered.settings.description or "",
        inputs=inputs if offered.settings.command else None,
        limits=ServiceLimits(**{**limits, **offered.quota._asdict()}),
    )


@router.get(
    "/jobs",
    response_model=JobsBody,
    summary="The jobs, the newest first",
    responses=errors(ErrorCode.BAD_PARAMETER),
)
async def jobs(
    front: FrontOf,
    principal: MayRead,
    user_id: Annotated[str | None, Query(max_length=64)] = None,
    service: Annotated[str | None, Query(max_length=64)] = None,
    status: ServiceState | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: Annotated[int | None, Query(ge=0, le=LARGEST_ID, description="Ids below this.")] = None,
) -> JobsBody:
    if not principal.acts_for_all:
        if user_id is not None and user_id != principal.user:
            return JobsBody(jobs=[], next=None)
        user_id = principal.user
    page = Page(user_id, service, status, before, limit + 1)
    rows = await front.parts.sql(front.parts.requests.listed, page)
    shown = rows[:limit]
    bodies = list(map(job_body, shown, await front.operations.messages(shown)))
    return JobsBody(jobs=bodies, next=shown[-1].id if len(rows) > limit else None)


@router.get(
    "/jobs/{id}",
    response_model=JobBody,
    summary="Everything that is known of a job",
    responses=errors(*OF_JOB),
)
async def job(id: JobId, front: FrontOf, principal: MayRead, wait: Wait = 0.0) -> JobBody:
    row = await front.operations.get_final(id, principal, wait)
    position, expected_ms = await front.operations.wait(row)
    more = {
        "progress": await front.operations.progress(row),
        "position": position,
        "expected_start": instant(expected_ms),
        "callback": await front.operations.callback(row),
    }
    return job_body(row, await front.operations.message(row)).model_copy(update=more)


@router.post(
    "/terminate/{id}",
    response_model=StatusBody,
    summary="End a job",
    responses={
        **errors(*OF_JOB, ErrorCode.ALREADY_ENDED, ErrorCode.BAD_ORIGIN),
        202: {"description": "Still stopping", "model": StatusBody},
    },
)
async def terminate(id: JobId, front: FrontOf, principal: MaySubmit) -> JSONResponse:
    row = await front.operations.terminate(id, principal)
    if row.state is ServiceState.KILLED:
        return status_json(row, row.message, 200)
    return status_json(row, "still stopping", 202, {"retry-after": "1"})
