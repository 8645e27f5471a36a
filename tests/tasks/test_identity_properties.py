"""What the identity promises for all values, hunted by hypothesis."""

from __future__ import annotations

import enum
import hashlib
import math
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto import (
    Config,
    Constant,
    DataPath,
    LightweightTask,
    Meta,
    Option,
    Param,
    PathGenerator,
    copyconfig,
    explain,
    field,
    identity,
    setmeta,
    tag,
)
from tenuto.tasks.identity import canonical_form, encode
from tests.tasks.canonical_decoder import Digest, Member, NotCanonical, decode, decode_config


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Pair(tuple, enum.Enum):
    ORIGIN = (0, 0)


class Holder(Config):
    value: Param[Any]


class Leaf(Config):
    x: Param[int]


class Sample(Config):
    number: Param[int]
    rate: Param[float]
    name: Param[str]
    flag: Param[bool]
    place: Param[Path]
    color: Param[Color]
    items: Param[list[int]]
    pair: Param[tuple[int, str]]
    names: Param[set[str]]
    table: Param[dict[str, int]]
    leaf: Param[Leaf]
    maybe: Param[int | None] = None
    ignored: Param[int] = 3
    also_ignored: Param[int] = field(ignore_default=4)
    counted_default: Param[int] = field(default=5)
    fixed: Constant[int] = 6
    note: Meta[str] = "note"
    threads: Option[int] = 1
    data: DataPath = Path("data")
    output: Meta[Path] = field(default_factory=PathGenerator("output"))


# -- values ------------------------------------------------------------------------------------------

texts = st.text(st.characters(codec=None), max_size=8)  # surrogates, too
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=2**60, max_value=2**5000).flatmap(lambda big: st.sampled_from([big, -big])),
    st.floats(),
    texts,
    texts.filter(lambda text: "\0" not in text).map(Path),
    st.sampled_from([*Color, *Level, *Pair]),
)
keys = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=4)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.sets(keys, max_size=4),
        st.dictionaries(keys, inner, max_size=4),
    ),
    max_leaves=12,
)


def skeleton(value: Any) -> Any:
    """A value as something Python compares exactly: with types, bits of floats, and NaN equal to itself."""
    if isinstance(value, Member):
        return "enum", value.class_id, value.name
    if isinstance(value, enum.Enum):
        return "enum", f"{type(value).__module__}.{type(value).__qualname__}", value.name
    if isinstance(value, float):
        return "float", "nan" if math.isnan(value) else struct.pack(">d", value)
    if isinstance(value, list | tuple):
        return "list" if isinstance(value, list) else "tuple", tuple(skeleton(item) for item in value)
    if isinstance(value, set):
        return "set", frozenset(skeleton(item) for item in value), len(value)
    if isinstance(value, dict):
        return "dict", frozenset((skeleton(key), skeleton(item)) for key, item in value.items()), len(value)
    if isinstance(value, Path):
        return "path", str(value)
    return type(value).__name__, value


def holding(value: Any) -> Holder:
    return Holder.C(value=value)


@given(values)
def test_the_form_of_a_value_decodes_to_the_value(value: Any) -> None:
    assert skeleton(decode(encode(value))) == skeleton(value)


@given(values, values)
def test_values_share_a_form_only_if_they_are_the_same(one: Any, other: Any) -> None:
    assert (encode(one) == encode(other)) == (skeleton(one) == skeleton(other))
    assert (identity(holding(one)) == identity(holding(other))) == (skeleton(one) == skeleton(other))


@given(values)
def test_the_form_of_a_config_decodes_to_its_parameters(value: Any) -> None:
    form = decode_config(canonical_form(holding(value)))
    assert form.type_id == f"{__name__}.Holder"
    assert form.parameters.keys() == {"value"}
    assert skeleton(form.parameters["value"]) == skeleton(value)
    assert (form.origin, form.init_tasks) == (None, [])


@given(values)
def test_a_kept_value_has_the_form_of_the_given_one(value: Any) -> None:
    assert encode(holding(value).value) == encode(value)


@given(st.binary(max_size=40))
def test_bytes_that_decode_to_a_scalar_are_its_form(data: bytes) -> None:
    try:
        value = decode(data)
    except (NotCanonical, ValueError, TypeError):
        return
    if value is None or isinstance(value, bool | int | str):  # a config comes back as its digest only
        assert encode(value) == data


LOOKALIKES = [
    True,
    1,
    1.0,
    "1",
    Path("1"),
    False,
    0,
    0.0,
    -0.0,
    "",
    None,
    "None",
    [],
    (),
    set(),
    {},
    [[]],
    ("a", "bc"),
    ("ab", "c"),
    ["a", "bc"],
    ["abc"],
    {"a": "bc"},
    {"a", "bc"},
    [("a", "bc")],
    Level.LOW,
    Color.RED,
    "RED",
    "red",
    Pair.ORIGIN,
    (0, 0),
    math.nan,
    math.inf,
    -math.inf,
    "nan",
    2**64,
    float(2**64),
    {1: "a"},
    {True: "a"},
    {"1": "a"},
    {(1,): "a"},
    {1},
    {True},
]


