"""Owns the frozen public API: every public name with its shape, in public_api.txt.

A change is made on purpose: run this file as a script and commit the new golden file with the change.
"""

from __future__ import annotations

import enum
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from tenuto import Config
from tenuto.tasks.schema import schema_of

GOLDEN = Path(__file__).with_name("public_api.txt")
PARTS = ("tenuto.scheduler.entries", "tenuto.scheduler.shell")
REGENERATE = ".venv/bin/python tests/architecture/test_public_api.py"


def describe(package: ModuleType) -> str:
    names = sorted(package.__all__)
    return "".join(f"{line}\n" for name in names for line in _entry(name, getattr(package, name)))


def _entry(name: str, value: object) -> Iterator[str]:
    if isinstance(value, enum.EnumType):
        yield f"enum {name}: {' '.join(value.__members__)}"
    elif inspect.isclass(value):
        yield f"class {name}{_signature(value)}"
        if issubclass(value, Config):
            # Reading the parameters takes their defaults off the class; read here, in any order of tests.
            yield from (
                f"    parameter {p.name}: {p.type.name}" for p in schema_of(value).parameters.values()
            )
        for attribute, member in sorted(_members(value).items()):
            if not attribute.startswith("_"):
                yield f"    {_member(attribute, member)}"
    elif inspect.isroutine(value):
        yield f"function {name}{_signature(value)}"
    elif inspect.ismodule(value):
        yield f"module {name}"
    else:
        yield f"value {name}: {type(value).__name__}"


def _members(value: type) -> dict[str, object]:
    """The members of a class, and of the bases that only divide it into files."""
    parts = [base for base in reversed(value.__mro__) if base is value or base.__module__ in PARTS]
    return {name: member for part in parts for name, member in vars(part).items()}


def _member(name: str, member: object) -> str:
    if isinstance(member, staticmethod | classmethod):
        return f"{type(member).__name__} {name}{_signature(member.__func__)}"
    if inspect.isroutine(member):
        return f"method {name}{_signature(member)}"
    if isinstance(member, property):
        return f"property {name}"
    return f"attribute {name}"


def _signature(value: object) -> str:
    try:
        signature = inspect.signature(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return "(?)"
    parameters = [
        p.replace(
            annotation=p.annotation if p.annotation is p.empty else _Plain(_annotation(p.annotation)),
            default=p.default if p.default is p.empty else _Plain(repr(p.default)),
        )
        for p in signature.parameters.values()
    ]
    return str(signature.replace(parameters=parameters, return_annotation=signature.empty))


def _annotation(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


class _Plain:
    """Text that a signature prints as it is, without what changes from run to run."""

    def __init__(self, text: str) -> None:
        self._text = "..." if " at 0x" in text else text

    def __repr__(self) -> str:
        return self._text


def test_the_public_api_is_the_frozen_one() -> None:
    golden = GOLDEN.read_text(encoding="utf-8") if GOLDEN.exists() else ""
    # In a fresh process: a class that another test has used has other attributes than one just defined.
    found = subprocess.check_output([sys.executable, __file__, "--print"], text=True)
    assert found == golden, f"the public API changed; if on purpose: {REGENERATE}"


def test_every_public_name_exists_once() -> None:
    import tenuto

    assert len(tenuto.__all__) == len(set(tenuto.__all__))
    assert [name for name in tenuto.__all__ if not hasattr(tenuto, name)] == []


if __name__ == "__main__":
    import tenuto

    if sys.argv[1:] == ["--print"]:
        print(describe(tenuto), end="")
    else:
        GOLDEN.write_text(describe(tenuto), encoding="utf-8")
        print(f"wrote {len(tenuto.__all__)} names to {GOLDEN.name}")
