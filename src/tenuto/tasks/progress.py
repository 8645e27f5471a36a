"""How a running task says how far it is. Outside of a job it says so to nobody."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

from tenuto.tasks.ports import current_job

T = TypeVar("T")


def progress(value: float, level: int = 0, desc: str | None = None) -> None:
    """Reports how far the job is, from 0 to 1; `level` 1 is a loop inside that of level 0, and so on."""
    job = current_job.get()
    if job is not None:
        job.progress(value, level, desc)


def tqdm(
    iterable: Iterable[T], desc: str | None = None, total: int | None = None, *, level: int = 0
) -> Iterator[T]:
    """Passes on what it is given, and reports how much of it is done.

    What has no length is passed on without a report, unless `total` says how much it is.
    """
    if total is None and isinstance(iterable, Sized):
        total = len(iterable)
    if not total:
        yield from iterable
        return
    progress(0.0, level, desc)
    for done, item in enumerate(iterable, 1):
        yield item
        progress(min(done / total, 1.0), level, desc)
