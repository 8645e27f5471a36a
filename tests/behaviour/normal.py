"""Owns what an answer keeps when all that differs from run to run is replaced: structure, types, identities.

A placeholder stands for a value of its type, so that a null or a field that is gone is still seen.
"""

from __future__ import annotations

import getpass
import json
import re
import socket
import sys
from pathlib import Path
from typing import Any

from tenuto import __version__

ROOT = Path(__file__).parents[2]
NUMBERS = re.compile(
    r".*_(s|ms|at|bytes)|pid|port|seq|bytes|size|load|from|to|free|lines|bars|waits|memory_peak|bytes_out"
)
"""Keys whose numbers differ."""
WORDS = re.compile("epoch|code|packages|worker|result_sha256|token|advice|found|verdict|offers|month")
"""Keys whose words differ, some of them from machine to machine."""
LARGEST = 1.5e9
"""A larger number is an instant, in seconds or milliseconds since 1970."""
LARGEST_ID = 1000
"""A larger id is one that chance made."""


class Normaliser:
    """Replaces in the answers of one place: its paths, and all that a clock, the kernel or chance made."""

    def __init__(self, *places: Path) -> None:
        here = [(str(place), "<place>") for place in places] + [(str(ROOT), "<checkout>")]
        here += [(str(Path(sys.prefix)), "<python>"), (str(Path(sys.base_prefix)), "<python>")]
        self._patterns = [(re.compile(re.escape(text)), name) for text, name in here] + [
            (re.compile(pattern), name)
            for pattern, name in (
                (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?", "<time>"),
                (r"\b\d{8}_\d{6}(_\d+|\.\d+)?\b", "<run>"),
                (rf"\b{re.escape(socket.gethostname())}(-\d+-[0-9a-f]+)?\b", "<host>"),
                (r"(127\.0\.0\.1|localhost):\d+", r"\1:<port>"),
                (rf"\bby {re.escape(getpass.getuser())}\b", "by <user>"),
                (r"#code=[\w-]+", "#code=<code>"),
                (r"\b(process(?:es)?|pid) \d+(, \d+)*", r"\1 <pid>"),
                (r"\b\d+(\.\d+)? ?(us|ms|s|min|h)\b", "<duration>"),
                (r"\b[0-9a-f]{32}\b", "<nonce>"),
                (rf"\b{re.escape(__version__)}\b", "<version>"),
                (r"\b3\.1\d\.\d+\b", "<python version>"),
                (r"\b\d+(\.\d+)? (k|M|G|T)?i?B\b", "<size>"),
            )
        ]

    def text(self, text: str) -> str:
        """A text without what differs."""
        for pattern, name in self._patterns:
            text = pattern.sub(name, text)
        return text

    def __call__(self, value: Any, key: str = "") -> Any:
        """A value of JSON without what differs; `key` is the name of the field that it is in."""
        match value:
            case {"setting": "node.slots", "from": "default"}:
                return {**value, "value": "<processors>"}
            case dict():
                column = str(value.get("name", "")) if "min" in value else ""
                return {self.text(name): self(one, column or name) for name, one in value.items()}
            case list():
                return [self(one, key) for one in value]
            case str():
                return "<text>" if WORDS.fullmatch(key) else self.text(value)
            case bool() | None:
                return value
            case _:
                differs = NUMBERS.fullmatch(key) or value > (LARGEST_ID if key in ("id", "seed") else LARGEST)
                return "<number>" if differs else value


def written(value: Any) -> str:
    """How a golden file is written: sorted, so that the order of fields is free."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=True) + "\n"
