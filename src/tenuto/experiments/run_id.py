"""The ids of runs: `YYYYMMDD_HHMMSS` in UTC, with `.N` when that second was taken.
Pure: it neither looks at the clock nor at the disk.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

_FORM = "%Y%m%d_%H%M%S"
_TEXT = re.compile(r"(\d{8}_\d{6})(?:\.([1-9]\d{0,8}))?", re.ASCII)


class RunId(NamedTuple):
    """A run id; ids sort by the time they stand for, and `.2` before `.10`.

    UTC, because the hour that summer time repeats would make two runs look like one moment.
    """

    stamp: str
    number: int = 0

    def __str__(self) -> str:
        return f"{self.stamp}.{self.number}" if self.number else self.stamp

    @property
    def started(self) -> datetime:
        """The second that the id names, aware, in UTC."""
        day, time = self.stamp.split("_")
        return datetime.fromisoformat(f"{day}T{time}").replace(tzinfo=UTC)


def parse_run_id(text: str) -> RunId | None:
    """The run id that a text spells; None for any other text, such as the name of a stray directory."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    run_id = RunId(match[1], int(match[2] or 0))
    try:
        _ = run_id.started
    except ValueError:  # the 30th of February
        return None
    return run_id


def candidates(now: datetime) -> Iterator[RunId]:
    """The ids to try for a run that starts now; the first whose directory can be created is its own."""
    if now.tzinfo is None:
        raise ValueError(f"an instant needs a time zone: {now!r}")
    stamp = now.astimezone(UTC).strftime(_FORM).zfill(15)
    return (RunId(stamp, number) for number in itertools.count())


def free_run_id(now: datetime, taken: Iterable[str]) -> RunId:
    """The first id after all that are taken: ids only grow, whatever the clock does.

    An id between others would make the new run look older than they are. After the clock was ahead, new runs
    get numbers after the run of the future until the clock has passed it; `status.json` says when they began.
    """
    first = next(candidates(now))
    last = max((known for text in taken if (known := parse_run_id(text))), default=None)
    return first if last is None or first > last else last._replace(number=last.number + 1)
