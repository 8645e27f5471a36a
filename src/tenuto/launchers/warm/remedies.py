"""What the author of a module can do so that its jobs are forked, by the reason why they are not.
Judges no module; `fitness` does.
"""

from __future__ import annotations

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
"""How the reason begins -> the remedy; `docs/warm.md` has the same table."""


def remedy_of(why: str) -> str:
    """What to do, as the end of a sentence; empty if only the reason itself helps."""
    return next((f": {remedy}" for begins, remedy in _REMEDIES.items() if why.startswith(begins)), "")
