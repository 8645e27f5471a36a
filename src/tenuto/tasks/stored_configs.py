"""Stored configs: documents read back as configs or live objects, and directories with their data files.
Each value is checked as if a person had given it; `serialization` writes the documents.
"""

from __future__ import annotations

import os
import os.path
import re
import stat
from _thread import RLock
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenuto.errors import ClassNotFound, MalformedFile, ParameterError, SerializationError
from tenuto.light import NamedTuple, pathlib, shutil
from tenuto.tasks.arguments import guarded
from tenuto.tasks.base import ConfigBase, class_name, is_config, shown, state_of
from tenuto.tasks.config import Config, assign, config_class, fill_factories, open_config, replaced
from tenuto.tasks.live import alive, has_init, instantiate, set_live_state
from tenuto.tasks.location import find_class
from tenuto.tasks.methods import IDENTITY_ATTRIBUTE
from tenuto.tasks.ports import job_context
from tenuto.tasks.schema import Schema, schema_of
from tenuto.tasks.seeds import declared_seed, whole_seed
from tenuto.tasks.serialization import (
    MAX_BYTES,
    PARAMS_FILE,
    Document,
    Renewed,
    checked,
    document,
    dumps,
    loads,
)
from tenuto.tasks.tags import add_tag
from tenuto.tasks.task import LightweightTask, Task, run_to_end
from tenuto.tasks.values import from_json, location_from

if TYPE_CHECKING:
    from pathlib import Path


class Upstream(NamedTuple):
    """A task with a job of its own, as another job's document names it."""

    cls: type
    file: str
    """Its document, relative to the folder of the document that names it."""
    renewed: Mapping[str, dict[str, Any]] = {}
    """The values that differ now from its document, or from documents of tasks above it."""


@guarded
def from_state_dict(state: Document, *, as_instance: bool = False) -> Any:
    """The value whose state `state_dict` returned: configs, or live objects with `as_instance`.

    Raises `SerializationError` for another state, and `ClassNotFound` for a class that is gone.
    """
    value = read_value(checked(state, "the state"), pathlib.Path.cwd(), no_upstream)
    return instantiate(value, pathlib.Path.cwd()) if as_instance else value


def no_upstream(upstream: Upstream) -> Any:
    raise MalformedFile(f"the task {upstream.cls.__name__} is stored elsewhere, in {upstream.file}")


def read_value(read: Document, directory: Path | str, upstream: Callable[[Upstream], Any]) -> Any:
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
    read: Document, directory: Path | str, upstream: Callable[[Upstream], Any], task: Any = None
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
    """Has a document say the later values; refuses a name of no object in it."""
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
    cls: type[Config], written: Document, directory: Path | str, referred: Callable[[int], Any]
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
    if "seed" in written:
        state.seed = whole_seed(written["seed"], f"the seed of a stored {class_name(config)}")
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


def _within(directory: Path | str, path: Any, inside: bool) -> Path:
    if not isinstance(path, str) or "\0" in path:
        raise MalformedFile(f"{shown(path)} is not a path")
    root = os.path.abspath(directory)  # "." would be a parent of every relative path, also of ../x
    place = pathlib.Path(os.path.normpath(os.path.join(root, path)))
    if inside and not place.is_relative_to(root):
        raise MalformedFile(f"the data file {path} lies outside of the stored config")
    return place


CONFIG_FILE = "config.json"


@guarded
def save(value: Any, directory: Path | str) -> None:
    """Saves a value to a directory: a config, or lists, tuples, sets and dicts of configs and values.

    Files of a `DataPath` are copied; `SerializationError` names the first that cannot be.
    """
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    copied: list[str] = []

    def copy_data(_: ConfigBase, name: str, path: Path) -> str:
        path = pathlib.Path(os.path.abspath(path))
        place = f"data/{len(copied)}-{name}/{path.name}"
        copied.append(place)
        target = directory / place
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.exists() and target.samefile(path):
                pass  # loaded from here, and saved here again
            elif path.is_dir():
                shutil.copytree(path, target, dirs_exist_ok=True)
            else:
                shutil.copy2(path, target)
        except OSError as error:
            raise SerializationError(f"the data file {path} of {name} cannot be copied: {error}") from error
        return place

    content = dumps(document(value, data=copy_data))
    part = directory / f"{CONFIG_FILE}.part"
    part.write_bytes(content)
    os.replace(part, directory / CONFIG_FILE)


