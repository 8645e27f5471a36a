"""What users ask of a server: to upload, to look, to wait, to end a job.
Knows no HTTP but the body of an upload; `routes` turns answers and refusals into responses.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple

from tenuto.errors import DatabaseError, NodeError, RequestRefused
from tenuto.lifecycle.service import ServiceState
from tenuto.service.access import Principal
from tenuto.service.callbacks import callback_of
from tenuto.service.context import Offered, ServerContext
from tenuto.service.contract import CallbackBody, ErrorCode
from tenuto.service.data_paths import StoredJobPaths
from tenuto.service.decisions import ActiveJob, QueueView, waiting_message
from tenuto.service.log import log
from tenuto.service.names import is_idempotency_key, is_user, numbered_user
from tenuto.service.node.work import encoded_command
from tenuto.service.periodic import Waiter, wait_for
from tenuto.service.requests import TooManyBytes, TooManyQueued
from tenuto.service.rows import JobRow, NewJob
from tenuto.service.uploads import (
    CALLBACK,
    GATHERED,
    ReceivedUpload,
    Receiver,
    UploadLimits,
    boundary_of,
    check_room,
    gathered,
    receive,
    refused,
    too_large,
)

RETRY_QUEUED_S = 10.0
LOOK_AGAIN_S = 5.0
"""A waiter reads its row again after so long, on average, though no move woke it."""
PROGRESS_S = 2.0
"""A node that takes longer to say how far a job is, is not waited for."""
QUICK_LINE_S = 0.1
KEEP_LINE = 20.0
"""A queue that took longer to read is kept for so many times as long as it took more."""
UPLOADED = "Job successfully uploaded"


class UploadHead(NamedTuple):
    """What the headers of an upload say."""

    content_type: str
    length: int | None
    idempotency_key: str | None


class Operations:
    """What users ask of one server."""

    def __init__(
        self, parts: ServerContext, wake_dispatcher: Callable[[], None], end: Callable[[int], None]
    ) -> None:
        """`wake_dispatcher` has the queue read; `end` tells the follower of a job that it is unwanted."""
        self._parts = parts
        self._wake_dispatcher = wake_dispatcher
        self._end = end
        self.is_draining = False
        self._lines: dict[str, tuple[QueueView, float]] = {}
        """The queue of a service as it was read last, and until when it is taken for that."""
        settings = parts.settings
        self._limits = UploadLimits(
            settings.max_upload_bytes,
            settings.max_parts,
            settings.min_free_bytes,
            cut_names=settings.compat != "hybrid",
        )

    # Uploading

    async def upload(self, head: UploadHead, body: AsyncIterator[bytes], principal: Principal) -> JobRow:
        """The job of an upload; raises `RequestRefused`, and then nothing is left of it."""
        service = ""
        try:
            row, service = await self._upload(head, body, principal)
        except RequestRefused as error:
            log("upload_refused", error=error.code, message=str(error))
            self._parts.metrics.uploaded(service, error.code)
            raise
        self._parts.metrics.uploaded(service, "accepted")
        return row

    async def _upload(
        self, head: UploadHead, body: AsyncIterator[bytes], principal: Principal
    ) -> tuple[JobRow, str]:
        parts = self._parts
        if self.is_draining:
            raise refused(ErrorCode.DRAINING, "The server is about to stop; try again in a while")
        if head.length is not None and head.length > self._limits.max_bytes:
            raise too_large(self._limits)
        if head.idempotency_key is not None and not is_idempotency_key(head.idempotency_key):
            raise refused(
                ErrorCode.BAD_IDEMPOTENCY_KEY, "Invalid Idempotency-Key: 1 to 255 printable ASCII characters"
            )
        boundary = boundary_of(head.content_type)
        name = parts.randomness.nonce()
        if head.length is not None and head.length <= GATHERED:
            data = await gathered(body, self._limits, parts.clock)
            row, is_new = await parts.uploads(self._taken, head, boundary, name, data, principal)
        else:
            place = await parts.files(self._opened, name, head.length or 0)
            receiver: Receiver | None = None
            try:
                receiver = Receiver(boundary, place.files, self._limits)
                received = await receive(body, receiver, self._limits, parts.clock)
                new = self._new(head, name, received, principal)
            except BaseException:
                await asyncio.shield(parts.files(self._discard, name, receiver))
                raise
            row, is_new = await parts.uploads(self._added, new, receiver, principal)
        if is_new:
            log("upload_accepted", job=row.id, user=row.user_id, service=row.service)
            parts.metrics.took(row.bytes_in or 0)
            principal.acted("uploaded", row.id)
            self._wake_dispatcher()
        return row, row.service

    def _taken(
        self, head: UploadHead, boundary: bytes, name: str, data: bytes, principal: Principal
    ) -> tuple[JobRow, bool]:
        """The job of a small upload, and whether it is new: all in one thread, which costs one wake-up."""
        place, receiver = self._opened(name, len(data)), None
        try:
            receiver = Receiver(boundary, place.files, self._limits)
            receiver.feed(data)
            new = self._new(head, name, receiver.finish(), principal)
        except BaseException:
            self._discard(name, receiver)
            raise
        return self._added(new, receiver, principal)

    def _opened(self, name: str, length: int) -> StoredJobPaths:
        check_room(self._parts.places.root, self._limits, length)
        return self._parts.places.open_job(name)

    def _new(self, head: UploadHead, name: str, received: ReceivedUpload, principal: Principal) -> NewJob:
        user, offered = self._requester(received, principal)
        offered.refuse_files(received)
        callback = received.fields.get(CALLBACK) or None
        if callback is not None:
            self._parts.callback_hosts.refuse(callback)
        key, token = head.idempotency_key, principal.token
        command = encoded_command(offered.settings.command)
        return NewJob(
            user, offered.name, name, key, received.digest, callback, token, received.bytes, command
        )

    def _discard(self, name: str, receiver: Receiver | None) -> None:
        if receiver is not None:
            receiver.close()
        self._parts.places.discard(name)

    def _added(self, new: NewJob, receiver: Receiver, principal: Principal) -> tuple[JobRow, bool]:
        """The row of an upload whose files are on the disk, and whether it is new."""
        parts = self._parts
        try:
            receiver.sync()
            parts.places.sync()
        except BaseException:
            self._discard(new.directory, receiver)
            raise
        limits = principal.limits.over(parts.limits)
        try:
            row, is_new = parts.requests.add(new, limits)
        except TooManyQueued:
            self._discard(new.directory, receiver)
            raise refused(
                ErrorCode.TOO_MANY_QUEUED,
                f"User {new.user_id} has {limits.queued} jobs in the queue, as many as may wait: try again "
                "later",
                retry_after_s=RETRY_QUEUED_S,
            ) from None
        except TooManyBytes as stored:
            self._discard(new.directory, receiver)
            raise refused(
                ErrorCode.QUOTA_BYTES,
                f"The jobs of user {new.user_id} take {stored} bytes here, and may take "
                f"{limits.stored_bytes}: {new.bytes_in} more have no room; results are removed "
                f"{parts.settings.max_age_s:.0f} s after the end of their jobs",
            ) from None
        except DatabaseError:
            # The files stay: the row may have been written, and only the answer was lost.
            raise refused(
                ErrorCode.DATABASE_UNAVAILABLE, "The database of the server does not answer; try again"
            ) from None
        if is_new:
            parts.places.accept(new.directory, row.id)
        else:
            parts.places.discard(new.directory)
            if row.body_sha256 != new.body_sha256:
                raise refused(
                    ErrorCode.IDEMPOTENCY_MISMATCH,
                    f"This Idempotency-Key was used for another upload, job {row.id}",
                )
        return row, is_new

    def _requester(self, received: ReceivedUpload, principal: Principal) -> tuple[str, Offered]:
        """The user and the service of an upload."""
        fields = received.fields
        given = fields.get("user_id")
        if given is None and (principal.acts_for_all or principal.user is None):
            raise refused(ErrorCode.MISSING_FIELD, "Missing user_id field")
        service = fields.get("service")
        if service is None:
            raise refused(ErrorCode.MISSING_FIELD, "Missing service field")
        user = self._user(given, principal)
        offered = self._parts.services.get(service)
        if offered is None:
            known = ", ".join(sorted(filter(principal.may_ask_for, self._parts.services)))
            raise refused(ErrorCode.UNKNOWN_SERVICE, f"Invalid service {service[:80]!a}; there is: {known}")
        if not principal.may_ask_for(service):
            allowed = ", ".join(sorted(principal.services or ()))
            raise refused(
                ErrorCode.FORBIDDEN, f"The token is not for service {service}; it is for: {allowed}"
            )
        return user, offered

    def _user(self, given: str | None, principal: Principal) -> str:
        if principal.user is None:
            user = numbered_user(given or "")
            if user is None:
                raise refused(ErrorCode.BAD_USER_ID, "Invalid user_id, should be a number")
            return user
        if not principal.acts_for_all:
            if given is not None and given != principal.user:
                raise refused(ErrorCode.WRONG_USER, "The token belongs to another user than user_id says")
            return principal.user
        if not is_user(given or ""):
            raise refused(
                ErrorCode.BAD_USER_ID, "Invalid user_id: letters, digits and _.@+-, at most 64 characters"
            )
        return str(given)

    # Looking

    async def get(self, job_id: int, principal: Principal) -> JobRow:
        """A job that the principal may see; another's is refused as one that is not there."""
        row = await self._parts.sql(self._parts.requests.get, job_id)
        if row is None or not principal.sees(row.user_id):
            raise not_found(job_id)
        return row

    async def get_final(self, job_id: int, principal: Principal, wait_s: float) -> JobRow:
        """A job, once it is final or the time is over."""
        parts = self._parts
        until = parts.clock.monotonic() + wait_s
        with parts.waiters.listen(job_id) as event:
            while True:
                row = await self.get(job_id, principal)
                left_s = until - parts.clock.monotonic()
                if row.state.is_final or left_s <= 0 or parts.waiters.is_closed:
                    return row
                # Waiters that came together do not look again together.
                look_s = LOOK_AGAIN_S * (0.5 + parts.randomness.uniform())
                if ended := await self._ended(event, min(left_s, look_s)):
                    return ended

    async def _ended(self, event: Waiter[JobRow], timeout_s: float) -> JobRow | None:
        """The row of a job that this server moves to its end meanwhile; None if the row must be read."""
        until = self._parts.clock.monotonic() + timeout_s
        while await wait_for(event, until - self._parts.clock.monotonic()):
            if event.row is None or event.row.state.is_final:
                return event.row
        return None

    async def message(self, row: JobRow) -> str:
        """The words of a job: of a queued one, the cause of its wait."""
        return (await self.messages([row]))[0]

    async def messages(self, rows: Sequence[JobRow]) -> list[str]:
        """What jobs say of themselves; what those of one service compete with is read once."""
        parts, found = self._parts, []
        active: dict[str, tuple[list[ActiveJob], dict[str, int]]] = {}
        for row in rows:
            offered = parts.services.get(row.service)
            if row.state is not ServiceState.QUEUED or row.message:
                found.append(row.message)
            elif offered is None:
                found.append(f"service {row.service} is not offered any more")
            else:
                if row.service not in active:
                    active[row.service] = await parts.sql(parts.requests.active, row.service)
                jobs, in_hand = active[row.service]
                slots = parts.book.well(offered.nodes)
                found.append(waiting_message(row.user_id, jobs, offered.quota, row.service, slots, in_hand))
        return found

    async def wait(self, row: JobRow) -> tuple[int | None, int | None]:
        """The place of a queued job in its queue, and when it is expected to start, in milliseconds.

        None of a job that does not wait, and where it is not known.
        """
        offered = self._parts.services.get(row.service)
        if row.state is not ServiceState.QUEUED or offered is None:
            return None, None
        line = await self._line(row)
        book = self._parts.book
        places = offered.places(book.well(offered.nodes))
        return line.position, line.expected_start(offered.quota, places)

    async def _line(self, row: JobRow) -> QueueView:
        """The queue of a job: its cost grows with the jobs in it, and a long one is not read each time."""
        clock = self._parts.clock
        known, until = self._lines.get(row.service, (None, 0.0))
        began = clock.monotonic()
        line = await self._parts.sql(self._parts.requests.line, row, known if began < until else None)
        if began >= until:
            ended = clock.monotonic()
            self._lines[row.service] = (line, ended + KEEP_LINE * max(ended - began - QUICK_LINE_S, 0.0))
        return line

    async def progress(self, row: JobRow) -> str | None:
        """What a running job said last of its progress; None if it said nothing, or its node is silent."""
        node = self._parts.book.nodes.get(row.node or "")
        if row.state is not ServiceState.RUNNING or node is None or row.payload_id is None:
            return None
        try:
            async with asyncio.timeout(PROGRESS_S):
                return await node.progress(self._parts.payload(row)) or None
        except (NodeError, TimeoutError):
            return None

    async def callback(self, row: JobRow) -> CallbackBody | None:
        """What became of the callback of a job; None if it has none."""
        if row.callback is None:
            return None
        return await self._parts.sql(callback_of, self._parts.requests.database, row)

    # Ending

    async def terminate(self, job_id: int, principal: Principal) -> JobRow:
        """Asks for the end of a job, and waits a little for it; the row then.

        Raises `RequestRefused` if the job has ended already.
        """
        parts = self._parts
        before = await self.get(job_id, principal)
        if before.state.is_final:
            raise already_ended(before)
        row = await parts.sql(parts.requests.terminate, job_id)
        if row is None:
            raise not_found(job_id)
        if row.state.is_final and row.state is not ServiceState.KILLED:
            raise already_ended(row)
        principal.acted("terminated", job_id)
        if row.state.is_final:
            parts.told(row)
            self._wake_dispatcher()
            return row
        self._end(job_id)
        row = await self.get_final(job_id, principal, parts.settings.terminate_wait_s)
        if row.state.is_final and row.state is not ServiceState.KILLED:
            raise already_ended(row)
        return row

    async def health(self) -> bool:
        """Whether the database answers, soon."""
        try:
            async with asyncio.timeout(3.0):
                await self._parts.sql(self._parts.requests.last_move)
        except (DatabaseError, TimeoutError):
            return False
        return True


def not_found(job_id: int) -> RequestRefused:
    return refused(ErrorCode.NOT_FOUND, "There is no such job", job_id=job_id)


def already_ended(row: JobRow) -> RequestRefused:
    return refused(
        ErrorCode.ALREADY_ENDED,
        f"The job has ended already: {row.state.value}",
        job_id=row.id,
        status=row.state.value,
    )
