"""The files of tokens: capacities, units as bytes of a lock file, the queue of waiting jobs.
Reads, writes and locks; the scheduler decides which job takes which units.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from tenuto.errors import FileTooLarge, NotRegularFile
from tenuto.workspace.json_bytes import to_json
from tenuto.workspace.layout import directory_name
from tenuto.workspace.ports import LockHandle, Machine
from tenuto.workspace.records import Corrupt, Fields, decode_fields, read_record

MOST_UNITS = 100_000
_LARGEST_QUEUE = 64 << 20
_MOST_SCHEDULERS = 10_000


class TokenPlace(NamedTuple):
    """Where the tokens of one machine lie: beside all workspaces, which share them."""

    directory: str

    @property
    def queue(self) -> str:
        return f"{self.directory}/queue.json"

    @property
    def schedulers(self) -> str:
        return f"{self.directory}/schedulers.lock"

    @property
    def mutex_directory(self) -> str:
        """Apart from the rest: a watcher of the rest need not know of each look at the queue."""
        return f"{self.directory}/mutex"

    @property
    def mutex(self) -> str:
        return f"{self.mutex_directory}/queue.lock"

    def capacity(self, token: str) -> str:
        return f"{self.directory}/{directory_name(token)}.token.json"

    def units(self, token: str) -> str:
        """The file whose bytes are the units; the lock of a launcher is a token whose name is its path."""
        return token if token.startswith("/") else f"{self.directory}/{directory_name(token)}.units"


class Need(NamedTuple):
    """A number of units of one token."""

    token: str
    amount: int
    units: tuple[int, ...] | None = None
    """The only units that will do; None if any will."""


class Ticket(NamedTuple):
    """A request that waits, as every scheduler of the machine sees it."""

    number: int
    scheduler: int
    needs: tuple[Need, ...]
    overtaken: Mapping[str, int] = {}
    """How often a later request took units of a token that this one was short of."""
    parked: bool = False
    """It could not start now even if it had the units, so that no other job waits for it."""


class TicketQueue(NamedTuple):
    """`queue.json`: the tickets, by number."""

    next_number: int = 1
    tickets: tuple[Ticket, ...] = ()

    def encode(self) -> bytes:
        return to_json({"next": self.next_number, "tickets": [_written(ticket) for ticket in self.tickets]})

    @classmethod
    def decode(cls, data: bytes) -> TicketQueue | Corrupt:
        return decode_fields(data, cls._from)

    @classmethod
    def _from(cls, fields: Fields) -> TicketQueue:
        tickets = sorted(map(_ticket, fields.objects("tickets")), key=lambda ticket: ticket.number)
        return cls(fields.integer("next", least=1), tuple(tickets))


class TokenState(NamedTuple):
    """How a token stands."""

    capacity: int | None
    """None for a token that was not declared."""
    held: frozenset[int]

    def free(self) -> list[int]:
        """The free units, the lowest first. Units beyond a capacity that was lowered count while held."""
        free = [unit for unit in range(self.capacity or 0) if unit not in self.held]
        return free[: self.free_count]

    @property
    def free_count(self) -> int:
        """How many may be taken."""
        return max((self.capacity or 0) - len(self.held), 0)


def waiting_text(token: str, amount: int, state: TokenState) -> str:
    """Why a request has to wait."""
    return f"waits for {amount} of token {token} ({len(state.held)} of {state.capacity} units busy)"


class TokenFiles:
    """The tokens of this machine, as one scheduler sees them."""

    def __init__(self, machine: Machine, place: TokenPlace) -> None:
        self.place = place
        self._files = machine.files
        self._locks = machine.locks

    def declare(self, token: str, capacity: int) -> None:
        """Sets the capacity, also while the token is in use."""
        self._files.make_directory(self.place.mutex_directory)
        if self.state(token).capacity != capacity:
            record = to_json({"capacity": capacity})
            self._files.replace(self.place.capacity(token), record, durable=False)

    def state(self, token: str) -> TokenState:
        return TokenState(self.capacity(token), self._locks.locked(self.place.units(token)))

    def capacity(self, token: str) -> int | None:
        if token.startswith("/"):  # a launcher's lock
            return 1
        found = read_record(self._files, self.place.capacity(token), _capacity)
        return None if isinstance(found, Corrupt) else found

    def take(self, token: str, units: tuple[int, ...]) -> tuple[LockHandle, ...] | None:
        """Locks these units, all or none; to be called under the mutex."""
        return self._locks.try_lock_all(self.place.units(token), units)

    def holders(self, token: str) -> tuple[int, ...]:
        """The pids that hold units. Slow: for messages."""
        path = self.place.units(token)
        pids = {pid for unit in self._locks.locked(path) for pid in self._locks.holders(path, unit)}
        return tuple(sorted(pids))

    def try_mutex(self) -> LockHandle | None:
        """The right to change the queue and to take units; None if another process has it."""
        with suppress(FileNotFoundError):
            return self._locks.try_lock(self.place.mutex)
        self._files.make_directory(self.place.mutex_directory)
        return self._locks.try_lock(self.place.mutex)

    def sign_in(self) -> LockHandle:
        """A number for a scheduler, which is its own for as long as it lives; under the mutex."""
        for number in range(_MOST_SCHEDULERS):
            lock = self._locks.try_lock(self.place.schedulers, number)
            if lock is not None:
                return lock
        raise FileTooLarge(f"{self.place.schedulers}: {_MOST_SCHEDULERS} schedulers use tokens at once")

    def living(self) -> frozenset[int]:
        """The numbers of the schedulers that live."""
        return self._locks.locked(self.place.schedulers)

    def queue(self) -> TicketQueue:
        """The tickets that wait. An unreadable one counts as none: its scheduler asks again."""
        try:
            found = TicketQueue.decode(self._files.read(self.place.queue, _LARGEST_QUEUE))
        except (FileNotFoundError, FileTooLarge, NotRegularFile):
            return TicketQueue()
        return TicketQueue() if isinstance(found, Corrupt) else found

    def write_queue(self, queue: TicketQueue) -> None:
        """Replaces the queue; under the mutex."""
        self._files.replace(self.place.queue, queue.encode(), durable=False)


def _written(ticket: Ticket) -> dict[str, object]:
    written: dict[str, object] = {
        "number": ticket.number,
        "scheduler": ticket.scheduler,
        "needs": [
            {"token": need.token, "count": need.amount, **({"units": need.units} if need.units else {})}
            for need in ticket.needs
        ],
    }
    if ticket.overtaken:
        written["overtaken"] = dict(ticket.overtaken)
    if ticket.parked:
        written["parked"] = True
    return written


def _ticket(fields: Fields) -> Ticket:
    return Ticket(
        number=fields.integer("number", least=1),
        scheduler=fields.integer("scheduler"),
        needs=tuple(map(_need, fields.objects("needs"))),
        overtaken={token: int(times) for token, times in fields.numbers("overtaken").items()},
        parked=fields.flag("parked"),
    )


def _need(fields: Fields) -> Need:
    units = None if fields.value("units") is None else fields.integers("units")
    return Need(fields.text("token"), fields.integer("count", least=1), units)


def _capacity(data: bytes) -> int | Corrupt:
    return decode_fields(data, lambda fields: fields.integer("capacity", least=1))
