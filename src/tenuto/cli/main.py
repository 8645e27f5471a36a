"""The entry point of the `tenuto` command: a table of commands, each loaded when it is called."""

from __future__ import annotations

import os
import re
import sys
from importlib import import_module
from typing import Any

import click

from tenuto.cli import exit_codes
from tenuto.cli.problems import tell_error, tell_problem
from tenuto.errors import DirectoryUnusable, TenutoError
from tenuto.jobs.text import safe_lines
from tenuto.light import difflib

COMMANDS = {
    "run": "Run an experiment: a script, or a YAML file.",
    "plan": "Say what a run would do, and why; do nothing.",
    "status": "Show runs, searches and services, and what runs now.",
    "top": "Watch and steer in the terminal.",
    "ui": "Watch and steer in a browser.",
    "jobs": "List jobs, filtered and sorted.",
    "results": "Show what jobs returned, the best first.",
    "metrics": "Show the metrics that jobs logged over time.",
    "graph": "Draw which job waits for which: as text, DOT or SVG.",
    "files": "List the files that a job left.",
    "logs": "Show what a job printed.",
    "wait": "Wait until runs, searches or jobs have ended.",
    "why": "Say why a job is in its state, and why it was not reused.",
    "kill": "Stop running jobs.",
    "retry": "Run failed jobs again, now.",
    "pause": "Let a search start nothing more for a while.",
    "resume": "Let a paused search continue.",
    "clean": "Delete the directories of jobs, prepared and cached data.",
    "du": "Show how much disk space a workspace takes, and for what.",
    "diff": "Compare two runs: parameters, code, results.",
    "export": "Write a run to a folder or ZIP, with a page that needs no server.",
    "runs": "List, show and prune runs.",
    "adopt": "Take over the done jobs of an experimaestro workspace.",
    "evolve": "Run a search, and watch its archive fill.",
    "worker": "Evaluate candidates of searches, on any machine.",
    "search": "Show and change what only a search has: its best, its workers, its end.",
    "launchers": "Show the launchers, and which one a requirement selects.",
    "doctor": "Show the settings, and check this machine.",
    "demo": "Run a small sweep, to see what Tenuto does.",
    "serve": "Offer services over HTTP: uploads in, ZIPs of results out.",
    "node": "Run the jobs of servers on this machine.",
    "submit": "Upload files to a service, wait, and fetch the results.",
    "fetch": "Wait for a job of a service, and unpack what it left.",
    "follow": "Print what a job of a service prints, until it ends.",
    "cancel": "Stop a job of a service.",
    "token": "Make, list and revoke the tokens of a server's users.",
    "usage": "Show how much the users of a service have used.",
    "skill": "Print one page for coding agents.",
    "completion": "Print the code that lets a shell complete `tenuto`.",
}
"""Name and help of each command; the command itself is `tenuto.cli.commands.NAME:command`."""

TOGETHER = {**dict.fromkeys(("submit", "fetch", "follow", "cancel"), "submit"), "usage": "token"}
"""Commands of one module: they are called there as they are called."""

EXTRAS = {
    "evolve": "search",
    "search": "search",
    "worker": "search",
    "serve": "service",
    "node": "service",
    "token": "service",
    "usage": "service",
}
"""The extra that a command needs."""


def loaded(name: str) -> click.Command:
    """A command, imported now."""
    module = import_module(f"tenuto.cli.commands.{TOGETHER.get(name, name)}")
    command: click.Command = getattr(module, name if name in TOGETHER else "command")
    return command


class CommandGroup(click.Group):
    """Commands of a command: each is listed by a whole sentence, and one that was mistyped is guessed."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        near = difflib.get_close_matches(args[0], known, 1) if args[0] not in known else []
        if near:
            raise click.UsageError(f"No such command {args[0]!r}. Did you mean {near[0]!r}?", ctx)
        return super().resolve_command(ctx, args)

    def described(self) -> list[tuple[str, str]]:
        """Each command and what it does: the first part of the first sentence of its help."""
        helps = [(name, " ".join((self.commands[name].help or "").split())) for name in sorted(self.commands)]
        return [(name, f"{_SENTENCE.split(text, maxsplit=1)[0]}.") for name, text in helps]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(self.described())


_SENTENCE = re.compile(r"[.:;](?: |$)")


class Commands(CommandGroup):
    """Loads a command's module only when that command is called: `--help` stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def described(self) -> list[tuple[str, str]]:
        return list(COMMANDS.items())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        try:
            return loaded(cmd_name)
        except ModuleNotFoundError as error:
            if cmd_name not in EXTRAS or (error.name or "").partition(".")[0] == "tenuto":
                raise
            extra = EXTRAS[cmd_name]
            raise click.UsageError(
                f"`tenuto {cmd_name}` needs an extra ({error.name} is missing): pip install 'tenuto[{extra}]'"
            ) from None


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tenuto", prog_name="tenuto")
def commands() -> None:
    """Run work once, keep its results, and pick up where it stopped."""


_OF_NO_SCRIPT = re.compile(r",? at \S*/click/core\.py:\d+")
"""Where a wrong value came from, when no script gave it, but the command line."""


def main() -> Any:
    """Runs the command line; an error of ours is a sentence, not a traceback.

    A command returns its exit code; none is a success.
    """
    is_json = "--json" in sys.argv[1:]  # a script that is run gets arguments of its own
    try:
        code = _run()
    except click.ClickException as error:
        code = error.exit_code
        tell_error(error, error.format_message(), code) if is_json else error.show()
    except click.Abort:
        code = exit_codes.INTERRUPTED
        if is_json:
            tell_problem("Interrupted", "it was interrupted; jobs that run continue", code, None)
    except TenutoError as error:
        code = exit_codes.exit_code(error)
        message = _OF_NO_SCRIPT.sub("", str(error))
        if is_json:
            tell_error(error, message, code)
        else:  # a pointer stays in place
            text = safe_lines(message).replace("\n", f"\n{' ' * len('tenuto: ')}")
            click.echo(f"tenuto: {text}", err=True)
    except OSError as error:
        if error.filename is None:  # none of a disk's: a bug, whose traceback is wanted
            raise
        code = exit_codes.USAGE
        sentence = f"{error.filename} cannot be used: {error.strerror}; check its permissions and the disk"
        tell_error(error, sentence, code) if is_json else click.echo(
            f"tenuto: {safe_lines(sentence)}", err=True
        )
    sys.exit(code if isinstance(code, int) else exit_codes.OK)


def _run() -> Any:
    try:
        os.getcwd()
    except FileNotFoundError:
        raise DirectoryUnusable("the working directory was removed: go to one that is there") from None
    return commands(prog_name="tenuto", standalone_mode=False)  # the name also under `python -m`
