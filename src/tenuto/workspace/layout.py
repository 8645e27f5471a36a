"""Every path of a workspace, spelled once; a run's and the tokens' lie in `run_paths` and `tokens`.
Only joins strings; creates and reads nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from tenuto.errors import InvalidName
from tenuto.lifecycle.owner_names import Door, OwnerName
from tenuto.light import NamedTuple, late, pattern

if TYPE_CHECKING:
    from tenuto.workspace import run_paths
    from tenuto.workspace.run_paths import PreparedPaths, RunPaths
else:
    run_paths = late("tenuto.workspace.run_paths")  # no job asks for those

_LONGEST_NAME = 200
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_LONGEST_JOB_ID = 128
_JOB_ID = pattern(r"[a-z0-9_][a-z0-9_-]{0,127}", re.ASCII)
_SPELLED = pattern(r"(?:~[0-9a-f]{2})+")


@lru_cache(maxsize=4096)
def directory_name(name: str) -> str:
    """A safe directory name for a task id or an experiment id; different ids give different names.

    Ids of plain ASCII letters, digits, `.`, `_` and `-` name themselves. Of others each further character is
    spelled as `~` and the hexadecimal code of its UTF-8 bytes: `a/b` is `a~2fb`, and the composed and the
    decomposed form of an accent stay apart. An id too long for a file system is refused.

    Ids that differ only in case meet on a file system that ignores case. Jobs do not collide there, since the
    identity hash counts the case.
    """
    if not name or not name.isprintable():
        raise InvalidName(f"{name!r:.100} cannot name a directory: it is empty or has unprintable characters")
    safe = "".join(character if character in _PLAIN else _spelled(character) for character in name)
    if safe[0] in ".-":  # hidden, or taken for an option
        safe = _spelled(safe[0]) + safe[1:]
    if safe[-1] == ".":
        safe = safe[:-1] + _spelled(".")
    if len(safe) > _LONGEST_NAME:
        raise InvalidName(f"{name:.60}... cannot name a directory: {len(safe)} > {_LONGEST_NAME} bytes")
    return safe


def _spelled(character: str) -> str:
    return "".join(f"~{byte:02x}" for byte in character.encode())


def name_of_directory(directory: str) -> str | None:
    """The id that `directory_name` spelled so; None for a directory that it never names."""
    try:
        name = _SPELLED.sub(_unspelled, directory)
        return name if directory_name(name) == directory else None
    except ValueError:  # not UTF-8, or no id at all
        return None


def _unspelled(found: re.Match[str]) -> str:
    return bytes.fromhex(found[0].replace("~", "")).decode()


def script_name(task_id: str) -> str:
    """`{scriptname}`: the last part of the task id, made safe."""
    return directory_name(task_id).rpartition(".")[2]


class JournalPlace(NamedTuple):
    """A directory and the naming of one journal's files in it."""

    directory: str
    prefix: str
    crowded: bool = False
    """The directory holds the files of many other journals, so listing it for each of them is too slow."""

    def path(self, number: int) -> str:
        return f"{self.directory}/{self.file_name(number)}"

    def file_name(self, number: int) -> str:
        return f"{self.prefix}{number}.jsonl"

    def number(self, file_name: str) -> int | None:
        """The number in a file name of this journal; None if it is not one of its files."""
        digits = file_name.removeprefix(self.prefix).removesuffix(".jsonl")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
            return None
        return int(digits) if self.file_name(int(digits)) == file_name else None


METRICS = "metrics.jsonl"
_OWN_NAMES = frozenset((".tenuto", "params.json", "locks.json"))
_OWN_KINDS = frozenset("py out err done failed pid lock reserve".split())


