"""Configs in directories: saved with their data files, loaded back, or read from a job.
`serialization` decides what the files contain.
"""

from __future__ import annotations

import os
import stat
from _thread import RLock
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tenuto.errors import MalformedFile, SerializationError
from tenuto.light import pathlib, shutil
from tenuto.tasks.base import ConfigBase, is_config
from tenuto.tasks.config import Config
from tenuto.tasks.deserialization import Upstream, no_upstream, read_live, read_value, renew
from tenuto.tasks.live import has_init, instantiate, set_live_state
from tenuto.tasks.ports import job_context
from tenuto.tasks.serialization import MAX_BYTES, PARAMS_FILE, Document, Renewed, document, dumps, loads
from tenuto.tasks.task import LightweightTask, run_to_end

if TYPE_CHECKING:
    from pathlib import Path

CONFIG_FILE = "config.json"


def save(value: Any, directory: Path | str) -> None:
    """Saves a value to a directory: a config, or lists, tuples, sets and dicts of configs and values.

    Files of a `DataPath` are copied; `SerializationError` names one that cannot be.
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


def load(directory: Path | str, *, as_instance: bool = False) -> Any:
    """What `save` wrote to a directory, as configs, or as live objects with `as_instance`.

    Raises `SerializationError` for what cannot be read, and `ClassNotFound` for a class that is gone.
    """
    directory = os.path.abspath(directory)
    value = read_value(_read(f"{directory}/{CONFIG_FILE}"), directory, no_upstream)
    return instantiate(value, directory) if as_instance else value


def serialize(config: Config, directory: Path | str, *, init_tasks: Sequence[LightweightTask] = ()) -> None:
    """Saves `config` to `directory`, so that `deserialize` gives the live object, after its `init_tasks`."""
    save({"config": config, "init_tasks": list(init_tasks)}, directory)


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


def from_task_dir(directory: Path | str, *, as_instance: bool = False) -> Any:
    """The task whose job has this directory, with the tasks it depends on; live with `as_instance`.

    Raises as `load`.
    """
    directory = os.path.abspath(directory)
    tasks: dict[str, Any] = {}
    opened: dict[str, Document] = {}
    waiting = [f"{directory}/{PARAMS_FILE}"]
    while waiting:
        file = waiting[-1]
        read = opened[file] if file in opened else opened.setdefault(file, _read(file))
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
    chain reads only what it touches.
    """
    return build_job(read_params(directory), directory, task, renewed)


def read_params(directory: Path | str) -> Document:
    """The document of the job that has this directory."""
    return _read(os.path.join(directory, PARAMS_FILE))


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
            if self.begun:  # by __post_init__, which asks for what it did not set yet
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


def _upstream_file(file: str, relative: Any) -> str:
    if not isinstance(relative, str):
        raise MalformedFile(f"{file} names an upstream task by {relative!r}")
    return os.path.normpath(os.path.join(os.path.dirname(file), relative))


def _read(file: str) -> Document:
    """Reads a regular file of sane size: a pipe put in its place must not make us wait."""
    try:
        with open(file, "rb", opener=_without_waiting) as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise MalformedFile(f"{file} is not a regular file")
            if status.st_size > MAX_BYTES:
                raise MalformedFile(f"{file} is larger than {MAX_BYTES} bytes: it cannot be a stored config")
            content = stream.read(status.st_size + 1)  # a limit is the size of the buffer too
    except (OSError, ValueError) as error:
        raise SerializationError(f"{file} cannot be read: {error}") from None
    return loads(content, file)


def _without_waiting(file: str, flags: int) -> int:
    return os.open(file, flags | os.O_NONBLOCK)
