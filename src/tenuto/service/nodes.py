"""What a server asks of a node, whatever lies between them: the seam, and which node is asked.
Talks to none itself; `local_node` and `http_node` do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple, Protocol
from urllib.parse import urlencode

from tenuto.clock import Clock
from tenuto.lifecycle.service import PayloadState
from tenuto.service.archive import Packed
from tenuto.service.decisions import Breaker, NodeLoad, choose_node, places_of
from tenuto.service.log import log

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


class Outgoing(NamedTuple):
    """A job on its way to a node."""

    key: str
    """The same for every try: the node takes it once."""
    directory: str
    """Its files."""
    service: str
    user_id: str
    job_id: int

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

    def stream_partial(self, payload: PayloadRef) -> AsyncIterator[bytes]:
        """The files of a payload as they are, as a ZIP in pieces."""
        ...

    async def read_log(self, payload: PayloadRef, stream: str, offset: int, limit: int) -> bytes:
        """A piece of what a payload printed."""
        ...

    async def kill(self, payload: PayloadRef) -> PayloadStatus:
        """Asks for the end of a payload; where it stands then."""
        ...

    async def slots(self) -> int:
        """How many payloads run at once; raises `NodeError` if the node is not well."""
        ...

    async def close(self) -> None:
        """Lets go of connections; payloads go on."""
        ...


class NodeBook:
    """The nodes of a server: how busy each is, and whether it is worth asking."""

    def __init__(self, nodes: Mapping[str, Node], clock: Clock) -> None:
        self.nodes = nodes
        self._clock = clock
        self._breakers = dict.fromkeys(nodes, Breaker())
        self._slots = dict.fromkeys(nodes, 1)
        self._heard: dict[str, int | None] = {}
        """Nodes that answered since `heard` was asked, and their slots where they are known."""
        self._has_slots: set[str] = set()
        self._active = dict.fromkeys(nodes, 0)
        self._in_hand: Counter[tuple[str, str]] = Counter()
        """Jobs by service and node that have a place of those which `places_of` counts."""

    def plan(self, service: str, names: tuple[str, ...], count: int) -> list[str | None]:
        """The nodes for the next jobs of a service, in order; None where no node is well.

        Nothing while the nodes that are well have places for fewer: a claim costs the same for one job.
        """
        now = self._clock.monotonic()
        active = dict(self._active)
        well = [name for name in names if not self._breakers[name].is_open(now)]
        free = {name: places_of(self._slots[name]) - self._in_hand[service, name] for name in well}
        if well and sum(max(places, 0) for places in free.values()) < count:
            return []
        planned: list[str | None] = []
        for _ in range(count):
            chosen = choose_node(
                [NodeLoad(name, active[name], self._slots[name], False) for name in well if free[name] > 0]
            )
            planned.append(chosen)
            if chosen is not None:
                active[chosen] += 1
                free[chosen] -= 1
        return planned

    def took(self, name: str, service: str) -> None:
        """A job of a service went to a node."""
        if name in self._active:
            self._active[name] += 1
            self._in_hand[service, name] += 1

    def gave_back(self, name: str) -> None:
        """A job of a node ended."""
        if name in self._active:
            self._active[name] -= 1

    def freed_place(self, name: str, service: str) -> None:
        """A job ended, or its node cannot be asked about it: another may be claimed in its place."""
        if name in self._active:
            self._in_hand[service, name] -= 1

    def answered(self, name: str, slots: int | None = None) -> None:
        """A node answered."""
        if self._breakers[name].failures >= 3:
            log("node_up", node=name)
        self._breakers[name] = self._breakers[name].answered()
        if slots is not None:
            self._slots[name] = slots
            self._has_slots.add(name)
        self._heard[name] = self._slots[name] if name in self._has_slots else None

    def heard(self) -> dict[str, int | None]:
        """The nodes that answered since this was asked last: name -> slots, None if they are not known."""
        heard, self._heard = self._heard, {}
        return heard

    def failed(self, name: str, why: str) -> None:
        """A node did not answer."""
        now = self._clock.monotonic()
        was_open = self._breakers[name].failures >= 3
        self._breakers[name] = self._breakers[name].failed(now)
        if self._breakers[name].is_open(now) and not was_open:
            log("node_down", 30, node=name, why=why)

    def is_up(self, name: str) -> bool:
        """True if the last calls were answered."""
        return self._breakers[name].failures < 3
