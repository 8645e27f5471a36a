"""The root of a workspace: for its owner alone, or shared with the group that the settings name.
Shares no workspace that holds something: its owner does that, by a command that the refusal names.
"""

from __future__ import annotations

import grp
import os
import shlex

from tenuto.errors import DirectoryUnusable
from tenuto.workspace.modes import DIRECTORY_MODE, SHARED, is_shared
from tenuto.workspace.ports import Files


def make_root(files: Files, root: str, group: str | None) -> None:
    """Make the directory of a workspace, for its owner alone or shared with a group.

    Raises `DirectoryUnusable` if there is no such group, or the workspace exists and is not shared with it.
    """
    number = None if group is None else _number(group)
    files.make_directory(os.path.dirname(root))
    try:
        os.mkdir(root, DIRECTORY_MODE)
        is_new = True
    except FileExistsError:
        is_new = False
    if group is None or number is None:
        return
    found = os.stat(root)
    if is_shared(root) and found.st_gid == number:
        return
    if not is_new and (os.listdir(root) or found.st_uid != os.geteuid()):
        place = shlex.quote(root)
        raise DirectoryUnusable(
            f"{root} exists and is not shared with the group {group!r}. Its owner shares it with all that it "
            f"holds by: chgrp -R {shlex.quote(group)} {place} && chmod -R g+rwX {place} && "
            f"find {place} -type d -exec chmod g+s {{}} +"
        )
    try:
        os.chown(root, -1, number)
    except PermissionError:
        raise DirectoryUnusable(
            f"{root} cannot be shared with the group {group!r}, of which you are no member: "
            f"ask to be added to it, or set workspace_group to one of yours (`id -Gn` lists them)"
        ) from None
    os.chmod(root, DIRECTORY_MODE | SHARED)


def _number(group: str) -> int:
    if group.isdecimal():
        return int(group)
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise DirectoryUnusable(
            f"this machine has no group {group!r}: set workspace_group to one that it has "
            f"(`getent group` lists them)"
        ) from None
