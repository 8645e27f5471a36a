"""Parts of the standard library that Tenuto has in a cheaper form: each does what the plain one does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.light import json_encoder

PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
KEYS = st.text() | st.integers() | st.booleans() | st.none()
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=20)

compact = json_encoder(",", ":")
strict = json_encoder(", ", ": ", allow_nan=False)


@given(VALUES)
def test_values_are_encoded_as_json_encodes_them(value: Any) -> None:
    assert compact(value) == json.dumps(value, separators=(",", ":"))


ODD = {
    "no number": float("nan"),
    "no end": float("inf"),
    "an object": object(),
    "a pair as key": {(1, 2): 3},
    "bytes": {"a": b"bytes"},
}


@pytest.mark.parametrize("odd", ODD)
def test_what_cannot_be_encoded_is_refused_as_json_refuses_it(odd: str) -> None:
    with pytest.raises((TypeError, ValueError)) as plain:
        json.dumps(ODD[odd], allow_nan=False)
    with pytest.raises(plain.type):
        strict(ODD[odd])


def test_a_circle_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(ValueError, match="Circular"):
        compact(circle)
