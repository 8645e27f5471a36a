"""Whether a stored result is what a run would give now: one record, one check, asked everywhere.
It reads records and compares; the scheduler runs invalid jobs again, and nothing is removed here.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum, unique
from functools import cache, partial
from typing import Any, NamedTuple

from tenuto.errors import ClassNotFound, DefaultChanged, TenutoError, WorkspaceError
from tenuto.jobs.directories import MovedJobs
from tenuto.jobs.key import JobKey
from tenuto.lifecycle.states import JobState, TransientMode
from tenuto.light import late, sha256
from tenuto.scheduler.jobs import Job, TaskWork
from tenuto.tasks.base import caller, class_name
from tenuto.tasks.code import Code, changed_files, classes_of, file_digests, inside
from tenuto.tasks.deprecation import former_keys
from tenuto.tasks.graph import is_alone
from tenuto.tasks.hints import PathGenerator
from tenuto.tasks.identity import identity
from tenuto.tasks.live import live_class, partial_folder
from tenuto.tasks.location import known_file, nameless_source, shown_file
from tenuto.tasks.methods import caches
from tenuto.tasks.schema import schema_of
from tenuto.tasks.seeds import seed_of
from tenuto.tasks.serialization import PARAMS_FILE, document, loads
from tenuto.tasks.stored_values import (
    ChangedValue,
    changed_defaults,
    compared,
    defaults_digest,
    have_same_values,
    values_shown,
)
from tenuto.workspace.attempt_files import led_to, read_made_of
from tenuto.workspace.json_bytes import from_json, to_json
from tenuto.workspace.layout import JobPaths, Layout
from tenuto.workspace.markers import Marker, read_markers, write_marker
from tenuto.workspace.ports import FileKind, Files, Machine
from tenuto.workspace.records import Fields, LaunchRecord

inspect: Any = late("inspect")

_LARGEST_PARAMS = 4 << 20
_LARGEST_RECORD = 8 << 20
_LARGEST_CODE = 64 << 20
_LOOKS_EACH_S = 0.05
"""Between two looks at the files of a class of which many jobs are found done."""


PREPARED, CACHED, PARTIAL = "prepared", "cache", "partial"
_SHARED = (f"{PREPARED}:", f"{CACHED}:", f"{PARTIAL}:")
"""What the keys of sources begin with that are no jobs."""


@unique
class Validness(Enum):
    """What the check found."""

    VALID = "valid"
    VALUE = "a counted value differs"
    ABOVE = "made from another value"
    CODE = "code changed"
    NEWER = "made from something newer"
    OUTPUTS = "an output is gone"


class MadeFrom(NamedTuple):
    """A job, a prepared resource, a cache or a partial that something was made from."""

    key: str
    life: str
    """Names the content of its directory: another name after it was made again. Empty: it is not there."""
    code: str = ""
    result: str = ""
    """The digest of its result, or of what jobs gave from which shared files were made; empty if unknown."""

    def is_same(self, other: MadeFrom) -> bool:
        """True for the same thing, and for one made again by the same code with the same result.

        Of prepared and cached files no result is known, and missing ones would be made again, if
        need be: then the code tells.
        """
        if self.key.startswith(_SHARED) and self.result and other.result and self.result != other.result:
            return False
        if not other.life or self.key.startswith(_SHARED):
            return self.life == other.life or not self.code or self.code == other.code
        return self.life == other.life or bool(
            self.code and self.result and (self.code, self.result) == (other.code, other.result)
        )


class MadeOf(NamedTuple):
    """What something was made of, or would be made of now."""

    code: str = ""
    files: Mapping[str, str] = {}
    sources: Mapping[str, MadeFrom | None] = {}
    """By key; None while a thing is being made."""
    defaults: str | None = None
    """The digest of the values that equal a default."""
    values: Callable[[], Mapping[str, Any] | None] = dict
    """The stored document; None if it is gone."""
    task: Any = None
    """The config, as the script has it now."""
    excluded: frozenset[str] = frozenset()
    """Groups of parameters that do not count."""
    above: Mapping[str, Mapping[str, str]] = {}
    """The values at defaults of the tasks that it was made from, by class."""
    present: Callable[[str], str] = str
    """The key that a source has now, by a key that it had before its class was renamed."""
    earlier: tuple[MadeOf, ...] = ()
    """What the attempts were made of that it continued, as far as that was something else."""

    @classmethod
    def of(cls, record: Mapping[str, Any], values: Callable[[], Mapping[str, Any] | None]) -> MadeOf:
        """What a record says; parts that it does not have, or that are torn, say nothing."""
        code, defaults, files = record.get("code"), record.get("defaults"), record.get("files")
        above = record.get("above")
        sources: dict[str, MadeFrom | None] = {}
        for one in record.get("made_from") or ():
            if isinstance(one, list) and len(one) == 4 and all(isinstance(part, str) for part in one):
                sources[one[0]] = MadeFrom(*one)
        earlier = record.get("earlier")
        return cls(
            code if isinstance(code, str) else "",
            files if isinstance(files, dict) else {},
            sources,
            defaults if isinstance(defaults, str) else None,
            values,
            above=above if isinstance(above, dict) else {},
            earlier=tuple(
                cls.of(one, dict)
                for one in (earlier if isinstance(earlier, list) else ())
                if isinstance(one, dict)
            ),
        )


class CheckedReuse(NamedTuple):
    """The answer of `check`."""

    finding: Validness
    what: tuple[str, ...] = ()
    """The files that changed, or the things that were made again since."""
    changed: tuple[ChangedValue, ...] = ()
    newer: frozenset[str] = frozenset()
    """The keys of all things made again since, whatever else was found."""
    is_earlier: bool = False
    """It was found of an attempt that was continued, not of the last."""

    def __str__(self) -> str:
        if self.is_earlier:
            return f"it continued an earlier attempt, and {self._replace(is_earlier=False)}"
        if self.finding is Validness.CODE:
            verb = "have" if len(self.what) > 1 else "has"
            return f"{', '.join(map(_near, self.what)) or 'its code'} {verb} changed since"
        if self.finding is Validness.NEWER:
            return f"{_listed(self.what)} was made again since"
        if self.finding is Validness.OUTPUTS:
            return f"{_listed(self.what)} is gone, or has another size"
        return "; ".join(map(str, self.changed[:5])) or self.finding.value


def check(stored: MadeOf, wanted: MadeOf) -> CheckedReuse:
    """The one check: is something that was made before what would be made now?

    Values first, then code, then its sources. An unknown part says nothing.
    """
    if wanted.task is not None and stored.defaults is not None and stored.defaults != wanted.defaults:
        written = stored.values()
        changed = () if written is None else compared(wanted.task, written, {}, wanted.excluded).changed
        if changed:
            return CheckedReuse(Validness.VALUE, changed=changed)
    if stored.above and stored.above != wanted.above:
        changed = changed_defaults(stored.above, wanted.above)
        if changed:
            return CheckedReuse(Validness.ABOVE, changed=changed)
    newer: list[str] = []
    other_code: list[str] = []
    for key, source in stored.sources.items():
        now = wanted.sources.get(key if key in wanted.sources else wanted.present(key))
        if source is not None and now is not None and not source.is_same(now):
            (newer if now.life else other_code).append(now.key)
    if stored.code and wanted.code and stored.code != wanted.code:
        files = changed_files(stored.files, wanted.files)
        return CheckedReuse(Validness.CODE, tuple(files), newer=frozenset(newer))
    if newer:
        return CheckedReuse(Validness.NEWER, tuple(newer), newer=frozenset(newer))
    if other_code:
        return CheckedReuse(Validness.CODE, tuple(map(_task_of, other_code)))
    parts = (check(one, wanted) for one in stored.earlier)
    found = next((one for one in parts if one.finding is not Validness.VALID), _VALID)
    return found._replace(is_earlier=bool(stored.earlier))


def _task_of(key: str) -> str:
    return key.rpartition("/")[0]


_VALID = CheckedReuse(Validness.VALID)


class ChangedCode(NamedTuple):
    """Jobs of a run that were not made of what there is now, for one reason."""

    why: str
    reused: int
    ran: int
    continued: int = 0
    """How many of them ran on from an earlier attempt, which has the doubt."""

    def __str__(self) -> str:
        parts = [
            f"{_jobs(number)} {verb}, though {self.why} (--rerun-changed, or rerun_changed=True, runs such "
            f"jobs again)"
            for verb, number in (("reused", self.reused), ("run", self.continued))
            if number
        ]
        if self.ran:
            parts.append(f"{_jobs(self.ran)} run before: {self.why}")
        return "; ".join(parts)


class Validity:
    """Asks the check for one experiment: of jobs in every state, of prepared, cached and shared files."""

    def __init__(
        self,
        machine: Machine,
        *,
        rerun_changed: bool = False,
        reruns: Callable[[Job], bool] | None = None,
        checks_outputs: bool = True,
    ) -> None:
        """`rerun_changed`: things of other code, or made from something older, are made again, and what
        depends on it. `reruns`: tells which jobs a person wants to be run again. `checks_outputs`: a job
        whose declared outputs are gone is run again.
        """
        self._machine = machine
        self._files = machine.files
        self.rerun_changed = rerun_changed
        self._reruns = reruns
        self._checks_outputs = checks_outputs
        self.where: Mapping[str, Any] = {}
        """Commit, packages and the like, for the records of jobs."""
        self._judged: dict[tuple[type, str, str], tuple[ChangedValue, ...]] = {}
        """Which values differ, by class and by the digests of the defaults then and now: they tell all."""
        self._shown: dict[tuple[type, str], Mapping[str, Mapping[str, str]]] = {}
        """The values at defaults of tasks, by class and by the digest of them."""
        self._asked: set[str] = set()
        """The jobs that were run again since a person wants it: once is enough."""
        self._again: set[str] = set()
        """The jobs that are run again, for whatever reason: what depends on them follows."""
        self._anew: set[str] = set()
        """The jobs that begin with empty partials, too, whatever made these."""
        self._emptied: set[str] = set()
        """The partials that were set aside: jobs that share one continue from each other."""
        self.older: dict[str, CheckedReuse] = {}
        """By key, the doubt about something shared that is used all the same."""
        self._doubts: dict[str, CheckedReuse] = {}
        """By key, what speaks against jobs that were reused all the same."""
        self._moved: dict[str, MovedJobs] = {}
        """By workspace."""
        self._plain: dict[type, tuple[Any, float]] = {}
        """By class, the code of a valid job of which the code alone decides, and until when."""
        self._shared: dict[str, MadeFrom] = {}
        """Prepared resources and caches that were looked at, by key."""

    # -- jobs (`scheduler.jobs.Reuse`)

    def is_valid(self, job: Job, marker: Marker) -> bool:
        """True if the result of a job that was found done can be reused, False if it is to be run again.

        Raises `DefaultChanged` if it was run with other values than the task has.
        """
        found = self.judged(job, marker)
        is_asked = self._is_asked(job)
        if not is_asked:
            self._refuse(job, "was done", found)
        if is_asked or found.newer & self._again:
            is_again = True
            self._anew.add(job.key)
        elif found.finding is Validness.OUTPUTS:
            is_again = True
        else:
            is_again = self.rerun_changed and found.finding is not Validness.VALID
        if is_again:
            self._again.add(_key(job))
            return False
        pending = [one for one in _upstream(job) if _source(one) is None]
        if pending and (self.rerun_changed or any(one.rerun_of for one in pending)):
            job.is_doubtful = True
            return False
        if found.finding is not Validness.VALID or pending:
            self._doubts[job.key] = found
        return True

    def judged(self, job: Job, marker: Marker) -> CheckedReuse:
        """The check's answer for a job that was found done, or that ended in this process."""
        if not isinstance(job.work, TaskWork):
            return _VALID
        record = read_made_of(self._files, job.paths, marker)
        task, found = job.work.task, _VALID
        code, now = record.get("code"), self._machine.clock.monotonic()
        is_plain = (
            is_alone(task)
            and not job.dependencies
            and record.get("defaults") in (None, defaults_digest(task))
            and not any(map(record.get, ("made_from", "above", "earlier")))
        )
        known, until = self._plain.get(type(task), (None, 0.0))
        if not is_plain or code != known or now > until:
            wanted = self.wanted(job, defaults=True)
            found = check(MadeOf.of(record, lambda: self._values_once(job, record)), wanted)
            if is_plain and found.finding is Validness.VALID:
                self._plain[type(task)] = code, now + _LOOKS_EACH_S
        if found.finding is Validness.VALID and self._checks_outputs:
            gone = tuple(gone_outputs(self._files, job.paths, job.marker, record))
            return CheckedReuse(Validness.OUTPUTS, gone) if gone else found
        return found

    def begins_anew(self, job: Job, launch: LaunchRecord, *, runs: bool) -> bool:
        """True if an unfinished attempt is followed by one in an empty directory.

        Raises `DefaultChanged` for an attempt at other values that still `runs`, or that could be gone on
        with: half of the result would be of each.
        """
        record = launch.instructions.get("record")
        if not isinstance(record, dict) or not isinstance(job.work, TaskWork):
            return False
        found = check(MadeOf.of(record, lambda: self._values(job)), self.wanted(job, defaults=True))
        if found.changed and runs:
            self._refuse(job, "runs", found)
        elif found.changed:
            if job.retry.resumable and not self._is_asked(job):
                self._refuse(job, "was begun, and would continue,", found)
            return True
        if not runs and self._is_asked(job):
            self._anew.add(job.key)
            return True
        if found.finding is Validness.VALID or (not runs and self.rerun_changed):
            return found.finding is not Validness.VALID
        if runs or job.retry.resumable:
            self._doubts[job.key] = found
        return False

    def doubt(self, job: Job) -> str:
        """What speaks against the attempt that a job continues, or waits for; nothing for most."""
        return f"; {self._doubts[job.key]}" if job.key in self._doubts else ""

    def refuse_other(self, job: Job, known: Job) -> None:
        """Raises `DefaultChanged` if a job that is under way in this process has other values."""
        if isinstance(job.work, TaskWork) and isinstance(known.work, TaskWork):
            then, now = known.work.task, job.work.task
            if then is not now and defaults_digest(then) != defaults_digest(now):
                changed = compared(now, document(then), {}).changed
                self._refuse(job, "runs", CheckedReuse(Validness.VALUE, changed=changed))

    def other_values(self, job: Job, record: Mapping[str, Any]) -> str | None:
        """Why what another process made of a job meanwhile is not of its values; None if it is."""
        if not isinstance(job.work, TaskWork):
            return None
        task, then = job.work.task, record.get("defaults")
        stored = None if then is None or then == defaults_digest(task) else self._values(job)
        changed = () if stored is None else compared(task, stored, {}).changed
        name = f"{class_name(task)} {job.job_id[:8]}"
        return (
            refusal(name, "was run by another script meanwhile, with another value", changed)
            if changed
            else None
        )

    def dropped(self, job: Job) -> Iterable[Job]:
        """Done jobs whose removed files a job that runs depends on; a job comes before its dependents."""
        for origin in dict.fromkeys(_upstream(job)):
            marker = origin.marker
            if marker is not None and marker.record.get("dropped") and marker.nonce != origin.rerun_of:
                yield from self.dropped(origin)
                self._again.add(_key(origin))
                yield origin

    def record(self, job: Job) -> Mapping[str, Any]:
        """What the result of an attempt that is about to begin will be made of."""
        if not isinstance(job.work, TaskWork):
            return {}
        if job.key in self._anew:
            self._anew.discard(job.key)
            for config in inside(job.work.task):
                for folder, key in own_partials(config, job.layout).items():
                    if self.set_aside(folder):
                        self.renew(config, key, f"{folder}.json")
        for config in inside(job.work.task):
            if is_shared(live_class(type(config))):
                self._note_sources(config, job)
        made = self.wanted(job)
        known = dict(made.sources)
        for needed in job.dependencies:
            if needed.origin.transient is not TransientMode.NONE:  # it may be gone when this one is judged
                known |= MadeOf.of(self.made_of(needed.origin), dict).sources
        sources = [list(one) for one in known.values() if one is not None and one.life]
        record: dict[str, Any] = {"code": made.code, "files": dict(made.files)}
        record["defaults"] = defaults_digest(job.work.task)
        if sources:
            record["made_from"] = sources
        if made.above:
            record["above"] = made.above
        if (seed := seed_of(job.work.task)) is not None:
            record["seed"] = seed  # a program tells nothing of the one that it was given
        return {**record, **self.where, "run": job.owners[0].id if job.owners else None}

    def wanted(self, job: Job, *, defaults: bool = False) -> MadeOf:
        """What a job would be made of now."""
        assert isinstance(job.work, TaskWork)
        task = job.work.task
        code = file_digests.code(classes_of(task))
        sources: dict[str, MadeFrom | None] = {}
        above: list[Mapping[str, Mapping[str, str]]] = []
        for origin in _upstream(job):
            sources[_key(origin)] = _source(origin)
            if isinstance(origin.work, TaskWork):
                above.append(self._defaults_of(origin.work.task))
        for config in inside(task):
            origin = config._state.origin
            if origin is not None and config._state.is_there and isinstance(origin._state.job, Job):
                made_by = origin._state.job  # it runs, perhaps: the files it handed over stay
                sources[_key(made_by)] = MadeFrom(_key(made_by), made_by.life or "", "")
                above.append(self._defaults_of(origin))
            for key in shared_keys(config):
                if key in self._shared:
                    sources[key] = self._shared[key]
                    if defaults:  # as it would be made now
                        sources[key] = self._shared[key]._replace(result=_gave(upstream_sources(config)))
        return MadeOf(
            code.digest,
            code.files,
            sources,
            defaults_digest(task) if defaults else None,
            task=task,
            above=_united(above),
            present=partial(self._present, job),
        )

    def _defaults_of(self, task: Any) -> Mapping[str, Mapping[str, str]]:
        key = type(task), defaults_digest(task)
        if key not in self._shown:
            self._shown[key] = values_shown(task, defaults=True)
        return self._shown[key]

    def be_at(self, where: Mapping[str, Any]) -> None:
        """Have the records of jobs tell where they are made: commit, packages and the like."""
        self.where = where

    def set_aside(self, folder: str) -> bool:
        """Set the directory of a partial aside, once, unless a job uses it at this moment; True if it was."""
        if folder in self._emptied or self._files.stat(folder) is None:
            return False
        self._emptied.add(folder)
        with open(f"{folder}.lock", "a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            remove_path(self._files, f"{folder}.aside")
            self._files.rename(folder, f"{folder}.aside")
        return True

    def renew(self, config: Any, key: str, path: str | None = None) -> None:
        """Have the jobs that use a config be made from what is made now; `path`: of its record."""
        life = self._machine.randomness.nonce()
        made = shared_record(config, life)
        self.note_shared(key, life, made["code"])
        if path is not None:
            self._files.make_directory(path.rpartition("/")[0])
            self._files.replace(path, json.dumps(made).encode(), durable=False)

    def _note_sources(self, config: Any, job: Job) -> None:
        """Has the record of what a config shares tell which jobs it is made from, which are done by now."""
        sources = upstream_sources(config)
        for key, path in shared_paths(config, job.layout) if sources else ():
            known = SharedRecord.read(self._files, path)
            if known is None:
                continue
            made = MadeOf.of(known.fields, dict)
            found = check(
                MadeOf(sources=made.sources), MadeOf(sources=sources, present=partial(self._present, job))
            )
            if found.finding is not Validness.VALID:
                folder = (
                    path.removesuffix(".json") if key.startswith(PARTIAL) else path.removesuffix(f"/{_MADE}")
                )
                if not self.rerun_changed or not self._cleared(key, folder):
                    self.older.setdefault(key, found)
                    older = {one: made.sources.get(one) or now for one, now in sources.items()}
                    self.note_shared(key, known.life, str(known.fields.get("code") or ""), _gave(older))
                    continue
                self.renew(config, key, path)
                known, made = SharedRecord.read(self._files, path) or known, MadeOf()
            self.note_shared(key, known.life, str(known.fields.get("code") or ""), _gave(sources))
            told = [list(one) for one in {**made.sources, **sources}.values() if one is not None]
            if told != known.fields.get("made_from"):
                self._files.replace(
                    path, json.dumps({**known.fields, "made_from": told}).encode(), durable=False
                )

    def _cleared(self, key: str, folder: str) -> bool:
        if key.startswith(PARTIAL):
            return self.set_aside(folder)
        return _clear(self._files, folder, _held(self._files, folder))

    def note_shared(self, key: str, life: str, code: str, gave: str = "") -> None:
        """Have the jobs that use something shared be made from it, as this code made it.

        `gave`: the digest of what the jobs gave that it was made from.
        """
        self._shared[key] = MadeFrom(key, life, code, gave)

    def _present(self, job: Job, key: str) -> str:
        """The key that a job which this one was made from has now, if it was moved or its class renamed."""
        task_id, _, job_id = key.rpartition("/")
        moved = self._moved.setdefault(job.layout.root, MovedJobs(self._files, job.layout))
        known = {(task_id, job_id), moved.present(JobKey(task_id, job_id))}
        for origin in _upstream(job):
            names = [(origin.task_id, origin.job_id)]
            if isinstance(origin.work, TaskWork):
                names += former_keys(origin.work.task)
            if not known.isdisjoint(names):
                return _key(origin)
        return key

    def _is_asked(self, job: Job) -> bool:
        """True, once, for a job that a person wants to be run again."""
        if self._reruns is None or job.key in self._asked or not self._reruns(job):
            return False
        self._asked.add(job.key)
        return True

    def _values_once(self, job: Job, record: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The stored parameters of a job; None if an equal job was found to have the same."""
        assert isinstance(job.work, TaskWork)
        key = type(job.work.task), str(record.get("defaults")), defaults_digest(job.work.task)
        if key not in self._judged:
            stored = self._values(job)
            self._judged[key] = () if stored is None else compared(job.work.task, stored, {}).changed
            return stored
        return self._values(job) if self._judged[key] else None

    def _values(self, job: Job) -> Mapping[str, Any] | None:
        try:
            return loads(self._files.read(job.paths.params, _LARGEST_PARAMS), PARAMS_FILE)
        except (OSError, TenutoError):
            return None  # its parameters are gone: nothing speaks against it

    def _refuse(self, job: Job, did: str, found: CheckedReuse) -> None:
        """Raise `DefaultChanged` for other values; what a rerun makes anew may be made from others."""
        if found.changed and not (found.finding is Validness.ABOVE and self.rerun_changed):
            assert isinstance(job.work, TaskWork)
            name = f"{class_name(job.work.task)} {job.job_id[:8]}"
            of = "from a job of" if found.finding is Validness.ABOVE else "with"
            refuse(name, f"{did} {of} another value", found.changed, ", or run it with --rerun")

    # -- notes

    def made_of(self, job: Job) -> Mapping[str, Any]:
        """What the result of a job that is done was made of."""
        if job.marker is None:
            return {}
        marker = self._whole(job)
        seed = marker.provenance.get("seed")
        made = read_made_of(self._files, job.paths, marker)
        return {**made, **({} if seed is None else {"seed": int(seed)})}

    def changed_code(self, jobs: Iterable[Job], reused: set[str]) -> Iterator[ChangedCode]:
        """Why jobs of a run are not what running them now would give, looked at anew."""
        found: dict[str, Counter[str]] = {}
        code = cache(file_digests.code)
        for job in jobs:
            doubt = self._doubt(job, job.key in reused, code)
            if doubt is not None:
                how = "reused" if job.key in reused else "continued" if doubt.is_earlier else "ran"
                found.setdefault(str(doubt), Counter())[how] += 1
        for why, counted in sorted(found.items()):
            yield ChangedCode(why, counted["reused"], counted["ran"], counted["continued"])

    def older_shared(self, jobs: Iterable[Job], reused: set[str]) -> Iterator[str]:
        """Why jobs are not what they would be with shared files that are made now."""
        used = Counter(
            ("reused" if job.key in reused else "run", why)
            for job in (jobs if self.older else ())
            if job.key not in self._doubts
            for why in self.older_of(job)
        )
        for (verb, why), number in sorted(used.items()):
            yield f"{_jobs(number)} {verb} {why} (--rerun-changed, or rerun_changed=True, makes it anew)"

    def older_of(self, job: Job) -> Iterator[str]:
        """The doubts about shared files that a job uses, or used."""
        if not self.older or not isinstance(job.work, TaskWork):
            return
        for key in {
            key for config in inside(job.work.task) for key in shared_keys(config)
        } & self.older.keys():
            kind, _, name = key.partition(":")
            is_partial = kind == PARTIAL
            made = (
                f"on from {job.layout.partials}/{name}"
                if is_partial
                else f"with {kind} data of {_task_of(name)}"
            )
            yield f"{made}, though {self.older[key]}"

    def _doubt(
        self, job: Job, reused: bool, code_of: Callable[[frozenset[type]], Code]
    ) -> CheckedReuse | None:
        marker = job.marker
        if marker is None or job.state is not JobState.DONE or not isinstance(job.work, TaskWork):
            return None
        continued = job.retry.resumable and job.attempt > 1 and not reused
        if job.key in self._doubts or continued:
            found = self.judged(job, self._whole(job))
            return None if found.finding is Validness.VALID else found
        code = code_of(classes_of(job.work.task))
        if marker.record.get("code") in (None, code.digest):
            return None
        then = MadeOf.of(read_made_of(self._files, job.paths, self._whole(job)), dict)
        return CheckedReuse(Validness.CODE, tuple(changed_files(then.files, code.files)))

    def _whole(self, job: Job) -> Marker:
        """The marker of a job, of which the scheduler keeps the gist."""
        try:
            found = Marker.decode(self._files.read(job.paths.done, _LARGEST_RECORD))
        except (OSError, WorkspaceError):
            found = None
        assert job.marker is not None
        return found if isinstance(found, Marker) else job.marker


def refuse(name: str, did: str, changed: tuple[ChangedValue, ...], more: str = "") -> None:
    """Raise `DefaultChanged` for a result of other values than are asked for."""
    raise DefaultChanged(refusal(name, did, changed, f", at {caller()}", more))


def refusal(name: str, did: str, changed: tuple[ChangedValue, ...], place: str = "", more: str = "") -> str:
    """Why what was made with other values than are asked for is not used, and the remedy.

    `more`: another way to have it made anew.
    """
    return (
        f"{name} {did}, which was a default then: {'; '.join(map(str, changed[:5]))}{place}. The old "
        f"results stay those of the old value if you write {changed[0].remedy()}; to run all anew, add a "
        f"Constant to the class{more}. See docs/valid.md"
    )


def _key(job: Job) -> str:
    return f"{job.task_id}/{job.job_id}"


def _upstream(job: Job) -> Iterator[Job]:
    """What a job depends on, also through jobs that are there for others alone, and may be gone."""
    for needed in job.dependencies:
        yield needed.origin
        if needed.origin.transient is not TransientMode.NONE:
            yield from _upstream(needed.origin)


def _united(parts: Iterable[Mapping[str, Mapping[str, str]]]) -> Mapping[str, Mapping[str, str]]:
    """What several tasks have at defaults, by class."""
    distinct = list({id(part): part for part in parts if part}.values())
    if len(distinct) < 2:
        return distinct[0] if distinct else {}
    united: dict[str, Mapping[str, str]] = {}
    for part in distinct:
        united |= {of: {**united.get(of, {}), **names} for of, names in part.items()}
    return united


def _source(job: Job) -> MadeFrom | None:
    """A job as a source; None while its result is not known."""
    marker = job.marker
    if marker is not None and marker.reason is None and marker.nonce != job.rerun_of:
        return source_of(_key(job), marker)
    if job.transient is TransientMode.NONE or job.rerun_of is not None or not isinstance(job.work, TaskWork):
        return None
    return MadeFrom(_key(job), "", file_digests.code(classes_of(job.work.task)).digest)


def source_of(key: str, marker: Marker) -> MadeFrom:
    """What a job that is done is, as a source."""
    return MadeFrom(key, str(marker.record.get("begun") or marker.nonce), *_said(marker.record))


def _said(record: Mapping[str, Any]) -> tuple[str, str]:
    code, result = record.get("code"), record.get("result")
    return code if isinstance(code, str) else "", result if isinstance(result, str) else ""


def gone_outputs(
    files: Files, paths: JobPaths, marker: Marker | None, record: Mapping[str, Any]
) -> Iterator[str]:
    """The files of a job's result and its declared outputs that are gone, or have another size."""
    if marker is not None and marker.result_stored and not files.stat(paths.result):
        yield paths.result.removeprefix(f"{paths.directory}/")
    outputs, dropped = record.get("outputs"), record.get("dropped")
    for name, size in outputs.items() if isinstance(outputs, dict) else ():
        if isinstance(dropped, list) and name in dropped:
            continue
        found = led_to(files, f"{paths.directory}/{name}")
        if found is None or (size is not None and (found.kind, found.size) != (FileKind.FILE, size)):
            yield name


def _listed(names: tuple[str, ...]) -> str:
    shown = [name if len(name) < 60 else f"{name[:-52]}" for name in names[:3]]
    return f"{', '.join(shown)}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"


def _near(path: str) -> str:
    path = shown_file(path)
    near = os.path.relpath(path) if path.startswith("/") else path
    return path if near.startswith("..") else near


def _jobs(number: int) -> str:
    return "1 job was" if number == 1 else f"{number} jobs were"


# -- jobs of stored parameters, which no script submits ------------------------------------------------


def other_defaults(then: bytes | str, now: bytes | str) -> bool:
    """True if two documents of one identity have other values, at defaults that do not count."""
    one, other = json.loads(then), json.loads(now)
    return one.get("defaults") != other.get("defaults") and not have_same_values(other, one)


OTHER_DEFAULTS = (
    "was evaluated before with another value, which was a default then: say what the old results are by "
    "field(default=..., ignore_default=...), add a Constant to the class, or search with reuse=False. "
    "See docs/valid.md"
)


RERUNS = "rerun_changed"
"""In stored parameters, true: what other code made is made again."""


def is_of_other_code(then: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether the check doubts what a record, or stored parameters, tell, given the parameters of now."""
    return check(MadeOf.of(then, dict), MadeOf.of(now, dict)).finding is not Validness.VALID


class StoredValidity:
    """The check of jobs that are made of stored parameters, as jobs of a search are."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.doubted: set[str] = set()
        """The keys of jobs that were reused though other code made their results."""

    def is_valid(self, job: Job, marker: Marker) -> bool:
        """True if the result of a job that was found done can be reused, False if it is to be run again.

        Raises `DefaultChanged` for the result of other values than the stored ones.
        """
        params = job.work.params(job.layout, job.paths)
        now, then = json.loads(params), marker.record.get("defaults")
        if then is not None and then != (now.get("defaults") or ""):
            self._refuse_other(job, params)
        if not is_of_other_code(marker.record, now):
            return True
        if RERUNS in now:
            return False
        self.doubted.add(job.key)
        return True

    def begins_anew(self, job: Job, launch: LaunchRecord, *, runs: bool) -> bool:
        """False, or `DefaultChanged` for an attempt at other values."""
        if runs:
            self._refuse_other(job, job.work.params(job.layout, job.paths))
        return False

    def refuse_other(self, job: Job, known: Job) -> None:
        """`DefaultChanged` if a job that is under way in this process has other values."""
        now, then = (one.work.params(one.layout, one.paths) for one in (job, known))
        if other_defaults(then, now):
            raise DefaultChanged(f"{job.task_id} {job.job_id[:8]} {OTHER_DEFAULTS}")

    def other_values(self, job: Job, record: Mapping[str, Any]) -> str | None:
        """Why what another process made of a job meanwhile is not of its values; None if it is."""
        params = job.work.params(job.layout, job.paths)
        if record.get("defaults") in (None, json.loads(params).get("defaults") or ""):
            return None
        try:
            self._refuse_other(job, params)
        except DefaultChanged as other:
            return str(other)
        return None

    def dropped(self, job: Job) -> Iterable[Job]:
        """None: such a job depends on no other."""
        return ()

    def record(self, job: Job) -> Mapping[str, Any]:
        """What the result of an attempt will be made of, as far as the parameters tell."""
        owner = job.owners[0].id if job.owners else None
        document = json.loads(job.work.params(job.layout, job.paths))
        return {"defaults": document.get("defaults") or "", "run": owner}

    def _refuse_other(self, job: Job, now: bytes) -> None:
        try:
            then = self._files.read(job.paths.params, _LARGEST_PARAMS)
        except (OSError, TenutoError):
            return  # its parameters are gone: nothing speaks against it
        if other_defaults(then, now):
            raise DefaultChanged(f"{job.task_id} {job.job_id[:8]} {OTHER_DEFAULTS}")


def renewed_record(files: Files, layout: Layout, record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The record of an attempt for one that follows now: its sources are as they are now."""
    made = []
    for one in MadeOf.of(record, dict).sources.values():
        assert one is not None
        marker = None
        if not one.key.startswith(_SHARED):
            task_id, _, job_id = one.key.rpartition("/")
            marker = read_markers(files, layout.job(task_id, job_id)).done
        made.append(list(source_of(one.key, marker) if isinstance(marker, Marker) else one))
    return (
        {**{name: record[name] for name in record if name != "above"}, "made_from": made} if made else record
    )


_MOST_DROPPED = 20


def note_dropped(files: Files, paths: JobPaths, roots: Sequence[str]) -> None:
    """Have the record of a done job name the files removed from its directory: it stays valid.

    Under the lock of the job, which the caller has. Declared outputs are all named, other files as far as
    a marker has room for them.
    """
    found = read_markers(files, paths).done
    assert isinstance(found, Marker)
    record = read_made_of(files, paths, found)
    known, outputs = record.get("dropped"), record.get("outputs")
    declared = [name for name in outputs or () if name.partition("/")[0] in roots]
    dropped = sorted({*(known or ()), *declared, *roots[:_MOST_DROPPED]})
    write_marker(files, paths, found._replace(record={**found.record, "dropped": dropped}))


# -- classes of one name -------------------------------------------------------------------------------


def check_classes(files: Files, layout: Layout, task: Any, *, really: bool = True) -> None:
    """Refuses a task if another file, of a module of the same name, has a class of it in this workspace.

    Looks at the task, and at every config in it. A class of an installed module is told apart by its module's
    name, and one with an ``__xpmid__`` by that: the class of another name that has it too, in another file
    that is still there, was copied. Without `really` nothing is written.
    """
    for cls in classes_of(task):
        if cls.__module__.partition(".")[0] == "tenuto":
            continue
        if "__xpmid__" in cls.__dict__:
            _check_own_id(files, layout, cls, really=really)
            continue
        nameless = nameless_source(cls)
        if nameless is not None:
            _check_nameless(files, layout, cls, nameless, really=really)
            continue
        file = known_file(cls)
        if "-packages/" in file:
            continue
        other = claim_class(files, layout, schema_of(cls).id, file, really=really)
        if other is not None:
            raise ClassNotFound(
                f"{cls.__qualname__} of {file} would share its results with the class of the same name "
                f"in {other}: rename one of the files, or give one class an id of its own, as in "
                f'__xpmid__ = "my.{cls.__qualname__.lower()}"'
            )


def _check_own_id(files: Files, layout: Layout, cls: type, *, really: bool) -> None:
    """Refuse a class with the ``__xpmid__`` of another one, in a file that is still there.

    It is another one by its name, or in a file of another name by its source: in a second checkout of a
    project it is the same class at another time.
    """
    try:
        if nameless_source(cls) is not None or "-packages/" in (file := known_file(cls)):
            return
    except ClassNotFound:
        return  # a job of it is refused; a plan need not find its class
    own_id, name = schema_of(cls).id, cls.__qualname__
    path = layout.task_class(own_id)
    try:
        known = from_json(files.read(path, _LARGEST_PARAMS))
        other, other_name = known.get("script"), known.get("name")
        content = files.read(other, _LARGEST_CODE) if other != file else b""
        is_there = own_id.encode() in content and (
            other_name != name
            or (os.path.basename(other) != os.path.basename(file) and _text_of(cls) not in content)
        )
    except (OSError, WorkspaceError, ValueError, AttributeError, TypeError):
        other = other_name = None
        is_there = False
    if is_there:
        raise ClassNotFound(
            f"{name} of {file} and {other_name} of {other} have one id, {own_id!r}, so that one would have "
            f"the results of the other: give one of them another __xpmid__, or delete it"
        )
    if really and (other, other_name) != (file, name):
        files.make_directory(path.rpartition("/")[0])
        files.replace(path, to_json({"script": file, "name": name, "sha256": ""}), durable=False)


def _text_of(cls: Any) -> bytes:
    """The source of a class, or of the function it was made of; empty if it cannot be told."""
    try:
        text: str = inspect.getsource(getattr(cls, "__wrapped__", cls))
        return text.encode()
    except (OSError, TypeError):
        return b""


_NAMELESS = "a notebook without a name"
_claimed_here: set[str] = set()
"""The claims of nameless notebooks that this process made: it may declare its own classes again."""


def _check_nameless(files: Files, layout: Layout, cls: type, source: str, *, really: bool) -> None:
    """Refuse a class of a notebook that cannot be told from another one, or from another version of it."""
    path, digest = layout.task_class(schema_of(cls).id), sha256(source.encode()).hexdigest()
    known = _claimed(files, path)
    if known is not None and known != (_NAMELESS, digest) and path not in _claimed_here:
        raise ClassNotFound(
            f"{cls.__qualname__} of this notebook, which was not told its name, would share its results with "
            f"another class of that name, or another version of it ({known[0]}): name the notebook, by "
            f'JPY_SESSION_NAME="/path/to/it.ipynb" in the environment of the program that runs it, or give '
            f'the class an id of its own, as in __xpmid__ = "my.{cls.__qualname__.lower()}"'
        )
    if really:
        _claimed_here.add(path)
    if really and known != (_NAMELESS, digest):
        files.make_directory(path.rpartition("/")[0])
        files.replace(path, to_json({"script": _NAMELESS, "sha256": digest}), durable=False)


def claim_class(
    files: Files, layout: Layout, class_id: str, script: str, *, really: bool = True
) -> str | None:
    """Remember that a class id is one of this script; another script that has it already, if there is one.

    A script that was moved, or copied without a change, takes the id along.
    """
    path = layout.task_class(class_id)
    digest = _whole_digest(files, script)
    known = _claimed(files, path)
    if known is not None and known[0] != script and _is_there(files, known[0]):  # noqa: SIM102
        # Asked in this order, since to digest a file is to read it.
        if digest not in (known[1], _whole_digest(files, known[0])):
            return known[0]
    if known != (script, digest) and really:
        files.make_directory(path.rpartition("/")[0])
        files.replace(path, to_json({"script": script, "sha256": digest}), durable=False)
    return None


def _whole_digest(files: Files, script: str) -> str:
    try:
        return sha256(files.read(script, _LARGEST_CODE)).hexdigest()
    except (OSError, WorkspaceError):
        return ""


def _is_there(files: Files, script: str) -> bool:
    try:
        return files.stat(script) is not None
    except OSError:
        return False  # an unreadable script cannot be run either


def _claimed(files: Files, path: str) -> tuple[str, str] | None:
    try:
        fields = Fields(from_json(files.read(path, _LARGEST_PARAMS)))
        script, digest = fields.text("script"), fields.text("sha256")
    except (OSError, WorkspaceError, ValueError):
        return None
    return None if "\0" in script else (script, digest)


# -- what jobs share: prepared resources, caches of methods, directories of partials --------------------


def shared_keys(config: Any) -> list[str]:
    """What a config has besides the jobs that use it, as keys of sources."""
    cls = live_class(type(config))
    kinds = _kinds(cls)
    keys = [f"{kind}:{schema_of(cls).id}/{identity(config)}" for kind in kinds] if kinds else []
    return [*keys, *own_partials(config).values()] if is_shared(cls) else keys


_kinds_of: dict[type, tuple[str, ...]] = {}


def _kinds(cls: type) -> tuple[str, ...]:
    known = _kinds_of.get(cls)
    if known is None:
        is_prepare = getattr(cls, "__is_prepare__", False)
        known = _kinds_of[cls] = ((PREPARED,) if is_prepare else ()) + ((CACHED,) if caches(cls) else ())
    return known


_is_shared: dict[type, bool] = {}


def is_shared(cls: type) -> bool:
    """True if configs of a class have caches or directories of partials, which jobs share."""
    known = _is_shared.get(cls)
    if known is None:
        has_partials = any(one.partial is not None for one in schema_of(cls).generators.values())
        known = _is_shared[cls] = has_partials or CACHED in _kinds(cls)
    return known


class SharedRecord(NamedTuple):
    """The record of something that jobs share, as it lies beside it."""

    life: str
    fields: Mapping[str, Any]

    @classmethod
    def read(cls, files: Files, path: str) -> SharedRecord | None:
        """The record at a path; None without a usable one."""
        try:
            found = json.loads(files.read(path, _LARGEST_RECORD))
        except (OSError, TenutoError, ValueError):
            return None
        life = found.get("life") if isinstance(found, dict) else None
        return cls(life, found) if isinstance(life, str) else None


class SharedThings:
    """Asks the check for what jobs share, once for each of them while an experiment is open."""

    def __init__(self, machine: Machine, validity: Validity) -> None:
        self._machine = machine
        self._files = machine.files
        self._validity = validity
        self._seen: set[str] = set()

    def check(self, task: Any, layout: Layout, *, really: bool) -> None:
        """Check caches and partials of a task and of the configs in it; `DefaultChanged` refuses one.

        With `really`, new things are recorded, and caches of other code are cleared if that is asked for.
        """
        for config in inside(task):
            cls = live_class(type(config))
            if CACHED in _kinds(cls):
                self._check_cache(config, layout, really=really)
            self._check_partials(config, layout, really=really)

    def judged(
        self, config: Any, known: SharedRecord, excluded: frozenset[str] = frozenset()
    ) -> CheckedReuse:
        """What the check says of something shared; `DefaultChanged` if it was made of other values."""
        code, sources = file_digests.code(classes_of(config)), upstream_sources(config)
        wanted = MadeOf(code.digest, code.files, sources, defaults_digest(config), dict, config, excluded)
        found = check(MadeOf.of(known.fields, lambda: known.fields.get("config")), wanted)
        if found.finding is Validness.VALUE:
            refuse(class_name(config), "was made with another value", found.changed)
        return found

    def key(self, config: Any, kind: str) -> str:
        """The key of what a config has of a kind."""
        return next(one for one in shared_keys(config) if one.startswith(kind))

    def use(self, config: Any, key: str, known: SharedRecord, found: CheckedReuse) -> None:
        """Have jobs that use a config be made from what is there, whatever speaks against it."""
        self._validity.note_shared(key, known.life, str(known.fields.get("code") or ""))
        if found.finding is not Validness.VALID:
            self._validity.older[key] = found

    def _check_cache(self, config: Any, layout: Layout, *, really: bool) -> None:
        folder = _cache_folder(config, layout)
        path = f"{folder}/{_MADE}"
        if path in self._seen:
            return
        known = SharedRecord.read(self._files, path)
        held = _held(self._files, folder)
        found = self.judged(config, known) if known is not None and held else None
        self._seen.add(path)
        key = self.key(config, CACHED)
        if known is not None and found is not None:
            if found.finding is Validness.VALID or not self._validity.rerun_changed:
                self.use(config, key, known, found)
                return
            if really:
                _clear(self._files, folder, held)
        elif held:
            return  # a cache from before there were records: nothing speaks against it
        self._validity.renew(config, key, path if really else None)

    def _check_partials(self, config: Any, layout: Layout, *, really: bool) -> None:
        own = own_partials(config, layout)
        for folder, generator in partials(config, layout).items():
            path = f"{folder}.json"
            if path in self._seen:
                continue
            known = SharedRecord.read(self._files, path)
            found = None
            is_there = self._files.stat(folder) is not None
            if known is not None and is_there:
                assert generator.partial is not None
                found = self.judged(config, known, generator.partial.excluded_groups)
            self._seen.add(path)
            if folder not in own:
                continue  # it is prepared again
            if known is not None and found is not None:
                if found.finding is Validness.VALID or not self._validity.rerun_changed:
                    self.use(config, own[folder], known, found)
                    continue
                if really and not self._validity.set_aside(folder):
                    continue
            elif is_there:
                continue  # from before there were records: nothing speaks against it
            self._validity.renew(config, own[folder], path if really else None)


_MADE = "made.json"


def _cache_folder(config: Any, layout: Layout) -> str:
    return f"{layout.config}/{schema_of(type(config)).id}/{identity(config)}"


def _held(files: Files, folder: str) -> list[str]:
    """The files that cached methods left in a folder."""
    try:
        names = files.list(folder)
    except OSError:
        return []
    own = (".lock", ".unfinished", ".json")
    return [name for name in names if not name.endswith(own) or f"{name}.lock" in names]


def _clear(files: Files, folder: str, names: list[str]) -> bool:
    """Remove what cached methods left, but for what one of them uses at this moment; True if all of it."""
    is_all = True
    for name in names:
        with open(f"{folder}/{name}.lock", "a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                is_all = False
                continue
            remove_path(files, f"{folder}/{name}")
    return is_all


def upstream_sources(config: Any) -> dict[str, MadeFrom | None]:
    """The jobs that a config uses, as sources."""
    jobs = (one._state.job for one in config._state.upstream or ())
    return {_key(job): _source(job) for job in jobs if isinstance(job, Job)}


def _gave(sources: Mapping[str, MadeFrom | None]) -> str:
    """The digest of what jobs gave; empty while one of them is not done, or its result not known."""
    known = [(one.key, one.code, one.result) for one in sources.values() if one is not None and one.result]
    is_known = bool(known) and len(known) == len(sources)
    return sha256(repr(sorted(known)).encode("utf-8", "surrogatepass")).hexdigest()[:16] if is_known else ""


def shared_paths(config: Any, layout: Layout) -> Iterator[tuple[str, str]]:
    """What jobs share by a config: the keys, and where the records lie."""
    for folder, key in own_partials(config, layout).items():
        yield key, f"{folder}.json"
    for key in shared_keys(config):
        if key.startswith(CACHED):
            yield key, f"{_cache_folder(config, layout)}/{_MADE}"


def shared_record(config: Any, life: str) -> dict[str, Any]:
    """The record of something that jobs share, as it is made now."""
    code = file_digests.code(classes_of(config))

    def upstream(node: Any) -> dict[str, Any] | None:
        return {"upstream": schema_of(type(node)).id} if node._state.job is not None else None

    fields = {"life": life, "code": code.digest, "files": dict(code.files)}
    return {**fields, "defaults": defaults_digest(config), "config": document(config, upstream=upstream)}


def partials(config: Any, layout: Layout) -> dict[str, PathGenerator]:
    """The directories of partials that a config has."""
    generators = schema_of(live_class(type(config))).generators.values()
    return {
        f"{layout.partials}/{partial_folder(config, one)}": one
        for one in generators
        if one.partial is not None
    }


def own_partials(config: Any, layout: Layout | None = None) -> dict[str, str]:
    """The partials of a config that tasks fill, as keys of sources, by their directories (in a layout)."""
    if PREPARED in _kinds(cls := live_class(type(config))):
        return {}
    below = "" if layout is None else f"{layout.partials}/"
    generators = schema_of(cls).generators.values()
    folders = (partial_folder(config, one) for one in generators if one.partial is not None)
    return {f"{below}{folder}": f"{PARTIAL}:{folder}" for folder in folders}


def remove_path(files: Files, path: str) -> None:
    """Remove a file, or a directory with all that it holds."""
    found = files.stat(path)
    if found is not None and found.kind is FileKind.DIRECTORY:
        files.remove_tree(path)
    else:
        files.remove(path)
