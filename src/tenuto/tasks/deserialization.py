"""Documents read: as configs, each value checked as if a person had given it, or as live objects.
Reads values in memory; files are read by `saving` and by the runner.
"""

import os.path
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tenuto.errors import ClassNotFound, MalformedFile, ParameterError
from tenuto.light import NamedTuple, pathlib
from tenuto.tasks.base import ConfigBase, class_name, shown, state_of
from tenuto.tasks.config import Config, assign, config_class, fill_factories, open_config, replaced
from tenuto.tasks.live import alive, instantiate
from tenuto.tasks.location import find_class
from tenuto.tasks.methods import IDENTITY_ATTRIBUTE
from tenuto.tasks.schema import Schema, schema_of
from tenuto.tasks.serialization import Document, checked
from tenuto.tasks.tags import add_tag
from tenuto.tasks.task import LightweightTask, Task
from tenuto.tasks.values import from_json, location_from

if TYPE_CHECKING:
    from pathlib import Path


class Upstream(NamedTuple):
    """A task with a job of its own, as another job's document names it."""

    cls: type
    file: str
    """Its document, relative to the folder of the document that names it."""
    renewed: Mapping[str, dict[str, Any]] = {}
    """What is otherwise now than its document, or those of tasks above it, says."""


def from_state_dict(state: Document, *, as_instance: bool = False) -> Any:
    """The value whose state `state_dict` returned: configs, or live objects with `as_instance`.

    Raises `SerializationError` for another state, and `ClassNotFound` for a class that is gone.
    """
    value = read_value(checked(state, "the state"), pathlib.Path.cwd(), no_upstream)
    return instantiate(value, pathlib.Path.cwd()) if as_instance else value


def no_upstream(upstream: Upstream) -> Any:
    raise MalformedFile(f"the task {upstream.cls.__name__} is stored elsewhere, in {upstream.file}")


def read_value(read: Document, directory: "Path | str", upstream: Callable[[Upstream], Any]) -> Any:
    """The value of a document, as configs; every value is checked as if a person had given it."""
    built: list[Any] = []
    for written in read["objects"]:
        cls = _class_of(written)
        if "upstream" in written:
            built.append(upstream(upstream_of(written, cls)))
        else:
            built.append(_config(cls, written, directory, _referrer(built)))
    return from_json(read["value"], _referrer(built))


def read_live(
    read: Document, directory: "Path | str", upstream: Callable[[Upstream], Any], task: Any = None
) -> list[Any]:
    """The objects of a job's own document, live; values are not checked against their types again.

    The task itself is filled into `task` where that is given.
    """
    built: list[Any] = []
    for number, written in enumerate(read["objects"]):
        cls = _class_of(written)
        if "upstream" in written:
            built.append(upstream(upstream_of(written, cls)))
            continue
        schema = schema_of(cls)
        stored = _mapping(written, "values")
        values = {name: from_json(value, _referrer(built)) for name, value in stored.items()}
        for name, path in _mapping(written, "generated").items():
            values.setdefault(name, _within(directory, path, inside=False))
        since = {name: default for name, default in schema.defaults.items() if name not in values}
        for name, parameter in schema.factories:
            if name not in values and parameter.factory is not None:
                since[name] = parameter.convert(parameter.factory())
        values.update(instantiate(since, directory))
        if "identity" in written:
            values[IDENTITY_ATTRIBUTE] = (schema.id, _digest(written["identity"]))
        is_task = task is not None and read["value"] == {"$ref": number}
        if is_task and type(task) is not cls and not _replaces(type(task), schema):
            raise MalformedFile(f"a {class_name(task)} is stored as {cls.__name__}")
        built.append(alive(task if is_task else object.__new__(cls), values))
    return built


def _replaces(cls: type, former: Schema) -> bool:
    """True if a deprecated class, in whose name a task was stored, has this successor."""
    return former.replacement is not None and former.replacement.target is cls


def _digest(written: Any) -> str:
    if not isinstance(written, str) or not re.fullmatch("[0-9a-f]{64}", written):
        raise MalformedFile(f"{shown(written)} is not an identity")
    return written


