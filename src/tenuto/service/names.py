"""Which names the service takes: of uploaded files and folders, users, services and keys.
Pure: names the error in a name, and never touches a file.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

RUN_SCRIPT = "run.sh"
OWN_DIRECTORY = ".tenuto"
"""Where a result keeps what the service itself adds; no upload may have this name."""
LONGEST_NAME = 255
"""Bytes of a file name, as file systems have it."""
LONGEST_PATH = 1024
DEEPEST_PATH = 32
"""Names in one path."""

_USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@+-]{0,63}")
_SERVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_NUMBER = re.compile(r"[+-]?[0-9]{1,10}")
_FORBIDDEN = {"Cc": "a control character", "Cf": "a format character", "Cs": "a surrogate character"}
_RESERVED = {"CON", "PRN", "AUX", "NUL", *(f"{port}{n}" for port in ("COM", "LPT") for n in "123456789¹²³")}


def file_name(raw: bytes, *, cut: bool = False) -> tuple[str, str | None]:
    """A file name of an upload, and its error (None: it has none).

    Slashes make folders: each name of such a path is held to the same rules. With ``cut`` the name is what
    follows the last slash, as clients of the old service expect.
    """
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError:
        return repr(raw[:40]), "it is not UTF-8"
    if cut:
        name = name.rpartition("/")[2]
    return name, path_problem(name)


def path_problem(path: str) -> str | None:
    """The error in the name of a file, or with its path relative to the upload; None: nothing."""
    names = path.split("/")
    if len(names) == 1:
        return _problem(path)
    if not names[0]:
        return "it begins with a slash"
    if len(names) > DEEPEST_PATH or len(path.encode("utf-8", "surrogatepass")) > LONGEST_PATH:
        return f"the path is longer than {LONGEST_PATH} bytes or {DEEPEST_PATH} names"
    return next(filter(None, map(_problem, names)), None)


def _problem(name: str) -> str | None:
    if not name:
        return "it is empty"
    if name in (".", "..") or name.casefold() == OWN_DIRECTORY:
        return "the name is reserved"
    if len(name.encode("utf-8", "surrogatepass")) > LONGEST_NAME:
        return f"it is longer than {LONGEST_NAME} bytes"
    for character in name:
        if character == "\\":
            return "it contains a backslash; folders are separated by /"
        if (category := unicodedata.category(character)) in _FORBIDDEN:
            return f"it contains {_FORBIDDEN[category]}, U+{ord(character):04X}"
    if name[-1] in ". ":
        return "it ends with a dot or a space"
    if name.partition(".")[0].upper() in _RESERVED:
        return "some systems keep the name for a device"
    return None


def is_packable(name: str) -> bool:
    """Whether a file that a program made may be named in a ZIP, harmless on every system that unpacks it."""
    return not any(
        character in "/\\" or unicodedata.category(character) in ("Cc", "Cs") for character in name
    )


def folded(name: str) -> str:
    """Equal for two names that one file system or another takes for the same."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


class Input(NamedTuple):
    """A file that a service asks for: a name, or a pattern."""

    pattern: str
    is_required: bool

    def matches(self, path: str) -> bool:
        """Whether a file is meant. A `*` stays within a folder; `**` at the end is all that is below."""
        names, wanted = path.split("/"), self.pattern.split("/")
        if wanted[-1] == "**" and len(names) >= len(wanted):
            names, wanted = names[: len(wanted) - 1], wanted[:-1]
        return path == self.pattern or (len(names) == len(wanted) and all(map(fnmatchcase, names, wanted)))


def input_of(text: str) -> Input:
    """The files that a service asks for, as its settings write them; `ValueError` names the error."""
    pattern = text.removesuffix("?")
    if problem := path_problem(pattern):
        raise ValueError(problem)
    if pattern == RUN_SCRIPT:
        raise ValueError(f"users bring no {RUN_SCRIPT} where the service has a command")
    return Input(pattern, not text.endswith("?"))


class Misfit(NamedTuple):
    """Why the files of an upload are not those that a service asks for."""

    missing: str | None
    """The missing file; None: the other one is too much."""
    unexpected: str | None


def misfit(inputs: Sequence[Input], files: Iterable[str]) -> Misfit | None:
    """The first difference between the request of a service and the upload; None: it fits."""
    files = tuple(files)
    for file in files:
        if file == RUN_SCRIPT or not any(one.matches(file) for one in inputs):
            return Misfit(None, file)
    for one in inputs:
        if one.is_required and not any(one.matches(file) for file in files):
            return Misfit(one.pattern, None)
    return None


def is_user(text: str) -> bool:
    """Whether a text names a user."""
    return _USER.fullmatch(text) is not None


def numbered_user(text: str) -> str | None:
    """A user given as a 32-bit integer, in its shortest form; None if it is none."""
    text = text.strip()
    if not text.isascii() or _NUMBER.fullmatch(text) is None:
        return None
    number = int(text)
    return str(number) if -(2**31) <= number < 2**31 else None


def is_service(text: str) -> bool:
    """Whether a text can name a service."""
    return _SERVICE.fullmatch(text) is not None


def is_idempotency_key(text: str) -> bool:
    """Whether a text is 1 to 255 printable ASCII characters."""
    return 1 <= len(text) <= 255 and all(" " <= character <= "~" for character in text)
