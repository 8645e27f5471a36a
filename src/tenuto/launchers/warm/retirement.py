"""Parents and spares of this process that were told to end, and may not have yet.
Of all launchers: a caller that closes one does not wait for their end, and then no launcher has them.
"""

from __future__ import annotations

from collections import OrderedDict

from tenuto.launchers.warm.needs import Needs
from tenuto.launchers.warm.parent import WarmParent
from tenuto.launchers.warm.spares import Spare

_retired: list[WarmParent | Spare] = []


def retire_all(parents: OrderedDict[Needs, WarmParent]) -> None:
    """Let go of all parents of a launcher."""
    while parents:
        retire(parents.popitem()[1])


def retire(parent: WarmParent | Spare) -> None:
    """Let go of a process, and remember it until it has ended."""
    parent.close()
    if parent not in _retired:
        _retired.append(parent)


def bury() -> bool:
    """Reap parents that ended; whether some have not."""
    for parent in list(_retired):
        if parent.reap() and parent in _retired:
            _retired.remove(parent)
    return bool(_retired)