@guarded
def load(directory: Path | str, *, as_instance: bool = False) -> Any:
    """What `save` wrote to a directory, as configs, or as live objects with `as_instance`.

    Raises `SerializationError` for a file that cannot be read, and `ClassNotFound` for a class that is gone.
    """
    directory = os.path.abspath(directory)
    value = read_value(_read(f"{directory}/{CONFIG_FILE}"), directory, no_upstream)
    return instantiate(value, directory) if as_instance else value


@guarded
def serialize(config: Config, directory: Path | str, *, init_tasks: Sequence[LightweightTask] = ()) -> None:
    """Saves `config` to `directory`, so that `deserialize` gives the live object, after its `init_tasks`."""
    save({"config": config, "init_tasks": list(init_tasks)}, directory)


@guarded
def deserialize(directory: Path | str) -> Any:
    """The live object that `serialize` wrote to a directory; its init tasks have run. Raises as `load`."""
    stored = load(directory)
    if (
        not isinstance(stored, dict)
        or set(stored) != {"config", "init_tasks"}
        or not is_config(stored["config"])
        or not isinstance(stored["init_tasks"], list)
        or not all(isinstance(task, LightweightTask) for task in stored["init_tasks"])
    ):
        raise MalformedFile(f"{directory} was not written by serialize(): use load()")
    live = instantiate(stored, directory)
    for init_task in live["init_tasks"]:
        run_to_end(init_task.execute())
    return live["config"]


def read_task(directory: str, read_from: Callable[[str], bytes], *, as_instance: bool = False) -> Any:
    """The task whose job has this directory, with the tasks it depends on; live with `as_instance`.

    `read_from`: reads a file of such a directory. Raises as `load`.
    """
    directory = os.path.abspath(directory)
    tasks: dict[str, Any] = {}
    opened: dict[str, Document] = {}
    waiting = [f"{directory}/{PARAMS_FILE}"]
    while waiting:
        file = waiting[-1]
        read = opened[file] if file in opened else opened.setdefault(file, loads(read_from(file), file))
        needed = [_upstream_file(file, entry["upstream"]) for entry in read["objects"] if "upstream" in entry]
        missing = [other for other in needed if other not in tasks]
        if any(other in opened for other in missing):
            raise MalformedFile(f"{file} depends on itself")
        if missing:
            waiting.extend(dict.fromkeys(missing))
            continue
        waiting.pop()
        if file not in tasks:

            def built(upstream: Upstream, file: str = file) -> Any:
                return tasks[_upstream_file(file, upstream.file)]

            tasks[file] = read_value(read, os.path.dirname(file), built)
    task = tasks[f"{directory}/{PARAMS_FILE}"]
    return instantiate(task, directory) if as_instance else task


def read_job(
    directory: Path | str, task: Any = None, renewed: Renewed | None = None
) -> tuple[Any, list[Any]]:
    """The live task of a job's directory, and its init tasks, for the process that runs it.

    The tasks it depends on are filled in when first used: a job at the end of a long
    chain reads only the tasks that it touches.
    """
    return build_job(read_params(directory), directory, task, renewed)


def read_params(directory: Path | str) -> Document:
    """The document of the job that has this directory."""
    return _read(os.path.join(directory, PARAMS_FILE))


def job_classes(read: Document) -> list[type]:
    """The classes of the configs in the document of a job, but for tasks with a job of their own."""
    return [_class_of(written) for written in read["objects"] if "upstream" not in written]


def declared_outputs(read: Document, logs: Collection[str]) -> list[str]:
    """The generated paths in the directory of a job, relative to it; `logs`: the names of its own logs."""
    found: dict[str, None] = {}
    for written in read["objects"]:
        for path in _mapping(written, "generated").values() if "upstream" not in written else ():
            if isinstance(path, str) and path[:2] != ".." and path[:1] != "/" and path not in logs:
                found[path] = None
    return list(found)


