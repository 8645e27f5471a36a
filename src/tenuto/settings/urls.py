"""URLs among the settings: a password in one reaches the program that connects, and nothing that is shown.
Opens no connection.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tenuto.light import pattern

HIDDEN = "***"
_USER = pattern(r"([a-z][a-z0-9+.-]*://)\S*@", re.IGNORECASE | re.DOTALL)
_HOST_END = pattern(r"[/?#]")
_SECRET = pattern(r"([?&;][^=&;\s]*(?:pass|pwd|secret|token|key)[^=&;\s]*=)[^&;\s'\"]*", re.IGNORECASE)


def without_secrets(text: str) -> str:
    """The text, with what stands before the @ of each URL, and secrets among its parameters, replaced.

    A password may itself hold any character, also an unquoted reserved one; so everything up to the
    last @ is taken for it, and of an odd URL more is hidden than need be.
    """
    return _SECRET.sub(rf"\1{HIDDEN}", _USER.sub(rf"\1{HIDDEN}@", text))


@dataclass(frozen=True, slots=True, repr=False)
class Url:
    """A URL that may hold a password: ``str()`` and ``repr()`` leave it out, ``reveal()`` has it."""

    _text: str

    def reveal(self) -> str:
        """The text with the password: for the program that connects, never for a message."""
        return self._text

    @property
    def scheme(self) -> str:
        """What stands before ``://``."""
        return self._text.partition("://")[0]

    def __str__(self) -> str:
        return without_secrets(self._text)

    def __repr__(self) -> str:
        return f"Url({str(self)!r})"


class HiddenUrl(Url):
    """A URL whose path is a secret, as a chat room's is: only its host is shown.

    Not even its host is shown if that is in doubt: a password may have characters to be quoted.
    """

    __slots__ = ()

    def __str__(self) -> str:
        scheme, _, rest = self.reveal().partition("://")
        host = _HOST_END.split(rest, maxsplit=1)[0]
        is_clear = "@" in host or "@" not in rest
        return f"{scheme}://{host.rpartition('@')[2] if is_clear else HIDDEN}/{HIDDEN}"
