"""Programs as what varies: proposals to change a commit, and what an agent is told about it.
Runs no git and no agent; a proposal is a function of the log, as any other.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tenuto.search.archive import Archive, Verdict
from tenuto.search.outcome import Outcome, point
from tenuto.search.proposals import InFlight, Proposal, Sampler, archive_of

if TYPE_CHECKING:
    from random import Random

    from tenuto.search.repository import Repository
    from tenuto.search.variation import Variation

PROGRAM_TASK = "tenuto.search.commits.EvolveCommit"
"""The task of a candidate that an agent makes, and that a second job evaluates."""
AS_IT_IS = 0
"""The draw of a candidate that is evaluated without an agent: the root, or one that was enqueued."""
_BEST = 3
_FAILURES = 3
_ARTIFACT = 4000
_ARTIFACTS = 8


class Programs:
    """The domain of commits: a child names the commit it is made of, those that inspire it, and a draw."""

    def __init__(self, repository: "Repository") -> None:
        self.repository = repository

    def definition(self) -> dict[str, Any]:
        return self.repository.definition()

    def draw(self, rng: "Random") -> dict[str, Any]:
        """A child of the root, which the sampler of programs fills in."""
        return {"parent": None, "inspirations": [], "draw": 1 + rng.getrandbits(31)}

    def vary(
        self, variation: "Variation", parent: Any, second: Any, inspirations: Sequence[Any], rng: "Random"
    ) -> dict[str, Any]:
        return {
            "parent": parent["commit"],
            "inspirations": [other["commit"] for other in inspirations],
            "draw": 1 + rng.getrandbits(31),
        }

    def key(self, values: Any) -> str:
        return repr(values)


class ProgramRun:
    """A sampler of commits around any other: it begins with the root, and knows what to tell agents."""

    def __init__(self, inner: Sampler, root: Callable[[], str], maximize: bool) -> None:
        """`root`: finds the commit to begin with; asked once in the life of a search."""
        self._inner = inner
        self._find_root = root
        self._sign = 1.0 if maximize else -1.0
        self._root: tuple[int, str] | None = None
        self._is_begun = False
        self._records: dict[str, dict[str, Any]] = {}
        self._best: list[dict[str, Any]] = []
        self._failures: dict[str, list[str]] = {}

    @property
    def archive(self) -> Archive | None:
        return archive_of(self._inner)

    @property
    def root(self) -> str:
        """The commit that the search began with, or will begin with."""
        return self._find_root() if self._root is None else self._root[1]

    def ask(self, number: int, rng: "Random", in_flight: Sequence[InFlight]) -> Proposal | None:
        if self._root is None:
            if self._is_begun or any(one.proposal.values["draw"] == AS_IT_IS for one in in_flight):
                return None  # no agent is paid before the root was evaluated
            return Proposal(as_it_is(self._find_root()))
        proposal = self._inner.ask(number, rng, in_flight)
        if proposal is None:
            return None
        if proposal.values["parent"] is None:
            first, commit = self._root
            proposal = proposal._replace(values={**proposal.values, "parent": commit}, parent=first)
        return proposal._replace(context=self._context(proposal.values))

    def tell(self, number: int, proposal: Proposal, outcome: Outcome | None) -> tuple[Verdict, int | None]:
        values = proposal.values
        if values["draw"] == AS_IT_IS:
            self._is_begun = True
        if outcome is None:
            return self._inner.tell(number, proposal, None)
        commit = str(outcome.solution)
        if values["draw"] == AS_IT_IS and (self._root is None or number == 1):
            self._root = (number, commit)
        self._record(number, commit, outcome)
        return self._inner.tell(number, proposal._replace(values={"commit": commit}), outcome)

    def tell_failure(self, proposal: Proposal, message: str) -> None:
        """Remembers why the last children of a commit failed."""
        failures = self._failures.setdefault(proposal.values["parent"], [])
        failures.append(message[-_ARTIFACT:])
        del failures[:-_FAILURES]

    def _record(self, number: int, commit: str, outcome: Outcome) -> None:
        artifacts = list(outcome.artifacts.items())[:_ARTIFACTS]
        record = {
            "number": number,
            "commit": commit,
            "objective": outcome.objective,
            "measures": list(point(outcome)),
            "metrics": dict(outcome.metrics),
            "artifacts": {str(name): str(text)[-_ARTIFACT:] for name, text in artifacts},
        }
        self._records[commit] = record
        worth = (record["objective"], record["measures"])
        if any((one["objective"], one["measures"]) == worth for one in self._best):
            return  # most likely the same files: an agent learns nothing from reading them twice
        self._best.append(record)
        self._best.sort(key=lambda one: (-self._sign * one["objective"], one["number"]))
        del self._best[_BEST:]

    def _context(self, values: dict[str, Any]) -> dict[str, Any]:
        inspirations = [self._records.get(commit, {"commit": commit}) for commit in values["inspirations"]]
        assert self._root is not None
        return {
            "root": self._root[1],
            "parent": self._records.get(values["parent"], {"commit": values["parent"]}),
            "inspirations": [_brief(record) for record in inspirations],
            "best": [_brief(record) for record in self._best],
            "failures": list(self._failures.get(values["parent"], ())),
        }


def as_it_is(commit: str) -> dict[str, Any]:
    """The values of a commit that is evaluated without an agent."""
    return {"parent": commit, "inspirations": [], "draw": AS_IT_IS}


def _brief(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "artifacts"}
