"""`tenuto doctor`."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from enum import Enum, unique
from pathlib import Path
from typing import Any, NamedTuple

import click

from tenuto import __version__
from tenuto.cli.console import print_json
from tenuto.errors import SettingsError, TenutoError
from tenuto.jobs.notify import Notice, send, shown_target
from tenuto.jobs.text import safe, width
from tenuto.launchers.carbon.carbon_plan import codecarbon_is_installed
from tenuto.launchers.cluster.dialect import ClusterError, dialect_of, leading_number
from tenuto.launchers.cluster.dialects.slurm import SlurmDialect
from tenuto.launchers.payload.limits import counts_together
from tenuto.launchers.selection import AUTO, cluster_names
from tenuto.settings import SLURM, Settings, Url, load_settings, process_environment
from tenuto.settings.tree import ValueSource
from tenuto.workspace.machine import this_machine

LITTLE_DISK = 1 << 30
FEW_INODES = 10_000
FEW_WATCHES = 1024
FEW_DESCRIPTORS = 1024
OLDEST_PYTHON = (3, 11)


@unique
class CheckResult(Enum):
    """How a check went."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(NamedTuple):
    """One check: its subject, its finding, and the remedy."""

    name: str
    verdict: CheckResult
    found: str
    advice: str = ""


def _ok(name: str, found: str) -> Check:
    return Check(name, CheckResult.OK, found)


def check_machine(workspace: Path, environ: Mapping[str, str]) -> list[Check]:
    """Every check; `workspace` is where jobs will be kept, whether it exists or not."""
    place = _existing(workspace)
    checks: list[Callable[[], Check]] = [
        _tenuto,
        _python,
        lambda: _writable(place),
        lambda: _locks(place),
        lambda: _disk(place),
        _pidfd,
        _inotify,
        _descriptors,
        _memory_group,
        lambda: _git(environ),
        lambda: _gpus(environ),
        _energy,
    ]
    return [check() for check in checks]


def _existing(path: Path) -> Path:
    """The directory itself, or the nearest above it that exists: on the file system it would be made on."""
    path = path.absolute()
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def _tenuto() -> Check:
    return _ok("tenuto", f"{__version__} in {Path(__file__).parents[1]}")


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST_PYTHON:
        return Check("python", CheckResult.FAIL, version, "use Python 3.11 or newer")
    return _ok("python", f"{version}, {sys.executable}")


