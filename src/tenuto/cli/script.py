"""Runs a script as the main module, as the interpreter itself does."""

from __future__ import annotations

import os.path
import sys
from collections.abc import Sequence
from types import ModuleType


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
