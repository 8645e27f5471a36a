"""Machines without a batch system, reached by ssh: a job is a runner in a session of its own on a host.
Counts the slots of hosts by files in the workspace, which all hosts share; starts nothing on this machine.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from tenuto.errors import InvalidSetting, LauncherNotFound
from tenuto.launchers.cluster.dialect import (
    ASK_S,
    SUBMIT_S,
    ClusterError,
    ClusterOptions,
    Dialect,
    JobScript,
    QueueRow,
    SubmissionAnswer,
    SubmissionOutcome,
    first_line,
)
from tenuto.launchers.instructions import GRACE_S
from tenuto.settings.clusters import ClusterSettings

_HOST = re.compile(r"((?:\w[\w.+-]*@)?)(\w[\w.+-]*|\[[\w:.%]+\])(?::0*([1-9]\d*))?", re.ASCII)
"""A host with its slots, for shells and directories to take as it stands."""
_NO_CONNECTION = 255
"""How ssh itself exits where there is no connection; other codes are of the command."""
_AWAY_S = 60.0
"""How long a host that gave no answer is asked last."""
_STALE_S = 60.0
"""How long a slot may be taken without a process of its submission."""
_START = """TENUTO_SSH_JOB={host}:$$ TENUTO_SSH_NAME={name}
export TENUTO_SSH_JOB TENUTO_SSH_NAME
{shell} {directory}/script.sh >>{directory}/out 2>&1
echo $? >{directory}/code.new && mv {directory}/code.new {directory}/code-0
"""
_LIST = r"""
for f in $(grep -lzs '^TENUTO_SSH_JOB=' /proc/[0-9]*/environ); do
    tr '\0' '\n' 2>/dev/null <$f | grep '^TENUTO_SSH_' | sort | tr '\n' ' '
    echo
