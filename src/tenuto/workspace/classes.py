"""Which file a task id of this workspace belongs to: two modules of one name must not share results.
It decides by the place and the content of the file; which classes are asked for is the caller's decision.
"""

from __future__ import annotations

from tenuto.errors import WorkspaceError
from tenuto.light import sha256
from tenuto.workspace.json_bytes import from_json, to_json
from tenuto.workspace.layout import Layout
from tenuto.workspace.ports import Files
from tenuto.workspace.records import Fields

_LIMIT = 64 * 1024
_SOURCE_LIMIT = 64 << 20


def claim_task_id(files: Files, layout: Layout, task_id: str, script: str) -> str | None:
    """Remember that a task id is a class of this script; another script that has it already, if there is one.

    A script that was moved, or copied without a change, takes the id along.
    """
    path = layout.task_class(task_id)
    digest = _digest(files, script)
    known = _read(files, path)
    if known is not None and known[0] != script and _is_there(files, known[0]):  # noqa: SIM102
        # Asked in this order, since to digest a file is to read it.
        if digest not in (known[1], _digest(files, known[0])):
            return known[0]
    if known != (script, digest):
        files.make_directory(path.rpartition("/")[0])
        files.replace(path, to_json({"script": script, "sha256": digest}), durable=False)
    return None


def _digest(files: Files, script: str) -> str:
    try:
        return sha256(files.read(script, _SOURCE_LIMIT)).hexdigest()
    except (OSError, WorkspaceError):
        return ""


def _is_there(files: Files, script: str) -> bool:
    try:
        return files.stat(script) is not None
    except OSError:
        return False  # what cannot be looked at cannot be run either


def _read(files: Files, path: str) -> tuple[str, str] | None:
    try:
        fields = Fields(from_json(files.read(path, _LIMIT)))
        script, digest = fields.text("script"), fields.text("sha256")
    except (OSError, WorkspaceError, ValueError):
        return None
    return None if "\0" in script else (script, digest)
