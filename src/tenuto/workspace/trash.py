"""Removing a directory: out of sight by one rename, then deleted at leisure.
Never follows a link, and never leaves a half-deleted directory where a whole one was.
"""

from __future__ import annotations

from tenuto.clock import Randomness
from tenuto.workspace.layout import Layout
from tenuto.workspace.ports import Files


def discard(files: Files, layout: Layout, path: str, randomness: Randomness) -> str | None:
    """Move `path` into the trash of the workspace; where it went, None if there was nothing."""
    raise NotImplementedError


def empty(files: Files, layout: Layout) -> int:
    """Delete what the trash holds, also what a crash left there; returns how many entries went."""
    raise NotImplementedError