@contextlib.contextmanager
def _scratch(place: Path) -> Iterator[Path]:
    """A directory of our own on the same file system, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix=".tenuto-doctor-", dir=place) as folder:
        yield Path(folder)


def _writable(place: Path) -> Check:
    try:
        with _scratch(place) as folder:
            this_machine().files.replace(f"{folder}/file", b"text", durable=True)
    except OSError as error:
        return Check(
            "workspace",
            CheckResult.FAIL,
            f"{place}: {error.strerror}",
            "choose another workspace, or change its permissions",
        )
    return _ok("workspace", f"{place} can be written")


_HOLD = """
import sys
from tenuto.workspace.locks import system_locks
lock = system_locks().try_lock(sys.argv[1])
print("held" if lock else "taken", flush=True)
sys.stdin.read()
"""


def _locks(place: Path) -> Check:
    """Another process takes a lock, we see it, it is killed, and the lock is free."""
    name = "locks"
    elsewhere = "keep the workspace on a local disk, or on a file system with working locks"
    try:
        with _scratch(place) as folder:
            problem = _try_locks(f"{folder}/lock")
    except (TenutoError, OSError) as error:
        return Check(name, CheckResult.FAIL, str(error), elsewhere)
    if problem:
        return Check(name, CheckResult.FAIL, problem, elsewhere)
    return _ok(name, "held by one process, seen by another, freed by its death")


def _try_locks(path: str) -> str | None:
    locks = this_machine().locks
    command = [sys.executable, "-c", _HOLD, path]
    root = str(Path(__file__).parents[2])
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PYTHONPATH": root}
    ) as holder:
        assert holder.stdout is not None
        try:
            if holder.stdout.readline().strip() != b"held":
                return "a lock could not be taken"
            if not locks.is_locked(path) or locks.try_lock(path) is not None:
                return "a lock of another process is not seen: two schedulers could run the same job"
        finally:
            holder.send_signal(signal.SIGKILL)
            holder.wait()
    lock = locks.try_lock(path)
    if lock is None:
        return "a lock is not freed when its process dies"
    lock.close()
    return None


def _disk(place: Path) -> Check:
    free = this_machine().files.free_space(str(place))
    found = f"{free.bytes / (1 << 30):.1f} GiB and {free.inodes} files free"
    if free.bytes < LITTLE_DISK or free.inodes < FEW_INODES:
        return Check("disk", CheckResult.WARN, found, "make room: jobs wait while the disk is full")
    return _ok("disk", found)


def _pidfd() -> Check:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError) as error:
        return Check(
            "pidfd", CheckResult.FAIL, f"{error}", "use Linux 5.3 or newer, outside of a strict sandbox"
        )
    return _ok("pidfd", "the end of a job is seen at once")


def _inotify() -> Check:
    limits = {}
    for name in ("max_user_watches", "max_user_instances"):
        try:
            limits[name] = int(Path("/proc/sys/fs/inotify", name).read_text())
        except (OSError, ValueError):
            return Check(
                "inotify", CheckResult.WARN, "not there", "jobs of other runs are seen within two seconds"
            )
    found = ", ".join(f"{name} {value}" for name, value in limits.items())
    if limits["max_user_watches"] < FEW_WATCHES:
        return Check("inotify", CheckResult.WARN, found, "raise it: sysctl fs.inotify.max_user_watches=65536")
    return _ok("inotify", found)


def _descriptors() -> Check:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < FEW_DESCRIPTORS:
        return Check("open files", CheckResult.WARN, f"{soft} (at most {hard})", "raise it: ulimit -n 4096")
    return _ok("open files", f"{soft}")


def _memory_group() -> Check:
    if counts_together():
        return _ok("cgroup memory", "memory limits hold for a job and all that it starts")
    return Check(
        "cgroup memory",
        CheckResult.WARN,
        "no group can be made here",
        "memory limits then hold for each process by itself; a systemd user session usually gives you groups",
    )


def _git(environ: Mapping[str, str]) -> Check:
    found = _version(["git", "--version"], environ)
    if found is None:
        return Check(
            "git", CheckResult.WARN, "not installed", "install it: runs record the commit of your code"
        )
    return _ok("git", found.removeprefix("git version "))


def _gpus(environ: Mapping[str, str]) -> Check:
    found = _version(["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"], environ)
    if found is None:
        return _ok("gpus", "none found (no nvidia-smi)")
    return _ok("gpus", "; ".join(found.splitlines()))


def _energy() -> Check:
    if codecarbon_is_installed():
        return _ok("energy", "codecarbon is installed: jobs are measured, unless carbon.enabled is false")
    return _ok("energy", "not measured: pip install 'tenuto[carbon]' to have it")


def _version(command: list[str], environ: Mapping[str, str]) -> str | None:
    program = shutil.which(command[0], path=environ.get("PATH"))
    if program is None:
        return None
    try:
        asked = subprocess.run(
            [program, *command[1:]],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return asked.stdout.strip()


# Checks of the clusters that this machine reaches: their answer; of Slurm, its accounting and its limits.
# Asks them, and submits nothing.


SLOW_S = 2.0


def check_clusters(settings: Settings) -> Iterator[Check]:
    """The state of Slurm here, and of each cluster of the settings."""
    for name in cluster_names(settings):
        try:
            dialect = dialect_of(name, settings.cluster(name))
            if not dialect.is_installed():
                is_meant = name != SLURM or name == settings.launcher
                missing = f"{dialect.submit_words[0]} is not on the PATH"
                yield _check(name, f"none here ({dialect.submit_words[0]})", missing if is_meant else "")
                continue
            began = time.monotonic()
            found = dialect.configuration() if isinstance(dialect, SlurmDialect) else {}
            told = found.get("SLURM_VERSION") or dialect.offers()
            if dialect.has_list and not found:
                told += f", {len(dialect.queue())} jobs"
        except (ClusterError, SettingsError) as error:
            is_meant = name in (settings.launcher, *settings.clusters) or settings.launcher == AUTO
            yield _check(name, str(error), "jobs wait until it answers" if is_meant else "")
            continue
        took_s = time.monotonic() - began
        slow = f"an answer takes long: a larger {name}.poll_s asks less often" if took_s > SLOW_S else ""
        yield _check(name, f"{told}, answered in {took_s * 1000:.0f} ms", slow)
        if found:
            yield from _limits_of_slurm(name, found, settings.grace_s)


def _check(name: str, found: str, advice: str = "") -> Check:
    return Check(name, CheckResult.WARN if advice else CheckResult.OK, found, advice)


def _limits_of_slurm(name: str, found: Mapping[str, str], grace_s: float) -> Iterator[Check]:
    is_accounted = "slurmdbd" in found.get("AccountingStorageType", "")
    asked = "sacct knows how jobs ended" if is_accounted else "none: the controller is asked how jobs ended"
    yield _check(f"{name} accounting", asked)
    yield _check(f"{name} arrays", f"at most {found.get('MaxArraySize', '?')} jobs (MaxArraySize)")
    age_s = leading_number(found.get("MinJobAge", ""), 300)
    short = "ends may be missed, and jobs be fenced for a while" if age_s < 30 else ""
    yield _check(f"{name} memory", f"Slurm remembers ended jobs for {age_s} s (MinJobAge)", short)
    wait_s = leading_number(found.get("KillWait", ""), 30)
    early = f"grace_s is {grace_s:g}: what Slurm itself stops may be killed before its grace is over"
    told = f"{wait_s} s between TERM and KILL (KillWait)"
    yield _check(f"{name} grace", told, early if wait_s < grace_s else "")


DOORS = {"service", "node", "search", "database", "queue", "slurm"}
COLORS = {CheckResult.OK: "green", CheckResult.WARN: "yellow", CheckResult.FAIL: "red"}


@click.command()
@click.option("-w", "--workspace", metavar="DIR", help="The workspace to check, by name or path.")
@click.option("--notify", is_flag=True, help="Send a test notice to where [notify] says.")
@click.option("--json", is_flag=True, help="Print settings and checks as JSON.")
@click.pass_context
def command(ctx: click.Context, workspace: str | None, notify: bool, json: bool) -> None:
    """Show where each setting comes from, and check what this machine can do.

    Each check is tried for real, and leaves nothing behind: locks are taken by one process and looked at from
    another, on the file system of the workspace. Without -w that is the default workspace, or else the
    current directory.

    Exit codes: 0 jobs can run here; 1 something that they need is missing; 2 the settings cannot be read.
    """
    settings = load_settings()
    place = _place(settings, workspace)
    checks = [*check_machine(place, process_environment()), *check_clusters(settings)]
    if notify:
        checks.append(_check_notify(settings))
    failed = any(check.verdict is CheckResult.FAIL for check in checks)
    if json:
        print_json({"settings": _settings_json(settings), "checks": _checks_json(checks)}, None)
    else:
        _show(settings, checks)
    ctx.exit(int(failed))


NOTIFY = "notify"


def _check_notify(settings: Settings) -> Check:
    """Sends a test notice."""
    target = shown_target(settings.notify)
    if not target:
        advice = "write [notify] with command or url into tenuto.toml"
        return Check(NOTIFY, CheckResult.FAIL, "neither a command nor an address is set", advice)
    problem = send(settings.notify, Notice("ended", "tenuto: a test", "notices arrive", "doctor", "done"))
    if problem is not None:
        return Check(NOTIFY, CheckResult.FAIL, problem, "fix [notify] in tenuto.toml")
    return Check(NOTIFY, CheckResult.OK, f"a test notice was sent to {target}")


def _place(settings: Settings, given: str | None) -> Path:
    try:
        return settings.workspace(given)
    except SettingsError:  # none is the default: then jobs go where a script says, most likely near here
        return Path.cwd()


def _show(settings: Settings, checks: list[Check]) -> None:
    click.secho("Settings", bold=True)
    rows = list(_rows(settings))
    keys = max(width(key) for key, _, _ in rows)
    values = min(max(width(safe(value)) for _, value, _ in rows), 40)
    for key, value, origin in rows:
        click.echo(f"  {key:{keys}}  {safe(value):{values}}  {safe(origin)}")
    click.secho("\nThis machine", bold=True)
    names = max(len(check.name) for check in checks)
    for check in checks:
        verdict = click.style(f"{check.verdict.value:4}", fg=COLORS[check.verdict])
        click.echo(f"  {verdict}  {check.name:{names}}  {safe(check.found)}")
        if check.advice:
            click.echo(f"        {'':{names}}  -> {safe(check.advice)}")
    failed = [check.name for check in checks if check.verdict is CheckResult.FAIL]
    bad = [name for name in failed if name != NOTIFY]
    click.echo(f"\nJobs cannot run here: {', '.join(bad)}" if bad else "\nJobs can run here.")
    if NOTIFY in failed:
        click.echo("Notices cannot be sent.")


def _rows(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Setting, value and origin; a door whose settings all have their defaults is one row."""
    given = {
        key.partition(".")[0]
        for key, _, origin in settings.items()
        if origin.source is not ValueSource.DEFAULT
    }
    told = set()
    for key, value, origin in settings.items():
        section = key.partition(".")[0]
        if section not in DOORS or section in given:
            yield key, _shown(value), str(origin)
        elif section not in told:
            told.add(section)
            yield f"{section}.*", "", f"{origin} for all"


def _shown(value: Any) -> str:
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _plain(value: Any) -> Any:
    """The value as JSON has it; a URL without its password."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, Path | Url) else value


def _settings_json(settings: Settings) -> list[dict[str, Any]]:
    return [
        {
            "setting": key,
            "value": _plain(value),
            "from": origin.source.name.lower(),
            "place": origin.place or None,
        }
        for key, value, origin in settings.items()
    ]


def _checks_json(checks: list[Check]) -> list[dict[str, Any]]:
    return [{**check._asdict(), "verdict": check.verdict.value} for check in checks]
