"""Configs as documents: a flat list of objects, children first, and a value over them.
Writes values in memory; `saving` and the scheduler write files. `deserialization` reads them.
"""

import json
import os.path
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tenuto.errors import MalformedFile, NewerFormat
from tenuto.light import json_encoder, pathlib
from tenuto.tasks.base import ConfigBase, shown, state_of
from tenuto.tasks.graph import configs_in, folders, postorder
from tenuto.tasks.hints import STDOUT, Role
from tenuto.tasks.identity import identity
from tenuto.tasks.live import generated_path, live_class, partial_folder
from tenuto.tasks.location import locate
from tenuto.tasks.methods import caches
from tenuto.tasks.ports import SubmittedJob
from tenuto.tasks.schema import schema_of
from tenuto.tasks.stored_values import compared, defaults_digest
from tenuto.tasks.values import to_json

if TYPE_CHECKING:
    from pathlib import Path

PARAMS_FILE = "params.json"
"""The document of a job, in its directory."""
FORMAT = "tenuto-config"
VERSION = 1
MAX_BYTES = 256 * 1024 * 1024

Document = dict[str, Any]
Renewed = dict[str, dict[str, Any]]
"""By the file of a document: what does not count of its objects, by their numbers, as it was given later."""


# Writing


def state_dict(value: Any) -> Document:
    """A value (a config, or lists, tuples, sets and dicts of configs and values) as plain JSON data."""
    return document(value)


def document(
    value: Any,
    *,
    data: "Callable[[ConfigBase, str, Path], str] | None" = None,
    upstream: Callable[[ConfigBase], Document | None] | None = None,
    generated: dict[tuple[int, str], str] | None = None,
) -> Document:
    """The document of a value.

    `data` stores the file of a `DataPath` and tells its name; `upstream` tells how a task that
    has a job of its own is named, instead of written; `generated` holds the generated paths.
    """
    objects: list[Document] = []
    numbers: dict[int, int] = {}

    def known(config: ConfigBase) -> bool:
        if id(config) in numbers:
            return True
        named = upstream(config) if upstream is not None else None
        if named is not None:
            numbers[id(config)] = len(objects)
            objects.append({"class": list(locate(live_class(type(config)))), **named})
        return named is not None

    def reference(config: ConfigBase) -> int:
        return numbers[id(config)]

    for _, root in configs_in(value):
        for node in postorder(root, known):
            written = _object(node, reference, data, generated or {})
            numbers[id(node)] = len(objects)
            objects.append(written)
    return {"format": FORMAT, "version": VERSION, "objects": objects, "value": to_json(value, reference)}


def _object(
    config: ConfigBase,
    reference: Callable[[ConfigBase], int],
    data: "Callable[[ConfigBase, str, Path], str] | None",
    generated: dict[tuple[int, str], str],
) -> Document:
    cls = live_class(type(config))
    schema = schema_of(cls)
    state = state_of(config)
    values = {}
    files = {}
    uncounted = []
    for name, value in config.__dict__.items():
        role = schema.parameters[name].role
        if role is Role.DATA and data is not None and value is not None:
            files[name] = data(config, name, value)
        elif role is not Role.CONSTANT:
            values[name] = to_json(value, reference)
            if not schema.parameters[name].counted:
                uncounted.append(name)
    paths = {
        name: generated[id(config), name] for name in schema.generators if (id(config), name) in generated
    }
    optional: Document = {
        "uncounted": uncounted,
        "data": files,
        "generated": paths,
        "tags": {name: to_json(value, reference) for name, value in (state.own_tags or {}).items()},
        "stops_tags": state.tags_stop or None,
        "meta": state.is_meta,
        "origin": None if state.origin is None else reference(state.origin),
        "given_out": state.generated_in[1] if state.is_given_out and state.generated_in else None,
        "seed": state.seed,
        "init_tasks": [reference(task) for task in state.init_tasks],
        "identity": identity(config) if caches(cls) else None,
    }
    given = {key: value for key, value in optional.items() if value is not None and value not in ({}, [])}
    return {"type": schema.id, "class": list(locate(cls)), "values": values, **given}


def job_document(
    task: ConfigBase,
    directory: "Path | str",
    partials: "Path | str",
    import_path: Sequence[str],
    logs: tuple[str, str] = ("stdout", "stderr"),
) -> Document:
    """What a job needs to build its task: the document of a submitted task; `logs`: the paths of its logs.

    Tasks with a job of their own are named by their file, so that the documents of a chain
    of tasks do not grow along it, and the workspace can be moved.
    """

    def upstream(config: ConfigBase) -> Document | None:
        job = config._state.job
        if config is task or job is None:
            return None
        named: Document = {"upstream": os.path.relpath(_params_of(job), directory)}
        if config._state.successor is not None:
            named["class"] = list(locate(live_class(type(config._state.successor))))
        news = _renewed_above(config)
        if news:
            named["renewed"] = {os.path.relpath(file, directory): one for file, one in news.items()}
        return named

    written = document(task, upstream=upstream, generated=_generated_paths(task, directory, partials, logs))
    defaults = defaults_digest(task)
    if defaults:
        written["defaults"] = defaults
    # A relative path is one from where the script runs, not the job.
    import_path = [entry if entry[:1] == "/" else os.path.abspath(entry) for entry in import_path]
    return {**written, "identity": identity(task), "import_path": import_path}


