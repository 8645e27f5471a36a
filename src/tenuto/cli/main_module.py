"""Runs a script or a module as the main module, as the interpreter itself does."""

from __future__ import annotations

import os
import os.path
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from tenuto.errors import NotFound


def run_script(script: str, arguments: Sequence[str]) -> None:
    """Runs a script under the name ``__main__``, its folder first on the import path."""
    file = os.path.abspath(script)
    main = ModuleType("__main__")
    main.__file__ = file
    main.__builtins__ = __builtins__  # type: ignore[attr-defined]
    with open(file, "rb") as stream:
        code = compile(stream.read(), file, "exec", dont_inherit=True)
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(file)
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def run_module(spec: ModuleSpec, arguments: Sequence[str]) -> None:
    """Runs a module that `module_spec` found, as ``python -m`` does."""
    loader: Any = spec.loader
    code = loader.get_code(spec.name)
    main = ModuleType("__main__")
    main.__file__ = spec.origin
    main.__spec__ = spec
    main.__loader__ = loader
    main.__package__ = spec.parent
    main.__builtins__ = __builtins__  # type: ignore[attr-defined]
    sys.argv = [spec.origin or spec.name, *arguments]
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def module_spec(name: str) -> ModuleSpec:
    """The module that ``-m NAME`` means: of a package its ``__main__``. `NotFound` if there is none.

    Puts the working directory first on the import path.
    """
    sys.path[0] = os.getcwd()
    try:
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = find_spec(f"{name}.__main__")
    except (ModuleNotFoundError, ValueError):
        spec = None
    if spec is None or not hasattr(spec.loader, "get_code"):
        hint = f": give a name such as package.module, without {'/ and ' if '/' in name else ''}.py"
        raise NotFound(f"there is no module {name!r} to run in {os.getcwd()}{hint}")
    return spec


def main_file() -> str | None:
    """The file of the main module."""
    return getattr(sys.modules.get("__main__"), "__file__", None)
