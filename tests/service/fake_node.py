"""A node in memory: runs no program, and loses calls and answers as its `trouble` says.
Deterministic on a virtual event loop; the ledger says what was started and how it ended.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import re
import zipfile
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from enum import Enum, unique
from pathlib import Path
from typing import TypeVar

from tenuto.errors import DamagedResult, NodeNotReached, NodeRefusal, NodeSilent, NotOurs, PayloadGone
from tenuto.lifecycle.service import PAYLOAD_TRANSITIONS, PayloadState
from tenuto.lifecycle.states import check_move
from tenuto.service.archive import LogPiece, Packed
from tenuto.service.nodes import Outgoing, PayloadRef, PayloadStatus, Retrieved

_EXIT = re.compile(r"^exit (\d+)$", re.MULTILINE)
_ENDLESS = "exec sleep"
_P = PayloadState
T = TypeVar("T")


@unique
class Trouble(Enum):
    """What becomes of a call."""

    NOT_REACHED = "it does not arrive, and the server knows"
    LOST = "it does not arrive, and the server does not know"
    UNANSWERED = "it arrives, and its answer is lost"
    CUT = "the result arrives in part"


@dataclass(slots=True)
class FakePayload:
    """A payload, and what its program would have done."""

    id: int
    job: Outgoing
    state: PayloadState = _P.PREPARED
    files: dict[str, bytes] = field(default_factory=dict)
    exit_code: int | None = None
    message: str = ""
    killed: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def status(self) -> PayloadStatus:
        return PayloadStatus(self.id, self.state, self.message, self.exit_code)


class FakeNode:
    """A `Node` whose programs only take time: `exit N` in `run.sh` makes them fail, `exec sleep` endless."""

    def __init__(
        self,
        name: str = "fake",
        *,
        slots: int = 2,
        run_s: Callable[[Outgoing], float] = lambda job: 0.01,
        trouble: Callable[[str], Trouble | None] = lambda call: None,
    ) -> None:
        """`run_s`: how long a job's program takes; `trouble`: what becomes of a call, by its name."""
        self.name = name
        self.payloads: dict[str, FakePayload] = {}
        self.ledger: list[tuple[str, int, float]] = []
        """(start or the end's name, the server's id of the job, when) in the order in which it happened."""
        self._slots = slots
        self._run_s = run_s
        self._trouble = trouble
        self._tasks: set[asyncio.Task[None]] = set()

    # The calls of a server

    async def submit(self, job: Outgoing) -> PayloadStatus:
        trouble = await self._arrive("submit")
        payload = self.payloads.get(job.key)
        if payload is None:
            payload = FakePayload(len(self.payloads) + 1, job, files=_read(job.directory))
            self.payloads[job.key] = payload
            task = asyncio.get_running_loop().create_task(self._run(payload))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        _refuse_other(payload, job.mark)
        return self._answered(trouble, payload.status)

    async def find(self, job: Outgoing) -> PayloadStatus | None:
        trouble = await self._arrive("find")
        payload = self.payloads.get(job.key)
        if payload is not None:
            _refuse_other(payload, job.mark)
        return self._answered(trouble, None if payload is None else payload.status)

    async def retrieve(
        self, payload: PayloadRef, known: PayloadState | None, wait_s: float, target: str
    ) -> Retrieved:
        trouble = await self._arrive("retrieve")
        found = self._payload(payload)
        if found.state is known:
            try:
                async with asyncio.timeout(wait_s):
                    await found.changed.wait()
            except TimeoutError:
                pass
        packed = self._saved(found, target, trouble) if found.state is _P.COMPLETED else None
        return self._answered(trouble, Retrieved(found.status, packed))

    async def retrieve_partial(self, payload: PayloadRef, target: str) -> Packed:
        trouble = await self._arrive("retrieve_partial")
        return self._answered(trouble, self._saved(self._payload(payload), target, trouble))

    async def stream_partial(self, payload: PayloadRef) -> AsyncGenerator[bytes]:
        trouble = await self._arrive("stream_partial")
        yield self._answered(trouble, _zip(self._payload(payload)))

    async def read_log(self, payload: PayloadRef, stream: str, offset: int, limit: int) -> LogPiece:
        trouble = await self._arrive("read_log")
        self._payload(payload)
        return self._answered(trouble, LogPiece(b"", offset))

    async def progress(self, payload: PayloadRef) -> str:
        trouble = await self._arrive("progress")
        self._payload(payload)
        return self._answered(trouble, "")

    async def kill(self, payload: PayloadRef) -> PayloadStatus:
        trouble = await self._arrive("kill")
        found = self._payload(payload)
        if not found.state.is_final:
            found.killed = True
            found.changed.set()
        return self._answered(trouble, found.status)

    async def slots(self) -> int:
        await self._arrive("slots")
        return self._slots

    async def close(self) -> None:
        """A server lets go; programs go on."""

    # The node

    async def end(self) -> None:
        """Ends all programs: the test is over."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _arrive(self, call: str) -> Trouble | None:
        await asyncio.sleep(0)
        trouble = self._trouble(call)
        if trouble is Trouble.NOT_REACHED:
            raise NodeNotReached("the connection was refused")
        if trouble is Trouble.LOST:
            raise NodeSilent("it did not answer")
        return trouble

    @staticmethod
    def _answered(trouble: Trouble | None, answer: T) -> T:
        if trouble is Trouble.UNANSWERED:
            raise NodeSilent("it did not answer")
        return answer

    def _payload(self, payload: PayloadRef) -> FakePayload:
        for found in self.payloads.values():
            if found.id == payload.id:
                _refuse_other(found, payload.mark)
                return found
        raise PayloadGone("the node does not have the job")

    async def _run(self, payload: FakePayload) -> None:
        if not payload.killed:
            self._move(payload, _P.RUNNING, "start")
            script = payload.files.get("run.sh", b"").decode()
            try:
                async with asyncio.timeout(None if _ENDLESS in script else self._run_s(payload.job)):
                    while not payload.killed:
                        payload.changed.clear()
                        await payload.changed.wait()
            except TimeoutError:
                failed = _EXIT.search(script)
                payload.exit_code = int(failed[1]) if failed else 0
        if payload.exit_code is None:
            self._move(payload, _P.KILLED, "killed")
        elif payload.exit_code:
            payload.message = f"exited with code {payload.exit_code}"
            self._move(payload, _P.FAILED, "failed")
        else:
            self._move(payload, _P.COMPLETED, "completed")

    def _move(self, payload: FakePayload, to: PayloadState, word: str) -> None:
        check_move(PAYLOAD_TRANSITIONS, payload.state, to)
        payload.state = to
        payload.changed.set()
        self.ledger.append((word, payload.job.job_id, asyncio.get_running_loop().time()))

    def _saved(self, payload: FakePayload, target: str, trouble: Trouble | None) -> Packed:
        content = _zip(payload)
        if trouble is Trouble.CUT:
            raise DamagedResult("the result arrived in part only")
        Path(target).write_bytes(content)
        return Packed(len(content), hashlib.sha256(content).hexdigest())


def _refuse_other(payload: FakePayload, mark: str) -> None:
    if payload.job.mark != mark:
        raise NotOurs("the node has the job of another here")


def _read(directory: str) -> dict[str, bytes]:
    root = Path(directory)
    if not root.is_dir():
        raise NodeRefusal("the files of the job are gone")
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def _zip(payload: FakePayload) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in payload.files.items():
            archive.writestr(name, content)
    return made.getvalue()
