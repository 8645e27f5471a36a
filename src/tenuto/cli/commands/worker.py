"""`tenuto worker`."""

from __future__ import annotations

import dataclasses
import os
import os.path
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import click

from tenuto.cli.console import print_json
from tenuto.cli.options import json_option
from tenuto.cli.session import let_go_of_closed_streams, tell
from tenuto.errors import NotFound
from tenuto.jobs.text import safe, there_are
from tenuto.search.candidate_jobs import gpus_of
from tenuto.search.opening import default_workspace, open_database
from tenuto.search.queues import open_listener
from tenuto.search.search_run import SearchInterrupts
from tenuto.search.store import Store
from tenuto.search.worker_loop import WorkerLoop
from tenuto.settings import Settings, load_settings
from tenuto.settings.search import SEARCH_SECTIONS
from tenuto.workspace.machine import this_machine

DIED = 1
_LOOK_S = 0.2


class WorkerProcess:
    """One process that evaluates candidates."""

    def __init__(
        self,
        settings: Settings,
        workspace: Path,
        say: Callable[[str], None],
        *,
        slots: int | None = None,
        only: Collection[str] | None = None,
        once: bool = False,
        with_gpus: bool = False,
    ) -> None:
        """`only`: the searches to work for; `once`: until nothing is left to claim; `with_gpus`: each
        candidate has a GPU to itself, and there are as many slots as GPUs unless `slots` says otherwise."""
        machine = this_machine()
        gpus = gpus_of(settings, machine) if with_gpus else None
        if gpus is not None and slots is None:
            slots = len(gpus.devices)
        if slots is not None:
            settings = dataclasses.replace(settings, slots=slots)
        self._settings = settings
        self._say = say
        self._database = open_database(settings, workspace)
        store = Store(self._database)
        self._refuse_unknown(store.names(), only or (), once)
        self._loop = WorkerLoop(
            store,
            settings,
            workspace,
            machine,
            slots=settings.slots,
            only=only or None,
            is_leased=True,
            is_passing=once,
            gpus=gpus,
        )

    def _refuse_unknown(self, known: Collection[str], only: Collection[str], once: bool) -> None:
        """Refuses a search that there is not; a worker that stays waits for it, and says so."""
        for name in sorted({*only} - {*known}):
            words = f"there is no search {name!r} in {self._database.shown_url}"
            if once:
                self._database.close()
                raise NotFound(f"{words}; {there_are(name, known)}")
            self._say(f"{words} yet: waiting for it")

    def run(self) -> int:
        """Works until it is told to leave, and nothing runs any more; the exit code."""
        loop = self._loop

        def say(text: str) -> None:
            self._say(f"worker {loop.name}: {text}")

        with SearchInterrupts(
            say,
            (loop.drain, "nothing more is claimed; waiting for what runs (again: stop it)"),
            (loop.abandon, "stopping what runs, and giving it back"),
        ):
            loop.start()
            listener = open_listener(self._settings, loop.wake)
            say(f"ready, {self._settings.slots} slots")
            try:
                while not loop.join(_LOOK_S):
                    pass
            finally:
                listener.close()
        self._database.close()
        say(f"ended, {loop.evaluated} candidates")
        if loop.error is None:
            return 0
        say(f"it could not continue: {type(loop.error).__name__}: {loop.error}")
        return DIED

    def ended(self) -> dict[str, Any]:
        """The outcome of its work, for programs."""
        error = None if self._loop.error is None else str(self._loop.error)
        return {"worker": self._loop.name, "evaluated": self._loop.evaluated, "error": error}


@click.command()
@click.option(
    "-w",
    "--workspace",
    metavar="NAME|PATH",
    help="Where jobs are kept: by default that of the settings, else `workspace`.",
)
@click.option("--slots", type=click.IntRange(1), help="Candidates evaluated at once.")
@click.option(
    "--search", "searches", multiple=True, metavar="NAME", help="Work only for this search; several times."
)
@click.option("--gpus", is_flag=True, help="Each candidate has a GPU to itself; by default as many slots.")
@click.option("--once", is_flag=True, help="Leave when nothing is left to claim.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    workspace: str | None,
    slots: int | None,
    searches: tuple[str, ...],
    gpus: bool,
    once: bool,
    as_json: bool,
) -> None:
    """Evaluate the candidates of searches, beside other workers, on this machine or others.

    Needs the same database as the searches (`[database] url`, or a workspace on a disk that all share), and
    the same code at the same path. TERM or Ctrl-C once: claims nothing more and ends when running jobs have
    ended; twice: stops running jobs and gives them back; three times: at once.

    Exit codes: 0 ended; 1 it could not continue; 2 wrong usage; 5 ended at once.
    """
    settings = load_settings(foreign=SEARCH_SECTIONS)
    path = Path(os.path.abspath(settings.workspace(workspace))) if workspace else default_workspace(settings)
    worker = WorkerProcess(
        settings,
        path,
        lambda text: tell(safe(text)),
        slots=slots,
        only=searches,
        once=once,
        with_gpus=gpus,
    )
    code = worker.run()
    if as_json:
        print_json(worker.ended())
    let_go_of_closed_streams()
    ctx.exit(code)
