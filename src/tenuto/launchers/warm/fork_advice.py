"""The words on modules whose jobs are not forked: the reason, once, and what their author can do about it.
Judges no module; `fitness` does.
"""

from __future__ import annotations

import logging

from tenuto.launchers.warm.parent_spec import ParentSpec

logger = logging.getLogger("tenuto.launchers")

_REMEDIES = {
    "starts threads": "start them in execute()",
    "starts processes": "start them in execute()",
    "uses CUDA": "touch the device in execute()",
    "opens a GPU": "touch the device in execute()",
    "leaves files or sockets open": "open them in execute()",
    "handles signals": "install handlers in execute()",
    "seeds": "make generators in execute(), with a seed that is a parameter",
    "makes a generator": "make generators in execute(), with a seed that is a parameter",
    "asks for the working directory": "ask for it in execute()",
    "fills": "load data in execute()",
    "reads": "set the variable before the run",
}
"""How the reason begins -> the remedy; `docs/performance.md` has the same table."""


def remedy_of(why: str) -> str:
    """What to do, as the end of a sentence; empty if only the reason itself helps."""
    return next((f": {remedy}" for begins, remedy in _REMEDIES.items() if why.startswith(begins)), "")


class Reasons:
    """The reasons that one launcher gave."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, str], str] = {}

    def said(self) -> list[str]:
        """One sentence for each."""
        return list(self._said.values())

    def say(self, needs: ParentSpec, why: str, how: str = "") -> None:
        """Log why jobs with these needs are not forked, unless that was said before."""
        names = ", ".join(needs.modules())
        if (names, why) not in self._said:
            reason = f"since it {why}{how}{remedy_of(why)}; see docs/performance.md"
            remark = f"each job of {names} starts in a fresh interpreter, {reason}"
            self._said[names, why] = remark
            logger.warning("%s", remark, extra={"action": "not_warm"})
