"""A dialect: the commands of a batch system and its answers. Its words are data, which settings may replace.
Decides nothing of a job. Each system is one file of `dialects`, which adds the readers of its answers.
"""

from __future__ import annotations

import getpass
import json
import math
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, fields, replace
from datetime import datetime
from enum import Enum, unique
from functools import cache
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

from tenuto.errors import InvalidSetting, LauncherNotFound
from tenuto.launchers.instructions import GRACE_S
from tenuto.launchers.requirements import Alternative, Gpus
from tenuto.launchers.runner.runner_protocol import LAST_WORDS_S
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.light import import_module, shutil
from tenuto.settings import process_environment
from tenuto.settings.clusters import ClusterSettings
from tenuto.tasks.arguments import guarded_by
from tenuto.workspace.derive_table import ClusterSays

T = TypeVar("T")

SUBMIT_S = 60.0
ASK_S = 60.0
"""How long a command may take."""
IDS_A_CALL = 200
NEVER = "will not start"
_MIB = 1 << 20
_OPTIONS = tuple(
    "time cores memory nodes gpus gpu_type node_gpus node_gpu_type partition account qos constraint".split()
)
_MENDED = {f"{key}_words": key for key in ("submit", "list", "end", "cancel", "signal")}
_MENDED |= {key: key for key in ("submit_id", "later", "full", "refused", "limit_words")}
_MENDED["largest"] = "largest_array"
"""Word of a dialect -> the setting that stands in its place."""
_VARIABLES = ("job", "array", "index", "first", "task")
_IDS = ("{ids}", "{comma_ids}")
_OF_SUBMISSION = ("{name}", "{out}", "{count}", "{last}", "{throttle}", "{options}", "{script}")
_OF_OPTIONS = tuple(
    "{n} {value} {minutes} {seconds} {hms} {mib} {bytes} {type} {tasks} {cores} "
    "{tasks_per_node} {cores_per_node} {all_cores}".split()
)
_BLANK = re.compile(r"\{\w+\}")
_SIGNALLED = 128
"""From here on the exit code of a shell tells of a signal."""
NAMED_BY = 8
"""Digits of a submission's id that are in the name of its jobs."""
_LARGEST_ARRAY = 1001
"""Of a system that does not say."""


class ClusterError(Exception):
    """A command failed, or took too long; it tells nothing of any job."""


@unique
class SubmissionOutcome(Enum):
    """What became of a submission."""

    TAKEN = "taken"
    LATER = "later"
    """No answer, or a passing one: the job may have been queued all the same."""
    FULL = "full"
    """Too many jobs at the moment."""
    REFUSED = "refused"


class SubmissionAnswer(NamedTuple):
    """The answer to a submission."""

    outcome: SubmissionOutcome
    text: str
    """The id of the job, or the first line of the error."""


class JobScript(NamedTuple):
    """One submission, as a dialect is told of it."""

    name: str
    jobs: int
    """Jobs of the array; 1: no array."""
    options: Sequence[str]
    script: str
    """The text of the script."""
    directory: str
    """Where the submission is kept: `script.sh`, and `out` for what runners complain of."""


class QueueRow(NamedTuple):
    """What a batch system knows of one job."""

    job: str
    """`JOB`, or `JOB_INDEX` of a task of an array."""
    state: str
    reason: str
    ended: float | None
    """Seconds since the epoch by the clock of the system; None if it has not ended."""
    exit_code: int | None
    """The runner's own; None if it was ended by a signal, or if that is not known."""
    name: str


class Meaning(NamedTuple):
    """What a state says of an attempt."""

    says: ClusterSays
    reason: JobFailureStatus = JobFailureStatus.LOST
    """Why there is no marker, if there is none."""
    confirmed: bool = True
    """False: the system believes that it ended, and cannot know; the fence decides."""
    blameless: bool = False


EXITED = Meaning(ClusterSays.ENDED)
MEANINGS = {
    "pending": Meaning(ClusterSays.PENDING),
    "running": Meaning(ClusterSays.RUNNING),
    "exited": EXITED,
    "timeout": Meaning(ClusterSays.ENDED, JobFailureStatus.TIMEOUT),
    "memory": Meaning(ClusterSays.ENDED, JobFailureStatus.MEMORY),
    "cancelled": Meaning(ClusterSays.ENDED, JobFailureStatus.CANCELLED),
    "preempted": Meaning(ClusterSays.ENDED, blameless=True),
    "node_failed": Meaning(ClusterSays.ENDED, confirmed=False, blameless=True),
}
"""What the word `states` may say of a state. One that is not named may run: no unknown word ends a job."""


