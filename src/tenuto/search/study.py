"""A study: the core of a search, asked and told by hand, without jobs and without a database.
The same seed and the same outcomes give the same proposals as a search has.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenuto.errors import SearchError
from tenuto.light import late
from tenuto.search.archive import Archive, Elite, Verdict
from tenuto.search.outcome import FINITE, Outcome, check_directions, is_feasible, point, read_outcome
from tenuto.search.proposals import (
    Candidate,
    InFlight,
    Proposal,
    Sampler,
    Setup,
    archive_of,
    begin,
    check_name_and_seed,
    check_sampler,
    definition_of,
    front_of,
    measures_of,
    missing_extra,
    proposals,
    tell,
)
from tenuto.search.spaces import Dimension, Domain, Objects, Space, Untried
from tenuto.tasks.arguments import guarded_by

if TYPE_CHECKING:
    from pathlib import Path

    from tenuto.search import stored_study
    from tenuto.search.stored_study import StoredStudy
else:
    stored_study = late("tenuto.search.stored_study")


def domain_of(
    space: Mapping[str, Dimension] | None, start: Callable[..., Any] | None, vary: Callable[..., Any] | None
) -> Domain:
    """The variables: a space, or objects that two functions make."""
    if space is not None and start is None and vary is None:
        return Space(space)
    if space is None and start is not None and vary is not None:
        return Objects(start, vary)
    raise SearchError(
        "give either space={...}, or start=make(rng) and vary=change(parent, inspirations, rng)"
    )


@guarded_by(SearchError)
class Study:
    """Asks a sampler for candidates and tells it their outcomes, in any order."""

    def __init__(
        self,
        space: Mapping[str, Dimension] | None = None,
        sampler: Any = None,
        *,
        seed: int = 0,
        direction: str | Sequence[str] = "max",
        start: Callable[..., Any] | None = None,
        vary: Callable[..., Any] | None = None,
        database: "str | Path | None" = None,
        name: str | None = None,
    ) -> None:
        """`space`, or `start` and `vary`: the variables; `direction`: "max" or "min", or a list of these.

        `database`: the URL or file where the log of the study called `name` lies, so that several processes
        ask and tell, and one that is started again continues. `SearchDiffers` if it was declared otherwise.
        """
        if sampler is None:
            raise SearchError("give a sampler, such as MapElites(...), RandomSearch() or GridSearch()")
        self._directions = check_directions(direction)
        self._maximize = self._directions[0]
        check_sampler(sampler, len(self._directions))
        self._domain = domain_of(space, start, vary)
        self._seed = seed
        setup = Setup(self._domain, self._maximize, seed, directions=self._directions)
        self._names, self._measure_count = measures_of(sampler)
        self._asked = 0
        self._in_flight: dict[int, Proposal] = {}
        self._known: set[str] = set()
        self._untried = Untried(self._domain)
        self._best: Elite | None = None
        if (database is None) != (name is None):
            raise SearchError("a stored study has both: database=URL, and name= of the study in it")
        self._stored: StoredStudy | None = None
        if database is None or name is None:
            self._sampler = begin(sampler, setup)
            return
        check_name_and_seed(name, seed)
        definition = {
            "space": self._domain.definition(),
            "sampler": definition_of(sampler),
            "seed": seed,
            "direction": direction if isinstance(direction, str) else list(direction),
            "measures": list(self._names),
            "measure_count": self._measure_count,
        }
        with missing_extra():
            kind = stored_study.StoredStudy
        self._stored = kind(database, name, self._domain, lambda: begin(sampler, setup), definition)

    def _run(self) -> Sampler:
        """The sampler as the told outcomes make it, also by other processes."""
        if self._stored is None:
            return self._sampler
        self._stored.replica.read_on()
        return self._stored.replica.sampler

    @property
    def archive(self) -> Archive | None:
        """The sampler's archive, if it keeps one."""
        return archive_of(self._run())

    @property
    def best(self) -> Elite | None:
        """The best candidate that was told; None with several objectives, of which there is a front."""
        if self._stored is None:
            return self._best
        return self._stored.best() if len(self._directions) == 1 else None

    @property
    def front(self) -> list[Elite]:
        """The Pareto front of several objectives; of one, the best alone."""
        front = front_of(self._run())
        best = self.best
        return front if front is not None else [best] if best is not None else []

    def ask(self) -> Candidate | None:
        """The next candidate, never one that was asked before; None when the sampler has nothing to try."""
        if self._stored is not None:
            job = self._stored.ask()
            if job is None:
                return None
            return Candidate(job.number, self._as_asked(job.values), job.parent, job.inspirations)
        number = self._asked + 1
        flying = [InFlight(other, proposal) for other, proposal in self._in_flight.items()]
        for proposal in proposals(self._sampler, self._untried, self._seed, number, flying):
            key = self._domain.key(proposal.values)
            if key not in self._known:
                break
        else:
            return None
        self._known.add(key)
        self._untried.note(proposal.values)
        self._asked = number
        self._in_flight[number] = proposal
        return Candidate(number, self._as_asked(proposal.values), proposal.parent, proposal.inspirations)

    def _as_asked(self, values: Any) -> Any:
        return self._domain.realized(values) if isinstance(self._domain, Space) else values

    def tell(self, number: int, outcome: Outcome | Mapping[str, Any] | float | Any | None) -> Verdict:
        """Tells the outcome of a candidate; None, or an outcome with a failure or not finite: it failed.

        Raises `SearchError` for a value that is no outcome, or lacks the measures that the sampler needs.
        """
        if self._stored is None and number not in self._in_flight:
            raise SearchError(f"candidate {number} was not asked for, or was told already")
        told = (
            None
            if outcome is None
            else read_outcome(outcome, self._names, self._measure_count, len(self._directions))
        )
        if told is not None and told.failure is not None:
            is_meant = getattr(outcome, "failure", None) is not None or (
                isinstance(outcome, Mapping) and outcome.get("failure") is not None
            )
            if not is_meant and not told.failure.endswith(FINITE):
                raise SearchError(f"candidate {number}: {told.failure}; give None if it failed")
            told = None
        if self._stored is not None:
            return self._stored.tell(number, told)
        proposal = self._in_flight[number]
        verdict, cell = tell(self._sampler, number, proposal, told)
        del self._in_flight[number]
        is_counted = told is not None and is_feasible(told) and not told.objectives
        if is_counted and told is not None and told.objective is not None:
            sign = 1 if self._maximize else -1
            if self._best is None or sign * told.objective > sign * self._best.objective:
                self._best = Elite(cell or 0, told.objective, point(told), number, proposal.values)
        return verdict

    def close(self) -> None:
        """Closes the connection to the database of a stored study."""
        if self._stored is not None:
            self._stored.close()
