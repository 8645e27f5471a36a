"""What a server asks of a node, whatever lies between them: the seam, and which node is asked.
Talks to none itself; `local_node` and `http_node` do.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import NamedTuple, Protocol
from urllib.parse import urlencode

from tenuto.clock import Clock
from tenuto.lifecycle.service import PayloadState
from tenuto.service.archive import LogPiece, Packed
from tenuto.service.decisions import Breaker
from tenuto.service.log import log

COMMAND = "command"
"""The field of a submission that holds a command, as JSON."""
LONGEST_PROGRESS = 200
WAIT_S = 25.0
"""How long a node may hold a question back until there is news."""


def mark_of(key: str, service: str, user_id: str, job_id: str) -> str:
    """Whose a payload is, in one line that fits into a header: no two jobs have the same."""
    return urlencode({"key": key, "service": service, "user_id": user_id, "job_id": job_id})


class PayloadRef(NamedTuple):
    """A payload at a node, and whose it must be."""

    id: int
    mark: str
    """Of `mark_of`: a node whose database is another, or older, has another's payload under the same id."""


class PayloadStatus(NamedTuple):
    """Where a payload stands, as its node says."""

    id: int
    state: PayloadState
    message: str = ""
    exit_code: int | None = None
    cpu_s: float | None = None
    memory_peak: int | None = None


class Outgoing(NamedTuple):
    """A job on its way to a node."""

    key: str
    """The same for every try: the node takes it once."""
    directory: str
    """Its files."""
    service: str
    user_id: str
    job_id: int
    command: tuple[str, ...] = ()
    """What the node runs; nothing: the upload's own `run.sh`."""

    @property
    def mark(self) -> str:
        return mark_of(self.key, self.service, self.user_id, str(self.job_id))


class Retrieved(NamedTuple):
    """What a node answered: where the payload stands, and its result if that came along."""

    status: PayloadStatus
    packed: Packed | None = None


class Node(Protocol):
    """A node, as a server sees it. Every call raises a `NodeError` that says whether it arrived.

    `NotOurs` if the payload is another's; nothing is done to it, and nothing of it is given away.
    """

    name: str

    async def submit(self, job: Outgoing) -> PayloadStatus:
        """Hands a job over. Raises `NodeNotReached`, `NodeSilent` or `NodeRefusal`."""
        ...

    async def find(self, job: Outgoing) -> PayloadStatus | None:
        """The payload of a job's key; None if the node certainly has none. `NodeSilent` if it cannot tell."""
        ...

    async def retrieve(
        self, payload: PayloadRef, known: PayloadState | None, wait_s: float, target: str
    ) -> Retrieved:
        """Where a payload stands, once that is not `known`; of a completed one the result, in a file.

        The file is on the disk and what its digest says. Raises `PayloadGone`, `DamagedResult`, `NodeError`.
        """
        ...

    async def retrieve_partial(self, payload: PayloadRef, target: str) -> Packed:
        """The files of a payload as they are, in a file on the disk."""
        ...

    def stream_partial(self, payload: PayloadRef) -> AsyncGenerator[bytes]:
        """The files of a payload as they are, as a ZIP in pieces."""
        ...

    async def read_log(self, payload: PayloadRef, stream: str, offset: int, limit: int) -> LogPiece:
        """A piece of what a payload printed."""
        ...

    async def progress(self, payload: PayloadRef) -> str:
        """What a payload said last of its progress; empty if it said nothing."""
        ...

    async def kill(self, payload: PayloadRef) -> PayloadStatus:
        """Asks for the end of a payload; where it stands then."""
        ...

    async def slots(self) -> int:
        """How many payloads run at once, 0 while it takes none; raises `NodeError` if it is not well."""
        ...

    async def close(self) -> None:
        """Releases connections; payloads continue."""
        ...


class NodeBook:
    """The nodes of a server: how busy each is, and whether it is worth asking."""

    def __init__(self, nodes: Mapping[str, Node], clock: Clock) -> None:
        self.nodes = dict(nodes)
        self._clock = clock
        self._breakers = dict.fromkeys(nodes, Breaker())
        self._slots: dict[str, int | None] = dict.fromkeys(nodes)
        """None: not known yet, and taken for 1."""
        self._answered: dict[str, int | None] = {}
        """Nodes that answered since `take_answered` was asked, and their slots."""

    def add(self, name: str, node: Node) -> None:
        """Takes a node in, or another one of the same name; nothing is known of it yet."""
        self.nodes[name] = node
        self._breakers[name] = Breaker()
        self._slots[name] = None

    def drop(self, name: str) -> Node:
        """Knows nothing of a node any more; the node, to be closed."""
        del self._breakers[name], self._slots[name]
        self._answered.pop(name, None)
        return self.nodes.pop(name)

    def well(self, names: Iterable[str]) -> dict[str, int]:
        """The slots of those nodes that are worth asking; 0 of one that takes nothing for now."""
        now = self._clock.monotonic()
        known = [name for name in names if name in self.nodes]
        return {name: self.slots(name) for name in known if not self._breakers[name].is_open(now)}

    def answered(self, name: str, slots: int | None = None) -> None:
        """A node answered; one that was dropped meanwhile is of no interest, here and in `failed`."""
        if name not in self.nodes:
            return
        if self._breakers[name].failures >= 3:
            log("node_up", node=name)
        self._breakers[name] = self._breakers[name].answered()
        if slots is not None:
            self._slots[name] = slots
        self._answered[name] = self._slots[name]

    def take_answered(self) -> dict[str, int | None]:
        """The nodes that answered since this was asked last: name -> slots, None if they are not known."""
        answered, self._answered = self._answered, {}
        return answered

    def failed(self, name: str, why: str) -> None:
        """A node did not answer."""
        if name not in self.nodes:
            return
        now = self._clock.monotonic()
        was_open = self._breakers[name].failures >= 3
        self._breakers[name] = self._breakers[name].failed(now)
        if self._breakers[name].is_open(now) and not was_open:
            log("node_down", 30, node=name, why=why)

    def slots(self, name: str) -> int:
        """The slots of a node, as it said last."""
        known = self._slots[name]
        return 1 if known is None else known

    def takes(self, name: str) -> bool:
        """False if a node said that it takes nothing for now."""
        return self.slots(name) > 0

    def is_up(self, name: str) -> bool:
        """True if the last calls were answered."""
        return self._breakers[name].failures < 3
