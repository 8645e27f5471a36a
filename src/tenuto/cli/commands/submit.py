"""`tenuto submit`, `fetch`, `follow` and `cancel`: a job service as its users have it, by `tenuto.client`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from tenuto.cli import exit_codes
from tenuto.cli.console import json_text, note, print_json
from tenuto.cli.options import json_option
from tenuto.cli.service_options import remote_options
from tenuto.client import Client, ClientError, Remote, RequestDenied, ServerUnreachable, WaitTimeout
from tenuto.errors import InvalidValue, NotFound
from tenuto.jobs.text import safe_lines
from tenuto.settings import load_settings

F = TypeVar("F", bound=Callable[..., Any])
TAIL = 20
"""Lines of standard error that are shown of a job that failed."""
_ID = re.compile(r"(?:([A-Za-z0-9][A-Za-z0-9_.-]*)#)?([0-9]{1,19})", re.ASCII)


server_options = remote_options("your token", "The server; by default the one of the settings.")


def wait_options(command: F) -> F:
    """`--timeout`."""
    return click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(0, min_open=True),
        metavar="SECONDS",
        help="Wait for so long at most; then the exit code is 6, and the job continues.",
    )(command)


class _Name(NamedTuple):
    """A job as a person names it: `SERVICE#N`, or its number alone."""

    service: str | None
    id: int


def _job_name(ctx: click.Context, param: click.Parameter, value: str) -> _Name:
    if (found := _ID.fullmatch(value)) is None:
        raise click.BadParameter(f"{value!r} is no id of a job: a number, or SERVICE#N")
    return _Name(found[1], int(found[2]))


job_argument = click.argument("name", metavar="ID", callback=_job_name)
output_option = click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where the results go; by default results-ID.",
)


def _client(url: str | None, token_file: Path | None) -> Client:
    """The client of the options, or else of the settings."""
    settings = load_settings().client
    url = url or (None if settings.url is None else settings.url.reveal())
    if url is None:
        raise click.UsageError(
            "no server: give --url, set TENUTO_CLIENT__URL, or write [client] url into tenuto.toml"
        )
    path = token_file or settings.token_file
    try:
        token = None if path is None else path.read_text(encoding="utf-8").strip()
        return Client(url, token)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValue(f"the token in {path} cannot be read: {error}") from None
    except ValueError as error:
        raise InvalidValue(str(error)) from None


def _of_job(client: Client, name: _Name, act: Callable[[Remote], int]) -> int:
    """The exit code of a question about a job; one of another service is not meant."""
    job = client.job(name.id)

    def once() -> int:
        if name.service is not None and (known := str(job.job()["service"])) != name.service:
            raise NotFound(f"job {job.id} is of another service: {safe_lines(known)}#{job.id}")
        return act(job)

    return _answered(once)


def _answered(act: Callable[[], int]) -> int:
    """The exit code of a question to a server."""
    try:
        return act()
    except WaitTimeout as error:
        note(safe_lines(str(error)))
        return exit_codes.TIME_UP
    except RequestDenied as error:
        if error.http_status == 404:
            raise NotFound(str(error)) from None
        code = f" ({error.code})" if error.code else ""
        hint = "; give --user" if error.code == "missing_field" and "user_id" in str(error) else ""
        raise ClientError(f"{error}{code}{hint}") from None


@click.command("submit")
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(exists=True, path_type=Path)
)
@click.option("--service", required=True, metavar="NAME", help="The service that is to run them.")
@server_options
@click.option("--user", metavar="USER", help="Your number, where the server wants no tokens.")
@click.option("--callback", metavar="URL", help="Called by the server at the end of the job.")
@click.option("--wait", is_flag=True, help="Wait for the end, and unpack the results.")
@wait_options
@output_option
@json_option
def submit(
    files: tuple[Path, ...],
    service: str,
    url: str | None,
    token_file: Path | None,
    user: str | None,
    callback: str | None,
    wait: bool,
    timeout_s: float | None,
    output: Path | None,
    as_json: bool,
) -> int:
    """Upload FILEs, and folders, to a service; print the id of the job.

    With --wait the exit code is 0 if the job is Completed, 1 if it is Failed, Killed or Invalid, 6 if the
    time was up before it ended.
    """
    if not wait and (output is not None or timeout_s is not None):
        raise click.UsageError("-o and --timeout go with --wait")
    client = _client(url, token_file)

    def act() -> int:
        try:
            job = client.submit(files, service, user, callback)
        except ValueError as error:
            raise InvalidValue(str(error)) from None
        if not wait:
            click.echo(json_text({"id": job.id, "url": client.url}) if as_json else job.id)
            return exit_codes.OK
        if not as_json:
            click.echo(job.id)
        return _ended(job, timeout_s, output, as_json)

    return _answered(act)


@click.command("fetch")
@job_argument
@server_options
@wait_options
@output_option
@json_option
def fetch(
    name: _Name,
    url: str | None,
    token_file: Path | None,
    timeout_s: float | None,
    output: Path | None,
    as_json: bool,
) -> int:
    """Wait for the job ID, and unpack its files. A download that was cut continues where it stopped."""
    return _of_job(_client(url, token_file), name, lambda job: _ended(job, timeout_s, output, as_json))


@click.command("follow")
@job_argument
@server_options
@click.option("--stderr", is_flag=True, help="Its standard error instead.")
@json_option
def follow(name: _Name, url: str | None, token_file: Path | None, stderr: bool, as_json: bool) -> int:
    """Print what the job ID prints, until it ends; it may not have started yet.

    With --json: an object with its text for each piece, and the job at last, one a line.
    """

    def act(job: Remote) -> int:
        for text in job.log(follow=True, stream="stderr" if stderr else "stdout"):
            click.echo(json_text({"text": text}) if as_json else text, nl=as_json)
        found = job.job()
        if as_json:
            print_json(found, None)
        return _told(job, found, with_stderr=not stderr)

    return _of_job(_client(url, token_file), name, act)


@click.command("cancel")
@job_argument
@server_options
@json_option
def cancel(name: _Name, url: str | None, token_file: Path | None, as_json: bool) -> int:
    """Stop the job ID. The exit code is 1 if it had ended by itself before, or does not stop yet."""

    def act(job: Remote) -> int:
        status = job.cancel()
        note(f"job {job.id} is {safe_lines(status)}")
        if as_json:
            print_json({"id": job.id, "status": status}, None)
        return exit_codes.OK if status == "Killed" else exit_codes.FAILED

    return _of_job(_client(url, token_file), name, act)


def _ended(job: Remote, timeout_s: float | None, output: Path | None, as_json: bool) -> int:
    """Waits for the end of a job, telling its progress, and unpacks its result."""
    told = ""
    found: dict[str, Any] = {"id": job.id}

    def seen(now: dict[str, Any]) -> None:
        nonlocal told, found
        found = now
        said = found.get("progress") or found["message"]
        line = f"job {job.id} is {found['status']}" + (f": {said}" if said else "")
        if line != told and found["status"] not in ("Completed", "Failed", "Killed", "Invalid"):
            note(safe_lines(line))
        told = line

    try:
        job.wait(timeout_s, seen)
    except KeyboardInterrupt:
        note(f"job {job.id} continues: `tenuto fetch {job.id}` waits, `tenuto cancel {job.id}` ends it")
        raise
    except (WaitTimeout, ServerUnreachable):  # a program needs the id to ask again
        if as_json:
            print_json({**found, "directory": None}, None)
        raise
    found = job.job()
    directory: Path | None = output or Path(f"results-{job.id}")
    if found["status"] == "Completed" or found.get("result_sha256"):
        job.fetch(str(directory))
        note(f"its files are in {directory}")
    else:
        directory = None
    code = _told(job, found)
    if as_json:
        print_json({**found, "directory": None if directory is None else str(directory)}, None)
    return code


def _told(job: Remote, found: dict[str, Any], *, with_stderr: bool = True) -> int:
    """Says how a job ended; the exit code for it."""
    status, message = str(found["status"]), str(found["message"])
    note(safe_lines(f"job {job.id} is {status}" + (f": {message}" if message else "")))
    if status == "Completed":
        return exit_codes.OK
    if with_stderr and found.get("result_sha256"):
        text = "".join(job.log(follow=False, stream="stderr"))
        for line in text.splitlines()[-TAIL:]:
            note(f"  {safe_lines(line)}")
    return exit_codes.FAILED
