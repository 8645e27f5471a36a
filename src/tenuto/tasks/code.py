"""The code of a task: the files that declare its class, the bases of that, and the classes of its configs.
It reads files and follows no import; what a difference leads to is the caller's decision.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tenuto.light import NamedTuple, sha256
from tenuto.tasks.base import ConfigBase
from tenuto.tasks.graph import is_alone, postorder
from tenuto.tasks.live import live_class
from tenuto.tasks.location import kept_file, kept_versions, module_name

DIGITS = 16
"""Of a digest, in hexadecimal, as records keep it."""
_LARGEST = 32 << 20
_STANDARD = f"{os.path.dirname(os.__file__)}/"
_VERSION = "=="

FileDigest = Callable[[str], str]
"""The digest of a file's content; empty for an unreadable file."""


class Code(NamedTuple):
    """The code of a task."""

    digest: str
    files: Mapping[str, str]
    """The digest of each file; an installed package counts by its version, as in ``torch==2.1``."""


def code_of(classes: Iterable[type], digest_of: FileDigest) -> Code:
    """The code of classes, each with its bases; the same wherever the files lie."""
    parts: dict[str, str] = {}
    for cls in classes:
        parts.update(_parts(cls))
    files = {file: digest_of(file) for file in sorted(parts.values()) if _VERSION not in file}
    files |= {file: "" for file in parts.values() if _VERSION in file}
    lines = [f"{name}\0{files[file] or file}" for name, file in sorted(parts.items())]
    return Code(sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS], files)


def classes_of(task: Any) -> frozenset[type]:
    """The classes of a task and of the configs in it; tasks with a job of their own count for themselves."""
    if is_alone(task):
        return frozenset((live_class(type(task)),))
    return frozenset(live_class(type(node)) for node in inside(task))


def inside(task: Any) -> Iterable[Any]:
    """A task, or config, and the configs in it, but for tasks with a job of their own."""
    return postorder(task, lambda node: node is not task and node._state.job is not None)


_known: dict[type, dict[str, str]] = {}


def _parts(cls: type) -> dict[str, str]:
    """By the name of a module, the file of a class or of one of its bases."""
    kept = kept_file(cls)
    found = _known.get(cls) if kept is None else None
    if found is None:
        found = {}
        for base in cls.__mro__:
            if base is object or base is ConfigBase or base.__module__.partition(".")[0] == "tenuto":
                continue
            file = kept_file(base) or getattr(sys.modules.get(base.__module__), "__file__", None)
            if not isinstance(file, str) or (file.startswith(_STANDARD) and "-packages/" not in file):
                continue
            name = module_name(base.__module__)
            if "-packages/" in file:
                name = name.partition(".")[0]
                version = getattr(sys.modules.get(name), "__version__", "")
                file = f"{name}{_VERSION}{version if isinstance(version, str) else ''}"
            found[name] = file
        if kept is None:
            _known[cls] = found
    return found


class FileDigests:
    """Digests files, each once for each version of it that this process meets."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, int, int], str]] = {}
        self._codes: dict[
            tuple[frozenset[type], int], tuple[Code, list[tuple[str, tuple[int, int, int] | None]]]
        ] = {}

    def __call__(self, file: str) -> str:
        version = _version(file)
        if version is None:
            return ""
        known = self._known.get(file)
        if known is None or known[0] != version:
            known = self._known[file] = (version, file_digest(file))
        return known[1]

    def code(self, classes: frozenset[type]) -> Code:
        """The code of classes; looked at, not read, as long as no file changes."""
        key = classes, kept_versions()
        known = self._codes.get(key)
        if known is None or any(_version(file) != version for file, version in known[1]):
            code = code_of(classes, self)
            versions = [(file, _version(file)) for file in code.files if _VERSION not in file]
            known = self._codes[key] = (code, versions)
        return known[0]


def file_digest(file: str) -> str:
    """The digest of a file's content; empty for an unreadable file, or one too large to be code."""
    try:
        with open(file, "rb") as stream:
            content = stream.read(_LARGEST + 1)
    except (OSError, ValueError):
        return ""
    return sha256(content).hexdigest()[:DIGITS] if len(content) <= _LARGEST else ""


def _version(file: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def changed_files(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The files in which two versions of the code of a task differ, as far as both name them."""
    gone = [file for file in then if file not in now]
    return [file for file, digest in now.items() if then.get(file, "-") != digest] or gone


file_digests = FileDigests()
"""Of this process."""
