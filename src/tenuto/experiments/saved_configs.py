"""Configs that a run keeps under a name: where they lie, and what happens to the tasks that they came from.
The format is that of `tasks.saving`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenuto.errors import NotFound, ParameterError
from tenuto.lifecycle.states import TransientMode
from tenuto.light import late
from tenuto.tasks.arguments import text
from tenuto.tasks.graph import configs_in, postorder
from tenuto.tasks.saving import load
from tenuto.tasks.task import Task
from tenuto.workspace.layout import Layout, RunPaths
from tenuto.workspace.ports import Machine

if TYPE_CHECKING:
    from tenuto.experiments import info
else:
    info = late("tenuto.experiments.info")

_LONGEST_NAME = 200


def place_of(run: RunPaths, name: str) -> Path:
    """The directory of what a run keeps under a name."""
    return Path(run.data, saved_name(name))


def newest_saved(machine: Machine, layout: Layout, experiment: str, name: str) -> Path:
    """The directory of what the newest run of an experiment kept under a name; `NotFound` if none did."""
    saved_name(name)
    place, names = info.saved_in(layout, machine, experiment, name)
    if place is None:
        known = f"it kept {', '.join(map(repr, names))}" if names else "it kept nothing"
        raise NotFound(f"no run of experiment {experiment!r} kept {name!r}; {known}")
    return Path(place)


def load_submitted(place: Path) -> Any:
    """What is kept in a directory; tasks that it came from, or depends on, are submitted as transient."""
    value = load(place)
    for _, root in configs_in(value):
        for node in list(postorder(root, lambda node: node._state.job is not None)):
            if node is not root and isinstance(node, Task):
                init_tasks: Any = node._state.init_tasks
                node.submit(transient=TransientMode.TRANSIENT, init_tasks=init_tasks)
    return value


def saved_name(name: str) -> str:
    """A name under which configs are kept: the name of one directory, below that of its run."""
    given = text(name, "the name of what is saved")
    if given in (".", "..") or "/" in given or "\0" in given or len(given.encode()) > _LONGEST_NAME:
        raise ParameterError(
            f"configs cannot be saved as {given!r:.100}: give a name of up to {_LONGEST_NAME} bytes without "
            f"slashes, or use tenuto.save(value, directory)"
        )
    return given
