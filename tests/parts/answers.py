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