def test_lookalikes_all_differ() -> None:
    assert len({encode(value) for value in LOOKALIKES}) == len(LOOKALIKES)
    assert len({identity(holding(value)) for value in LOOKALIKES}) == len(LOOKALIKES)


def test_every_nan_is_the_same_nan() -> None:
    other_nan = struct.unpack(">d", b"\xff\xf8\x00\x00\x00\x00\x00\x01")[0]
    assert identity(holding(math.nan)) == identity(holding(other_nan)) == identity(holding(-math.nan))


def test_class_names_keep_their_case() -> None:
    class Net(Config):
        x: Param[int]

    upper = Net

    class NET(Config):
        x: Param[int]

    assert identity(upper.C(x=1)) != identity(NET.C(x=1))


def test_the_identity_is_the_hash_of_the_form() -> None:
    config = sample()
    assert identity(config) == hashlib.sha256(canonical_form(config)).hexdigest()


def test_a_form_names_nested_configs_by_digest() -> None:
    leaf = Leaf.C(x=1)
    form = decode_config(canonical_form(holding([leaf, {"k": leaf}])))
    digest = Digest(bytes.fromhex(identity(leaf)))
    assert form.parameters == {"value": [digest, {"k": digest}]}


# -- configs -----------------------------------------------------------------------------------------

GIVEN: dict[str, Any] = {
    "number": 1,
    "rate": 0.5,
    "name": "n",
    "flag": True,
    "place": Path("p"),
    "color": Color.RED,
    "items": [1, 2],
    "pair": (1, "a"),
    "names": {"a", "b", "c"},
    "table": {"x": 1, "y": 2, "z": 3},
    "leaf": Leaf.C(x=1),
}
CHANGED: dict[str, st.SearchStrategy[Any]] = {
    "number": st.integers(),
    "rate": st.floats(),
    "name": texts,
    "flag": st.booleans(),
    "place": texts.filter(lambda text: "\0" not in text).map(Path),
    "color": st.sampled_from(Color),
    "items": st.lists(st.integers(), max_size=3),
    "pair": st.tuples(st.integers(), texts),
    "names": st.sets(texts, max_size=3),
    "table": st.dictionaries(texts, st.integers(), max_size=3),
    "leaf": st.integers().map(lambda x: Leaf.C(x=x)),
    "maybe": st.none() | st.integers(),
    "ignored": st.integers(),
    "also_ignored": st.integers(),
    "counted_default": st.integers(),
}
UNCOUNTED: dict[str, st.SearchStrategy[Any]] = {
    "note": texts,
    "threads": st.integers(),
    "data": st.sampled_from([Path("a"), Path("b/c")]),
    "output": st.sampled_from([Path("a"), Path("b/c")]),
}
changes = st.sampled_from(sorted(CHANGED)).flatmap(lambda name: st.tuples(st.just(name), CHANGED[name]))
uncounted = st.sampled_from(sorted(UNCOUNTED)).flatmap(lambda name: st.tuples(st.just(name), UNCOUNTED[name]))


def sample(**changed: Any) -> Sample:
    return Sample.C(**{**GIVEN, **changed})


def same_value(one: Any, other: Any) -> bool:
    if isinstance(one, Leaf):
        return bool(one.x == other.x)
    return bool(skeleton(one) == skeleton(other))


@given(changes)
def test_any_change_of_a_counted_parameter_changes_the_identity(change: tuple[str, Any]) -> None:
    name, value = change
    plain, changed = sample(), sample(**{name: value})
    is_same = same_value(getattr(plain, name), getattr(changed, name))
    assert (identity(plain) == identity(changed)) == is_same


@given(changes, changes)
def test_explain_finds_a_difference_exactly_when_there_is_one(
    one: tuple[str, Any], other: tuple[str, Any]
) -> None:
    first, second = sample(**dict([one])), sample(**dict([other]))
    told = explain(first, second)
    assert told.same == (identity(first) == identity(second))
    assert {reason.path.split(".")[0].split("[")[0] for reason in told.differences} <= {one[0], other[0]}


@given(values, values)
def test_explain_finds_a_difference_between_any_two_values(one: Any, other: Any) -> None:
    assert explain(holding(one), holding(other)).same == (skeleton(one) == skeleton(other))


@given(uncounted, st.integers())
def test_no_change_of_an_uncounted_parameter_changes_the_identity(
    change: tuple[str, Any], number: int
) -> None:
    name, value = change
    assert identity(sample(number=number, **{name: value})) == identity(sample(number=number))


@given(texts, st.none() | st.integers() | st.floats() | texts)
def test_tags_never_count(name: str, value: Any) -> None:
    plain = identity(sample())
    assert identity(sample().tag(name, value)) == plain
    assert identity(sample(leaf=Leaf.C(x=1).tag(name, value))) == plain
    assert identity(sample(number=tag(1))) == plain


