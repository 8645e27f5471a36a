"""Whose events lie in the journal of an experiment: each of its writers bears the name of its run.
Moves what a run that was killed could not archive itself; readers of events are in `events`.
"""

from __future__ import annotations

from tenuto.workspace import journal
from tenuto.workspace.layout import Layout
from tenuto.workspace.ports import FileKind, Files

_BETWEEN = ":"


def writer_name(run_id: str, nonce: str) -> str:
    """The name under which a run writes. Names sort as the runs do."""
    return f"{run_id}{_BETWEEN}{nonce}"


def run_of(writer: str) -> str | None:
    """The run that writes under this name; None if it was none."""
    run_id, between, _ = writer.partition(_BETWEEN)
    return run_id if between else None


def archive_forsaken(files: Files, layout: Layout, experiment_id: str) -> None:
    """Gives the events of runs that were killed to those runs; what belongs to a run that is gone goes, too.

    Under the experiment's lock, before a run writes. Otherwise they would count for the next run that ends.
    """
    place = layout.experiment_journal(experiment_id)
    of_run: dict[str, list[int]] = {}
    for number, writer in journal.writers(files, place).items():
        run_id = run_of(writer)
        if run_id is not None:
            of_run.setdefault(run_id, []).append(number)
    for run_id, numbers in of_run.items():
        run = layout.run(experiment_id, run_id)
        found = files.stat(run.directory)
        if found is not None and found.kind is FileKind.DIRECTORY:
            journal.archive(files, place, run.events, numbers)
        else:
            for number in numbers:
                files.remove(place.path(number))
