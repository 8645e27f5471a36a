"""Owns a rule of the public API: a docstring explains each parameter of a public function."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import tenuto

CLASSES = (
    tenuto.Config,
    tenuto.CounterToken,
    tenuto.Job,
    tenuto.Scheduler,
    tenuto.Workspace,
    tenuto.experiment,
)
"""Classes that people call; the fields of values have docstrings of their own."""
GIVEN_OTHERWISE = {"deprecate": {"target"}, "field": {"given"}}
"""Written as a decorator, and by the names of keywords that the docstring lists."""


def public() -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """The name of each public function, the text that explains it, and the function."""
    for name in tenuto.__all__:
        found = getattr(tenuto, name)
        if inspect.isfunction(found):
            yield name, inspect.getdoc(found) or "", found
    for cls in CLASSES:
        for name, found in vars(cls).items():
            if inspect.isfunction(found) and (name == "__init__" or not name.startswith("_")):
                of_class = inspect.getdoc(cls) or "" if name == "__init__" else ""
                yield f"{cls.__name__}.{name}", of_class + (found.__doc__ or ""), found


def unexplained(name: str, text: str, function: Callable[..., Any]) -> list[str]:
    known = {"self", "cls"} | GIVEN_OTHERWISE.get(name, set())
    return [one for one in inspect.signature(function).parameters if not (one in known or _has(text, one))]


def _has(text: str, word: str) -> bool:
    return re.search(rf"\b{word}\b", text) is not None


def test_a_public_function_explains_its_parameters() -> None:
    missing = {name: unexplained(name, text, function) for name, text, function in public()}
    assert {name: words for name, words in missing.items() if words} == {}


def test_a_parameter_that_no_word_names_is_found() -> None:
    def told(path: str, mode: int) -> None: ...

    assert unexplained("told", "Opens a path.", told) == ["mode"]
