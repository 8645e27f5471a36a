"""Drivers that run on without their terminal, in a session of their own, heard until their run has begun.
The parent prints how to follow, wait for and stop the run; the child keeps its output in the run's directory.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from tenuto.cli import exit_codes
from tenuto.cli.options import given_without
from tenuto.cli.problems import tell_problem
from tenuto.cli.program import called_as
from tenuto.cli.session import tell
from tenuto.jobs.text import safe, safe_lines
from tenuto.lifecycle.owner_names import Door
from tenuto.workspace.layout import directory_name

if TYPE_CHECKING:
    from tenuto.experiments.experiment import experiment
    from tenuto.search.reporter import SearchProgress

LOG = "driver.log"
_MOST_SHOWN = 64 * 1024
_COMMANDS = ("follow", "status", "wait", "stop")


def handshake_option(command: Any) -> Any:
    """The option by which a detached driver is told the descriptor of its parent."""
    return click.option("--handshake", type=int, hidden=True)(command)


def detach_option(command: Any) -> Any:
    """`--detach`."""
    text = "Run on in a session of its own, and return once the run has begun."
    return click.option("--detach", is_flag=True, help=text)(command)


def start_detached(command: str, arguments: Sequence[str], as_json: bool) -> int:
    """Starts this command again without a terminal; returns once its run has begun, or with its error.

    `arguments`: the script's, at the end of the command line, which may have a `--json` of its own.
    """
    kept = given_without(arguments, flags=("--detach", "--json"))[1:]
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as output:
        driver = subprocess.Popen(
            [sys.executable, "-m", "tenuto", command, "--handshake", str(writing), *kept],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[writing],
            start_new_session=True,
        )
        os.close(writing)
        try:
            with open(reading, encoding="utf-8") as told:
                line = told.readline()
        except KeyboardInterrupt:  # its session does not hear of it
            driver.send_signal(signal.SIGINT)
            raise
        if line:
            _show({**json.loads(line), "pid": driver.pid}, as_json)
            return exit_codes.OK
        code = driver.wait()
        code = code if code >= 0 else exit_codes.FAILED
        output.seek(0)
        said = safe_lines(output.read(_MOST_SHOWN).decode(errors="replace").rstrip())
    if as_json and code != exit_codes.OK:
        last = said.rpartition("\n")[2].removeprefix("tenuto: ")
        message = last or f"it ended with exit code {code} before a run began"
        tell_problem("NotBegun", message, code, "run it without --detach, to see all that it prints")
        return code
    if said:
        tell(said)
    if code == exit_codes.OK:
        words = "it ended before an experiment or a search began, so there is nothing to follow"
        tell(f"tenuto: {words}")
        if as_json:
            nothing = dict.fromkeys(("group", "name", "workspace", "log", "pid", *_COMMANDS))
            click.echo(json.dumps({**nothing, "message": words}))
    return code


class Handshake:
    """The child's side: tells the parent of its begin, and moves the output to the run's directory."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        if descriptor is not None:  # a shell has what it starts in the background ignore the signal of `stop`
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def begun(self, *, group: str, name: str, workspace: str, directory: str) -> None:
        """Tells of the first run or search only."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        log = os.path.join(directory, LOG)
        _move_output(log)
        words = {"group": group, "name": name, "workspace": workspace, "log": log}
        with suppress(BrokenPipeError):  # the command that started it was killed
            os.write(descriptor, json.dumps(words).encode() + b"\n")
        os.close(descriptor)

    def run_begun(self, xp: experiment) -> None:
        """A run of an experiment was opened."""
        name, run_id = xp.name, xp.run_id
        self.begun(
            group=f"{Door.EXPERIMENTS.value}:{name}/{run_id}",
            name=f"{name}/{run_id}",
            workspace=str(xp.workspace.path),
            directory=xp.run.paths.directory,
        )

    def search_begun(self, progress: SearchProgress) -> None:
        """A search was opened, or continues."""
        self.begun(
            group=f"{Door.SEARCH.value}:{progress.name}",
            name=progress.name,
            workspace=progress.workspace,
            directory=f"{progress.workspace}/searches/{directory_name(progress.name)}",
        )


def _move_output(log: str) -> None:
    """Sends all further output to a file, after the output so far."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.makedirs(os.path.dirname(log), mode=0o700, exist_ok=True)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    size = os.fstat(1).st_size
    os.write(target, os.pread(1, size, 0))
    for standard in (1, 2):
        os.dup2(target, standard)
    os.close(target)


def _show(told: dict[str, Any], as_json: bool) -> None:
    program, where = shlex.join(called_as()), shlex.quote(told["workspace"])
    name = shlex.quote(told["name"])
    told |= {
        "follow": f"tail -f {shlex.quote(told['log'])}",
        "status": f"{program} status {name} -w {where}",
        "wait": f"{program} wait {name} -w {where}",
        "stop": f"kill -INT {told['pid']}",
    }
    if as_json:
        click.echo(json.dumps(told))
        return
    click.echo(f"{safe(told['name'])} has begun, in process {told['pid']}")
    for word in _COMMANDS:
        click.echo(f"{word:<8}{told[word]}")
