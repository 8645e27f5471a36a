"""`tenuto adopt`: done jobs of a workspace of experimaestro 2.x become jobs of Tenuto, with their files.
Reads the other workspace and changes nothing there; it is known by the files that it leaves, not by its code.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import click

from tenuto.cli.console import note, print_json, say
from tenuto.cli.options import json_option
from tenuto.cli.session import output_for_json
from tenuto.compat.experimaestro import install
from tenuto.errors import LaunchRefused, NotFound, TenutoError
from tenuto.experiments.checked_arguments import RunMode
from tenuto.experiments.experiment import experiment
from tenuto.experiments.grids import shaped
from tenuto.experiments.submissions import Intent
from tenuto.jobs.text import counted, safe
from tenuto.launchers.instructions import Instructions, Limits
from tenuto.launchers.outputs import OutputsWriter, plain, way_to
from tenuto.launchers.protocols import EndedProcess, StartOrder
from tenuto.lifecycle.states import JobState, StateRecord, TransientMode
from tenuto.tasks.base import is_config, state_of
from tenuto.tasks.grid import alternatives
from tenuto.tasks.hints import UNSET, PathGenerator, Role
from tenuto.tasks.identity import identity, setmeta
from tenuto.tasks.live import partial_folder
from tenuto.tasks.location import Location, find_class
from tenuto.tasks.ports import current_job
from tenuto.tasks.schema import schema_of
from tenuto.tasks.tags import tags
from tenuto.tasks.task import Task, made_meanwhile
from tenuto.workspace import job_directory
from tenuto.workspace.attempt_files import keep_record
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.markers import Marker
from tenuto.workspace.ports import Machine
from tenuto.workspace.records import LaunchRecord, PidRecord, StatusRecord

if TYPE_CHECKING:
    from tenuto.launchers.requirements import Alternative


@click.command()
@click.argument("path", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--workspace", "-w", metavar="PATH", default="workspace", show_default=True, help="Where jobs go."
)
@click.option(
    "--name", default="adopted", show_default=True, help="The experiment that they become a run of."
)
@click.option("--dry-run", is_flag=True, help="Say which jobs would be taken over; write nothing.")
@click.option("--link", is_flag=True, help="Link files instead of copying them: both workspaces share them.")
@json_option
def command(path: Path, workspace: str, name: str, dry_run: bool, link: bool, as_json: bool) -> None:
    """Take over the done jobs of PATH, a workspace that experimaestro 2.x wrote; nothing is changed there.

    Run it where the modules of the tasks can be imported. They may import from experimaestro still: here that
    name leads to Tenuto's. Jobs that cannot be taken over are listed with the reason, and the exit code is 1.
    """
    install()
    sys.path.insert(0, os.getcwd())
    with output_for_json(as_json):
        ends = list(adopt(path.resolve(), workspace, name, dry_run=dry_run, link=link))
    left = [end for end in ends if end.key is None]
    if as_json:
        print_json({"dry_run": dry_run, "jobs": [_plain(end) for end in ends]})
    else:
        for end in left:
            say(safe(f"{end.old}: {end.reason}"))
        new = [end for end in ends if end.key is not None and not end.reason]
        there = len(ends) - len(left) - len(new)
        would = "would be taken over" if dry_run else "taken over"
        note(
            f"{counted(len(new), 'job')} {would}"
            + (f", {there} there already" if there else "")
            + (f", {len(left)} not" if left else "")
        )
    if left:
        sys.exit(1)


def _plain(end: AdoptedJob) -> dict[str, Any]:
    return {
        "from": str(end.old.path),
        "task": end.old.task,
        "identifier": end.old.identifier,
        "job": end.key,
        "reason": end.reason or None,
    }


PARAMS = "params.json"
_OWN_FOLDER = ".experimaestro"
_OWN_ENDINGS = (".lock", ".pid", ".done", ".failed", ".py")
_KNOWN = {"id", "module", "type", "typename", "identifier", "task", "file", "fields", "init-tasks", "meta"}
_SURROUNDINGS = {"python", "packages", "commit", "dirty", "diff"}
"""What a record tells of where a job ran: that was there, and not here."""
_PLACE = re.compile(r",? at \S+:\d+")
"""Where a script made a config; here it is never a line of the user's."""