class JobPaths:
    """The files of one job. Needs no workspace: a runner has only its directory and script name."""

    __slots__ = ("directory", "script_name")

    def __init__(self, directory: str, script_name: str) -> None:
        self.directory = directory
        self.script_name = script_name

    def __repr__(self) -> str:
        return f"JobPaths({self.directory!r}, {self.script_name!r})"

    @property
    def private(self) -> str:
        return f"{self.directory}/.tenuto"

    @property
    def launch(self) -> str:
        return f"{self.directory}/.tenuto/launch.json"

    def claim(self, nonce: str) -> str:
        """The claim on an attempt that a cluster runs."""
        return f"{self.directory}/.tenuto/claim-{nonce}"

    @property
    def status(self) -> str:
        return f"{self.directory}/.tenuto/status.json"

    @property
    def stop(self) -> str:
        return f"{self.directory}/.tenuto/stop.json"

    @property
    def carbon(self) -> str:
        return f"{self.directory}/.tenuto/carbon.json"

    @property
    def task_outputs(self) -> str:
        return f"{self.directory}/.tenuto/task-outputs.jsonl"

    @property
    def metrics(self) -> str:
        """The points that the job logged; the task's own, as far as keeping goes."""
        return f"{self.directory}/{METRICS}"

    @property
    def usage(self) -> str:
        """What the attempts used over time: points that the runner writes."""
        return f"{self.private}/usage.jsonl"

    @property
    def params(self) -> str:
        return f"{self.directory}/params.json"

    @property
    def locks(self) -> str:
        return f"{self.directory}/locks.json"

    @property
    def result(self) -> str:
        return f"{self.private}/result.json"

    @property
    def record(self) -> str:
        """What the result was made of, where that is too long for its marker."""
        return f"{self.private}/record.json"

    @property
    def aside(self) -> str:
        """What the job had before it was begun again in an empty directory."""
        return f"{self.private}/aside"

    @property
    def emptying(self) -> str:
        """There while the directory is emptied; says how."""
        return f"{self.private}/emptying"

    @property
    def script(self) -> str:
        return f"{self.directory}/{self.script_name}.py"

    @property
    def out(self) -> str:
        return f"{self.directory}/{self.script_name}.out"

    @property
    def err(self) -> str:
        return f"{self.directory}/{self.script_name}.err"

    @property
    def done(self) -> str:
        return f"{self.directory}/{self.script_name}.done"

    @property
    def failed(self) -> str:
        return f"{self.directory}/{self.script_name}.failed"

    @property
    def pid(self) -> str:
        return f"{self.directory}/{self.script_name}.pid"

    @property
    def lock(self) -> str:
        return f"{self.directory}/{self.script_name}.lock"

    @property
    def reserve(self) -> str:
        return f"{self.directory}/{self.script_name}.reserve"

    def is_own(self, name: str) -> bool:
        """Whether this entry of the directory is Tenuto's, and not what the task left."""
        if name in _OWN_NAMES:
            return True
        kind, _, rest = name.removeprefix(f"{self.script_name}.").partition(".")
        if kind not in _OWN_KINDS or not name.startswith(f"{self.script_name}."):
            return False
        return not rest or rest.isdigit() or rest.startswith("corrupt-")

    def made_again(self) -> list[str]:
        """The files that a job which is done may lack, since they say nothing more of it."""
        paths = (self.launch, self.status, self.script, self.out, self.err, self.pid)
        return [path.removeprefix(f"{self.directory}/") for path in paths]

    def rotated(self, log: str, number: int) -> str:
        """Where an earlier attempt's `out` or `err` goes."""
        return f"{log}.{number}"


def job_at(directory: str) -> JobPaths:
    """The files of the job that has a directory."""
    task = directory.rpartition("/")[0].rpartition("/")[2]
    return JobPaths(directory, script_name(name_of_directory(task) or task))


ROOT_FROM_JOB = "../../.."
"""The workspace as seen from the directory of a job."""


class SlotPlace(NamedTuple):
    """Where the slots of one workspace lie, for one machine."""

    directory: str

    @property
    def units(self) -> str:
        """The file whose bytes are the slots."""
        return f"{self.directory}/slots.units"

    @property
    def waiting(self) -> str:
        """The file in which each scheduler that waits for a slot locks a byte."""
        return f"{self.directory}/waiting.lock"

    @property
    def waiting_in_jobs(self) -> str:
        """The file in which each scheduler that runs in a job, and waits for a slot, locks a byte."""
        return f"{self.directory}/waiting-in-jobs.lock"