def seed_in(read: Document) -> int | None:
    """The seed in the document of a job, whose classes are imported for that; None if it was given none."""
    number = read["value"].get("$ref") if isinstance(read["value"], dict) else None
    found = None
    for position, written in enumerate(read["objects"]):
        cls = _class_of(written)
        if position == number and "upstream" not in written:
            found = written.get("seed", declared_seed(schema_of(cls), _mapping(written, "values")))
    return None if found is None else whole_seed(found, "the seed of the job")


def build_job(
    read: Document, directory: Path | str, task: Any = None, renewed: Renewed | None = None
) -> tuple[Any, list[Any]]:
    """What `read_job` returns, of a document that was read.

    `renewed`: by file, what the job that is built for says otherwise than the documents of those before it.
    """
    file = os.path.join(directory, PARAMS_FILE)
    later = renewed or {}
    if file in later:
        renew(read, later[file])
    objects = read_live(
        read, os.path.dirname(file), lambda upstream: _filled_on_first_use(file, upstream, later), task
    )

    def at(number: Any) -> Any:
        if type(number) is not int or not 0 <= number < len(objects):
            raise MalformedFile(f"{file} names an object by {number!r}")
        return objects[number]

    value = read["value"]
    number = value.get("$ref") if isinstance(value, dict) else None
    live = at(number)
    init_tasks = read["objects"][number].get("init_tasks", [])
    if not isinstance(init_tasks, list):
        raise MalformedFile(f"{file} names its init tasks by {init_tasks!r}")
    return live, [at(position) for position in init_tasks]


def _filled_on_first_use(file: str, upstream: Upstream, later: Renewed) -> Any:
    live: Any = object.__new__(upstream.cls)
    own = {_upstream_file(file, other): news for other, news in upstream.renewed.items()}
    fill = _Filling(os.path.dirname(_upstream_file(file, upstream.file)), {**own, **later})
    set_live_state(live, fill)
    if has_init(upstream.cls):
        fill(live)  # another base would look for what its __init__ makes, and knows nothing of this
    return live


class _Filling:
    """Fills in a live task from its job's directory, once, whichever thread asks first; reads its result.

    An object that is still to be filled can be pickled, for a task may send its model to
    worker processes before it looked at it.
    """

    def __init__(self, directory: str, renewed: Renewed | None = None, filled: bool = False) -> None:
        self.directory = directory
        self.renewed = renewed or {}
        self.lock = RLock()
        self.begun = self.filled = filled

    def __call__(self, task: Any) -> None:
        with self.lock:
            if self.begun:  # by __post_init__, which asks for an attribute that is not set yet
                return
            self.begun = True
            try:
                read_job(self.directory, task, self.renewed)
            except BaseException:
                self.begun = False  # the next use tries again, and fails with the same reason
                raise
            self.filled = True

    def result(self) -> Any:
        """What the task returned in its job."""
        return job_context().result(self.directory)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Filling, (self.directory, self.renewed, self.filled)


def upstream_files(content: bytes, directory: str) -> list[str]:
    """The files of the tasks that the parameters of a job name; none for what is no document of ours."""
    file = f"{directory}/{PARAMS_FILE}"
    try:
        objects = loads(content, file)["objects"] if b'"upstream"' in content else ()
        return [_upstream_file(file, one["upstream"]) for one in objects if "upstream" in one]
    except SerializationError:
        return []


def _upstream_file(file: str, relative: Any) -> str:
    if not isinstance(relative, str):
        raise MalformedFile(f"{file} names an upstream task by {relative!r}")
    return os.path.normpath(os.path.join(os.path.dirname(file), relative))


def _read(file: str) -> Document:
    return loads(read_stored(file), file)


def read_stored(file: str) -> bytes:
    """The content of a regular file of sane size: a pipe put in its place must not make us wait."""
    try:
        with open(file, "rb", opener=_without_waiting) as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise MalformedFile(f"{file} is not a regular file")
            if status.st_size > MAX_BYTES:
                raise MalformedFile(f"{file} is larger than {MAX_BYTES} bytes: it cannot be a stored config")
            return stream.read(status.st_size + 1)  # a limit is the size of the buffer too
    except (OSError, ValueError) as error:
        raise SerializationError(f"{file} cannot be read: {error}") from None


def _without_waiting(file: str, flags: int) -> int:
    return os.open(file, flags | os.O_NONBLOCK)