@guarded_by(InvalidSetting)
@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """What each job of a launcher asks for; None and 0 leave it to the batch system."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    time_s: float | None = None
    cpus: int = 1
    memory_bytes: int | None = None
    gpus: int = 0
    extra: tuple[str, ...] = ()
    gpu_type: str | None = None
    nodes: int | None = None
    tasks: int | None = None
    """In all; `cpus` are those of each, `memory_bytes` and `gpus` those of each node."""

    def __post_init__(self) -> None:
        for name in ("partition", "account", "qos", "constraint", "gpu_type"):
            _check_text(name, getattr(self, name))
        object.__setattr__(self, "extra", tuple(self.extra))
        for word in self.extra:
            _check_text("extra", word)
        _check_number("time_s", self.time_s, 0, exclusive=True)
        for name, least in (("memory_bytes", 1), ("cpus", 1), ("gpus", 0), ("nodes", 1), ("tasks", 1)):
            _check_number(name, getattr(self, name), least)
        if (self.tasks or 0) % (self.nodes or 1):
            raise InvalidSetting(f"tasks must be a multiple of nodes ({self.nodes}), not {self.tasks}")

    @classmethod
    def of(cls, settings: ClusterSettings) -> ClusterOptions:
        """The options that the settings name."""
        names = ("partition", "account", "qos", "constraint", "time_s", "cpus", "memory_bytes", "gpus")
        return cls(extra=settings.extra or (), **{name: getattr(settings, name) for name in names})

    def said(self) -> frozenset[str]:
        """The names of the options that are not left to the batch system."""
        names = (field.name for field in fields(self))
        return frozenset(name for name in names if getattr(self, name) != getattr(ClusterOptions(), name))

    def adapted(self, alternative: Alternative, keep: frozenset[str] = frozenset()) -> ClusterOptions:
        """These options with what a requirement says; the options named in `keep` stay as they are."""
        gpus = alternative.gpus
        wanted = {
            "time_s": alternative.duration_s,
            "cpus": alternative.cores,
            "memory_bytes": alternative.memory_bytes,
            "gpus": None if gpus is None else gpus.count,
            "gpu_type": None if gpus is None else gpus.type,
            "nodes": alternative.nodes,
            "tasks": alternative.tasks,
        }
        changes = {name: value for name, value in wanted.items() if value is not None and name not in keep}
        return replace(self, **changes)  # type: ignore[arg-type]

    def needs(self, gpus: Gpus | None = None) -> Alternative:
        """Their request; `gpus`: other facts about the GPUs."""
        gpus = gpus or (Gpus(count=self.gpus, type=self.gpu_type) if self.gpus else None)
        return Alternative(self.time_s, self.cpus, self.memory_bytes, gpus, self.nodes, self.tasks)


class Dialect:
    """The words of one batch system, and how its answers are read. Each call blocks its thread.

    A dialect of its own overrides the words below, and the methods whose answers it reads differently.
    """

    title = ""
    """The system's name for people; empty: that of the cluster."""
    submit_words: tuple[str, ...] = ()
    """With `{name} {out} {count} {last} {options} {script}`; words in `[ ]` are said for arrays alone.

    Without `{script}` the script is given on standard input.
    """
    submit_id = r"(\S+)\s*\Z"
    """The pattern whose first group is the id, in what a submission prints."""
    later: tuple[str, ...] = ()
    full: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    """Beginnings and parts of complaints, in small letters; any other complaint is a refusal, too."""
    unknown: tuple[str, ...] = ()
    """Parts of complaints about jobs that the system does not know, in small letters: the other jobs of an
    answer hold."""
    options: Mapping[str, str] = {}
    """Each possible request -> its words, with `{n} {value} {minutes} {seconds} {hms} {mib} {bytes}`.

    `nodes` stands in place of `cores`: `{n}` nodes, on each `{tasks_per_node}` of `{tasks}` with `{cores}`
    each, which are `{cores_per_node}`, and `{all_cores}` together. `gpu_type` stands in place of `gpus`, with
    the `{type}`; before both may stand `node_`, for jobs of several nodes.
    """
    variables: Mapping[str, str] = {}
    """`job`, `array`, `index`: variables of a job's environment; `first`: the first index; `task`: an id."""
    list_words: tuple[str, ...] = ()
    """Lists all jobs of this `{user}`; none: attempts are judged by claim, beats and marker alone."""
    end_words: tuple[str, ...] = ()
    """Tells how the jobs `{ids}`, or `{comma_ids}`, ended."""
    end_late_s = 0.0
    """How late that may be known."""
    states: Mapping[str, str] = {"exited": "exited"}
    """State -> a word of `MEANINGS`."""
    cancel_words: tuple[str, ...] = ()
    """Ends the jobs `{ids}`; words in `[ ]`: only waiting jobs."""
    signal_words: tuple[str, ...] = ()
    """Sends TERM to the runners of the jobs `{ids}`; none: they read `stop.json` within two seconds."""
    kill_words: tuple[str, ...] = ()
    """Ends the jobs `{ids}` at once, before `cancel_words`; none: that does."""
    largest: int | None = None
    """Jobs of the largest array; 1: none."""
    throttle_words: tuple[str, ...] = ()
    """Have at most `{n}` tasks of an array run at once; said for `{throttle}` of `submit_words`."""
    limit_words: tuple[str, ...] = ()
    """Options of a job without a time limit: have its runner told of one by the signal USR1."""
    keeps_shell = False
    """True: the script waits for its runner, since the system says the same of all that was killed."""
    leaves_code = False
    """True: the script waits for its runner, and leaves the exit code in a file: the system tells of none."""
    ours: tuple[str, ...] = ()
    """Options that the launcher itself sets, or that would change what an answer means."""
    never_starts: tuple[str, ...] = ()
    """Beginnings of reasons of pending jobs that no waiting cures."""
    foreign_variables: tuple[str, ...] = ()
    """Beginnings of variables of a job that are not passed on to its own jobs,"""
    kept_variables: tuple[str, ...] = ()
    """but for these."""
    array_blanks: tuple[str, ...] = ("{count}", "{last}")
    """One of them must be said in `submit_words`: an array is else one job. Empty: nothing is filled in."""
    unread: tuple[str, ...] = ("hosts",)
    """Keys of the settings that mean nothing to this dialect."""

    def __init__(self, name: str, settings: ClusterSettings) -> None:
        """`settings`: of the cluster `name`; each word in them stands in place of the dialect's own."""
        self.name = name
        self.title = self.title or name
        self.settings = settings
        for attribute, key in _MENDED.items():
            if (given := getattr(settings, key)) is not None:
                setattr(self, attribute, given)
        self.options = {**self.options, **(settings.options or {})}
        self.variables = {**self.variables, **(settings.variables or {})}
        self.states = {**self.states, **(settings.states or {})}
        if not self.submit_words:
            raise InvalidSetting(f"clusters.{name}.submit is missing: the words that submit a job")
        if problem := self._unfit_word():
            raise InvalidSetting(f"clusters.{name}.{problem}")
        self._meaning = cache(self._read_meaning)
        self._has_run = False
        """True once a command of the system ran: one that is missing then may be there again in a while."""

    def _unfit_word(self) -> str | None:
        """The errors in the words of the settings, by which a queued job would be lost sight of."""
        for key in self.unread:
            if getattr(self.settings, key) is not None:
                return f"{key}: the dialect {self.settings.dialect} has no use for it: leave it out"
        try:
            if not re.compile(self.submit_id).groups:
                return f"submit_id: {self.submit_id!r} has no group `( )`, which is the id"
        except re.error as error:
            return f"submit_id: {self.submit_id!r} is no pattern: {error}"
        for key, given, known in (
            ("options", self.options, _OPTIONS),
            ("variables", self.variables, _VARIABLES),
        ):
            if strange := sorted({*given} - {*known}):
                return f"{key}: {strange[0]!r} is none of {', '.join(known)}"
        if not ("{job}" in self.task_template and "{index}" in self.task_template):
            return f"variables: task must hold {{job}} and {{index}}, and {self.task_template!r} does not"
        if not str(self.variables.get("first", 0)).isdecimal():
            return f"variables: first must be a number from 0 up, not {self.variables['first']!r}"
        if strange := sorted(set(self.states.values()) - {*MEANINGS}):
            return f"states: {strange[0]!r} is no meaning of a state: {', '.join(MEANINGS)}"
        if self.settings.throttle is not None and not self.throttle_words:
            return f"throttle: {self.title} has no word for it"
        return self._unfit_call()

    def _unfit_call(self) -> str | None:
        """What is wrong with a command of the settings: a blank that is never filled in, or that lacks."""
        calls = {name: tuple(words.split()) for name, words in (self.settings.options or {}).items()}
        for key, words, known in (
            *(("submit", self.submit_words if self.array_blanks else (), _OF_SUBMISSION),),
            *((key, getattr(self.settings, key) or (), _IDS) for key in ("end", "cancel", "signal")),
            ("list", self.settings.list or (), ("{user}",)),
            ("limit_words", self.settings.limit_words or (), ()),
            *((f"options: {name}", words, _OF_OPTIONS) for name, words in calls.items()),
        ):
            brackets = [word for word in words if word in ("[", "]")]
            if brackets != ["[", "]"] * (len(brackets) // 2):
                return f"{key}: `[` and `]` must come in pairs, with spaces around"
            said_of = [blank for word in words if " " not in word for blank in _BLANK.findall(word)]
            if strange := sorted({*said_of} - {*known}):
                return f"{key}: {strange[0]} is none of {' '.join(known) or 'its words: it has no blanks'}"
            for blank in ("{ids}", "{options}"):
                if blank in known and blank in said_of and blank not in words:
                    return f"{key}: {blank} stands for several words, and must be one by itself"
            if known == _IDS and words and not {*said_of} & {*_IDS}:
                return f"{key}: {{ids}} or {{comma_ids}} is missing, and it would name no job"
        return self._missing_blank() if self.settings.submit is not None and self.array_blanks else None

    def _missing_blank(self) -> str | None:
        """What the words of the settings leave out that jobs ask for, or by which they are known."""
        text = " ".join(self.submit_words)
        if (self.options or self.settings.extra or self.limit_words) and "{options}" not in text:
            return "submit: {options} is missing, and what jobs need would not be asked for"
        if self.has_list and "{name}" not in text:
            return "submit: {name} is missing, by which jobs are known in the list"
        is_in_arrays = "index" in self.variables and self.largest != 1
        if is_in_arrays and not any(blank in text for blank in self.array_blanks):
            blanks = " or ".join(self.array_blanks)
            return f"submit: {blanks} is missing, and an array would be one job; or say largest_array = 1"
        return None

    # What people ask

    def is_installed(self) -> bool:
        """True if jobs can be submitted from this machine."""
        return shutil.which(self.submit_words[0], path=process_environment().get("PATH")) is not None

    def offers(self) -> str:
        """What there is, for `tenuto launchers list`. Raises `ClusterError` if the system gives no answer."""
        if self.has_list:
            self.queue()
        return f"{self.title}, by {self.submit_words[0]}"

    def why_refused(self, arguments: Sequence[str]) -> str | None:
        """Why a job with these arguments would be refused; None if it would be taken, or cannot be asked."""
        return None

    # Submitting

    def environment(self) -> dict[str, str]:
        """The variables of this process, without those of a job of the system that it may be itself."""
        return {
            name: value
            for name, value in process_environment().items()
            if not name.startswith(self.foreign_variables or "\0") or name in self.kept_variables
        }

    def largest_array(self) -> int:
        """How many jobs an array may have."""
        if "index" not in self.variables:
            return 1
        return _LARGEST_ARRAY if self.largest is None else max(self.largest, 1)

    def most_jobs(self) -> int:
        """How many jobs of this process the system may have at once."""
        return self.settings.max_jobs

    def job_name(self, text: str) -> str:
        """A name that the system takes for a job, with the same end."""
        return text

    def out_path(self, path: str) -> str:
        """The path of a file as the system takes it."""
        return path

    def check(self, options: ClusterOptions) -> None:
        """Refuses words that the launcher sets itself."""
        for word in options.extra:
            if (word.partition("=")[0] if word.startswith("--") else word[:2]) in self.ours:
                raise InvalidSetting(f"extra must not hold {word!r}: Tenuto sets this option itself")

    def unsayable(self, alternative: Alternative) -> str | None:
        """Why the system cannot be asked for an alternative; None if it can."""
        gpus = alternative.gpus
        if gpus is None:
            return None
        if gpus.kind == "mps":
            return f"{self.title} has no GPUs of the kind mps"
        if gpus.memory_bytes is not None:
            return (
                f"the memory of a GPU cannot be asked of {self.title}: tell of its partitions in "
                f"[clusters.{self.name}.partitions], or choose a partition for it in launchers.py"
            )
        return None

    def arguments(self, options: ClusterOptions, grace_s: float = GRACE_S) -> list[str]:
        """The words of a submission for these options, what the job needs first.

        `grace_s`: how long a job may take to stop; that, and half a minute, are asked for on top.
        """
        words: list[str] = []
        if options.time_s is not None:
            words += self._asked("time", options.time_s + grace_s + LAST_WORDS_S)
        words += self._places(options.needs())
        for name in ("partition", "account", "qos", "constraint"):
            if getattr(options, name) is not None:
                words += self._asked(name, getattr(options, name))
        words += options.extra
        return words if options.time_s is not None else [*words, *self.limit_words]

    def _places(self, needs: Alternative) -> list[str]:
        """The words for cores, memory and GPUs."""
        words: list[str] = []
        nodes = needs.nodes or 1
        if nodes > 1 or (needs.tasks_per_node > 1 and "nodes" in self.options):
            each, cores = needs.tasks_per_node, needs.cores_per_node
            counts = {"tasks": each * nodes, "tasks_per_node": each, "cores": needs.cores or 1}
            counts |= {"cores_per_node": cores, "all_cores": cores * nodes}
            words += self._asked("nodes", nodes, **counts)
        elif needs.cores_per_node > 1:
            words += self._asked("cores", needs.cores_per_node)
        if needs.memory_bytes is not None:
            words += self._asked("memory", needs.memory_bytes)
        if needs.gpus is not None:
            what = "gpus" if needs.gpus.type is None else "gpu_type"
            own = f"node_{what}" if nodes > 1 and f"node_{what}" in self.options else what
            words += self._asked(own, needs.gpus.count, type=needs.gpus.type or "")
        return words

    def _asked(self, what: str, value: float | str, **more: object) -> list[str]:
        template = self.options.get(what)
        if template is None:
            how = "" if "options" in self.unread else f": say how in clusters.{self.name}.options"
            raise LauncherNotFound(f"{self.title} cannot be asked for {what}{how}")
        values = {"{value}": str(value)}
        if not isinstance(value, str):
            whole = math.ceil(value)
            clock = f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"
            values |= {"{n}": str(whole), "{seconds}": str(whole), "{minutes}": str(math.ceil(value / 60))}
            values |= {"{hms}": clock, "{bytes}": str(whole), "{mib}": str(-(-whole // _MIB))}
        values |= {f"{{{name}}}": str(one) for name, one in more.items()}
        return [_filled(word, values) for word in template.split()]

    def submit(self, job: JobScript) -> SubmissionAnswer:
        """Queues a job."""
        values = {
            "{name}": job.name,
            "{out}": self.out_path(f"{job.directory}/out"),
            "{count}": str(job.jobs),
            "{last}": str(job.jobs - 1 + self.first_index),
            "{script}": f"{job.directory}/script.sh",
        }
        throttle = self._throttle()
        values["{throttle}"] = " ".join(throttle)
        lists = {"{options}": job.options, "{throttle}": throttle}
        command = said(self.submit_words, values, lists, in_brackets=job.jobs > 1)
        return self._submitted(command, job.script)

    def _submitted(self, command: list[str], given: str) -> SubmissionAnswer:
        """Runs a command that submits; what the system does not answer may be queued all the same."""
        try:
            done = self.run(command, SUBMIT_S, given)
        except ClusterError as error:
            is_missing = isinstance(error.__cause__, FileNotFoundError) and not self._has_run
            return SubmissionAnswer(
                SubmissionOutcome.REFUSED if is_missing else SubmissionOutcome.LATER, str(error)
            )
        if done.returncode == 0:
            found = re.search(self.submit_id, done.stdout)
            return SubmissionAnswer(SubmissionOutcome.TAKEN, self.normal(found[1]) if found else "")
        said_of_it = done.stderr if done.stderr.strip() else done.stdout
        return SubmissionAnswer(self.outcome(said_of_it), first_line(said_of_it))

    def _throttle(self) -> list[str]:
        most = self.settings.throttle
        return [] if most is None else [word.replace("{n}", str(most)) for word in self.throttle_words]

    # Ids: inside this room `JOB`, or `JOB_INDEX` of a task of an array

    @property
    def task_template(self) -> str:
        """How the system writes the id of a task of an array."""
        return self.variables.get("task", "{job}_{index}")

    @property
    def first_index(self) -> int:
        """The index of the first task of an array."""
        return int(self.variables.get("first", 0))

    def job_variables(self, *, is_array: bool) -> tuple[str, ...]:
        """The variables of a runner's environment whose values, joined by `_`, are the id of its job."""
        array = self.variables.get("array") or self.variables.get("job", "")
        names = (array, self.variables.get("index", "")) if is_array else (self.variables.get("job", ""),)
        return tuple(filter(None, names))

    def index_expression(self, *, is_array: bool) -> str:
        """What a script calls the place of its order in the manifest, from 0."""
        if not is_array:
            return "0"
        variable, first = self.variables["index"], self.first_index
        return f"$(({variable}-{first}))" if first else f"${{{variable}:-0}}"

    def task_id(self, job: str, index: int, *, is_array: bool) -> str:
        """The id of one job of a submission; `index` counts from 0."""
        return f"{job}_{index + self.first_index}" if is_array else job

    def native(self, job: str) -> str:
        """An id as the system itself writes it."""
        array, is_task, index = job.rpartition("_")
        if not is_task:
            return job
        return self.task_template.replace("{job}", array).replace("{index}", index)

    def shown_id(self, job: str) -> str:
        """An id as people are told it."""
        return self.native(job)

    def normal(self, job: str) -> str:
        """An id as this room writes it, of one that the system wrote."""
        template = re.escape(self.task_template)
        pattern = template.replace(r"\{job\}", "(?P<job>.+)").replace(r"\{index\}", r"(?P<index>\d+)")
        found = re.fullmatch(pattern, job)
        return f"{found['job']}_{found['index']}" if found else job

    # Listing

    @property
    def can_spare_running(self) -> bool:
        """True if jobs that wait can be cancelled without harm to one that has begun meanwhile."""
        return "[" in self.cancel_words

    @property
    def has_list(self) -> bool:
        """True if the system can be asked which jobs it has."""
        return bool(self.list_words)

    def queue(self) -> list[QueueRow]:
        """Every job of this user that the system has in mind, tasks of arrays one by one."""
        done = self.asked(said(self.list_words, {"{user}": getpass.getuser()}))
        return self.read(self.read_list if self.settings.list is None else self.read_lines, done.stdout)

    def read(self, reader: Callable[[str], list[QueueRow]], text: str) -> list[QueueRow]:
        """Has a reader read an answer; `ClusterError` for one that is not as it expects."""
        try:
            return reader(text)
        except (ValueError, LookupError, TypeError, AttributeError, SyntaxError) as error:
            told = f"{self.title} answered what cannot be read: {type(error).__name__}: {error}"
            raise ClusterError(told) from error

    def read_list(self, text: str) -> list[QueueRow]:
        """Reads a list of the dialect's own words; those of the settings print lines."""
        return self.read_lines(text)

    def read_lines(self, text: str) -> list[QueueRow]:
        """Lines of `id state reason name`, between `|` or spaces."""
        rows = []
        for line in text.splitlines():
            parts = [part.strip() for part in line.split("|")] if "|" in line else line.split(None, 3)
            if len(parts) > 1:
                job, state, reason, name, *_ = [*parts, "", ""]
                rows.append(QueueRow(self.normal(job), state, reason, None, None, name))
        return rows

    def look_up(self, jobs: Mapping[str, str]) -> dict[str, QueueRow]:
        """How jobs ended that are no longer listed; a job that is not in the answer is forgotten.

        `jobs`: id -> where its script leaves its exit code, if the system tells of none.
        """
        if not self.end_words:
            return {job: row for job, path in jobs.items() if (row := _left(job, path)) is not None}
        wanted = list(jobs)
        found: dict[str, QueueRow] = {}
        for first in range(0, len(wanted), IDS_A_CALL):
            ids = [self.native(job) for job in wanted[first : first + IDS_A_CALL]]
            command = said(self.end_words, {"{comma_ids}": ",".join(ids)}, {"{ids}": ids})
            reader = self.read_end if self.settings.end is None else self.read_end_lines
            found |= {row.job: row for row in self.read(reader, self.asked(command).stdout)}
        return found

    def read_end(self, text: str) -> list[QueueRow]:
        """Reads how jobs ended, of the dialect's own words: as its list, if they are that of the jobs."""
        return self.read_list(text)

    def read_json(self, text: str) -> Any:
        """An answer in JSON; None if it is empty."""
        return json.loads(text) if text.strip() else None

    def read_end_lines(self, text: str) -> list[QueueRow]:
        """Lines of `id|state|exit code[:signal]|time of the end|name`."""
        rows = []
        for line in text.splitlines():
            parts = line.split("|", 4)
            if len(parts) == 5:
                job, state, code, ended, name = parts
                rows.append(QueueRow(self.normal(job), state, "", instant(ended), exit_code(code), name))
        return rows

    def shown(self, job: str) -> list[QueueRow]:
        """What the system shows of a job, or of each task of an array, that its list does not show."""
        return []

    def remembers_s(self) -> float | None:
        """How long the list shows jobs that have ended; None if that is not known."""
        return None

    def meaning(self, state: str) -> Meaning:
        """What a state means."""
        return self._meaning(state)

    def _read_meaning(self, state: str) -> Meaning:
        word = self.states.get(state) or self.states.get(state.partition(" ")[0].rstrip("+"))
        return MEANINGS[word or "running"]

    def pending_text(self, reason: str) -> str:
        """What a person is told of a job that waits in the queue."""
        if reason.startswith(self.never_starts or "\0"):
            return f"it waits in {self.title}'s queue and {NEVER}: {reason}"
        return f"it waits in {self.title}'s queue" + ("" if reason in ("", "None") else f": {reason}")

    # EndRequest

    def cancel_waiting(self, jobs: Iterable[str]) -> None:
        """Takes jobs out of the queue."""
        self._end(self.cancel_words, jobs, in_brackets=True)

    def cancel_tasks(self, tasks: Iterable[str]) -> None:
        """Takes tasks of arrays away, whatever they do."""
        self._end(self.cancel_words, tasks)

    def cancel_named(self, name: str) -> None:
        """Takes the waiting tasks of a submission, by the name of its jobs, out of the queue."""
        if self.has_list:
            waiting = [row for row in self.queue() if row.name == name]
            waiting = [row for row in waiting if self.meaning(row.state).says is ClusterSays.PENDING]
            self.cancel_waiting([row.job for row in waiting])

    def signal(self, jobs: Iterable[str]) -> None:
        """Sends TERM to the runners."""
        self._end(self.signal_words, jobs)

    def kill(self, jobs: Iterable[str]) -> None:
        """Ends jobs at once, with all their processes."""
        jobs = list(jobs)
        self._end(self.kill_words, jobs)
        self._end(self.cancel_words, jobs)

    def _end(self, words: tuple[str, ...], jobs: Iterable[str], *, in_brackets: bool = False) -> None:
        """Raises `ClusterError` if the system did not hear it; a job that has ended is no error."""
        ids = [self.native(job) for job in jobs]
        for first in range(0, len(ids) if words else 0, IDS_A_CALL):
            part = ids[first : first + IDS_A_CALL]
            self.told(said(words, {"{comma_ids}": ",".join(part)}, {"{ids}": part}, in_brackets=in_brackets))

    # Commands

    def told(self, command: list[str]) -> None:
        """Runs a command that ends jobs; only a system that did not hear it is an error."""
        done = self.run(command, ASK_S)
        if done.returncode and self.outcome(done.stderr) is SubmissionOutcome.LATER:
            raise ClusterError(first_line(done.stderr))

    def asked(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """Runs a command that must answer; `ClusterError` if it fails."""
        done = self.run(command, ASK_S)
        complaint = done.stderr.lower()
        if done.returncode and not any(word in complaint for word in self.unknown):
            raise ClusterError(first_line(done.stderr) or f"{command[0]} ended with {done.returncode}")
        return done

    def run(
        self, command: list[str], timeout_s: float, given: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command; `ClusterError` if it cannot be run, or gives no answer."""
        try:
            done = subprocess.run(
                command,
                input=given or "",
                env=self.environment(),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ClusterError(f"{command[0]} gave no answer for {timeout_s:g} s") from None
        except OSError as error:
            raise ClusterError(f"{command[0]} cannot be run: {error.strerror}") from error
        self._has_run = True
        return done

    def outcome(self, complaint: str) -> SubmissionOutcome:
        """What a complaint means for a submission."""
        text = complaint.lower()
        for words, outcome in (
            (self.refused, SubmissionOutcome.REFUSED),
            (self.full, SubmissionOutcome.FULL),
            (self.later, SubmissionOutcome.LATER),
        ):
            if any(word.lower() in text for word in words):
                return outcome
        return SubmissionOutcome.REFUSED


def dialect_of(name: str, settings: ClusterSettings) -> Dialect:
    """The dialect of a cluster, with the words that its settings replace."""
    module: Any = import_module(f"tenuto.launchers.cluster.dialects.{settings.dialect}")
    found: Dialect = module.DIALECT(name, settings)
    return found


def said(
    words: Iterable[str],
    values: Mapping[str, str],
    lists: Mapping[str, Sequence[str]] | None = None,
    *,
    in_brackets: bool = False,
) -> list[str]:
    """The words of a call, filled in; what stands between `[` and `]` is left out unless `in_brackets`."""
    command: list[str] = []
    is_inside = False
    for word in words:
        if word in ("[", "]"):
            is_inside = word == "["
        elif in_brackets or not is_inside:
            several = (lists or {}).get(word)
            command += [_filled(word, values)] if several is None else several
    return command


def first_line(complaint: str) -> str:
    """What a command complains of; the rest of a fatal error only leads there."""
    lines = [line.strip() for line in complaint.splitlines() if line.strip()]
    told = next((line for line in lines if "fatal: " in line), lines[0] if lines else "")
    return told.partition("fatal: ")[2] or told.partition("error: ")[2] or told


def instant(text: str) -> float | None:
    """A time as batch systems write it, which is the local one; None if there is none."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def exit_code(text: str) -> int | None:
    """Of `3`, or of `3:0`, where the second number is that of a signal."""
    code, _, number = text.partition(":")
    return int(code) if code.isdecimal() and number in ("", "0") else None


def _left(job: str, path: str) -> QueueRow | None:
    """The end of a job whose script has left its exit code in a file."""
    try:
        with open(path, encoding="utf-8") as stream:
            code, ended = stream.read().strip(), os.fstat(stream.fileno()).st_mtime
    except (OSError, ValueError):
        return None
    if not code.isdecimal():
        return None
    own = int(code) if int(code) < _SIGNALLED else None
    return QueueRow(job, "exited", "", ended, own, f"-{path.split('/')[-2][:NAMED_BY]}")


def leading_number(text: str, default: int) -> int:
    """The number that a value of a configuration begins with, such as ``300 sec``."""
    digits = text.partition(" ")[0]
    return int(digits) if digits.isdecimal() else default


def _filled(word: str, values: Mapping[str, str]) -> str:
    return _BLANK.sub(lambda found: values.get(found[0], found[0]), word)


def _check_text(name: str, value: object) -> None:
    if value is not None and not (isinstance(value, str) and value and value.isprintable()):
        raise InvalidSetting(f"{name} must be printable text, not {value!r:.60}")


def _check_number(name: str, value: object, least: int, *, exclusive: bool = False) -> None:
    if value is None:
        return
    is_number = type(value) is int or (exclusive and type(value) is float and math.isfinite(value))
    if not is_number or value < least or (exclusive and value == least):  # type: ignore[operator]
        raise InvalidSetting(f"{name} must be a number from {least} up, not {value!r:.60}")


class CommandThreads:
    """Threads in which commands are called: a few at once; none of them keeps this process from ending."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Has a function called in one of the threads."""
        future: Future[T] = Future()
        self._waiting.put((future, function))
        with self._lock:
            if not self._idle and self._threads < self._most:
                self._threads += 1
                threading.Thread(target=self._work, name="tenuto-cluster-call", daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            future, function = self._waiting.get()
            with self._lock:
                self._idle -= 1
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function())
            except Exception as error:  # noqa: BLE001  it is the caller's
                future.set_exception(error)
