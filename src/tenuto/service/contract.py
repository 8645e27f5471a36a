"""The bodies of requests and answers, as OpenAPI shows them, and the codes of errors.
Decides nothing; `routes` fills them in.
"""

from __future__ import annotations

from enum import Enum, unique
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tenuto.lifecycle.service import PayloadState, ServiceState


@unique
class ErrorCode(Enum):
    """Why a request was refused: `error` in the body, and the HTTP status that goes with it, else 400."""

    _value_: str
    http_status: int

    def __new__(cls, value: str, http_status: int = 400) -> ErrorCode:
        code = object.__new__(cls)
        code._value_, code.http_status = value, http_status
        return code

    BAD_ID = "bad_id"
    BAD_PARAMETER = "bad_parameter"
    BAD_REQUEST = "bad_request"
    MISSING_FIELD = "missing_field"
    BAD_USER_ID = "bad_user_id"
    UNKNOWN_SERVICE = "unknown_service"
    NO_RUN_SH = "no_run_sh"
    BAD_RUN_SH = "bad_run_sh"
    BAD_ARCHIVE = "bad_archive"
    MISSING_INPUT = "missing_input"
    UNEXPECTED_FILE = "unexpected_file"
    CALLBACKS_OFF = "callbacks_off"
    BAD_CALLBACK = "bad_callback"
    BAD_NAME = "bad_name"
    DUPLICATE_NAME = "duplicate_name"
    TOO_MANY_PARTS = "too_many_parts"
    BAD_FIELD = "bad_field"
    BAD_MULTIPART = "bad_multipart"
    BAD_IDEMPOTENCY_KEY = "bad_idempotency_key"
    BAD_HOST = "bad_host"
    TOKEN_IN_URL = "token_in_url"
    UNAUTHORIZED = "unauthorized", 401
    FORBIDDEN = "forbidden", 403
    WRONG_USER = "wrong_user", 403
    BAD_ORIGIN = "bad_origin", 403
    NOT_FOUND = "not_found", 404
    NOT_STARTED = "not_started", 404
    METHOD_NOT_ALLOWED = "method_not_allowed", 405
    TOO_SLOW = "too_slow", 408
    ALREADY_ENDED = "already_ended", 409
    NOT_OURS = "not_ours", 409
    CLEANED = "cleaned", 410
    TOO_LARGE = "too_large", 413
    IDEMPOTENCY_MISMATCH = "idempotency_mismatch", 422
    RATE_LIMITED = "rate_limited", 429
    TOO_MANY_QUEUED = "too_many_queued", 429
    TOO_MANY_CONNECTIONS = "too_many_connections", 503
    INTERNAL = "internal", 500
    DRAINING = "draining", 503
    DATABASE_UNAVAILABLE = "database_unavailable", 503
    NODE_UNAVAILABLE = "node_unavailable", 503
    DISK_FULL = "disk_full", 507
    QUOTA_BYTES = "quota_bytes", 507


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True)


class StatusBody(_Body):
    """Where a job stands."""

    id: int
    status: ServiceState
    message: str


class ErrorBody(_Body):
    """Why a request was refused."""

    id: int = Field(description="The id asked for, or 0.")
    status: ServiceState = Field(description="The job's, or Unknown.")
    message: str
    error: ErrorCode


def error_json(
    code: ErrorCode, message: str, job_id: int = 0, status: ServiceState = ServiceState.UNKNOWN
) -> dict[str, object]:
    """The body of an error, ready to be sent."""
    return ErrorBody(id=job_id, status=status, message=message, error=code).model_dump(mode="json")


class CallbackBody(_Body):
    """What became of the callback of a job."""

    url: str
    status: Literal["waiting", "delivered", "given_up"]
    tries: int
    message: str = Field(description="Why the last try did not arrive.")
    next_try: str | None


class JobBody(_Body):
    """Everything that is known of a job. Instants are RFC 3339, in UTC."""

    id: int
    user_id: str
    service: str
    status: ServiceState
    message: str
    created_at: str
    started_at: str | None
    ended_at: str | None
    exit_code: int | None
    node: str | None
    result_bytes: int | None
    result_sha256: str | None
    progress: str | None = Field(
        default=None, description="What it said last of its progress, while it runs; not in lists."
    )
    position: int | None = Field(
        default=None, description="Its place in the queue of its service, from 1; not in lists."
    )
    expected_start: str | None = Field(
        default=None, description="When it will start, if all continues as lately; null: not known."
    )
    bytes_in: int | None = Field(default=None, description="Of its files as they were uploaded.")
    cpu_s: float | None = Field(default=None, description="The time of processors that it took.")
    memory_peak: int | None = Field(default=None, description="The most memory of one of its processes.")
    callback: CallbackBody | None = Field(
        default=None, description="What became of the address that is told of its end; not in lists."
    )


