"""Parts of the standard library in a form that costs nothing to load.
For what every job imports; what only some programs load may use the plain modules.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import difflib
    import hashlib
    import importlib.util as importlib_util
    import shutil
    from hashlib import sha256
else:

    class _OnFirstUse:
        """Stands for a module until something of it is needed."""

        __slots__ = ("_name",)

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            return getattr(import_module(self._name), attribute)

    difflib = _OnFirstUse("difflib")
    hashlib = _OnFirstUse("hashlib")  # for files: it is faster where there is much to digest
    importlib_util = _OnFirstUse("importlib.util")
    shutil = _OnFirstUse("shutil")

    # `hashlib` loads OpenSSL first, which takes 3 ms. The interpreter has its own code for the same digest.
    try:
        sha256 = import_module("_sha2" if sys.version_info >= (3, 12) else "_sha256").sha256
    except ImportError:
        sha256 = hashlib.sha256

__all__ = ["difflib", "hashlib", "importlib_util", "sha256", "shutil"]
