"""Which finished runs of an experiment to forget.
Pure: it decides, and its caller removes the directories.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from tenuto.experiments.run_id import RunId, parse_run_id


class FinishedRun(NamedTuple):
    """A run that is over."""

    run_id: str
    failed: bool


def runs_to_prune(
    runs: Iterable[FinishedRun],
    *,
    max_done: int | None,
    max_failed: int | None,
    keep: Collection[str] = (),
) -> list[str]:
    """The ids of the runs to remove, oldest first, so that the newest of each kind stay.

    None keeps all. What is in `keep` stays, and counts towards the limit; a name that is no run id stays too,
    for Tenuto did not make it.
    """
    limits = {False: max_done, True: max_failed}
    kept = {False: 0, True: 0}
    known = {run_id: run.failed for run in runs if (run_id := parse_run_id(run.run_id))}
    pruned: list[RunId] = []
    for run_id in sorted(known, reverse=True):
        failed = known[run_id]
        limit = limits[failed]
        if limit is None or kept[failed] < limit or str(run_id) in keep:
            kept[failed] += 1
        else:
            pruned.append(run_id)
    return [str(run_id) for run_id in reversed(pruned)]
