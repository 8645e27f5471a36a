"""Proposals: what a sampler asks to be tried, the protocol of samplers, and the chance behind a proposal.
Decides nothing; a proposal is a function of the seed, its number and what was told before.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from tenuto.errors import SearchError
from tenuto.light import late
from tenuto.search.archive import Archive, Elite, ParetoFront, Verdict
from tenuto.search.outcome import Outcome
from tenuto.tasks.config import Config

if TYPE_CHECKING:
    import copy
    import random
    from random import Random

    from tenuto.search.spaces import Domain, Untried
else:
    copy = late("copy")
    random = late("random")

_ANSWERS = 2
TRIES = 16
"""How often a sampler is asked anew when it proposed what was tried already."""


class Proposal(NamedTuple):
    """What to try, and where it comes from."""

    values: Any
    parent: int | None = None
    inspirations: tuple[int, ...] = ()
    island: int = 0
    context: Any = None
    """What the task is told beyond what makes its identity; not kept with the proposal."""


class Candidate(NamedTuple):
    """A proposal with its number in the search."""

    number: int
    values: Any
    parent: int | None = None
    inspirations: tuple[int, ...] = ()


class InFlight(NamedTuple):
    """A proposal whose outcome is not known yet."""

    number: int
    proposal: Proposal


class Setup(NamedTuple):
    """What a sampler is begun with: what may vary, which way is better, the seed, the settings' defaults."""

    domain: "Domain"
    maximize: bool = True
    seed: int = 0
    start: int = 16
    inspirations: int = 3
    directions: tuple[bool, ...] = ()
    """Of a search with several objectives, of each whether larger is better."""


@runtime_checkable
class Sampler(Protocol):
    """Proposes what to try and learns from what came back."""

    def ask(self, number: int, rng: "Random", in_flight: Sequence[InFlight]) -> Proposal | None:
        """The proposal of that number; None when there is nothing to try now."""
        ...

    def tell(self, number: int, proposal: Proposal, outcome: Outcome | None) -> tuple[Verdict, int | None]:
        """Learns what came of a proposal (None: it failed); returns the archive's verdict, and the cell."""
        ...


def tell(
    sampler: Sampler, number: int, proposal: Proposal, outcome: Outcome | None
) -> tuple[Verdict, int | None]:
    """Tells a sampler what came of a proposal; `SearchError` if it does not answer as one."""
    answer: Any = sampler.tell(number, proposal, outcome)
    if isinstance(answer, tuple) and len(answer) == _ANSWERS and isinstance(answer[0], Verdict):
        return answer[0], answer[1]
    raise SearchError(
        f"{type(sampler).__name__}.tell() returned {answer!r:.60}: give a Verdict and a cell (or None)"
    )


def check_task(task: Any) -> None:
    """Raises `SearchError` for what is neither a class of tasks nor a config of one."""
    kind = task if isinstance(task, type) else type(task)
    if not issubclass(kind, Config) or not hasattr(kind, "execute"):
        raise SearchError(f"task={task!r:.80} is no task: give a class with an execute(), or a config of one")


def check_sampler(sampler: Any, objectives: int = 1) -> None:
    """Raises `SearchError` for what neither is a sampler nor makes one, or takes not so many objectives."""
    if isinstance(sampler, type):
        raise SearchError(f"sampler={sampler.__name__} is a class: make one, as in {sampler.__name__}(...)")
    if not hasattr(sampler, "begin") and not isinstance(sampler, Sampler):
        raise SearchError(
            f"sampler={sampler!r:.80} is no sampler: it needs ask(number, rng, in_flight) and tell(...)"
        )
    if objectives > 1 and not getattr(sampler, "has_front", False):
        raise SearchError(
            f"{type(sampler).__name__} knows one objective, and direction= has {objectives}: take "
            f'OptunaSampler("nsga2") or "tpe"'
        )


def begin(sampler: Any, setup: Setup) -> Sampler:
    """A fresh sampler: a declared one is begun, one of the user's own is copied."""
    if hasattr(sampler, "begin"):
        begun = sampler.begin(setup)
    else:
        begun = copy.deepcopy(sampler)
    if not isinstance(begun, Sampler):
        raise SearchError(f"{sampler!r} is no sampler: it needs ask(number, rng, in_flight) and tell(...)")
    return begun


def definition_of(sampler: Any) -> dict[str, Any]:
    """What a sampler was declared with, as plain data, to see whether it changed."""
    if hasattr(sampler, "definition"):
        return dict(sampler.definition())
    return {"kind": f"{type(sampler).__module__}.{type(sampler).__qualname__}"}


def archive_of(sampler: Sampler) -> Archive | None:
    """The archive that a sampler keeps, if it keeps one."""
    found = getattr(sampler, "archive", None)
    return found if isinstance(found, Archive) else None


def front_of(sampler: Sampler) -> list[Elite] | None:
    """The Pareto front that a sampler keeps; None with one objective."""
    front = getattr(sampler, "front", None)
    return front.elites() if isinstance(front, ParetoFront) else None


def measures_of(sampler: Any) -> tuple[tuple[str, ...], int | None]:
    """The names of the measures in their order, and how many there must be (None: any number)."""
    return tuple(getattr(sampler, "measures", None) or ()), getattr(sampler, "measure_count", None)


def proposals(
    sampler: Sampler, untried: "Untried", seed: int, number: int, in_flight: Sequence[InFlight]
) -> Iterator[Proposal]:
    """What to try as the candidate of that number: a caller continues as long as it was tried already.

    First what the sampler proposes, then what was not tried, as near to its first proposal as may be. So the
    proposals end when the sampler has nothing to try, or no point of its space is untried. A sampler that has
    `skip(proposal)` goes through the points itself, and is asked to the end.
    """
    skip = getattr(sampler, "skip", None)
    first, attempt = None, 0
    while attempt < TRIES:
        proposal = sampler.ask(number, chance(seed, number, attempt), in_flight)
        if proposal is None:
            return
        if not isinstance(proposal, Proposal):
            raise SearchError(
                f"{type(sampler).__name__}.ask() returned {proposal!r:.60}: give a Proposal(values), or None"
            )
        if untried.has(proposal.values):
            yield proposal
            untried.note(proposal.values)
        first = first or proposal
        if skip is not None:
            skip(proposal)
        else:
            attempt += 1
    if first is not None:
        for values in untried.others(first.values, chance(seed, number, TRIES)):
            yield first._replace(values=values)
            untried.note(values)


def chance(seed: int, number: int, attempt: int) -> "Random":
    """The generator behind a proposal: the same in every process, whatever was drawn before."""
    return random.Random(f"{seed}/{number}/{attempt}")


_NAME = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."
_LONGEST_NAME = 64
_LARGEST_SEED = 1 << 63


def check_name_and_seed(name: str, seed: int) -> None:
    """Raises `SearchError` for what cannot name a search, or seed it."""
    if not name or len(name) > _LONGEST_NAME or set(name) - set(_NAME) or name[0] in ".-":
        raise SearchError(
            f"{name!r:.80} cannot name a search: up to 64 letters, digits, - _ and ., not - or . first"
        )
    if type(seed) is not int or not -_LARGEST_SEED <= seed < _LARGEST_SEED:
        raise SearchError(f"seed={seed!r:.80}: it is a whole number that a database keeps in 64 bits")


@contextmanager
def missing_extra(what: str = "a search", extra: str = "search") -> Iterator[None]:
    """The first use of a module that needs an extra says so if the extra is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("tenuto"):
            raise
        raise SearchError(f"{what} needs {error.name}: pip install 'tenuto[{extra}]'") from None
