"""Owns a rule of the public face: a function with several parameters explains each in its docstring."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import tenuto

FEW = 2
"""So many parameters explain themselves."""
OF_PARTS = {"Job", "Scheduler", "CounterToken", "RequirementError", "SlurmLauncher", "ClusterLauncher"}
"""Classes that the doors make, and not a script; their rooms explain them."""


def public_functions() -> Iterator[tuple[str, Callable[..., Any], str]]:
    """Name, function and documentation of all that a script calls."""
    for name in tenuto.__all__:
        value = getattr(tenuto, name)
        if inspect.isfunction(value):
            yield name, value, value.__doc__ or ""
        elif inspect.isclass(value) and not is_value(value) and name not in OF_PARTS:
            made = vars(value).get("__init__")
            if inspect.isfunction(made) and made.__module__.startswith("tenuto"):
                yield name, made, f"{value.__doc__} {made.__doc__}"
            for member, method in vars(value).items():
                if inspect.isfunction(method) and not member.startswith("_"):
                    yield f"{name}.{member}", method, method.__doc__ or ""


def is_value(cls: type) -> bool:
    """True for a class of plain fields, each with a docstring of its own."""
    return issubclass(cls, tuple) or hasattr(cls, "__dataclass_fields__")


def unexplained(function: Callable[..., Any], documentation: str) -> list[str]:
    parameters = [
        one.name
        for one in inspect.signature(function).parameters.values()
        if one.name not in ("self", "cls") and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if len(parameters) <= FEW:
        return []
    return [
        name for name in parameters if f"`{name}`" not in documentation and f"{name}=" not in documentation
    ]


def test_every_parameter_of_the_public_face_is_explained() -> None:
    found = {
        name: wrong for name, function, text in public_functions() if (wrong := unexplained(function, text))
    }
    assert not found


def test_the_rule_reads_the_docstring() -> None:
    def called(one: int, two: int, three: int) -> None:
        """`one`: the first. With ``two=2``, the second."""

    assert unexplained(called, called.__doc__ or "") == ["three"]