def upstream_of(written: Document, cls: type) -> Upstream:
    """The upstream task that an entry names."""
    file = written["upstream"]
    if not isinstance(file, str) or "\0" in file:
        raise MalformedFile(f"{shown(file)} is not the file of an upstream task")
    return Upstream(cls, file, _mapping(written, "renewed"))


def renew(read: Document, news: dict[str, Any]) -> None:
    """Has a document say what was given later; refuses what names no object of it."""
    for number, one in news.items():
        if not number.isdigit() or int(number) >= len(read["objects"]) or not isinstance(one, dict):
            raise MalformedFile(f"{shown(number)} does not name an object to renew")
        written = read["objects"][int(number)]
        for part in ("values", "generated"):
            if part in one:
                written[part] = {**_mapping(written, part), **_mapping(one, part)}


def _referrer(built: list[Any]) -> Callable[[int], Any]:
    def referred(number: int) -> Any:
        if not 0 <= number < len(built):
            raise MalformedFile(f"object {number} is used before it is defined")
        return built[number]

    return referred


def _class_of(written: Document) -> type[Config]:
    location = written.get("class")
    if not isinstance(location, list) or len(location) != 3:
        raise MalformedFile(f"{shown(location)} does not name a class")
    cls = find_class(location_from(*location))
    if not isinstance(cls, type) or not issubclass(cls, Config):
        raise MalformedFile(f"{location[0]}.{location[1]} is not a Config class")
    stored = written.get("type", schema_of(cls).id)
    if stored != schema_of(cls).id:
        raise ClassNotFound(
            f"{location[1]} now has the id {schema_of(cls).id}, but {shown(stored)} was stored"
        )
    return cls


def _config(
    cls: type[Config], written: Document, directory: "Path | str", referred: Callable[[int], Any]
) -> Any:
    config: Any = open_config(config_class(cls))
    data = _mapping(written, "data")
    paths = {name: _within(directory, path, inside=True) for name, path in data.items()}
    for name, path in _mapping(written, "generated").items():
        paths[name] = _within(directory, path, inside=False)
    values = {name: from_json(value, referred) for name, value in _mapping(written, "values").items()}
    try:
        for name, value in {**values, **paths}.items():
            assign(config, name, value)
        for name, value in _mapping(written, "tags").items():
            add_tag(config, name, from_json(value, referred))
        fill_factories(config)
    except ParameterError as error:
        raise MalformedFile(f"a stored {class_name(config)} does not fit its class: {error}") from error
    state = state_of(config)
    state.tags_stop = written.get("stops_tags") is True
    meta = written.get("meta")
    state.is_meta = meta if isinstance(meta, bool) else None
    state.origin = _linked(config, written.get("origin"), Task, referred)
    folder = written.get("given_out")
    if state.origin is not None and isinstance(folder, str) and ".." not in folder.split("/"):
        state.is_given_out, state.generated_in = True, (state.origin, folder)
    init_tasks = written.get("init_tasks", [])
    if not isinstance(init_tasks, list):
        raise MalformedFile(f"the init tasks of a stored {class_name(config)} are {shown(init_tasks)}")
    state.init_tasks = tuple(_linked(config, number, LightweightTask, referred) for number in init_tasks)
    return replaced(config)


def _linked(config: ConfigBase, number: Any, kind: type[Config], referred: Callable[[int], Any]) -> Any:
    """The config of some kind that a stored config names by number; None for none."""
    if number is None and kind is Task:
        return None
    found = referred(number) if type(number) is int else None
    if not isinstance(found, kind):
        raise MalformedFile(
            f"a stored {class_name(config)} names {shown(number)}, which is no {kind.__name__}"
        )
    return found


def _mapping(written: Document, key: str) -> dict[str, Any]:
    found = written.get(key, {})
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise MalformedFile(f"{key} of a stored config is {shown(found)}")
    return found


def _within(directory: "Path | str", path: Any, inside: bool) -> "Path":
    if not isinstance(path, str) or "\0" in path:
        raise MalformedFile(f"{shown(path)} is not a path")
    root = os.path.abspath(directory)  # "." would be a parent of every relative path, also of ../x
    place = pathlib.Path(os.path.normpath(os.path.join(root, path)))
    if inside and not place.is_relative_to(root):
        raise MalformedFile(f"the data file {path} lies outside of the stored config")
    return place
