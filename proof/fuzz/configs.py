"""Owns the configs whose documents are garbled, and one whose making would be a finding."""

from __future__ import annotations

from pathlib import Path

from tenuto import Config, Param


class Leaf(Config):
    """Values of every plain kind."""

    number: Param[int]
    ratio: Param[float]
    text: Param[str]
    flags: Param[list[bool]]


class Tree(Config):
    """Configs in configs, shared ones too."""

    left: Param[Leaf]
    right: Param[Leaf]
    names: Param[dict[str, list[int]]]
    path: Param[Path]


class Canary:
    """No config: a document that names it must not get it made."""

    is_made = False

    def __init__(self) -> None:
        type(self).is_made = True
