"""Owns results: each value comes back as what it was, or the reason is known."""

from __future__ import annotations

import collections
import datetime as dt
import enum
import json
import tempfile
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy
import pandas
import polars
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import TenutoError
from tenuto.launchers import codecs
from tenuto.launchers.payload.python_task import kept
from tenuto.launchers.results import Encoder, decoded, readable
from tenuto.workspace.json_bytes import from_json, to_json


@dataclass(frozen=True, slots=True)
class Scores:
    f1: float
    best: tuple[int, ...] = ()
    notes: dict[int, str] = field(default_factory=dict)


class Pair(NamedTuple):
    left: int
    right: set[str]


class Colour(enum.Enum):
    RED = "r"


class Level(enum.IntEnum):
    HIGH = 3


class Word(enum.StrEnum):
    YES = "yes"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Mask(enum.IntFlag):
    A = 1
    B = 4


@dataclass
class Late:
    x: int

    def __post_init__(self) -> None:
        self.twice = 2 * self.x


def there_and_back(value: Any, tmp_path: Path, **options: Any) -> Any:
    raw = json.loads(json.dumps(kept(value, str(tmp_path / "Task.result"), **options)))
    return decoded(raw, str(tmp_path))


ZONE = dt.timezone(dt.timedelta(hours=2))


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, 2.5, None, True, "x"], "nan": float("inf")},
        (1, (2, [3, (4,)])),
        {1, 2, 3},
        frozenset({"a", "b"}),
        b"\x00\xff",
        Path("a/b"),
        dt.datetime(2024, 2, 29, 12, 30, 1, 5, tzinfo=ZONE),
        dt.date(2024, 2, 29),
        dt.time(12, 30),
        dt.timedelta(days=-1, microseconds=3),
        Decimal("1.10"),
        1 + 2j,
        {1: "one", (2, 3): "pair", "$set": [1]},
        Scores(0.5, (1, 2), {3: "three"}),
        Pair(1, {"x"}),
        [Colour.RED],
    ],
)
def test_a_value_comes_back_as_what_it_was(value: Any, tmp_path: Path) -> None:
    back = there_and_back(value, tmp_path)
    assert back == value
    assert type(back) is type(value)
    assert list(tmp_path.iterdir()) == []
    json.dumps(readable(kept(value, "")))


def identical(back: Any, value: Any) -> bool:
    """Whether two values are of one class and equal at every depth; ``nan`` is itself, 0.0 is not -0.0."""
    if type(back) is not type(value):
        return False
    if isinstance(value, dict):
        if getattr(back, "default_factory", 0) is not getattr(value, "default_factory", 0):
            return False
        return identical(list(back.items()), list(value.items()))
    if isinstance(value, list | tuple):
        return len(back) == len(value) and all(map(identical, back, value))
    if isinstance(value, set | frozenset):
        return back == value and sorted(map(repr, back)) == sorted(map(repr, value))
    if isinstance(value, numpy.ndarray):
        return back.dtype == value.dtype and back.shape == value.shape and back.tobytes() == value.tobytes()
    if isinstance(value, dt.datetime):
        same = (back.fold, str(back.tzinfo)) == (value.fold, str(value.tzinfo))
        return same and type(back.tzinfo) is type(value.tzinfo) and repr(back) == repr(value)
    if hasattr(value, "__dataclass_fields__"):
        slots = [one for one in type(value).__mro__ for one in one.__dict__.get("__slots__", ())]
        names = [*slots, *getattr(value, "__dict__", {})]
        return all(identical(getattr(back, name), getattr(value, name)) for name in names)
    if isinstance(value, Decimal):  # a signalling nan cannot be compared
        return back.as_tuple() == value.as_tuple()
    return repr(back) == repr(value) and (back == value) is (value == value)