class Layout:
    """A workspace directory. `root` is absolute and has no trailing slash."""

    __slots__ = ("root",)

    def __init__(self, root: str) -> None:
        if not root.startswith("/"):
            raise InvalidName(f"the workspace directory must be an absolute path, not {root!r}")
        self.root = root.rstrip("/")

    @property
    def jobs(self) -> str:
        return f"{self.root}/jobs"

    @property
    def experiments(self) -> str:
        return f"{self.root}/experiments"

    @property
    def partials(self) -> str:
        return f"{self.root}/partials"

    @property
    def config(self) -> str:
        """The files of configs, not of jobs: of cached methods, and prepared data."""
        return f"{self.root}/config"

    def prepared(self, type_id: str, identity: str) -> PreparedPaths:
        return run_paths.PreparedPaths(f"{self.config}/{directory_name(type_id)}/{checked_job_id(identity)}")

    @property
    def trash(self) -> str:
        return f"{self.root}/.trash"

    @property
    def trash_lock(self) -> str:
        """Held by the process that empties the trash."""
        return f"{self.root}/.trash/.lock"

    @property
    def turns(self) -> str:
        """A byte of it for each job is locked by the runner that has the job."""
        return f"{self.root}/.turns"

    @property
    def token_queue(self) -> str:
        """Where jobs queue for the lock of their launcher, if they need no tokens."""
        return f"{self.root}/.tokens"

    @property
    def renamed(self) -> str:
        """Which jobs are to be moved to the present names of their tasks."""
        return f"{self.root}/.renamed"

    @property
    def moved(self) -> str:
        """Which jobs were moved so, one a line: runs from before have them under their former names."""
        return f"{self.root}/.moved.jsonl"

    def renamed_job(self, task_id: str, job_id: str) -> str:
        """The record of one such job."""
        return f"{self.renamed}/{directory_name(task_id)}-{checked_job_id(job_id)}.json"

    def slots(self, host: str) -> SlotPlace:
        """The slots that the processes of one machine share."""
        return SlotPlace(f"{self.root}/.slots/{directory_name(host)}")

    def provenance(self, name: str) -> str:
        """A list of packages, or the uncommitted changes of a project, kept once for all jobs."""
        return f"{self.root}/provenance/{name}"

    @property
    def notebooks(self) -> str:
        """The sources of classes that were declared in notebooks, each version once."""
        return f"{self.root}/.notebooks"

    @property
    def launchers(self) -> str:
        """What launchers keep of the jobs that they handed over to other systems."""
        return f"{self.root}/.launchers"

    def task_class(self, task_id: str) -> str:
        """Which script a task id belongs to."""
        return f"{self.root}/.classes/{directory_name(task_id)}.json"

    def marker_index(self, task_id: str) -> str:
        """The facts about the jobs of a task that were found done."""
        return f"{self.root}/.markers/{directory_name(task_id)}"

    def pack(self, task_id: str) -> str:
        """The file that has the packed jobs of a task."""
        return f"{self.packs}/{directory_name(task_id)}.pack"

    @property
    def packs(self) -> str:
        return f"{self.root}/.packs"

    def job(self, task_id: str, job_id: str) -> JobPaths:
        return JobPaths(f"{self.task(task_id)}/{checked_job_id(job_id)}", script_name(task_id))

    def task(self, task_id: str) -> str:
        """The directory of all jobs of a task."""
        return f"{self.root}/jobs/{directory_name(task_id)}"

    def experiment(self, experiment_id: str) -> str:
        return f"{self.root}/experiments/{directory_name(experiment_id)}"

    def experiment_lock(self, experiment_id: str) -> str:
        return f"{self.experiment(experiment_id)}/lock"

    def run(self, experiment_id: str, run_id: str) -> RunPaths:
        return run_paths.RunPaths(f"{self.experiment(experiment_id)}/{directory_name(run_id)}")

    @property
    def events(self) -> str:
        """A directory for each door, of the jobs themselves, and of retries."""
        return f"{self.root}/.events"

    def owner_journal(self, owner: OwnerName) -> JournalPlace:
        """Of all runs of an experiment together, of a node, or of a search."""
        return JournalPlace(f"{self.events}/{owner.door.value}/{directory_name(owner.name)}", "events-")

    def experiment_journal(self, experiment_id: str) -> JournalPlace:
        return self.owner_journal(OwnerName(Door.EXPERIMENTS, experiment_id))

    @property
    def retry_journal(self) -> JournalPlace:
        """Where is told what becomes of jobs that a person runs again, of whatever run."""
        return JournalPlace(f"{self.events}/retries", "events-")

    def job_journal(self, task_id: str, job_id: str) -> JournalPlace:
        return JournalPlace(
            f"{self.events}/jobs/{directory_name(task_id)}",
            f"event-{checked_job_id(job_id)}-",
            crowded=True,
        )


def pack_places(path: str) -> Iterator[tuple[str, str, str]]:
    """The packs that a path may lead into: each with the id of the job, and the rest of the path.

    Of the directory of all jobs, where they lie.
    """
    if path.endswith("/jobs"):
        yield f"{path[: -len('/jobs')]}/.packs", "", ""
    at = path.find("/jobs/")
    while at >= 0:
        task, _, rest = path[at + 6 :].partition("/")
        job, _, name = rest.partition("/")
        yield f"{path[:at]}/.packs/{task}.pack", job, name
        at = path.find("/jobs/", at + 6)


def is_job_id(text: str) -> bool:
    """Whether a text can be the id of a job."""
    return _JOB_ID.fullmatch(text) is not None


def checked_job_id(job_id: str) -> str:
    """The id, if it is one; `InvalidName` otherwise."""
    if not is_job_id(job_id):
        raise InvalidName(
            f"{job_id!r:.100} cannot be a job id: use up to {_LONGEST_JOB_ID} of a-z 0-9 _ -, no - first"
        )
    return job_id
