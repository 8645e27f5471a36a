"""What a `CommandTask` asks its job to run, for the instructions of an attempt.
Reads the task; `payload` runs the command.
"""

from __future__ import annotations

from typing import Any

from tenuto.launchers.instructions import Command
from tenuto.tasks import CommandTask
from tenuto.tasks.base import is_config, state_of
from tenuto.tasks.seeds import SEED_VARIABLE, seed_of
from tenuto.workspace.json_bytes import to_json
from tenuto.workspace.records import RECORD_LIMIT

_LONGEST = RECORD_LIMIT // 2
IN_PARAMETERS = Command(())
"""A command that its job reads from its parameters, which takes longer."""


def command_of(task: Any) -> Command | None:
    """The command of a task, given as a config or live; None if it is a task in Python."""
    return written_command(task) if isinstance(task, CommandTask) else None


def written_command(task: CommandTask) -> Command:
    """The command that a task is, or the word that its parameters have it."""
    files = {name: str(file.source) for name, file in task.files.items()}
    command = Command(tuple(task.command), files)
    if is_config(task) and (state_of(task).init_tasks or len(to_json(command)) > _LONGEST):
        return IN_PARAMETERS
    return command


def environment_of(task: Any) -> dict[str, str]:
    """The variables that a task itself adds to its environment."""
    if not isinstance(task, CommandTask):
        return {}
    seed = seed_of(task) if is_config(task) else None
    return {**({} if seed is None else {SEED_VARIABLE: str(seed)}), **task.environment}