@pytest.mark.parametrize(
    "value",
    [
        numpy.float32(0.1),
        numpy.float64("nan"),
        numpy.int64(3),
        numpy.bool_(True),
        numpy.complex64(1 - 2j),
        numpy.str_("text"),
        numpy.datetime64("2020-01-01T00:00:00.123456789"),
        numpy.datetime64("NaT"),
        numpy.timedelta64(3, "D"),
        Level.HIGH,
        Word.YES,
        Access.READ,
        Access.READ | Access.WRITE,
        Access(0),
        Mask.A | Mask.B,
        Scores(0.5, notes={1: Level.HIGH}),
        Late(3),
        collections.Counter("abca"),
        collections.OrderedDict([("b", 1), ("a", 2)]),
        collections.defaultdict(list, {"a": [1]}),
        collections.defaultdict(None, {1: 2}),
        bytearray(b"ab"),
        PureWindowsPath("c:/x"),
        PurePosixPath("/x"),
        dt.datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
        dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
        dt.time(12, 30, tzinfo=ZONE),
        pandas.Timestamp("2020-01-01T00:00:00.123456789"),
        pandas.Timestamp("2020-06-01", tz="Europe/Berlin"),
        pandas.Timestamp("2020-06-01").as_unit("s"),
        pandas.Timedelta("1ns"),
        pandas.NaT,
        pandas.NA,
        Decimal("NaN"),
        complex(0.0, -0.0),
        "half \ud83d\ude00 \ud800",
        {"\ud83d\ude00": 1},
        numpy.array(3.5),
        numpy.array(3.5, ">f4"),
        numpy.array(-0.0, "f2"),
        numpy.array(1 - 2j),
        numpy.array("NaT", "m8[s]"),
        numpy.array("a", "U3"),
        numpy.array(1, numpy.longdouble),
        numpy.zeros((0, 3), "i2"),
        numpy.array([(1, "a")], dtype=[("x", "i4"), ("y", "U3")]),
        numpy.array(["2020-01-01", "NaT"], "M8[ns]"),
    ],
    ids=lambda value: f"{type(value).__name__} {value!r:.40}",
)
def test_a_value_is_of_the_same_class_when_it_comes_back(value: Any, tmp_path: Path) -> None:
    for wrapped in (value, [value], {"a": (value,)}, {3: value}):
        assert identical(there_and_back(wrapped, tmp_path), wrapped)
    json.dumps(readable(json.loads(json.dumps(kept(value, str(tmp_path / "x"))))))


def test_a_table_shows_numbers_of_numpy_as_numbers() -> None:
    row = {"loss": numpy.float32(0.5), "n": numpy.int64(3), "at": numpy.datetime64("2020-01-01", "D")}
    shown = {"loss": 0.5, "n": 3, "at": "2020-01-01"}
    assert readable(kept(row, "")) == shown
    assert readable(kept({key: numpy.array(value) for key, value in row.items()}, "")) == shown


class Words(list[str]):
    pass


class Name(str):
    __slots__ = ()


class Number(int):
    pass


class Real(float):
    pass


class Table(dict[str, int]):
    pass


class Both(tuple[int, int]):
    __slots__ = ()


@dataclass
class Odds(dict[str, int]):
    x: int = 0


def masked() -> Any:
    return numpy.ma.masked_array([1, 2], [True, False])


def dataclass_of_a_function() -> Any:
    @dataclass
    class Local:
        x: int

    return Local(3)


def enum_of_a_function() -> Any:
    return enum.Enum("Local", ["A"]).A


@pytest.mark.parametrize(
    "value",
    [
        Words("ab"),
        Name("a"),
        Number(3),
        Real(0.5),
        Table(a=1),
        Both((1, 2)),
        Odds(3),
        masked(),
        numpy.ones((1, 1)).view(numpy.matrix),
        numpy.rec.array([(1,)], dtype=[("x", "i4")]),
        dataclass_of_a_function(),
        enum_of_a_function(),
        collections.defaultdict(lambda: 3),
        MappingProxyType({"a": 1}),
        collections.deque([1]),
        dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=2), "CEST")),
        numpy.longdouble(1) / 3,
        numpy.array([(1,)], dtype=[("x", "i4")])[0],
        pandas.Period("2020-01"),
        pandas.Index([1]),
        range(3),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_that_would_come_back_as_another_is_refused(value: Any, tmp_path: Path) -> None:
    for wrapped in (value, [value], {"a": (value,)}):
        with pytest.raises((TypeError, ValueError, TenutoError)):
            kept([numpy.ones(2), wrapped], str(tmp_path / "Task.result"))
    assert list(tmp_path.iterdir()) == [], "the files of what was not kept"


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.text(st.characters(exclude_categories=())),
    st.binary(max_size=20),
    st.datetimes(timezones=st.none() | st.timezones()),
    st.times(),
    st.dates(),
    st.timedeltas(),
    st.decimals(),
    st.sampled_from([*Level, *Word, *Mask, Access.READ | Access.WRITE, Access(0), Colour.RED, pandas.NaT]),
    st.floats(width=32).map(numpy.float32),
    st.integers(-(1 << 63), (1 << 63) - 1).map(numpy.int64),
    st.integers(-(1 << 63), (1 << 63) - 1).map(lambda n: numpy.array(n).view("M8[ns]")[()]),
    st.text(max_size=5).map(Name),
    st.integers().map(Number),
    st.builds(PurePosixPath, st.text(st.characters(exclude_characters="\0", codec="utf-8"))),
)
KEYS = st.one_of(st.text(max_size=3), st.integers(), st.tuples(st.integers()), st.sampled_from(Level))
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.lists(inner, max_size=3).map(Words),
        st.dictionaries(KEYS, inner, max_size=3),
        st.dictionaries(KEYS, inner, max_size=3).map(collections.OrderedDict),
        st.sets(KEYS, max_size=3),
        st.dictionaries(KEYS, st.integers(), max_size=3).map(collections.Counter),
        st.builds(Scores, inner, inner, inner),
        st.builds(Pair, inner, inner),
    ),
    max_leaves=8,
)