class FileBody(_Body):
    """A file that a job left."""

    name: str
    bytes: int


class FilesBody(_Body):
    """The files that a job left."""

    files: list[FileBody]


class JobsBody(_Body):
    """A page of jobs, the newest first."""

    jobs: list[JobBody]
    next: int | None = Field(description="Ask again with `before` set to this; null: there are no more.")


class ServiceLimits(_Body):
    """What a service allows; null: no limit of its own."""

    runs_per_user: int
    max_runs: int
    max_input_bytes: int | None
    walltime_s: float | None
    memory_bytes: int | None
    work_bytes: int | None
    cpus: int
    gpus: int
    network: bool


class InputBody(_Body):
    """A file that uploads for a service have."""

    name: str = Field(description="A name, or a pattern such as `*.cfg`.")
    required: bool


class ServiceBody(_Body):
    """A service that the server offers."""

    name: str
    description: str
    inputs: list[InputBody] | None = Field(
        description="The files that an upload must have; null: any files, of which one is `run.sh`."
    )
    limits: ServiceLimits


class ServicesBody(_Body):
    """The services that a user may ask for, by name."""

    services: list[ServiceBody]


class UsageBody(_Body):
    """What the ended jobs of a group took; null: the group is not told by it."""

    user: str | None
    service: str | None
    month: str | None = Field(description="In which the jobs ended, such as `2031-05`, in UTC.")
    jobs: int
    cpu_s: float
    memory_peak: int = Field(description="The most memory of one process of one job.")
    bytes_in: int = Field(description="Of uploads.")
    bytes_out: int = Field(description="Of results.")


class UsageListBody(_Body):
    """What users took of the service."""

    usage: list[UsageBody]


class PongBody(_Body):
    message: Literal["pong"] = "pong"


class HealthBody(_Body):
    """Whether the server can work."""

    status: Literal["ok", "unavailable", "draining", "disk_full"]
    database: Literal["ok", "unavailable"]


class NodeHealthBody(HealthBody):
    """Whether the node can work, which version it is, and how much it runs at once."""

    tenuto: str
    slots: int
    takes: bool = Field(description="False: it takes no payloads for now; `status` says why.")
    payloads: int = Field(description="How many have not ended.")


class DrainBody(_Body):
    """Whether a node takes payloads, and how many of those that it has have not ended."""

    node: str
    draining: bool
    payloads: int


MARK_HEADER = "Tenuto-Payload"
"""Whose a payload is (`nodes.mark_of`): said by a server that asks for it, and by the node that answers."""


LINES_OF_JSON = "application/x-ndjson"
USAGE_HEADER = "Tenuto-Usage"
"""What a payload used, as the query of a URL: `cpu_s=1.5&memory_peak=1048576`."""

NEXT_OFFSET_HEADER = "Tenuto-Next-Offset"
"""Where a log continues after the piece that was answered."""


class PayloadBody(_Body):
    """Where a payload stands; the first six are what old servers need."""

    id: int
    input: dict[str, str] = {}
    status: PayloadState
    loc: str = ""
    pid: int = 0
    killed: bool
    message: str = ""
    exit_code: int | None = None


class ProgressBody(_Body):
    """What a payload said last of its progress."""

    progress: str


def _without_default(schema: dict[str, Any]) -> None:
    """Programs made from a description send the default of a field that they are not given."""
    schema.pop("default", None)


def _may_be_left_out(description: str) -> Any:
    return Field(default="", description=description, json_schema_extra=_without_default)


class UploadForm(_Body):
    """An upload, as OpenAPI shows it; the body itself is streamed."""

    user_id: str = _may_be_left_out("The user: a number; with tokens the token's user.")
    service: str = Field(description="Which service is to run it.")
    callback: str = _may_be_left_out("An address that is told of the end of the job by one POST.")
    unpack: str = _may_be_left_out("The name of an uploaded ZIP, in whose place its files are taken.")
    files: list[bytes] = Field(
        description="Any part with a filename is a file, whatever its field name; one is `run.sh`, unless "
        "the service has inputs of its own. A name with slashes makes folders.",
        json_schema_extra={"items": {"type": "string", "format": "binary"}},
    )
