"""The person at this program, for what is said of an action."""

from __future__ import annotations

import getpass
import os


def person() -> str:
    """The name of the user; a container without names knows a number only."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"
