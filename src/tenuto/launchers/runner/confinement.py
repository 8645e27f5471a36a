"""What a payload gives up before it becomes a confined command: resources, other users' rights, privileges.
Loaded only for such a command. Whatever cannot be given up raises, and the command is not run.
"""

from __future__ import annotations

import os
import resource

from tenuto.launchers.instructions import Confinement
from tenuto.launchers.runner.kernel import gain_no_privileges


def confine(confinement: Confinement) -> None:
    """Confine this process. The order matters: after each step there is less that the next may do."""
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, confinement.open_files)
    _limit(resource.RLIMIT_FSIZE, confinement.file_bytes)
    _limit(resource.RLIMIT_NPROC, confinement.processes)
    _become(confinement)
    gain_no_privileges()


def _limit(which: int, most: int | None) -> None:
    """Set a limit that cannot be raised again; a lower one that holds already stays."""
    if most is None:
        return
    hard = resource.getrlimit(which)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(which, (most, most))


def _become(confinement: Confinement) -> None:
    """Become another user: groups first, since only root may change them, the user last."""
    if min(confinement.uid or 0, confinement.gid or 0) < 0:  # -1 would mean: stay who you are
        raise ValueError(f"no user or group has the number {confinement.uid}, {confinement.gid}")
    groups = confinement.groups
    if groups is None and confinement.uid is not None and confinement.uid != os.geteuid():
        groups = ()
    if groups is not None:
        os.setgroups(groups)
    if confinement.gid is not None:
        os.setresgid(confinement.gid, confinement.gid, confinement.gid)
    if confinement.uid is not None:
        os.setresuid(confinement.uid, confinement.uid, confinement.uid)
