"""Tokens as a script sees them: counted resources of a machine, of which jobs ask for units.
They are values; the queue for them is in `token_queue`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from tenuto.errors import TokenError
from tenuto.tasks.arguments import guarded_by, refused, text
from tenuto.tasks.base import is_config
from tenuto.workspace.layout import directory_name
from tenuto.workspace.ports import LockHandle, Machine
from tenuto.workspace.records import TokenUnits
from tenuto.workspace.token_files import (
    MOST_UNITS,
    Need,
    Ticket,
    TokenFiles,
    TokenPlace,
    TokenState,
    waiting_text,
)

T = TypeVar("T")

_VISIBLE = "CUDA_VISIBLE_DEVICES"
GPU_TOKEN = "cuda-devices"


@guarded_by(TokenError)
class CounterToken:
    """A resource with a number of units, shared by all schedulers of this machine.

    ::

        licences = xp.token("licences", 4)
        licences(2, Train.C(lr=0.1)).submit()
    """

    def __init__(self, name: str, count: int, directory: str) -> None:
        """`name`: of the token on this machine; `count`: how many units it has; `directory`: where the
        machine keeps its tokens, which `xp.token` knows. `InvalidName` or `TokenError` for an impossible one.
        """
        directory_name(text(name, "the name of a token"))
        if name.startswith("/"):
            raise TokenError(f"a token cannot be called {name!r}: its name must not begin with a slash")
        self._check(name, count)
        self.name = name
        self.count = count
        self.directory = directory

    def _check(self, name: str, count: int) -> None:
        _check_count(name, count)
        if count > MOST_UNITS:
            raise TokenError(f"token {name!r} would have {count} units, at most {MOST_UNITS} are possible")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.count})"

    def dependency(self, count: int = 1) -> TokenDependency:
        """So many units (`count`) to hold while a task runs, for `add_dependencies`; else `TokenError`."""
        _check_count(self.name, count)
        return TokenDependency(self, count)

    def __call__(self, count: int, task: T) -> T:
        """Has the task hold units while it runs; returns the task."""
        config: Any = task
        if not is_config(config) or not type(config).__is_task__:
            raise refused(f"{self.name}(count, task)", "a task, such as Train.C(...), after the number", task)
        config.add_dependencies(self.dependency(count))
        return task

    is_fixed = False
    """Whether its units are things with a number of their own."""

    @property
    def capacity(self) -> int:
        """How far its units are numbered."""
        return self.count

    def need(self, count: int) -> Need:
        """What the queue is told of a request for so many units (`count`)."""
        return Need(self.name, count)

    def environment(self, units: Sequence[int]) -> Mapping[str, str]:
        """The variables that tell a job which units it has."""
        return {}

    def _recorded(self) -> dict[str, Any]:
        """What a retry must know of it besides its name, count and directory."""
        return {}


class GpuToken(CounterToken):
    """The GPUs that this process may use, one unit each."""

    def __init__(self, devices: Mapping[int, str], directory: str) -> None:
        """`devices`: number of the device on this machine -> its name in ``CUDA_VISIBLE_DEVICES``."""
        super().__init__(GPU_TOKEN, len(devices), directory)
        self.devices = dict(devices)

    def _check(self, name: str, count: int) -> None:
        """Where there is no GPU, jobs that need one can still be reused."""

    is_fixed = True

    @property
    def capacity(self) -> int:
        return max(self.devices, default=-1) + 1

    def need(self, count: int) -> Need:
        return Need(self.name, count, tuple(sorted(self.devices)))

    def environment(self, units: Sequence[int]) -> Mapping[str, str]:
        return {_VISIBLE: ",".join(self.devices[unit] for unit in units)}

    def _recorded(self) -> dict[str, Any]:
        return {"devices": {str(unit): name for unit, name in self.devices.items()}}


class TokenDependency(NamedTuple):
    """Units of a token that a job holds while it runs."""

    token: CounterToken
    amount: int


class Grant:
    """What a job got: its lock and its units, or the knowledge that another scheduler runs it."""

    def __init__(
        self,
        lock: LockHandle | None,
        units: Iterable[TokenUnits] = (),
        handles: Iterable[LockHandle] = (),
        environment: Mapping[str, str] | None = None,
        directory: str | None = None,
    ) -> None:
        self.lock = lock
        self.directory = directory
        self.units = tuple(units)
        self.handles = tuple(handles)
        self.environment: Mapping[str, str] = environment or {}

    def close(self) -> None:
        """Releases everything that was not passed on."""
        for handle in self.handles:
            handle.close()
        if self.lock is not None:
            self.lock.close()


NO_TOKENS = Grant(None)


def declare(machine: Machine, token: CounterToken) -> None:
    """Lets every scheduler of the machine know how many units there are."""
    if not token.capacity:
        return
    files = TokenFiles(machine, TokenPlace(token.directory))
    known = files.capacity(token.name)
    if token.is_fixed and known is not None:  # others may see devices that this process does not
        files.declare(token.name, max(known, token.capacity))
    else:
        files.declare(token.name, token.capacity)


def needs_of(dependencies: Iterable[TokenDependency], lock_path: str | None) -> tuple[Need, ...]:
    """What a job needs besides its own lock, in the one order in which every scheduler takes it."""
    counts: dict[str, tuple[CounterToken, int]] = {}
    for token, count in dependencies:
        known = counts.get(token.name)
        counts[token.name] = (token, count + (known[1] if known else 0))
    needs = [token.need(count) for token, count in counts.values()]
    if lock_path is not None:
        needs.append(Need(lock_path, 1))
    return tuple(sorted(needs))


def place_of(dependencies: Sequence[TokenDependency], default: str) -> TokenPlace:
    """Where the tokens of one job lie: they must lie together, to be taken together."""
    directories = {token.directory for token, _ in dependencies} or {default}
    if len(directories) > 1:
        raise TokenError(f"a job cannot hold tokens of {' and '.join(sorted(directories))} at once")
    return TokenPlace(directories.pop())


def recorded(dependencies: Iterable[TokenDependency]) -> list[dict[str, Any]]:
    """The units that a job holds while it runs, as its launch record keeps them."""
    return [
        {
            "token": token.name,
            "amount": amount,
            "count": token.count,
            "directory": token.directory,
            **token._recorded(),
        }
        for token, amount in dependencies
    ]


def from_record(written: Iterable[Mapping[str, Any]]) -> list[TokenDependency]:
    """What `recorded` wrote, to be had again; of GPUs the devices visible to the script.

    Raises `ValueError`, `TypeError`, `KeyError` or `AttributeError` for anything else.
    """
    asked: list[TokenDependency] = []
    for fields in written:
        directory = str(fields["directory"])
        if "devices" in fields:
            devices = {int(unit): str(device) for unit, device in fields["devices"].items()}
            token: CounterToken = GpuToken(devices, directory)
        else:
            token = CounterToken(str(fields["token"]), fields["count"], directory)
        asked.append(token.dependency(fields["amount"]))
    return asked


def beyond(need: Need, capacity: int) -> str | None:
    """Why a request can never be granted; None if it can."""
    if need.units is not None:
        capacity = sum(unit < capacity for unit in need.units)
    return _too_many(need.token, need.amount, capacity) if need.amount > capacity else None


def _too_many(name: str, count: int, capacity: int) -> str:
    if name == GPU_TOKEN and not capacity:
        return f"it needs a GPU, and none is visible here: see nvidia-smi, and the variable {_VISIBLE}"
    return (
        f"{count} units of token {name!r} are asked for, but it has only {capacity}: "
        f"ask for fewer, or raise its count"
    )


def _check_count(name: str, count: Any) -> None:
    if type(count) is not int or count < 1:
        raise TokenError(f"token {name!r}: a number of units must be an integer from 1 up, not {count!r:.60}")


# Which of the jobs that wait for tokens may start, by the tickets and the free units alone.


PATIENCE_S = 10.0
"""How long a ticket of another scheduler may be able to start, and not start, before it is ignored."""
MOST_OVERTAKINGS = 10
"""How often later requests may take units that an earlier one is short of."""

Picks = Mapping[str, tuple[int, ...]]
"""token -> units."""


class Decision(NamedTuple):
    """What one look at the queue led to."""

    tickets: tuple[Ticket, ...]
    """The tickets that still wait, each with how often it was passed."""
    able: frozenset[int]
    """The numbers of tickets that could start, and that other schedulers are to start."""


def decide(
    tickets: Sequence[Ticket],
    free: Mapping[str, Sequence[int]],
    *,
    ignored: Callable[[Ticket], bool],
    claim: Callable[[Ticket, Picks], bool | None],
) -> Decision:
    """Goes through the tickets by number, and grants each that fits.

    `ignored`: tickets that neither get anything nor keep another from it. `claim` is called for one that can
    start: True if it is the caller's own and has taken the units, False if it has not, None if it is
    another scheduler's, which is on the way to take them.
    """
    left = {token: list(units) for token, units in free.items()}
    waiting: list[Ticket] = []
    passed: list[int] = []
    """Where in `waiting` those stand that are short of something, and for whom nothing is kept."""
    able: set[int] = set()
    for ticket in tickets:
        if ignored(ticket):
            waiting.append(ticket)
            continue
        picks = _picks(ticket, left)
        if _is_short(ticket, picks):
            if _is_due(ticket, picks):
                _remove(left, picks)  # kept for it, until it has all
            else:
                passed.append(len(waiting))
            waiting.append(ticket)
            continue
        claimed = claim(ticket, {token: tuple(units) for token, units in picks.items()})
        if claimed is not True:
            waiting.append(ticket)
        if claimed is None:
            able.add(ticket.number)
        if claimed is not False:
            _remove(left, picks)
        if claimed is True:
            passed = [position for position in passed if _still_passed(waiting, position, picks, left)]
    return Decision(tuple(waiting), frozenset(able))


def _still_passed(
    waiting: list[Ticket], position: int, taken: Mapping[str, Sequence[int]], left: dict[str, list[int]]
) -> bool:
    """Counts an overtaking; if that was one too many, the rest is kept for the ticket from now on."""
    ticket = waiting[position] = _overtaken(waiting[position], taken, left)
    picks = _picks(ticket, left)
    if not _is_due(ticket, picks):
        return True
    _remove(left, picks)
    return False


def _picks(ticket: Ticket, left: Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
    return {need.token: _fitting(need, left)[: need.amount] for need in ticket.needs}


def _is_short(ticket: Ticket, picks: Mapping[str, Sequence[int]]) -> bool:
    return any(len(picks[need.token]) < need.amount for need in ticket.needs)


def _is_due(ticket: Ticket, picks: Mapping[str, Sequence[int]]) -> bool:
    """Whether it was overtaken often enough on everything that it is short of."""
    short = [need.token for need in ticket.needs if len(picks[need.token]) < need.amount]
    return all(ticket.overtaken.get(token, 0) >= MOST_OVERTAKINGS for token in short)


def _fitting(need: Need, left: Mapping[str, Sequence[int]]) -> Sequence[int]:
    units = left.get(need.token, ())
    return units if need.units is None else [unit for unit in units if unit in need.units]


def _remove(left: dict[str, list[int]], picks: Mapping[str, Sequence[int]]) -> None:
    for token, units in picks.items():
        gone = set(units)
        left[token] = [unit for unit in left.get(token, ()) if unit not in gone]


def _overtaken(ticket: Ticket, picks: Mapping[str, Sequence[int]], left: Mapping[str, list[int]]) -> Ticket:
    """The ticket, with one overtaking more on each token whose units were taken from before it."""
    overtaken = dict(ticket.overtaken)
    for need in ticket.needs:
        usable = [unit for unit in picks.get(need.token, ()) if need.units is None or unit in need.units]
        if usable and len(_fitting(need, left)) < need.amount:
            overtaken[need.token] = min(overtaken.get(need.token, 0) + 1, MOST_OVERTAKINGS)
    return ticket._replace(overtaken=overtaken)


def tokens_of(tickets: list[Ticket]) -> list[str]:
    """The tokens that tickets ask for, in one order: no step may depend on the hashes of names."""
    return sorted({need.token for ticket in tickets for need in ticket.needs})


def names_of(needs: tuple[Need, ...]) -> tuple[str, ...]:
    """The names of the tokens that a job needs units of."""
    return tuple(need.token for need in needs)


def why_waiting(needs: tuple[Need, ...], states: Mapping[str, TokenState]) -> str:
    """What a job with a ticket waits for, in words."""
    for need in needs:
        state = states.get(need.token)
        if state is not None and state.free_count < need.amount:
            return waiting_text(need.token, need.amount, state)
    return f"waits its turn for token {', '.join(need.token for need in needs)}"


class Absentees:
    """The tickets whose schedulers let them wait though they could start: nothing is kept for them."""

    def __init__(self) -> None:
        self._able_since: dict[int, float] = {}
        self._numbers: set[int] = set()

    def __contains__(self, number: int) -> bool:
        return number in self._numbers

    def note(self, able: Collection[int], left: Collection[Ticket], own: int, now: float) -> None:
        """Take the numbers that could start now, and the tickets left; `own`: the caller's scheduler."""
        self._able_since = {number: self._able_since.get(number, now) for number in able}
        self._numbers |= {number for number, since in self._able_since.items() if now - since >= PATIENCE_S}
        self._numbers &= {ticket.number for ticket in left if ticket.scheduler != own}