def _generated_paths(
    task: ConfigBase, directory: "Path | str", partials: "Path | str", logs: tuple[str, str]
) -> dict[tuple[int, str], str]:
    """The generated paths of a task and of the configs that run in its job, relative to its directory."""
    generated = {}
    for config, folder in folders(task):
        for name, generator in schema_of(type(config)).generators.items():
            if generator.stream is not None:
                log = os.path.join(directory, logs[generator.stream is not STDOUT])
                generated[id(config), name] = os.path.relpath(log, directory)
                continue
            place = pathlib.Path(folder, generator.place(config))
            if generator.partial is not None:
                place = pathlib.Path(partials, partial_folder(config, generator), generator.path)
                place = pathlib.Path(os.path.relpath(place, directory))
            generated[id(config), name] = str(place)
    if not task._state.upstream:
        return generated
    for config in postorder(task, lambda one: one is not task and one._state.job is not None):
        for name in schema_of(type(config)).generators:
            if (id(config), name) not in generated:  # it is of a part that another task gave out
                generated[id(config), name] = os.path.relpath(generated_path(config, name) or "", directory)
    return generated


def _logs(job: SubmittedJob) -> tuple[str, str]:
    return str(job.stdout), str(job.stderr)


def _params_of(job: SubmittedJob) -> str:
    return os.path.join(job.path, PARAMS_FILE)


def _renewed_above(task: Any) -> Renewed:
    """What the script says otherwise than the documents of a task and of those it depends on, by their files.

    The document of a job that was found done is from then: its data may have moved, and a path that is
    generated may have been added since.
    """
    pending = [task]
    while pending:
        upstream = pending[-1]
        above = upstream._state.upstream or ()
        missing = [one for one in above if one._state.renewed is None]
        if missing and upstream._state.renewed is None:
            pending += missing
            continue
        pending.pop()
        if upstream._state.renewed is None:
            news = {file: one for other in above for file, one in (other._state.renewed or {}).items()}
            upstream._state.renewed = {**news, **_renewed(upstream)}
    renewed: Renewed = task._state.renewed
    return renewed


def _renewed(task: Any) -> Renewed:
    job: SubmittedJob | None = task._state.job
    content = job.found_params() if job is not None else None
    if job is None or content is None:
        return {}
    stored = loads(content, _params_of(job))
    news = compared(task, stored, _generated_paths(task, job.path, job.partials, _logs(job))).renewed
    return {_params_of(job): news} if news else {}


_encoded = json_encoder(", ", ": ", allow_nan=False)


def dumps(written: Document) -> bytes:
    """A document as bytes, a line for each of its parts: to indent it all takes ten times as long."""
    parts = [f"{_encoded(name)}: {_encoded(part)}" for name, part in written.items()]
    return ("{\n" + ",\n".join(parts) + "\n}").encode("ascii")


# Reading


def loads(content: bytes, source: str) -> Document:
    """A document from bytes; refuses what Tenuto cannot have written, and newer formats."""
    if len(content) > MAX_BYTES:
        raise MalformedFile(f"{source} is larger than {MAX_BYTES} bytes: it cannot be a stored config")
    try:
        read = json.loads(content, parse_constant=_refuse_constant, object_pairs_hook=_without_duplicates)
    except RecursionError:
        raise MalformedFile(f"{source} is nested too deeply to be a stored config") from None
    except ValueError as error:
        raise MalformedFile(f"{source} is not a stored config ({error})") from None
    return checked(read, source)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> Document:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has the same key twice")
    return found


def checked(read: Any, source: str) -> Document:
    """A document whose outline is right."""
    if not isinstance(read, dict) or read.get("format") != FORMAT:
        raise MalformedFile(f"{source} is not a config stored by Tenuto")
    version = read.get("version")
    if type(version) is not int or version < 1:
        raise MalformedFile(f"{source} has no proper version number, but {shown(version)}")
    if version > VERSION:
        raise NewerFormat(
            f"{source} was written in format {version}; this Tenuto reads up to {VERSION}: "
            f"upgrade Tenuto to read it"
        )
    objects = read.get("objects")
    if not isinstance(objects, list) or not all(isinstance(item, dict) for item in objects):
        raise MalformedFile(f"{source} has no proper list of objects")
    if "value" not in read:
        raise MalformedFile(f"{source} has no value")
    return read
