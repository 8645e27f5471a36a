"""A git repository as what a search varies: which agent changes it, which commands evaluate it.
A declaration, loaded by every job of the script that names it: runs no git and imports nothing heavy.
"""

from __future__ import annotations

import math
import os.path
from collections.abc import Sequence
from typing import Any

from tenuto.errors import SearchError
from tenuto.light import shlex
from tenuto.tasks.arguments import guarded_by

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
