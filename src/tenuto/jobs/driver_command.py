"""The command that starts a driver again, as a person would type it; secrets among its words are hidden.
It starts nothing.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar

from tenuto.light import pattern
from tenuto.settings.urls import HIDDEN, without_secrets

imposed_command: ContextVar[tuple[str, ...] | None] = ContextVar("tenuto_command", default=None)
"""What a person typed, where the command line runs the script."""
_LONGEST_COMMAND = 16_384
_SECRETS = frozenset(
    "apikey auth credential credentials key pass passphrase passwd password pwd secret token".split()
)
"""Words in the name of an option whose value is written nowhere."""
_BETWEEN_WORDS = pattern(r"[-_.]+")


def running_script() -> str:
    """The file of the program that runs; empty at a prompt."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.realpath(file) if file else ""


def running_command(*program: str) -> tuple[str, ...]:
    """The command that starts this driver again; empty at a prompt, and where no person would type it.

    `program`: what runs a script that was started without the command line; by default Python.
    """
    words = imposed_command.get()
    script, spec = running_script(), getattr(sys.modules.get("__main__"), "__spec__", None)
    if words is None and script.endswith(".py"):
        file = ("-m", spec.name.removesuffix(".__main__")) if spec is not None else (script,)
        words = (*(program or ("python",)), *file, *sys.argv[1:])
    return tuple(_typed(words)) if words and sum(map(len, words)) < _LONGEST_COMMAND else ()


def take_up_by(command: Sequence[str], directory: str) -> str:
    """The command line that starts a command again from this directory."""
    line = shlex.join(command)
    return line if directory in ("", os.getcwd()) else f"cd {shlex.quote(directory)} && {line}"


def _typed(words: Iterable[str]) -> Iterator[str]:
    """The words of a command, without the values of options that are called as secrets are."""
    is_secret = False
    for word in words:
        name, sign, _ = word.partition("=")
        names = set(_BETWEEN_WORDS.split(name.lower())) & _SECRETS
        if is_secret and not word.startswith("-"):
            yield HIDDEN
        else:
            yield f"{name}={HIDDEN}" if names and sign else without_secrets(word)
        is_secret = bool(names) and not sign and word.startswith("-")