class OldJob(NamedTuple):
    """A job of the other workspace."""

    task: str
    identifier: str
    path: Path

    @property
    def name(self) -> str:
        """The name that its files have."""
        return self.task.rpartition(".")[2]

    def __str__(self) -> str:
        return f"{self.task}/{self.identifier[:8]}"


class AdoptedJob(NamedTuple):
    """What became of a job of the other workspace."""

    old: OldJob
    key: str | None = None
    """As Tenuto calls it; None: it was not taken over."""
    reason: str = ""
    """Why it was not; or `there already`."""


class RegisteredOutput(NamedTuple):
    """What a task of the other workspace handed to the watchers of a method while it ran."""

    config: Any
    way: tuple[str | int, ...]
    """From the task to the config whose method it is."""
    method: str
    arguments: list[Any]
    named: dict[str, Any]


class CannotAdopt(TenutoError):
    """A job, or a job that it uses, cannot be taken over."""


def old_jobs(workspace: Path) -> list[OldJob]:
    """The jobs of a workspace of experimaestro, by task and identifier."""
    jobs = workspace / "jobs"
    first = next(jobs.glob(f"*/*/{PARAMS}"), None)
    if first is None:
        raise NotFound(
            f"{workspace} is no workspace of experimaestro 2.x: it has no jobs/TASK/IDENTIFIER/{PARAMS}"
        )
    if b'"import_path"' in first.read_bytes():
        raise NotFound(f"{workspace} is a workspace of Tenuto: copy or move it as it is, and give it as -w")
    return [OldJob(path.parent.name, path.name, path) for path in sorted(jobs.glob("*/*")) if path.is_dir()]


def adopt(
    source: Path, workdir: Path | str, name: str, *, dry_run: bool = False, link: bool = False
) -> Iterator[AdoptedJob]:
    """Take over the done jobs of `source` as a run of `name` in `workdir`; say what became of each job.

    `link`: files are hard links to the files of the other workspace, not copies.
    """
    olds = old_jobs(source)
    given = _tags(source)
    launcher = CopyLauncher(link=link)
    mode = RunMode.DRY_RUN if dry_run else RunMode.NORMAL
    ends: list[tuple[AdoptedJob, Any]] = []
    opened = experiment(
        workdir, name, run_mode=mode, launcher=launcher, dirty_git="ignore", raise_on_failure=False
    )
    target = Path(opened.workspace.layout.root).resolve()
    if target.is_relative_to(source):
        raise CannotAdopt(f"{target} lies in {source}, where nothing is changed: give another place with -w")
    with TemporaryDirectory() as launcher.scratch, opened as xp:
        launcher.machine = xp._scheduler.machine
        launcher.partials_folder = xp.workspace.layout.partials
        reader = _Reader({old.identifier: old for old in olds}, launcher, given)
        for old in olds:
            try:
                config = reader.submitted(old)
                job = config.job
                ends.append((AdoptedJob(old, f"{job.task_id}/{job.job_id}"), job))
            except TenutoError as error:
                ends.append((AdoptedJob(old, reason=str(error)), None))
        plan, xp.plan = {planned.job.job_id: planned for planned in xp.plan}, []  # each job is told below
    for end, job in ends:
        planned = plan.pop(job.job_id, None) if dry_run and job is not None else None
        if planned is not None and planned.intent is Intent.REFUSE:
            yield end._replace(key=None, reason=planned.why)
        elif end.key is None or end.old in launcher.copied or (planned is not None and planned.intent.runs):
            yield end
        elif dry_run:
            yield end._replace(reason="there already")
        elif end.old in launcher.failures or job.state is not JobState.DONE:
            why = launcher.failures.get(end.old)
            why = why or f"it cannot be submitted here: {job.state_record.message}"
            yield end._replace(key=None, reason=why)
        else:
            yield end._replace(reason="there already")