@given(st.permutations(sorted(GIVEN)), st.sets(st.sampled_from(sorted(GIVEN))))
def test_the_way_a_config_was_built_does_not_count(order: list[str], later: set[str]) -> None:
    built = Sample.C(**{name: GIVEN[name] for name in order if name not in later})
    for name in order:
        if name in later:
            setattr(built, name, GIVEN[name])
    assert identity(built) == identity(sample())


@given(changes)
def test_changing_and_changing_back_gives_the_identity_back(change: tuple[str, Any]) -> None:
    name, value = change
    config = sample()
    before, kept = identity(config), getattr(config, name)
    setattr(config, name, value)
    identity(config)
    setattr(config, name, kept)
    assert identity(config) == before


@given(changes)
def test_a_copy_has_the_same_identity_and_its_own_future(change: tuple[str, Any]) -> None:
    name, value = change
    config = sample()
    before = identity(config)
    assert identity(config.copy()) == before
    assert identity(copyconfig(config, **{name: value})) == identity(sample(**{name: value}))
    assert identity(config) == before


@given(values)
def test_sealing_does_not_change_the_identity(value: Any) -> None:
    assert identity(holding(value).seal()) == identity(holding(value))


@given(st.permutations(list(range(6))), st.permutations("abcdef"))
def test_sets_and_dicts_have_no_order(numbers: list[int], letters: list[str]) -> None:
    table = {letter: ord(letter) for letter in letters}
    assert encode(set(numbers)) == encode(set(range(6)))
    assert encode(table) == encode({letter: ord(letter) for letter in "abcdef"})


@given(st.permutations(list(range(4))))
def test_a_set_of_configs_has_no_order(order: list[int]) -> None:
    def of(numbers: list[int]) -> str:
        return identity(holding({Leaf.C(x=number) for number in numbers}))

    assert of(order) == of([0, 1, 2, 3])


@given(st.lists(st.integers(), min_size=2, max_size=4, unique=True).flatmap(st.permutations))
def test_lists_have_an_order(numbers: list[int]) -> None:
    assert (encode(numbers) == encode(sorted(numbers))) == (numbers == sorted(numbers))


@pytest.mark.parametrize(("name", "value"), [("maybe", None), ("ignored", 3), ("also_ignored", 4)])
def test_an_ignored_default_counts_neither_given_nor_omitted(name: str, value: Any) -> None:
    assert name not in decode_config(canonical_form(sample())).parameters
    assert identity(sample(**{name: value})) == identity(sample())


def test_a_counted_default_counts_given_and_omitted() -> None:
    assert decode_config(canonical_form(sample())).parameters["counted_default"] == 5
    assert identity(sample(counted_default=5)) == identity(sample())


def test_a_default_of_another_sign_or_type_is_another_value() -> None:
    class Signed(Config):
        zero: Param[float] = 0.0
        lost: Param[float] = math.nan
        mixed: Param[int | float] = 1

    plain = identity(Signed.C())
    assert identity(Signed.C(zero=-0.0)) != plain
    assert identity(Signed.C(lost=math.nan)) == plain
    assert identity(Signed.C(mixed=1.0)) != plain


@given(st.integers(), st.integers())
def test_what_setmeta_marks_never_counts(one: int, other: int) -> None:
    def marked(x: int) -> Leaf:
        return setmeta(Leaf.C(x=x), True)

    assert identity(sample(leaf=marked(one))) == identity(sample(leaf=marked(other)))
    assert identity(holding([Leaf.C(x=0), marked(one)])) == identity(holding([Leaf.C(x=0)]))
    assert identity(holding({"a": marked(one)})) == identity(holding({}))
    assert identity(holding((marked(one),))) == identity(holding(()))


class WithMeta(Config):
    inner: Meta[Leaf]


@given(st.integers(), st.integers())
def test_setmeta_false_counts_where_the_parameter_would_not(one: int, other: int) -> None:
    def of(x: int, flag: bool | None) -> str:
        leaf = Leaf.C(x=x)
        return identity(WithMeta.C(inner=leaf if flag is None else setmeta(leaf, flag)))

    assert of(one, None) == of(other, None)
    assert (of(one, False) == of(other, False)) == (one == other)
    assert of(one, False) != of(one, None)


class Setup(LightweightTask):
    x: Param[int]


@given(st.lists(st.integers(0, 3), max_size=3), st.lists(st.integers(0, 3), max_size=3))
def test_init_tasks_count_in_order(one: list[int], other: list[int]) -> None:
    def of(numbers: list[int]) -> str:
        config = sample()
        config._state.init_tasks = tuple(Setup.C(x=number) for number in numbers)
        return identity(config)

    assert (of(one) == of(other)) == (one == other)


@given(st.none() | st.integers(), st.none() | st.integers())
def test_the_task_a_config_came_from_counts(one: int | None, other: int | None) -> None:
    def of(x: int | None) -> str:
        config = sample()
        config._state.origin = None if x is None else Leaf.C(x=x)
        return identity(config)

    assert (of(one) == of(other)) == (one == other)


def test_sharing_does_not_count() -> None:
    shared = Leaf.C(x=1)
    assert identity(holding([shared, shared])) == identity(holding([Leaf.C(x=1), Leaf.C(x=1)]))
