"""The names that Loreley gives to the parts of a search's loop: thin covers of those of `tenuto.search`.
`tenuto.search` offers them as its own; an `experiment_id` is the name of a search.
"""

from __future__ import annotations

from typing import Any, Protocol

from tenuto.errors import SearchError
from tenuto.search.rows import Refusal
from tenuto.search.search_loop import CandidateMaker, Console, Dispatcher, ScheduledJob, SearchLoop
from tenuto.settings import Settings


class JobSampler(Protocol):
    """What a `JobScheduler` asks for new jobs: a `MapElitesSampler`, or an object of the user's."""

    def schedule_job(self, *, experiment_id: str) -> Any: ...


class MapElitesSampler:
    """Makes jobs of a search from the proposals of any sampler; an `Evolution` has one."""

    def __init__(self, maker: CandidateMaker) -> None:
        self.maker = maker

    @property
    def refusal(self) -> Refusal | None:
        """Why the last call added nothing, where it was not the sampler that had nothing."""
        return self.maker.refusal

    def schedule_job(self, *, experiment_id: str, priority: int | None = None) -> ScheduledJob | None:
        """Adds the next candidate; None if the sampler has none, or `refusal` says why not.

        Raises `SearchError` if that is not the name of its search.
        """
        own = self.maker.replica.name
        if experiment_id != own:
            raise SearchError(f"experiment_id={experiment_id!r:.80}: this sampler makes jobs of {own}")
        return self.maker.make(priority)


class _AskedByName:
    """A sampler as a dispatcher asks it."""

    def __init__(self, sampler: JobSampler, experiment_id: str) -> None:
        self._sampler = sampler
        self._experiment_id = experiment_id

    @property
    def refusal(self) -> Refusal | None:
        return getattr(self._sampler, "refusal", None)

    def make(self, priority: int | None = None) -> Any:
        return self._sampler.schedule_job(experiment_id=self._experiment_id)


class _Face(type):
    """The type of a class that is another one under a second name: instances of that one are its own."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.__mro__[1])


class JobScheduler(Dispatcher, metaclass=_Face):
    """Makes and dispatches the jobs of one search."""

    def __init__(
        self, settings: Settings, console: Console, sampler: JobSampler, experiment_id: str, **more: Any
    ) -> None:
        """`more`: `store` and `queue`, by default where the settings say."""
        super().__init__(settings, console, _AskedByName(sampler, experiment_id), experiment_id, **more)


class EvolutionScheduler(SearchLoop, metaclass=_Face):
    """Runs one search, beside any number of others on the same one."""

    def __init__(
        self,
        settings: Settings,
        console: Console,
        sampler: MapElitesSampler,
        experiment_id: str,
        *,
        agent: Any = None,
        **more: Any,
    ) -> None:
        """`agent`: a worker of this process; `more`: `store` and `queue`, as for a `JobScheduler`."""
        super().__init__(settings, console, sampler.maker, experiment_id, worker=agent, **more)
