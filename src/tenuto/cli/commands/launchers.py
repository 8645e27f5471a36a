"""`tenuto launchers`."""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click

import tenuto
from tenuto.cli import exit_codes
from tenuto.cli.console import print_json
from tenuto.cli.main import CommandGroup
from tenuto.cli.options import json_option
from tenuto.experiments.environment import DirtyGitAction
from tenuto.experiments.experiment import experiment
from tenuto.jobs.text import safe, width
from tenuto.launchers.protocols import Launcher
from tenuto.launchers.requirements import Requirement
from tenuto.launchers.selection import Finder, Launchers, Offer, Search, offers
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.scheduler.scheduler import Scheduler
from tenuto.settings import Settings, load_settings
from tenuto.tasks.hints import Param
from tenuto.tasks.task import Task
from tenuto.version import __version__
from tenuto.workspace.claims import is_claimed
from tenuto.workspace.job_directory import read_launch

ANSWER_S = 120.0
"""How long a probe waits to be answered, and a file to be seen."""
SKEW_S = 5.0
LATE_S = 5.0
_LOOK_S = 0.05
_HELLO, _ANSWER = "hello.json", "answer"


class Finding(NamedTuple):
    """One thing that the probe showed."""

    name: str
    is_good: bool
    found: str
    advice: str = ""
    is_fatal: bool = False


class Probe(Task):
    """Says where it runs, and waits until it is answered through the disk."""

    number: Param[str]

    def execute(self) -> dict[str, Any]:
        facts = {
            "host": socket.gethostname(),
            "python": sys.version.split()[0],
            "executable": sys.executable,
            "tenuto": [__version__, os.path.dirname(os.path.abspath(tenuto.__file__))],
            "now": time.time(),
        }
        Path(f"{_HELLO}.new").write_text(json.dumps(facts))
        Path(f"{_HELLO}.new").rename(_HELLO)
        waited_s = _until(lambda: os.path.exists(_ANSWER), ANSWER_S)
        return {**facts, "waited_s": waited_s}


class Endless(Task):
    """Runs until it is stopped."""

    number: Param[str]

    def execute(self) -> None:
        while True:
            time.sleep(1)


def probe(launcher: Launcher, directory: Path, settings: Settings, wait_s: float) -> list[Finding]:
    """What two jobs show; `wait_s`: how long the first may take to start."""
    number = os.urandom(4).hex()
    with experiment(
        directory,
        "probe",
        launcher=launcher,
        settings=settings,
        dirty_git=DirtyGitAction.IGNORE,
        register_signals=False,
        raise_on_failure=False,
    ):
        findings = _answered(launcher, number, wait_s)
        if not any(one.is_fatal for one in findings):
            findings.append(_stopped(number, wait_s))
    return findings


def _answered(launcher: Launcher, number: str, wait_s: float) -> list[Finding]:
    began = time.monotonic()
    job: Any = Probe.C(number=number).submit().job
    hello = job.path / _HELLO
    if _until(lambda: hello.exists() or job.state.finished(), wait_s) is None or not hello.exists():
        told = job.state_record.message or f"it is {job.state.name} after {time.monotonic() - began:.0f} s"
        Scheduler.instance().cancel(job, "the probe took too long")
        return [Finding("started", False, told, "see the output of the launcher's own tools", is_fatal=True)]
    seen = time.time()
    facts = json.loads(hello.read_text())
    is_locked = Scheduler.instance().machine.locks.is_locked(job.paths.lock)
    (job.path / _ANSWER).touch()
    state = job.wait(ANSWER_S)
    here = sys.version.split()[0]
    result = job.result() if state is JobState.DONE else {}
    late_s = result.get("waited_s")
    return [
        Finding("started", True, f"on {facts['host']}, after {time.monotonic() - began:.1f} s"),
        Finding(
            "python",
            facts["python"] == here,
            f"{facts['python']}, {facts['executable']}",
            f"this one is {here}: set {launcher.name}.python, or load the same module there",
        ),
        Finding(
            "tenuto",
            facts["tenuto"][0] == __version__,
            "{}, {}".format(*facts["tenuto"]),
            f"this one is {__version__}: install the same one there",
        ),
        Finding(
            "disk",
            late_s is not None and late_s < LATE_S,
            "seen both ways" + ("" if late_s is None else f", there after {late_s:.1f} s"),
            "what is written here is seen late there: jobs start and stop a little later",
            is_fatal=state is not JobState.DONE,
        ),
        *_claim(launcher, job),
        Finding(
            "locks",
            is_locked,
            "seen across hosts" if is_locked else "a lock there is not seen here",
            "jobs are safe by their claims; the end of a lost one then rests on its beats",
        ),
        Finding(
            "clock",
            abs(seen - facts["now"]) < SKEW_S,
            f"{seen - facts['now']:+.1f} s apart, the disk's delay included",
            "let both hosts follow one clock (NTP); durations are not affected",
        ),
    ]


def _claim(launcher: Launcher, job: Any) -> list[Finding]:
    if not launcher.external:
        return []
    machine = Scheduler.instance().machine
    launch = read_launch(machine.files, job.paths)
    made = launch is not None and is_claimed(machine, job.paths, launch.nonce)
    return [
        Finding("claim", made, "made before the job began" if made else "there is none", is_fatal=not made)
    ]


