"""Runs `tenuto` and kills this process, hard, right after one step of a search.

python -m tests.search.killed STEP COUNT ARGUMENTS: after the COUNT-th time that the step was done.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from tenuto.cli import main
from tenuto.scheduler.scheduler import Scheduler
from tenuto.search import worker_loop
from tenuto.search.queues import NoQueue
from tenuto.search.rows import Added
from tenuto.search.store import Store

OF_SCHEDULERS: dict[str, tuple[Any, str]] = {
    "row in": (Store, "add"),
    "promoted": (Store, "promote"),
    "sent": (NoQueue, "send"),
    "told": (Store, "tell"),
}
OF_WORKERS: dict[str, tuple[Any, str]] = {
    "claimed": (Store, "finish_and_claim"),
    "submitted": (Scheduler, "submit_async"),
    "marker": (worker_loop, "end_of"),
    "finished": (Store, "finish_and_claim"),
}
STEPS = {**OF_SCHEDULERS, **OF_WORKERS}
ALWAYS = ("sent", "submitted", "marker")


class Blow:
    """Ends this process once a step was done so often."""

    def __init__(self, step: str, count: int) -> None:
        self._step = step
        self._left = count

    def note(self, answer: Any) -> None:
        if self._step in ("claimed", "finished"):
            taken, rows = answer
            is_done = bool(rows if self._step == "claimed" else taken)
        else:
            is_done = isinstance(answer, Added) if self._step == "row in" else bool(answer)
        if is_done or self._step in ALWAYS:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def plant(step: str, count: int) -> None:
    """Has this process killed after the step."""
    owner, name = STEPS[step]
    original: Callable[..., Any] = getattr(owner, name)
    blow = Blow(step, count)

    def called(*arguments: Any, **named: Any) -> Any:
        answer = original(*arguments, **named)
        blow.note(answer)
        return answer

    async def awaited(*arguments: Any, **named: Any) -> Any:
        answer = await original(*arguments, **named)
        blow.note(answer)
        return answer

    setattr(owner, name, awaited if step == "submitted" else called)


if __name__ == "__main__":
    plant(sys.argv[1], int(sys.argv[2]))
    sys.argv = ["tenuto", *sys.argv[3:]]
    main()
