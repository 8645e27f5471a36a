"""The answers of servers over HTTP, as tests look at them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


NO_HOSTS = (
    "evil.example",
    "",
    "localhost/?x",
    "localhost@evil",
    "a b",
    "localhost:x",
    "%6cocalhost",
    "10.0.0.1",
    "127.0.0.1:{port}/?",
    "127.0.0.1:evil.example",
    "[::1].evil.example",
    "[::1]evil.example",
    "[::1",
    "[127.0.0.1]",
    "[::1%25lo]",
    "127.0.0.1:{port}:80",
    "127.0.0.1:99999",
    "localhost,evil.example",
)
"""Host headers that no server here is called by."""
