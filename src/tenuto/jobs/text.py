"""Text for a terminal: outside strings made harmless, cut to a width, durations in words.
It prints nothing. Whatever came from a job, a file or a person passes through here first.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tenuto.light import difflib

if TYPE_CHECKING:
    from tenuto.lifecycle.events import CarbonMetricsData

# -- outside strings ---------------------------------------------------------------------------------
# A name, a tag or a line of a log may hold anything: colours, a new window title, a write to the clipboard
# (OSC 52), a link that leads elsewhere (OSC 8), a carriage return that overwrites earlier text,
# bidirectional controls that reorder it. All of them need a control or a format character, so each of those
# is shown by its code instead. The two joiners stay: Persian and emoji need them, and they move nothing.

MOST_NAMES = 20
"""How many names a message lists."""
_JOINERS = "\u200c\u200d"
_HARMFUL = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_STYLE = re.compile("(?:\x1b\\[|\x9b)[0-9;:]*m")
_ESCAPED = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def _is_harmful(character: str) -> bool:
    return unicodedata.category(character) in _HARMFUL and character not in _JOINERS


def _code(character: str) -> str:
    number = ord(character)
    if number <= 0xFF:
        return _ESCAPED.get(character, f"\\x{number:02x}")
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"


def safe(text: str) -> str:
    """An outside string as one harmless line: what could act on a terminal is shown by its code."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_code(character) if _is_harmful(character) else character for character in text)


def safe_lines(text: str) -> str:
    """An outside text of several lines: as `safe`, with line ends and tabs kept and colours taken off."""
    text = _STYLE.sub("", text).replace("\r\n", "\n")
    return "".join(
        _code(character) if _is_harmful(character) and character not in "\n\t" else character
        for character in text
    )


# -- widths ------------------------------------------------------------------------------------------

_WIDE = frozenset("WF")
_NO_WIDTH = frozenset({"Mn", "Me", "Cf"})
_EMOJI_STYLE = "\ufe0f"


def width(text: str) -> int:
    """The terminal cells that a safe text takes, by the tables of this Python; rather one too many."""
    if text.isascii():
        return len(text)
    return sum(_cells(text))


def _cells(text: str) -> list[int]:
    found: list[int] = []
    for character in text:
        if character == _EMOJI_STYLE:  # makes a narrow sign such as a heart two cells wide
            before = next((size for size in reversed(found) if size), 0)  # accents between them have no width
            found.append(1 if before == 1 else 0)
        elif unicodedata.category(character) in _NO_WIDTH:
            found.append(0)
        else:
            found.append(2 if unicodedata.east_asian_width(character) in _WIDE else 1)
    return found


def truncate(text: str, cells: int, ellipsis: str = "…") -> str:
    """A safe text cut to a number of cells, with a sign that it was cut."""
    if cells <= 0:
        return ""
    if width(text) <= cells:
        return text
    if width(ellipsis) > cells:
        ellipsis = ""
    room = cells - width(ellipsis)
    used = end = 0
    for position, size in enumerate(_cells(text)):
        if used + size > room:
            break
        used += size
        end = position + 1
    return text[:end].rstrip(_JOINERS) + ellipsis


def fit(text: str, cells: int) -> str:
    """A safe text as exactly so many cells: cut, or filled with spaces."""
    cut = truncate(text, cells)
    return cut + " " * (cells - width(cut))


# -- durations ---------------------------------------------------------------------------------------

UNKNOWN = "–"
_DAY_S = 86_400


def duration(seconds: float | None) -> str:
    """A duration in at most seven cells: ``85ms 4.2s 42s 3m07s 2h05m 4d03h >999d``."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    seconds = max(seconds, 0.0)  # a clock that was set back
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < _DAY_S:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    if whole < 1000 * _DAY_S:
        return f"{whole // _DAY_S}d{whole % _DAY_S // 3600:02d}h"
    return ">999d"


def energy(used: CarbonMetricsData) -> str:
    """``0.12 kWh, 45 g CO2, in 2h03m``."""
    return f"{used.energy_kwh:.3g} kWh, {used.co2_kg * 1000:.3g} g CO2, in {duration(used.duration_s)}"


def counted(number: int, noun: str) -> str:
    """``1 job``, ``2 jobs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def there_are(name: str, known: Iterable[str]) -> str:
    """``there are: loss, lr and 3 more``: the names that are known where `name` is not, the nearest first."""
    names = list(dict.fromkeys(known))
    if len(names) > MOST_NAMES:
        names = list(dict.fromkeys((*difflib.get_close_matches(name, names, MOST_NAMES), *names)))
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"there are: {', '.join(names[:MOST_NAMES]) or 'none'}{more}"


def size_text(size: int) -> str:
    """Bytes for people: ``812 B 4.1 KB 3.2 GB``."""
    if size < 1000:
        return f"{size} B"
    amount, units = size / 1000, ["KB", "MB", "GB", "TB", "PB"]
    while amount >= 999.5 and len(units) > 1:
        amount /= 1000
        units.pop(0)
    return f"{amount:.1f} {units[0]}" if amount < 99.95 else f"{amount:.0f} {units[0]}"