@given(VALUES)
def test_any_value_comes_back_as_it_was_or_is_refused(value: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            form = kept(value, f"{folder}/Task.result")
        except (TypeError, ValueError, TenutoError):
            return
        assert identical(decoded(from_json(to_json(form)), folder), value)


FRAMES: dict[str, Any] = {
    "gaps in text": pandas.DataFrame({"a": ["x", None], "b": [1, 2]}),
    "objects with gaps": pandas.DataFrame({"a": ["x", None]}, dtype=object),
    "objects with nan": pandas.DataFrame({"a": ["x", numpy.nan]}, dtype=object),
    "numbers as objects": pandas.DataFrame({"a": [1, 2]}, dtype=object),
    "Int64": pandas.DataFrame({"a": pandas.array([1, None], dtype="Int64")}),
    "boolean": pandas.Series(pandas.array([True, None], dtype="boolean"), name="b"),
    "dates": pandas.DataFrame({"a": [dt.date(2020, 1, 1), None]}),
    "zones": pandas.DataFrame(
        {"a": pandas.to_datetime(["2020-01-01", "2020-07-01"]).tz_localize("Europe/Berlin")}
    ),
    "empty": pandas.DataFrame(),
    "no rows": pandas.DataFrame({"a": pandas.Series([], dtype="int64"), "b": pandas.Series([], dtype=str)}),
    "no columns": pandas.DataFrame(index=["x", "y"]),
    "levels": pandas.DataFrame({"g": ["a", "a", "b"], "x": [1.0, 2.0, 3.0]})
    .groupby("g")
    .agg(["mean", "std"]),
    "levels of rows": pandas.DataFrame({"a": ["x", "x"], "b": [1, 2], "c": [3, 4]}).set_index(["a", "b"]),
    "numbers as labels": pandas.DataFrame([[1, 2]], columns=[3, 7]),
    "default labels": pandas.DataFrame([[1, 2]]),
    "two of one name": pandas.DataFrame([[1, 2]], columns=["a", "a"]),
    "days": pandas.DataFrame({"a": [1.0, 2.0]}, index=pandas.date_range("2020-01-01", periods=2)),
    "categories": pandas.DataFrame({"a": pandas.Categorical(["x", None], ["y", "x"], ordered=True)}),
    "another range": pandas.Series([1, 2], index=pandas.RangeIndex(4, 8, 2), name=("a", 1)[0]),
    "no name": pandas.Series(["x", "y"]),
    "complex": pandas.Series([1j, 2], name="c"),
    "float32": pandas.DataFrame({"a": numpy.array([0.1, numpy.nan], "f4")}),
    "times": pandas.DataFrame({"a": pandas.to_datetime(["2020-01-01T00:00:00.123456789", None])}),
    "spans": pandas.DataFrame({"a": pandas.to_timedelta([1, None], unit="ns")}),
    "attributes": pandas.DataFrame({"a": [1]}).assign(),
    "decimals": pandas.DataFrame({"a": [Decimal("1.1"), Decimal("2.5")]}),
}
FRAMES["attributes"].attrs["about"] = {"n": 1}


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    frame = FRAMES[name]
    back = there_and_back({"it": (frame,)}, tmp_path)["it"][0]
    compare = pandas.testing.assert_series_equal if frame.ndim == 1 else pandas.testing.assert_frame_equal
    compare(back, frame, check_exact=True, check_index_type="exact")
    assert [type(axis) for axis in back.axes] == [type(axis) for axis in frame.axes]
    assert back.attrs == frame.attrs
    cells = [
        list(one.to_frame().itertuples()) if one.ndim == 1 else list(one.itertuples())
        for one in (back, frame)
    ]
    assert repr(cells[0]) == repr(cells[1])


NOT_KEPT = {
    "mixed": pandas.DataFrame({"a": [1, "x"]}),
    "both gaps": pandas.DataFrame({"a": ["x", None, numpy.nan]}, dtype=object),
    "numbers and truths": pandas.DataFrame({"a": [1, True]}, dtype=object),
    "lists": pandas.DataFrame({"a": [[1], [2]]}),
    "digits of decimals": pandas.DataFrame({"a": [Decimal("1.10"), Decimal("1.123")]}),
    "a subclass": type("Special", (pandas.DataFrame,), {})({"a": [1]}),
}


@pytest.mark.parametrize("name", NOT_KEPT)
def test_a_frame_that_would_come_back_as_another_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        kept(NOT_KEPT[name], str(tmp_path / "Task.result"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_without_pyarrow_is_kept_by_numpy_or_refused_with_the_remedy(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = codecs.importlib_util.find_spec
    monkeypatch.setattr(
        codecs,
        "importlib_util",
        SimpleNamespace(find_spec=lambda name: None if name == "pyarrow" else find(name)),
    )
    frame = FRAMES[name]
    try:
        back = there_and_back(frame, tmp_path)
    except TypeError as error:
        assert "pip install pyarrow" in str(error)  # noqa: PT017
    else:
        compare = pandas.testing.assert_series_equal if frame.ndim == 1 else pandas.testing.assert_frame_equal
        compare(back, frame, check_exact=True, check_index_type="exact")
        assert [file.suffix for file in tmp_path.iterdir()] == [".npz"]


def test_arrays_and_frames_lie_in_files_of_their_own_format(tmp_path: Path) -> None:
    array = numpy.arange(6, dtype="f4").reshape(2, 3)
    frame = pandas.DataFrame(
        {"x": [1.5, None], "name": ["a", "bc"], "at": pandas.to_datetime(["2024-01-01", "2024-01-02"])},
        index=pandas.Index([7, 9], name="key"),
    )
    series = pandas.Series([True, False], name="flag")
    table = polars.DataFrame({"a": [1, None], "b": [["x"], []]})
    raw = kept({"array": array, "frames": (frame, series, table, table["a"])}, str(tmp_path / "Task.result"))
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "Task.result-1.npy",
        "Task.result-2.arrow",
        "Task.result-3.arrow",
        "Task.result-4.arrow",
        "Task.result-5.arrow",
    ]
    assert readable(raw)["array"] == "ndarray of 2 x 3, in Task.result-1.npy"
    back = decoded(json.loads(json.dumps(raw)), str(tmp_path))
    assert back["array"].dtype == numpy.float32
    numpy.testing.assert_array_equal(back["array"], array)
    pandas.testing.assert_frame_equal(back["frames"][0], frame)
    pandas.testing.assert_series_equal(back["frames"][1], series)
    assert back["frames"][2].equals(table)
    assert back["frames"][3].equals(table["a"], check_names=True)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (object(), "object is of no kind that is kept"),
        (numpy.ma.array([1, 2], mask=[0, 1]), "MaskedArray is of no kind that is kept: return plain values"),
        (open, "builtin_function_or_method is of no kind"),
        (numpy.array([object()]), "an array of Python objects cannot be kept without pickle"),
        (pandas.DataFrame({"a": [1, "x"]}), "Arrow has no such column"),
        (polars.LazyFrame({"a": [1]}), "a LazyFrame has no rows yet"),
    ],
)
def test_a_result_that_cannot_be_kept_is_refused_with_the_reason(
    value: Any, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(TypeError, match=reason):
        kept([value], str(tmp_path / "Task.result"))


class Odd:
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Odd)

    __hash__ = object.__hash__


def test_pickle_is_used_only_when_asked_for(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="Odd is of no kind"):
        kept(Odd(), str(tmp_path / "Task.result"))
    assert there_and_back({"odd": Odd()}, tmp_path, pickles=True) == {"odd": Odd()}
    with pytest.raises(TypeError, match="cannot be pickled"):
        kept(lambda: None, str(tmp_path / "Task.result"), pickles=True)


@pytest.mark.parametrize(
    "raw",
    [
        {"$dataclass": [["os", "path", ""], {}]},
        {"$file": {"codec": "numpy", "name": "../x.npy", "shown": ""}},
        {"$file": {"codec": "shell", "name": "x", "shown": ""}},
        {"$enum": 3},
        {"$datetime": "never"},
    ],
)
def test_a_form_that_nobody_wrote_is_refused_and_can_still_be_shown(raw: Any, tmp_path: Path) -> None:
    with pytest.raises((ValueError, OSError)):
        decoded(raw, str(tmp_path))
    readable(raw)


def test_a_value_that_is_no_special_form_stays() -> None:
    for raw in ({"$odd": 1}, {"$set": [1], "more": 2}, {}):
        assert decoded(raw, "") == raw == readable(raw)
    deep: Any = []
    for _ in range(60):
        deep = [deep]
    assert decoded(Encoder("").encoded(deep), "") == deep
