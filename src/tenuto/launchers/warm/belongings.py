"""Which objects the user's own modules hold, as opposed to those of installed packages.
Only looks; what an object means for a fork is `fitness`'s to say.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

_STANDARD = f"{os.path.dirname(os.__file__)}/"
_INSTALLED = ("/site-packages/", "/dist-packages/")
_MOST = 100_000
"""Objects looked at: a module that holds more than that holds data, not generators."""


def is_installed(module: ModuleType) -> bool:
    """True for the standard library, installed packages and Tenuto itself; False for a file of the user's."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return True
    name = str(getattr(module, "__name__", ""))
    return (
        file.startswith(_STANDARD)
        or any(part in file for part in _INSTALLED)
        or name.partition(".")[0] == "tenuto"
    )


def held_by_users_modules() -> Iterator[tuple[str, Any]]:
    """Each object that a module of the user's refers to, however indirectly, with the module's name.

    Objects of other modules (their classes, functions and globals) are not gone through: what lies behind
    them is theirs.
    """
    modules = [module for module in list(sys.modules.values()) if hasattr(module, "__dict__")]
    users = [module for module in modules if not is_installed(module)]
    names = {module.__name__ for module in users}
    seen = {id(module.__dict__) for module in modules}
    looked = 0
    for module in users:
        pending = list(module.__dict__.values())
        while pending and looked < _MOST:
            one = pending.pop()
            if id(one) in seen or isinstance(one, ModuleType | BuiltinFunctionType):
                continue
            if isinstance(one, type | FunctionType) and getattr(one, "__module__", None) not in names:
                continue
            seen.add(id(one))
            looked += 1
            yield module.__name__, one
            pending.extend(gc.get_referents(one))