def _tags(source: Path) -> dict[str, dict[str, Any]]:
    """The tags of jobs by identifier, as the newest run that has the job gave them."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(source.glob("experiments/*/*/jobs.jsonl"), key=lambda path: path.parent.name):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                written = json.loads(line)
                found[written["job_id"]] = dict(written.get("tags") or {})
            except (ValueError, KeyError, TypeError):
                continue  # a torn line: tags name jobs, they do not decide which jobs are taken over
    return found


class _Reader:
    """Makes configs of documents, and submits the tasks among them once each."""

    def __init__(self, olds: Mapping[str, OldJob], launcher: CopyLauncher, given: Mapping[str, Any]) -> None:
        self._olds, self._launcher, self._tags = olds, launcher, given
        self._made: dict[OldJob, tuple[Any, Any] | str] = {}
        self._gone: dict[OldJob, tuple[Any, Any]] = {}
        """The tasks that others used and whose jobs are no more."""
        self._parts: dict[tuple[OldJob, str], Any] = {}
        """The configs of a job by their identifiers there: its outputs name them so."""
        self._pending: set[OldJob] = set()
        """The jobs that are being read: a job that uses itself through others is damaged."""

    def submitted(self, old: OldJob) -> Any:
        """The submitted config of a job; raises `CannotAdopt` with the reason if there is none."""
        return self._submission(old)[0]

    def _submission(self, old: OldJob) -> tuple[Any, Any]:
        if old not in self._made:
            if old in self._pending:
                raise CannotAdopt("it uses itself")
            self._pending.add(old)
            try:
                self._made[old] = self._submit(old)
            except KeyError as error:
                self._made[old] = f"its {PARAMS} has an object without {error}"
            except SystemExit as error:
                self._made[old] = f"its module ends the program when it is imported: SystemExit({error.code})"
            except Exception as error:  # noqa: BLE001  modules and classes of the user run here
                self._made[old] = " ".join(_PLACE.sub("", str(error)).split())
        made = self._made[old]
        if isinstance(made, str):
            raise CannotAdopt(made)
        return made

    def _submit(self, old: OldJob) -> tuple[Any, Any]:
        if not (old.path / f"{old.name}.done").is_file():
            has_failed = (old.path / f"{old.name}.failed").exists()
            has_begun = (old.path / f"{old.name}.pid").exists()
            why = "it runs there, or was killed" if has_begun else "it is not done there"
            raise CannotAdopt("it failed there" if has_failed else why)
        try:
            objects = {one["id"]: one for one in json.loads((old.path / PARAMS).read_bytes())["objects"]}
            last = next(reversed(objects.values()))
        except FileNotFoundError:
            raise CannotAdopt(f"it has no {PARAMS}") from None
        except (OSError, ValueError, TypeError, StopIteration, RecursionError) as error:
            raise CannotAdopt(f"its {PARAMS} cannot be read: {error}") from None
        config = self._config(last, objects, old)
        if not isinstance(config, Task):
            raise CannotAdopt(f"{last.get('typename')} is no task")
        for name, value in self._tags.get(old.identifier, {}).items():
            if name not in tags(config):
                config.tag(name, value)
        init_tasks = [self._object(number, objects, old) for number in last.get("init-tasks", ())]
        state_of(config).init_tasks = tuple(init_tasks)
        self._launcher.outputs[old] = list(self._outputs(config, old))
        self._launcher.sources[identity(config)] = old
        return config, config.submit(init_tasks=init_tasks)

    def _outputs(self, task: Any, old: OldJob) -> Iterator[RegisteredOutput]:
        """What the job handed to its watchers while it ran: its watchers here are handed it again."""
        try:
            text = (old.path / _OWN_FOLDER / "task-outputs.jsonl").read_text("utf-8", errors="replace")
        except FileNotFoundError:
            return
        for line in text.splitlines():
            try:
                written = json.loads(line)
                identifier, _, method = written["key"].rpartition("/")
                arguments, named = plain(written["args"]), plain(written["kwargs"])
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # the torn line of an attempt that was killed
            config = self._parts.get((old, identifier))
            way = None if config is None else way_to(config, task)
            if way is None or not callable(getattr(config, method, None)):
                raise CannotAdopt(f"it registered outputs of a {method}(), which it does not have any more")
            yield RegisteredOutput(config, way, method, arguments, named)

    def _removed(self, gone: OldJob, task: Mapping[str, Any], objects: Mapping[Any, Any]) -> tuple[Any, Any]:
        """A task whose job was removed there, as others used it; it leaves nothing here either."""
        if gone not in self._gone:
            config = self._config(task, objects, gone)
            output = config.submit(workspace=self._launcher.scratch, transient=TransientMode.REMOVE)
            self._gone[gone] = config, output
        return self._gone[gone]

    def _given_out(self, config: Any, output: Any, old: OldJob) -> Iterator[Any]:
        """The configs that a job gave out at its submission, then those it handed to watchers."""
        yield from _inside(output)
        for handed in self._launcher.outputs.get(old, ()):
            method = getattr(handed.config, handed.method)
            yield from _inside(method(made_meanwhile(config), *handed.arguments, **handed.named))

    def _object(self, number: Any, objects: Mapping[Any, Any], old: OldJob) -> Any:
        written = objects.get(number)
        if not isinstance(written, dict):
            raise CannotAdopt(f"its {PARAMS} names an object that is not in it")
        task = objects.get(written.get("task"))
        if task is None or task["identifier"] == old.identifier:
            return self._config(written, objects, old)  # a task may give out a config that it was given
        identifier = str(task["identifier"])
        upstream = self._olds.get(identifier)
        try:
            if upstream is None:
                upstream = OldJob(str(task["typename"]), identifier, old.path.parents[1] / "-" / identifier)
                config, output = self._removed(upstream, task, objects)
            else:
                config, output = self._submission(upstream)
        except CannotAdopt as error:
            raise CannotAdopt(f"it uses {upstream}, which cannot be taken over: {error}") from None
        if written is task:
            return config if output is None else output
        for made in self._given_out(config, output, upstream):
            if self._is_alike(made, written, objects):
                return made
        raise CannotAdopt(
            f"it uses a {written['typename']} that {upstream} made, and that is not found in its outputs"
        )

    def _is_alike(self, made: Any, written: Any, objects: Mapping[Any, Any]) -> bool:
        """Whether a value that a task gives out now is the written one; paths by their last part."""
        if is_config(made):
            if isinstance(written, dict) and written.get("type") == "python":
                written = objects.get(written.get("value"))
            if not isinstance(written, dict) or type(made).__name__ != written.get("type"):
                return False
            fields = written["fields"]
            return all(
                self._is_alike(getattr(made, name), fields[name], objects)
                for name, parameter in schema_of(type(made)).parameters.items()
                if parameter.counted and name in fields
            )
        if isinstance(made, list | tuple | set | frozenset):
            is_same = isinstance(written, list) and len(made) == len(written)
            return is_same and all(self._is_alike(a, b, objects) for a, b in zip(made, written, strict=True))
        if isinstance(written, dict) and str(written.get("type")).startswith("path"):
            return isinstance(made, Path) and made.name == Path(written["value"]).name
        if isinstance(made, dict):
            is_same = isinstance(written, dict) and made.keys() == written.keys()
            return is_same and all(self._is_alike(a, written[name], objects) for name, a in made.items())
        if isinstance(made, Enum):
            return made.value == written or (isinstance(written, dict) and made.name == written.get("value"))
        return bool(made == written)

    def _config(self, written: Mapping[str, Any], objects: Mapping[Any, Any], old: OldJob) -> Any:
        if more := ", ".join(sorted(written.keys() - _KNOWN)):
            raise CannotAdopt(f"its {written.get('typename')} has {more}, which Tenuto cannot read")
        file, module = str(written.get("file") or ""), str(written["module"])
        if module == "__main__":
            module = Path(file).stem
        cls = _imported(module, str(written["type"]), file)
        if not (isinstance(cls, type) and hasattr(cls, "C")):
            raise CannotAdopt(
                f"{module}.{written['type']} is no config: does its module import them from tenuto?"
            )
        declared = schema_of(cls).parameters
        values: dict[str, Any] = {}
        partials: list[tuple[PathGenerator, Path]] = []
        for name, value in written["fields"].items():
            parameter = declared.get(name)
            if parameter is None:
                raise CannotAdopt(f"{cls.__name__} declares no {name} any more")
            if parameter.generator is not None:
                if parameter.generator.partial is not None and isinstance(value, dict):
                    partials.append((parameter.generator, Path(*Path(value["value"]).parts[:4])))
                continue  # it lies in the job's directory, wherever that is
            if value is None and parameter.ignored is not UNSET and not parameter.ignored:
                continue  # experimaestro has None for a falsy `ignore_default` that was not given
            read = _typed(self._value(value, objects, old), parameter.declaration.annotation)
            if parameter.role is Role.CONSTANT:
                if read != parameter.default:
                    raise CannotAdopt(
                        f"the constant {cls.__name__}.{name} was {read!r}, and is {parameter.default!r} now"
                    )
                continue
            values[name] = read
        for name, parameter in declared.items():
            is_new = name not in written["fields"] and parameter.counted and parameter.ignored is UNSET
            if is_new and parameter.generator is None:
                raise CannotAdopt(f"{cls.__name__}.{name} was declared later: what it was is not known")
        config = cls.C(**values)
        for generator, folder in partials:
            shared = self._launcher.partials.setdefault(old, {})
            shared[partial_folder(config, generator)] = old.path.parents[2] / folder
        self._parts[old, str(written.get("identifier"))] = config
        return config if written.get("meta") is None else setmeta(config, bool(written["meta"]))

    def _value(self, value: Any, objects: Mapping[Any, Any], old: OldJob) -> Any:
        if isinstance(value, list):
            return [self._value(one, objects, old) for one in value]
        if not isinstance(value, dict):
            return value
        match value.get("type"):
            case "python":
                return self._object(value.get("value"), objects, old)
            case "enum":
                cls = _imported(str(value["module"]), str(value["enum"]))
                is_enum = isinstance(cls, type) and issubclass(cls, Enum)
                if not is_enum or value["value"] not in cls.__members__:
                    raise CannotAdopt(f"{value['enum']}.{value['value']} is no member of an enum any more")
                return cls[value["value"]]
            case "path" | "path.serialized":
                return self._path(str(value["value"]), value.get("base"), old)
        if (kind := value.get("type")) is not None and "value" in value:
            raise CannotAdopt(f"its {PARAMS} has a value of the kind {kind!r}, which Tenuto cannot read")
        return {name: self._value(one, objects, old) for name, one in value.items()}

    def _path(self, value: str, base: Any, old: OldJob) -> Path:
        """Where a file lies now: that of another job is in the directory of the job that took it over."""
        parts = Path(value).parts
        if base == "workspace" and parts[:1] == ("jobs",) and len(parts) > 2:
            upstream = self._olds.get(parts[2])
            if upstream is not None and upstream != old:
                with suppress(CannotAdopt):  # it stays where it is
                    return Path(self.submitted(upstream).job.path, *parts[3:])
        return {"job": old.path, "workspace": old.path.parents[2]}.get(str(base), Path()) / value


def _imported(module: str, name: str, file: str = "") -> Any:
    """A class; as in a job, a script that opens its experiment while it is imported is refused."""
    stand_in: Any = object()
    outside = current_job.set(stand_in)
    try:
        return find_class(Location(module, name, file))
    finally:
        current_job.reset(outside)


def _typed(value: Any, annotation: Any, _place: str = "") -> Any:
    """`value` as its parameter declares it: JSON has no enums of numbers, no sets and no tuples."""
    for option in alternatives(annotation):
        if isinstance(option, type) and issubclass(option, Enum) and type(value) in (int, str):
            value = next((member for member in option if member.value == value), value)
    return shaped(value, annotation, _typed)


def _inside(output: Any) -> Iterator[Any]:
    """The configs that a task gave out, and those inside of them."""
    if is_config(output):
        yield output
        output = [getattr(output, name, None) for name in schema_of(type(output)).parameters]
    for one in output.values() if isinstance(output, dict) else output:
        if is_config(one) or isinstance(one, dict | list | tuple):
            yield from _inside(one)


class CopyLauncher:
    """A `Launcher` whose jobs are copied from the other workspace instead of being run."""

    name = "adopted"
    external = False
    slots = 4
    lock_path: str | None = None
    limits: Limits | None = None
    machine: Machine
    partials_folder: str
    scratch: str
    """Where jobs that were removed there are made, and removed."""

    def __init__(self, *, link: bool) -> None:
        self.sources: dict[str, OldJob] = {}
        """By the id of a job, where it is copied from."""
        self.partials: dict[OldJob, dict[str, Path]] = {}
        """By job and folder of a partial, where that is copied from."""
        self.outputs: dict[OldJob, list[RegisteredOutput]] = {}
        """By job, what it handed to its watchers."""
        self._sharing = threading.Lock()
        self.copied: set[OldJob] = set()
        self.failures: dict[OldJob, str] = {}
        self._link = link

    @property
    def pool(self) -> object:
        return self

    def adapted(self, alternative: Alternative) -> Self:
        return self

    async def start(self, order: StartOrder) -> EndedProcess:
        told = Instructions.decode(order.launch.instructions)
        old = None if order.paths.directory.startswith(self.scratch) else self.sources[told.job_id]
        if old is None:
            self._end(order, told, datetime.now(UTC))
            return EndedProcess(self.name)
        try:
            await asyncio.to_thread(self._copy, old, order, told)
        except OSError as error:
            remedy = ": leave --link out" if self._link and error.errno in (errno.EXDEV, errno.EPERM) else ""
            self.failures[old] = f"its files cannot be {'linked' if remedy else 'copied'}: {error}{remedy}"
            raise LaunchRefused(self.failures[old]) from error
        self.copied.add(old)
        return EndedProcess(self.name)

    def _copy(self, old: OldJob, order: StartOrder, told: Instructions) -> None:
        paths, files = order.paths, self.machine.files
        for entry in sorted(old.path.iterdir()):
            if entry.name in (_OWN_FOLDER, PARAMS) or entry.name in {old.name + end for end in _OWN_ENDINGS}:
                continue
            is_log = entry.name in (f"{old.name}.out", f"{old.name}.err")
            target = Path(paths.directory, paths.script_name + entry.suffix if is_log else entry.name)
            self._put(entry, target, old.path, link=self._link and not is_log)
        for folder, source in self.partials.get(old, {}).items():
            self._share(source, Path(self.partials_folder, folder))
        writer = OutputsWriter(files, paths, order.launch.attempt)
        for output in self.outputs.get(old, ()):
            writer.write(output.way, output.method, output.arguments, output.named)
        ended = datetime.fromtimestamp((old.path / f"{old.name}.done").stat().st_mtime, UTC)
        self._end(order, told, ended, old)

    def _end(self, order: StartOrder, told: Instructions, ended: datetime, old: OldJob | None = None) -> None:
        """Write that a job is done; `old`: the job that it was."""
        paths, files = order.paths, self.machine.files
        record = {name: value for name, value in told.record.items() if name not in _SURROUNDINGS}
        marker = Marker(
            order.launch.attempt,
            order.launch.nonce,
            starttime=ended if old is None else _began(old, ended),
            endtime=ended,
            provenance={} if old is None else {"adopted": str(old.path)},
            record={**record, "begun": order.launch.life, "launcher": self.name},
        )
        marker = job_directory.preserve(files, paths, marker, None, told.durability)
        marker = keep_record(files, paths, marker)
        done = StateRecord(JobState.DONE, starttime=marker.starttime, endtime=ended)
        status = StatusRecord(told.job_id, told.task_id, done, order.launch.attempt)
        job_directory.finish(files, paths, marker, status, told.durability, order.launch)

    def _put(self, source: Path, target: Path, job: Path, *, link: bool) -> None:
        """Copy or link a file or folder of `job`; a link to a place inside the job stays inside it."""
        if source.is_dir() and not source.is_symlink():
            target.mkdir(exist_ok=True)  # not with the permissions of the source: it may be read-only
            for entry in source.iterdir():
                self._put(entry, target / entry.name, job, link=link)
            return
        target.unlink(missing_ok=True)
        if source.is_symlink():
            leads = source.readlink()
            place = leads.parent.resolve() / leads.name
            is_inside = leads.is_absolute() and place.is_relative_to(job)
            target.symlink_to(os.path.relpath(place, source.parent) if is_inside else leads)
        elif link:
            os.link(source, target)
        else:
            shutil.copy2(source, target)

    def _share(self, source: Path, target: Path) -> None:
        """Copy the folder of a partial, once and whole; later jobs write into it, so no file is linked."""
        with self._sharing:
            if target.exists() or not source.is_dir():
                return
            unfinished = target.with_name(f"{target.name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            for entry in source.iterdir():
                if entry.name != _OWN_FOLDER:
                    self._put(entry, unfinished / entry.name, source, link=False)
            unfinished.rename(target)

    def find(self, paths: JobPaths, launch: LaunchRecord, pid: PidRecord | None) -> None:
        return None

    async def sweep(self, paths: JobPaths, launch: LaunchRecord | None) -> tuple[int, ...]:
        return ()

    def close(self) -> None:
        """Nothing is kept."""


def _began(old: OldJob, ended: datetime) -> datetime:
    """When a job began, by its status; else when it ended."""
    try:
        written = json.loads((old.path / _OWN_FOLDER / "status.json").read_bytes())["started_time"]
        return min(datetime.fromisoformat(written).astimezone(UTC), ended)
    except (OSError, ValueError, KeyError, TypeError):
        return ended