def _stopped(number: str, wait_s: float) -> Finding:
    job: Any = Endless.C(number=number).submit().job
    if _until(lambda: job.state is JobState.RUNNING or job.state.finished(), wait_s) is None:
        Scheduler.instance().cancel(job, "the probe took too long")
        return Finding("stop", False, "the job to stop did not start in time")
    began = time.monotonic()
    Scheduler.instance().cancel(job, "the probe stops it")
    job.wait(ANSWER_S)
    is_stopped = job.failure_status is JobFailureStatus.CANCELLED
    return Finding(
        "stop", is_stopped, f"heard after {time.monotonic() - began:.1f} s", is_fatal=not is_stopped
    )


def _until(condition: Callable[[], bool], timeout_s: float) -> float | None:
    """Seconds until a condition came true; None if it did not in time."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > timeout_s:
            return None
        time.sleep(_LOOK_S)
    return time.monotonic() - began


@click.group(cls=CommandGroup, invoke_without_command=True)
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Show the launchers, and which one a requirement selects.

    Without a subcommand: list them.
    """
    if ctx.invoked_subcommand is None:
        _list(as_json)
    elif as_json:
        raise click.UsageError(f"put the options after the word {ctx.invoked_subcommand!r}", ctx)


@command.command("list")
@json_option
def list_command(as_json: bool) -> None:
    """List the launchers: what each offers, or why it cannot be used here."""
    _list(as_json)


@command.command("check")
@click.argument("spec")
@click.option("--tag", "tags", multiple=True, metavar="T", help="A word for your launchers.py; repeatable.")
@json_option
def check_command(spec: str, tags: tuple[str, ...], as_json: bool) -> int:
    """Say which launcher the requirement SPEC selects, as under launcher = "auto"; start nothing.

    Exit codes: 0 a launcher was found; 1 none satisfies SPEC; 2 SPEC cannot be read.
    """
    requirement = Requirement.parse(spec)
    settings = load_settings()
    found = Finder(settings, Launchers(settings)).search(requirement, frozenset(tags))
    if as_json:
        print_json(_search_json(requirement, found))
    else:
        _show_search(requirement, found)
    return exit_codes.FAILED if found.chosen is None else exit_codes.OK


@command.command("test")
@click.argument("name", required=False)
@click.option("-w", "--workspace", metavar="DIR", help="Where the probe keeps its files; removed afterwards.")
@click.option(
    "--wait", "wait_s", type=click.FloatRange(min=1), default=600.0, help="Seconds it may take to start."
)
@json_option
def test_command(name: str | None, workspace: str | None, wait_s: float, as_json: bool) -> int:
    """Run two small jobs by the launcher NAME, or by that of the settings, and say what they show.

    Exit codes: 0 jobs run there; 1 they do not; 2 there is no such launcher.
    """
    settings = load_settings()
    launchers = Launchers(settings)
    launcher = launchers.named(name or settings.launcher)
    place = settings.workspace(workspace) if workspace else Path.cwd()
    while not place.exists():  # the workspace of a sweep that is to come: its files go where it will be
        place = place.parent
    with tempfile.TemporaryDirectory(prefix=".tenuto-probe-", dir=place) as folder:
        findings = probe(launcher, Path(folder), settings, wait_s)
    launchers.close()
    if as_json:
        print_json([one._asdict() for one in findings])
    else:
        names = max(len(one.name) for one in findings)
        for one in findings:
            word, colour = ("ok  ", "green") if one.is_good else ("warn", "yellow")
            word, colour = ("fail", "red") if one.is_fatal else (word, colour)
            click.echo(f"  {click.style(word, fg=colour)}  {one.name:{names}}  {safe(one.found)}")
            if not one.is_good and one.advice:
                click.echo(f"        {'':{names}}  -> {safe(one.advice)}")
    return exit_codes.FAILED if any(one.is_fatal for one in findings) else exit_codes.OK


def _list(as_json: bool) -> None:
    found = offers(load_settings())
    if as_json:
        print_json([offer._asdict() for offer in found])
        return
    names = max(width(offer.name) for offer in found)
    for offer in found:
        sign = click.style("yes" if offer.usable else "no ", fg="green" if offer.usable else "yellow")
        click.echo(f"  {sign}  {offer.name:{names}}  {safe(_told(offer))}")


def _told(offer: Offer) -> str:
    chosen = "; the one of the settings" if offer.default else ""
    return f"{offer.offers if offer.usable else offer.why}{chosen}"


def _options(launcher: Launcher) -> list[str]:
    """What the launcher would ask its cluster for."""
    return launcher.arguments() if hasattr(launcher, "arguments") else []


def _search_json(requirement: Requirement, found: Search) -> dict[str, Any]:
    chosen = None
    if found.chosen is not None:
        launcher, _, number = found.chosen
        chosen = {"launcher": launcher.name, "alternative": number, "options": _options(launcher)}
    return {
        "requirement": str(requirement),
        "chosen": chosen,
        "tried": [{**one._asdict(), "why": one.why or None} for one in found.tried],
    }


def _show_search(requirement: Requirement, found: Search) -> None:
    for one in found.tried:
        sign = click.style("yes" if one.fits else "no ", fg="green" if one.fits else "yellow")
        about = "" if one.alternative is None else f"{requirement.alternatives[one.alternative - 1]}"
        why = f": {one.why}" if one.why else ""
        click.echo(f"  {sign}  {safe(one.launcher)}  {safe(about)}{safe(why)}")
    if found.chosen is None:
        click.echo(f"no launcher satisfies {requirement}", err=True)
    elif options := _options(found.chosen.launcher):
        click.echo(f"       asks for {safe(shlex.join(options))}")
