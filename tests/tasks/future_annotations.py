"""A module whose annotations are text: classes that name themselves, each other, and things defined later."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tenuto import Choices, Config, Meta, Param, help, pathgenerator


class Node(Config):
    value: Param[int]
    left: Param[Node | None] = None
    others: Param[list[Node]] = []
    later: Param[Later | None] = None
    plain: SomethingUnknown  # noqa: F821  not a parameter, so nobody reads it


class Later(Config):
    node: Param[Node]
    mode: Annotated[Param[str], Choices(["a", "b"]), help("which way")] = "a"
    log: Annotated[Path, pathgenerator("log.txt")]
    note: Meta[str] = ""
