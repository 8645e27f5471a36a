"""A git repository as what a search varies: which agent changes it, which commands evaluate it.
A declaration, loaded by every job of the script that names it: runs no git and imports nothing heavy.
"""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from typing import Any

from tenuto.errors import SearchError
from tenuto.light import shlex

Command = str | Sequence[str]
DEFAULT_MEASURES = ("complexity", "diversity")
DEFAULT_RANGES = {"complexity": (0.0, 2.0), "diversity": (0.0, 1.0)}
"""The size of the program against that of the root, and the part of its lines that differ from the root."""


class Repository:
    """Programs: each candidate is a commit that an agent made of its parent.

    `path`: the repository; `agent`: a command that changes the files in its working directory; `evaluate`: a
    command whose last line of output is the outcome as JSON, or several: stage i + 1 runs if the objective
    reached ``thresholds[i]``; `goal`: what the agent is told to achieve; `root`: the commit to begin with;
    `protect`: paths that agents cannot change (by default the files that `evaluate` names); `agent_s` and
    `evaluate_s`: how many seconds each command may take.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        agent: Command,
        evaluate: Command | Sequence[Command],
        goal: str = "",
        root: str = "HEAD",
        protect: Sequence[str] | None = (),
        agent_s: float | None = None,
        evaluate_s: float | None = None,
        thresholds: Sequence[float] = (),
    ) -> None:
        self.path = os.path.abspath(os.fspath(path))
        self.agent = _command(agent, "agent")
        self.evaluate = _commands(evaluate)
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
        if len(self.thresholds) > max(len(self.evaluate) - 1, 0):
            raise SearchError(
                f"Repository: {len(self.thresholds)} thresholds stand between {len(self.evaluate)} evaluate "
                f"commands: give one less than commands"
            )
        outside = [path for path in self.protect if os.path.isabs(path) or ".." in path.split("/")]
        if outside:
            raise SearchError(f"Repository: protect={outside[0]!r} is not a path inside the repository")

    def __repr__(self) -> str:
        return f"Repository({self.path!r})"

    def definition(self) -> dict[str, Any]:
        return {
            "agent": list(self.agent),
            "evaluate": [list(command) for command in self.evaluate],
            "goal": self.goal,
            "root": self.root,
            "protect": list(self.protect),
            "thresholds": list(self.thresholds),
        }


def _command(command: Any, name: str) -> tuple[str, ...]:
    if isinstance(command, str):
        command = shlex.split(command)
    if not command or not all(isinstance(word, str) for word in command):
        raise SearchError(f"Repository: {name}={command!r:.80} is no command: give its words as a list")
    return tuple(command)


def _commands(given: Any) -> tuple[tuple[str, ...], ...]:
    if isinstance(given, str) or not given or isinstance(given[0], str):
        return (_command(given, "evaluate"),)
    return tuple(_command(command, "evaluate") for command in given)


def _seconds(value: Any, name: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise SearchError(f"Repository: {name}={value!r} is not a number of seconds above 0")
    return float(value)
