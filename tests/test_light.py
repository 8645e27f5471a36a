"""Parts of the standard library that Tenuto has in a cheaper form: each does what the plain one does."""

from __future__ import annotations

import copy
import json
import pickle
import typing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.light import NamedTuple, json_encoder

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
def test_a_value_that_cannot_be_encoded_is_refused_as_json_refuses_it(odd: str) -> None:
    with pytest.raises((TypeError, ValueError)) as plain:
        json.dumps(ODD[odd], allow_nan=False)
    with pytest.raises(plain.type):
        strict(ODD[odd])


def test_a_circle_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(ValueError, match="Circular"):
        compact(circle)


class Light(NamedTuple):
    """A point."""

    x: int
    y: int = 2
    name: str | None = None

    @property
    def total(self) -> int:
        return self.x + self.y

    def moved(self, by: int) -> Light:
        return self._replace(x=self.x + by)


class Plain(typing.NamedTuple):
    x: int
    y: int = 2
    name: str | None = None


class Named(Light):
    """A class of its own below one with fields."""


def told(kind: Any, *values: Any, **named: Any) -> Any:
    """What a call answers: the values, or the error."""
    try:
        return tuple(kind(*values, **named))
    except TypeError as error:
        return str(error).replace(Light.__name__, Plain.__name__)


@pytest.mark.parametrize("values", [(), (1,), (1, 3), (1, 3, "a"), (1, 2, 3, 4)])
@pytest.mark.parametrize("named", [{}, {"x": 5}, {"y": 6}, {"name": "b"}, {"z": 7}])
def test_a_named_tuple_is_made_or_refused_as_typing_does(
    values: tuple[Any, ...], named: dict[str, Any]
) -> None:
    assert told(Light, *values, **named) == told(Plain, *values, **named)


def test_a_named_tuple_is_what_typing_makes_of_it() -> None:
    light, plain = Light(1, name="a"), Plain(1, name="a")
    assert light == plain == (1, 2, "a")
    assert hash(light) == hash(plain)
    assert repr(light) == repr(plain).replace("Plain", "Light")
    assert light._asdict() == plain._asdict()
    assert (Light._fields, Light._field_defaults) == (Plain._fields, Plain._field_defaults)
    assert Light._make((4, 5, None)) == Plain._make((4, 5, None))
    assert (light.total, light.moved(3), Light.__doc__) == (3, Light(4, 2, "a"), "A point.")
    assert typing.get_type_hints(Light) == typing.get_type_hints(Plain)
    with pytest.raises(ValueError, match="unexpected field names: \\['z'\\]"):
        light._replace(z=1)
    with pytest.raises(AttributeError):
        light.x = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        light.other = 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [Light, Named])
def test_a_named_tuple_is_copied_and_matched(kind: type[Light]) -> None:
    made = kind(1, 3)
    for again in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made), made._replace()):
        assert type(again) is kind
        assert again == made
    match made:
        case Light(x, y):
            assert (x, y) == (1, 3)


def test_a_field_without_a_default_does_not_follow_one_with_a_default() -> None:
    with pytest.raises(TypeError, match="without a default"):

        class Wrong(NamedTuple):
            x: int = 1
            y: int  # type: ignore[misc]
