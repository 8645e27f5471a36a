"""The sources of classes that are declared in the cells of a notebook, kept in the workspace for its jobs.
What such a source is, `tasks.notebook` decides.
"""

from __future__ import annotations

from typing import Any

from tenuto.light import sha256
from tenuto.tasks.graph import postorder
from tenuto.tasks.live import live_class
from tenuto.tasks.location import is_of_notebook, keep_class, module_name
from tenuto.tasks.notebook import notebook_shell, source_of
from tenuto.workspace.layout import Layout
from tenuto.workspace.ports import Files

_DIGITS = 12


def keep_cells(files: Files, layout: Layout, task: Any, *, really: bool = True) -> None:
    """Keep the sources of the classes of a task, and of configs in it, that are declared in cells.

    Without `really` nothing is written, and only where they would lie is known. Raises `ClassNotFound` for a
    class that a job could not make again.
    """
    found = dict.fromkeys(live_class(type(config)) for config in postorder(task, lambda _: False))
    classes = [cls for cls in found if is_of_notebook(cls)]
    if not classes:
        return
    source = source_of(classes, notebook_shell()).encode()
    name = f"{module_name('__main__')}-{sha256(source).hexdigest()[:_DIGITS]}.py"
    file = f"{layout.notebooks}/{name}"
    if really and files.stat(file) is None:
        files.make_directory(layout.notebooks)
        files.replace(file, source, durable=False)
    for cls in classes:
        keep_class(cls, file)
