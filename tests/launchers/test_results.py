"""Owns results: each value comes back as what it was, or the reason is known."""

from __future__ import annotations

import datetime as dt
import enum
import json
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pandas
import polars
import pytest

from tenuto.launchers.payload.python_task import kept
from tenuto.launchers.results import Encoder, decoded, readable


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


def test_numbers_of_other_libraries_and_enums_of_numbers_are_numbers(tmp_path: Path) -> None:
    back = there_and_back([numpy.float32(0.5), numpy.int64(3), numpy.bool_(True), Level.HIGH], tmp_path)
    assert back == [0.5, 3, True, 3]
    assert [type(one) for one in back] == [float, int, bool, int]


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
        "Task.result-2.npz",
        "Task.result-3.npz",
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
        (open, "builtin_function_or_method is of no kind"),
        (numpy.array([object()]), "an array of Python objects cannot be kept without pickle"),
        (pandas.DataFrame({"a": [1, "x"]}), "a column of object cannot be kept"),
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


def test_a_class_that_cannot_be_found_again_leaves_its_parts() -> None:
    @dataclass
    class Local:
        x: int

    assert kept(Local(3), "") == {"x": 3}


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
