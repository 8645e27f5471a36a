"""What is seen of a job whose runner tidies the directory up between two looks."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from tenuto.jobs.view import ReadDepth, look
from tenuto.lifecycle.states import JobState
from tenuto.workspace.ports import FileStat

from .workspaces import MACHINE, Builder


def test_a_job_that_ends_well_between_two_looks_is_done(workspace: Builder) -> None:
    paths = workspace.layout.job(*workspace.job("done"))
    os.rename(paths.done, f"{paths.directory}/later")

    class Ending:
        """The files, where the runner ends as its launch record is looked for."""

        def __getattr__(self, name: str) -> Any:
            return getattr(MACHINE.files, name)

        def stat(self, path: str) -> FileStat | None:
            if path == paths.launch:
                os.rename(f"{paths.directory}/later", paths.done)
                with suppress(FileNotFoundError):
                    os.unlink(paths.launch)
            return MACHINE.files.stat(path)

    machine = MACHINE._replace(files=Ending())  # type: ignore[arg-type]
    assert look(machine, paths, ReadDepth.STATE).state is JobState.DONE
    os.unlink(paths.done)
    assert look(MACHINE, paths, ReadDepth.STATE).state is JobState.UNSCHEDULED