done
true
"""
_KILL = r"""
for f in $(grep -lzsxF TENUTO_SSH_JOB={job} /proc/[0-9]*/environ); do
    p=${{f#/proc/}}
    kill -KILL ${{p%/environ}} 2>/dev/null
done
true
"""


class SshHost(NamedTuple):
    """A machine, and how many jobs of one core it may run at once."""

    name: str
    slots: int


class SshDialect(Dialect):
    """Hosts by ssh."""

    submit_words = (
        *("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
        *("-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3"),
    )
    list_words = ("ps",)
    end_late_s = 5.0
    largest = 1
    keeps_shell = True
    options: Mapping[str, str] = {"time": "", "cores": "cores={n}", "memory": "", "partition": "host={value}"}
    variables: Mapping[str, str] = {"job": "TENUTO_SSH_JOB"}
    states: Mapping[str, str] = {**Dialect.states, "RUNNING": "running"}
    array_blanks = ()  # `submit` is ssh with its own options
    unread = (
        *("submit_id", "later", "full", "refused", "options", "variables", "list", "end", "states", "cancel"),
        *("signal", "largest_array", "limit_words", "extra"),
    )

    def __init__(self, name: str, settings: ClusterSettings) -> None:
        super().__init__(name, settings)
        self.hosts = [_host(name, text) for text in settings.hosts or ()]
        if not self.hosts:
            raise InvalidSetting(f'clusters.{name}.hosts is missing: such as ["a:4", "b:8"]')
        if len({host.name for host in self.hosts}) < len(self.hosts):
            raise InvalidSetting(f"clusters.{name}.hosts: a host stands there twice: {settings.hosts}")
        self._away: dict[str, float] = {}
        """When hosts gave no answer."""
        self._listed: dict[str, tuple[float, set[str]]] = {}
        """What hosts listed last, by name of the job, and when."""

    def most_jobs(self) -> int:
        return sum(host.slots for host in self.hosts)

    def offers(self) -> str:
        self.queue()
        silent = [host.name for host in self.hosts if host.name not in self._listed]
        if len(silent) == len(self.hosts):
            raise ClusterError(f"no answer by ssh from {', '.join(silent)}")
        answers = dict.fromkeys(silent, ", gives no answer")
        told = (f"{name} ({slots} slots{answers.get(name, '')})" for name, slots in self.hosts)
        return f"by ssh: {', '.join(told)}"

    def native(self, job: str) -> str:
        return job

    def normal(self, job: str) -> str:
        return job

    def arguments(self, options: ClusterOptions, grace_s: float = GRACE_S) -> list[str]:
        words = super().arguments(options, grace_s)
        able = [host for host in self._wanted(words) if host.slots >= options.cpus]
        if not able:
            where = f"host {options.partition}" if options.partition else "host"
            raise LauncherNotFound(f"no {where} of {self.name} has {options.cpus} slots")
        return words

    def _wanted(self, words: Iterable[str]) -> list[SshHost]:
        """The hosts that the words of a job leave, those that answered last first."""
        asked = {word.removeprefix("host=") for word in words if word.startswith("host=")}
        hosts = [host for host in self.hosts if not asked or host.name in asked]
        now = time.monotonic()
        return sorted(hosts, key=lambda host: now - self._away.get(host.name, -_AWAY_S) < _AWAY_S)

    # Starting

    def submit(self, job: JobScript) -> SubmissionAnswer:
        if not (self._has_run or self.is_installed()):
            return SubmissionAnswer(SubmissionOutcome.REFUSED, f"{self.submit_words[0]} is not on the PATH")
        cores = next((int(word[6:]) for word in job.options if word.startswith("cores=")), 1)
        problem = "every slot is taken"
        for host in self._wanted(job.options):
            if host.slots < cores or not self._take_slots(host, cores, job.directory):
                continue
            shell = job.script.partition("\n")[0].removeprefix("#!")
            lines = _START.format(
                shell=shell, host=host.name, name=shlex.quote(job.name), directory=shlex.quote(job.directory)
            )
            in_session = f"setsid {shell.split()[0]} -c {shlex.quote(lines)}"
            done = self._on(host.name, f"cd /; {in_session} </dev/null >/dev/null 2>&1 & echo $!", SUBMIT_S)
            if done is not None and done.returncode == 0 and done.stdout.strip().isdecimal():
                return SubmissionAnswer(SubmissionOutcome.TAKEN, f"{host.name}:{done.stdout.strip()}")
            if done is not None and done.returncode != _NO_CONNECTION:
                return SubmissionAnswer(SubmissionOutcome.REFUSED, first_line(done.stderr))
            told = first_line(done.stderr) if done is not None else ""
            problem = f"{host.name} gives no answer" + (told and f": {told}")
            if done is None:  # it may have begun there: nothing else is tried before that is known
                return SubmissionAnswer(SubmissionOutcome.LATER, problem)
            self._free(host, job.directory)
        return SubmissionAnswer(SubmissionOutcome.LATER, problem)

    def _on(self, host: str, command: str, timeout_s: float) -> subprocess.CompletedProcess[str] | None:
        """Runs a command on a host; None if it gave no answer in time."""
        try:
            done = self.run([*self.submit_words, host, command], timeout_s)
        except ClusterError:
            self._away[host] = time.monotonic()
            return None
        if done.returncode == _NO_CONNECTION:
            self._away[host] = time.monotonic()
        else:
            self._away.pop(host, None)
        return done

    # Slots: a file for each that is taken, which names the submission that has it

    def _take_slots(self, host: SshHost, wanted: int, directory: str) -> bool:
        place = _slots_of(host, directory)
        os.makedirs(place, exist_ok=True)
        taken = 0
        for slot in range(host.slots):
            path = f"{place}/{slot}"
            taken += self._take_slot(path, host, directory)
            if taken == wanted:
                return True
        self._free(host, directory)
        return False

    def _take_slot(self, path: str, host: SshHost, directory: str) -> bool:
        for _ in range(2):
            try:
                fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            except FileExistsError:
                owner = _read(path)
                if owner == directory:
                    return True
                if not self._is_over(path, owner, host):
                    return False
                with suppress(FileNotFoundError):
                    os.unlink(path)
                continue
            with os.fdopen(fd, "w") as stream:
                stream.write(directory)
            return True
        return False

    def _is_over(self, path: str, owner: str, host: SshHost) -> bool:
        """True if the submission that has a slot has ended, or its host shows nothing of it."""
        if owner and (not os.path.isdir(owner) or os.path.exists(f"{owner}/code-0")):
            return True
        heard, names = self._listed.get(host.name, (0.0, set()))
        with suppress(FileNotFoundError):
            is_old = time.time() - os.stat(path).st_mtime > _STALE_S
            if not owner:
                return is_old  # else it is just being written
            suffix = f"-{owner.rpartition('/')[2][:8]}"
            is_shown = any(name.endswith(suffix) for name in names)
            return is_old and time.monotonic() - heard < _STALE_S and not is_shown
        return True

    def _free(self, host: SshHost, directory: str) -> None:
        place = _slots_of(host, directory)
        for slot in range(host.slots):
            with suppress(FileNotFoundError):
                if _read(f"{place}/{slot}") == directory:
                    os.unlink(f"{place}/{slot}")

    # Listing and ending

    def queue(self) -> list[QueueRow]:
        """The running jobs on the hosts that answer; a host that is gone has nothing."""
        asked: dict[str, subprocess.Popen[str]] = {}
        try:
            for host in self.hosts:
                asked[host.name] = subprocess.Popen(
                    [*self.submit_words, host.name, _LIST],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    env=self.environment(),
                )
        except OSError as error:  # this machine has no such program, or no process for it
            for process in asked.values():
                process.kill()
                process.communicate()
            raise ClusterError(f"{self.submit_words[0]} cannot be run: {error.strerror}") from error
        found: dict[str, QueueRow] = {}
        for name, process in asked.items():
            found |= {row.job: row for row in self._rows(name, process)}
        return list(found.values())

    def _rows(self, host: str, process: subprocess.Popen[str]) -> list[QueueRow]:
        try:
            text, _ = process.communicate(timeout=ASK_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return []
        if process.returncode:
            return []
        rows = []
        for line in text.splitlines():
            words = dict(word.partition("=")[::2] for word in line.split())
            job, name = words.get("TENUTO_SSH_JOB"), words.get("TENUTO_SSH_NAME", "")
            if job is not None:
                rows.append(QueueRow(job, "RUNNING", "", None, None, name))
        self._listed[host] = time.monotonic(), {row.name for row in rows}
        return rows

    def kill(self, jobs: Iterable[str]) -> None:
        for job in jobs:
            done = self._on(job.rpartition(":")[0], _KILL.format(job=shlex.quote(job)), ASK_S)
            if done is None or done.returncode == _NO_CONNECTION:
                raise ClusterError(f"{job.rpartition(':')[0]} gives no answer")

    def cancel_waiting(self, jobs: Iterable[str]) -> None:
        self.kill(jobs)

    def cancel_tasks(self, tasks: Iterable[str]) -> None:
        """None: there are no arrays."""


DIALECT = SshDialect


def _host(name: str, text: str) -> SshHost:
    found = _HOST.fullmatch(text)
    if found is None:
        told = f'{text!r} is no host with its slots, such as "a:4", "me@b" or "[fe80::1]:4"'
        raise InvalidSetting(f"clusters.{name}.hosts: {told}")
    user, host, slots = found.groups()
    return SshHost(user + host.strip("[]"), int(slots or 1))


def _slots_of(host: SshHost, directory: str) -> str:
    """Where the slots of a host are counted: beside the submissions of the cluster in a workspace."""
    return f"{directory.rpartition('/')[0].removesuffix('-pilots')}-slots/{host.name}"


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except (OSError, ValueError):
        return ""
