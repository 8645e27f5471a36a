"""The bundle: the compiled modules of a runner and its payload in one file, which a launcher wrote.
A runner that cannot use it loads the modules one by one, as every other program does.

On a cluster's shared disk each module is a few questions to a server, and a job loads a hundred.
"""

from __future__ import annotations

import marshal
import os
import sys
from _frozen_importlib_external import MAGIC_NUMBER, PathFinder, SourceFileLoader, spec_from_file_location

TYPE_CHECKING = False  # of `typing`, which is itself in the bundle, as is all that it loads
if TYPE_CHECKING:
    from _frozen_importlib import ModuleSpec
    from collections.abc import Sequence
    from types import CodeType, ModuleType

ROOT = __file__.rpartition("/tenuto/launchers/")[0]
STANDARD = os.__file__.rpartition("/")[0]
_SIZE = 8
_WRITABLE_BY_OTHERS = 0o022


def identity() -> bytes:
    """The first line of a bundle: an interpreter with another one must not load it."""
    return repr((MAGIC_NUMBER, sys.version, ROOT, STANDARD)).encode() + b"\n"


def encode_bundle(modules: dict[str, tuple[str, CodeType]]) -> bytes:
    """A bundle of modules: name -> its file and its code."""
    index: dict[str, tuple[str, int, int]] = {}
    codes: list[bytes] = []
    end = 0
    for name, (path, code) in modules.items():
        codes.append(marshal.dumps(code))
        index[name] = path, end, end + len(codes[-1])
        end = index[name][2]
    head = marshal.dumps((end, index))
    return b"".join([identity(), len(head).to_bytes(_SIZE, "big"), head, *codes])


def use_bundle(path: str) -> None:
    """Load modules from a bundle from now on; from their own files if it cannot be read, or be trusted."""
    try:
        with open(path, "rb") as stream:
            found = os.fstat(stream.fileno())
            if found.st_uid != os.geteuid() or found.st_mode & _WRITABLE_BY_OTHERS:
                return  # it is code: nobody but this user may have written it
            data = memoryview(stream.read())
    except OSError:
        return
    first = identity()
    if data[: len(first)] != first:
        return
    begin = len(first) + _SIZE
    codes = begin + int.from_bytes(data[len(first) : begin], "big")
    end, index = marshal.loads(data[begin:codes])
    if len(data) == codes + end:
        sys.meta_path.insert(sys.meta_path.index(PathFinder), _Bundle(index, data[codes:]))


def close_bundle() -> None:
    """Load modules from their own files again: what a task imports is not Tenuto's to choose."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Bundle)]


class _Bundle:
    """Finds modules in a bundle."""

    def __init__(self, index: dict[str, tuple[str, int, int]], codes: memoryview) -> None:
        self._index = index
        self._codes = codes

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As of every finder of modules."""
        if name not in self._index:
            return None
        file, begin, end = self._index[name]
        places = [file.rpartition("/")[0]] if file.endswith("/__init__.py") else None
        loader = _BundleLoader(name, file, self._codes[begin:end])
        return spec_from_file_location(name, file, loader=loader, submodule_search_locations=places)


class _BundleLoader(SourceFileLoader):
    """Loads a module as from its own file, whose code it has already."""

    def __init__(self, name: str, path: str, code: memoryview) -> None:
        super().__init__(name, path)
        self._code: memoryview | None = code

    def get_code(self, fullname: str) -> CodeType | None:
        """The code, once from the bundle: a module that is loaded again may have been changed."""
        code, self._code = self._code, None
        if code is None:
            return super().get_code(fullname)
        loaded: CodeType = marshal.loads(code)
        return loaded
