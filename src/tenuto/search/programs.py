"""Programs as what varies: the repository that a script declares, and proposals to change a commit of it.
Runs no git and no agent, and loads nothing heavy: every job of the script that names a repository imports it.
"""

from __future__ import annotations

import math
import os.path
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tenuto.errors import SearchError
from tenuto.light import shlex
from tenuto.search.archive import Archive, Verdict
from tenuto.search.outcome import Outcome, point
from tenuto.search.proposals import InFlight, Proposal, Sampler, archive_of
from tenuto.tasks.arguments import guarded_by

if TYPE_CHECKING:
    from random import Random

    from tenuto.search.map_elites import Variation

Command = str | Sequence[str]
AGENT_S = 900.0
EVALUATE_S = 300.0
DEFAULT_MEASURES = ("complexity", "diversity")
"""The size of the program against that of the root, and the part of its lines that differ from the root."""


@guarded_by(SearchError)
class Repository:
    """Programs: each candidate is a commit that an agent made of its parent.

    `path`: the repository; `agent`: a command that changes the files in its working directory, or several,
    drawn for each candidate by their `weights` (by default equal); `evaluate`: a
    command whose last line of output is the outcome as JSON, or several: stage i + 1 runs if the objective
    reached ``thresholds[i]``; `goal`: what the agent is told to achieve; `root`: the commit to begin with;
    `protect`: paths that agents cannot change (by default the files that `evaluate` names); `agent_s` and
    `evaluate_s`: how many seconds each command may take (None: any number).

    Both are confined by bubblewrap where it works, unless `confine` is "none": they see the system and
    what their commands name, read-only, their checkout, and no variables but PATH, LANG, those of the search
    and `pass_variables`; evaluations have no network. `agent_home`: a directory that is the agent's home.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        agent: Command | Sequence[Command],
        evaluate: Command | Sequence[Command],
        goal: str = "",
        root: str = "HEAD",
        protect: Sequence[str] | None = (),
        agent_s: float | None = AGENT_S,
        evaluate_s: float | None = EVALUATE_S,
        thresholds: Sequence[float] = (),
        weights: Sequence[float] = (),
        confine: str = "auto",
        pass_variables: Sequence[str] = (),
        agent_home: str | os.PathLike[str] | None = None,
    ) -> None:
        self.path = os.path.abspath(os.fspath(path))
        self.agents = _commands(agent, "agent")
        self.weights = _weights(weights, len(self.agents))
        self.evaluate = _commands(evaluate, "evaluate")
        self.goal = goal
        self.root = root
        if isinstance(protect, str):
            raise SearchError(
                f"Repository: protect={protect!r} is one path: give a list, as in [{protect!r}]"
            )
        self.protect = tuple(protect or ())
        self.agent_s = _seconds(agent_s, "agent_s")
        self.evaluate_s = _seconds(evaluate_s, "evaluate_s")
        self.thresholds = tuple(float(threshold) for threshold in thresholds)
        if not all(map(math.isfinite, self.thresholds)):
            raise SearchError(f"Repository: thresholds={list(thresholds)!r}: each is a finite number")
        if len(self.thresholds) > max(len(self.evaluate) - 1, 0):
            raise SearchError(
                f"Repository: {len(self.thresholds)} thresholds stand between {len(self.evaluate)} evaluate "
                f"commands: give one less than commands"
            )
        if confine not in ("auto", "none"):
            raise SearchError(f'Repository: confine={confine!r}: it is "auto" or "none"')
        self.confine = confine
        if isinstance(pass_variables, str):
            raise SearchError(f"Repository: pass_variables={pass_variables!r} is one name: give a list")
        self.pass_variables = tuple(pass_variables)
        for name in self.pass_variables:
            if not name or any(one in name for one in " \t\n=\0"):
                raise SearchError(f"Repository: pass_variables: {name!r} is no name of a variable")
        self.agent_home = None if agent_home is None else os.path.abspath(os.fspath(agent_home))
        if self.agent_home is not None and not os.path.isdir(self.agent_home):
            raise SearchError(f"Repository: agent_home={self.agent_home!r}: there is no such directory")
        outside = [path for path in self.protect if os.path.isabs(path) or ".." in path.split("/")]
        if outside:
            raise SearchError(f"Repository: protect={outside[0]!r} is not a path inside the repository")

    def __repr__(self) -> str:
        return f"Repository({self.path!r})"

    def definition(self) -> dict[str, Any]:
        several = {"agents": [list(words) for words in self.agents], "weights": list(self.weights)}
        return {
            **({"agent": list(self.agents[0])} if len(self.agents) == 1 else several),
            "evaluate": [list(command) for command in self.evaluate],
            "goal": self.goal,
            "root": self.root,
            "protect": list(self.protect),
            "thresholds": list(self.thresholds),
        }


def _command(command: Any, name: str) -> tuple[str, ...]:
    if isinstance(command, str):
        try:
            command = shlex.split(command)
        except ValueError as error:
            raise SearchError(f"Repository: {name}={command!r:.80}: {error}") from None
    if not command or not all(isinstance(word, str) for word in command):
        raise SearchError(f"Repository: {name}={command!r:.80} is no command: give its words as a list")
    return tuple(command)


def _commands(given: Any, name: str) -> tuple[tuple[str, ...], ...]:
    if isinstance(given, str) or not given or isinstance(given[0], str):
        return (_command(given, name),)
    return tuple(_command(command, name) for command in given)


def _weights(given: Sequence[float], count: int) -> tuple[float, ...]:
    weights = tuple(given) or (1.0,) * count
    is_sound = all(type(one) in (int, float) and 0 < one < float("inf") for one in weights)
    if len(weights) != count or not is_sound:
        raise SearchError(f"Repository: weights={list(given)!r:.80}: give a number above 0 for each agent")
    return tuple(float(one) for one in weights)


def _seconds(value: Any, name: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise SearchError(f"Repository: {name}={value!r} is not a number of seconds above 0; None: any time")
    return float(value)


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

    def __init__(self, repository: Repository) -> None:
        self.repository = repository

    def definition(self) -> dict[str, Any]:
        return self.repository.definition()

    def draw(self, rng: Random) -> dict[str, Any]:
        """A child of the root, which the sampler of programs fills in."""
        return {"parent": None, "inspirations": [], "draw": 1 + rng.getrandbits(31)}

    def vary(
        self, variation: Variation, parent: Any, second: Any, inspirations: Sequence[Any], rng: Random
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

    def ask(self, number: int, rng: Random, in_flight: Sequence[InFlight]) -> Proposal | None:
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
