"""Files for results that JSON cannot say: arrays and frames, each by the format of its library.
Each codec is asked only for values of its own library, which is loaded then; nothing else imports one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tenuto.light import importlib_util, late

if TYPE_CHECKING:
    import json
    import pickle
else:
    json = late("json")
    pickle = late("pickle")
numpy: Any = late("numpy")
pandas: Any = late("pandas")
polars: Any = late("polars")
pyarrow: Any = late("pyarrow")
testing: Any = late("pandas.testing")


class Codec(NamedTuple):
    """How the values of one library are kept."""

    name: str
    """The library, and for all but its first codec the type, as in ``polars.series``."""
    kinds: tuple[str, ...]
    """The names of its classes."""
    suffix: str
    write: Callable[[str, Any], None]
    """Writes a value to a path; `TypeError` or `ValueError` for one that would not come back as it was."""
    read: Callable[[str], Any]
    is_there: Callable[[], bool] = lambda: True
    """Whether its other requirements are installed."""


def codecs_for(value: object, *, pickles: bool) -> list[Codec]:
    """The codecs that may keep a value, the best one first; a subclass has none but pickle."""
    kind = type(value)
    library = kind.__module__.partition(".")[0]
    return [
        codec
        for codec in CODECS.values()
        if (codec.name.partition(".")[0] == library and kind.__name__ in codec.kinds and codec.is_there())
        or (pickles and codec is PICKLE)
    ]


def _write_array(path: str, value: Any) -> None:
    if value.dtype.hasobject:
        raise TypeError("an array of Python objects cannot be kept without pickle")
    numpy.save(path, value, allow_pickle=False)
    if value.dtype.names is not None and _read_array(path).dtype != value.dtype:
        raise TypeError(f"an array of {value.dtype} would not come back")


def _read_array(path: str) -> Any:
    return numpy.load(path, allow_pickle=False)


# pandas has no format of its own: Arrow's, where pyarrow is installed, else arrays of numpy's in one archive.


def _has_arrow() -> bool:
    return importlib_util.find_spec("pyarrow") is not None


def _write_arrow(path: str, value: Any) -> None:
    """The columns and the levels of the index under numbers; the labels are a table of their own."""
    frame = value.to_frame() if isinstance(value, pandas.Series) else value
    table = _table(frame.set_axis([f"{n}" for n in range(frame.shape[1])], axis=1), frame.index)
    about = {
        **_about(value),
        "rows": len(frame),
        "gaps": [_gap(frame.iloc[:, n]) for n in range(frame.shape[1])],
    }
    labels = _table(pandas.DataFrame(index=range(frame.shape[1])), frame.columns)
    sink = pyarrow.BufferOutputStream()
    _write_table(sink, labels)
    stored = {b"tenuto": json.dumps(about).encode(), b"labels": sink.getvalue().to_pybytes()}
    _write_table(path, table.replace_schema_metadata({**table.schema.metadata, **stored}))
    _check_same(_read_arrow(path), value)


def _write_table(sink: Any, table: Any) -> None:
    with pyarrow.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _table(columns: Any, index: Any) -> Any:
    """A table of columns and the levels of an index, with what Arrow does not know of that index."""
    levels = index.to_frame(index=False)
    levels.columns = [f"level {n}" for n in range(index.nlevels)]
    try:
        table = pyarrow.Table.from_pandas(
            pandas.concat([columns.reset_index(drop=True), levels], axis=1), preserve_index=False
        )
    except pyarrow.ArrowException as error:
        raise TypeError(f"Arrow has no such column: {error}") from error
    names, freq = list(index.names), getattr(index, "freqstr", None)
    is_range = type(index) is pandas.RangeIndex
    about = {
        "levels": index.nlevels,
        "names": names,
        "freq": freq,
        "range": [index.start, index.stop, index.step] if is_range else None,
    }
    if json.loads(json.dumps(names)) != names:
        raise TypeError(f"an index that is called {names} would not come back")
    return table.replace_schema_metadata({**table.schema.metadata, b"index": json.dumps(about).encode()})


def _untabled(table: Any) -> tuple[Any, Any]:
    """The columns and the index that `_table` was given."""
    about = json.loads(table.schema.metadata[b"index"])
    frame = table.to_pandas()
    levels = frame.iloc[:, frame.shape[1] - about["levels"] :]
    if about["range"] is not None:
        index = pandas.RangeIndex(*about["range"])
    elif about["levels"] > 1:
        index = pandas.MultiIndex.from_frame(levels)
    else:
        index = pandas.Index(levels.iloc[:, 0])
        if about["freq"] is not None and hasattr(index, "freq") and index.freq is None:
            index.freq = about["freq"]
    index.names = about["names"]
    return frame.iloc[:, : frame.shape[1] - about["levels"]], index


def _read_arrow(path: str) -> Any:
    with pyarrow.OSFile(path) as source:
        table = pyarrow.ipc.open_file(source).read_all()
    about = json.loads(table.schema.metadata[b"tenuto"])
    frame, index = _untabled(table)
    _, labels = _untabled(pyarrow.ipc.open_file(table.schema.metadata[b"labels"]).read_all())
    for number, gap in enumerate(about["gaps"]):
        if gap is not None:
            column = frame.iloc[:, number].astype(object)
            frame.isetitem(number, column.where(column.notna(), None if gap == "none" else numpy.nan))
    frame.index, frame.columns = index, labels
    return _as_told(frame, about)


def _gap(column: Any) -> str | None:
    """What a column of Python objects has where it has nothing: Arrow does not know; None for others."""
    if column.dtype != object:
        return None
    return "nan" if {type(item) for item in column[column.isna()]} == {float} else "none"


def _about(value: Any) -> dict[str, Any]:
    """What a Series has besides its column, and what both have besides their cells."""
    is_series = isinstance(value, pandas.Series)
    about = {
        "is_series": is_series,
        "name": value.name if is_series else None,
        "attrs": value.attrs,
        "unique": not value.flags.allows_duplicate_labels,
    }
    if json.loads(json.dumps(about, default=str)) != about:
        raise TypeError(
            f"a {type(value).__name__} whose name or attrs are no plain values would not come back"
        )
    return about


def _as_told(frame: Any, about: dict[str, Any]) -> Any:
    made = frame
    if about["is_series"]:
        made = frame.iloc[:, 0]
        made.name = about["name"]
    made.attrs = about["attrs"]
    made.flags.allows_duplicate_labels = not about["unique"]
    return made


def _write_pandas(path: str, value: Any) -> None:
    """The columns and the index as arrays of numpy's, in one archive."""
    frame = value.to_frame() if isinstance(value, pandas.Series) else value
    if frame.index.nlevels > 1 or frame.columns.nlevels > 1:
        raise TypeError(f"a frame with several levels of an index cannot be kept: {_REMEDY}")
    parts = [frame.index.to_series(), *(frame.iloc[:, number] for number in range(frame.shape[1]))]
    labels = [frame.index.name, *frame.columns]
    if not all(label is None or type(label) in (str, int) for label in labels):
        raise TypeError(f"the columns of a frame to be kept are called by text or whole numbers: {_REMEDY}")
    arrays = {str(number): _column(part) for number, part in enumerate(parts)}
    about = {
        **_about(value),
        "labels": labels,
        "columns_name": frame.columns.name,
        "dtypes": [str(part.dtype) for part in parts],
        "is_range": isinstance(frame.index, pandas.RangeIndex)
        and frame.index.start == 0 == frame.index.step - 1,
        "columns_range": isinstance(frame.columns, pandas.RangeIndex),
    }
    with open(path, "wb") as stream:
        numpy.savez(stream, about=numpy.array(json.dumps(about)), **arrays)
    _check_same(_read_pandas(path), value)


_REMEDY = "pip install pyarrow"


def _column(part: Any) -> Any:
    if part.dtype.kind in "biufcmM" and isinstance(part.dtype, numpy.dtype):
        return part.to_numpy()
    if all(type(item) is str for item in part):
        return numpy.array([*part, ""])[:-1]  # at least one character wide
    raise TypeError(f"a column of {part.dtype} cannot be kept: {_REMEDY}, or make it numbers, times or texts")


def _read_pandas(path: str) -> Any:
    with numpy.load(path, allow_pickle=False) as stored:
        about = json.loads(str(stored["about"]))
        parts = [
            pandas.Series(
                stored[str(number)].astype(object)
                if stored[str(number)].dtype.kind == "U"
                else stored[str(number)],
                dtype=kind,
            )
            for number, kind in enumerate(about["dtypes"])
        ]
    first, *rest = parts
    index = pandas.RangeIndex(len(first)) if about["is_range"] else pandas.Index(first)
    index.name = about["labels"][0]
    columns = pandas.Index(about["labels"][1:], name=about["columns_name"])
    if about["columns_range"]:
        columns = pandas.RangeIndex(len(rest), name=about["columns_name"])
    frame = pandas.concat(rest, axis=1) if rest else pandas.DataFrame(index=range(len(first)))
    frame.index, frame.columns = index, columns
    return _as_told(frame, about)


def _check_same(read: Any, value: Any) -> None:
    """Refuses a frame that is read otherwise than it was."""
    compare = testing.assert_series_equal if value.ndim == 1 else testing.assert_frame_equal
    exact = {"check_index_type": "exact", "check_exact": True}
    if value.ndim == 2:
        exact["check_column_type"] = "exact"
    try:
        compare(read, value, **exact)
        frames = [one.to_frame() if one.ndim == 1 else one for one in (read, value)]
        parts = [_objects(frame) for frame in frames]
        is_same = parts[0] == parts[1]
    except (AssertionError, TypeError, ValueError):
        is_same = False
    if not is_same:
        kinds = [str(value.dtype)] if value.ndim == 1 else sorted({str(kind) for kind in value.dtypes})
        remedy = "" if _has_arrow() else f": {_REMEDY}"
        raise TypeError(f"a {type(value).__name__} of {', '.join(kinds)} would not come back{remedy}")


def _objects(frame: Any) -> list[Any]:
    """The class and the text of each Python object in a frame: pandas takes 1, 1.0 and True for the same."""
    parts = [frame.iloc[:, number] for number in range(frame.shape[1])]
    parts += [index.get_level_values(n) for index in frame.axes for n in range(index.nlevels)]
    return [[(type(item), repr(item)) for item in part] for part in parts if part.dtype == object]


def _write_polars(path: str, value: Any) -> None:
    if isinstance(value, polars.LazyFrame):
        raise TypeError("a LazyFrame has no rows yet: return its collect()")
    frame = value.to_frame() if isinstance(value, polars.Series) else value
    if any(kind == polars.Object for kind in frame.dtypes):
        raise TypeError("a column of Python objects cannot be kept without pickle")
    frame.write_ipc(path)
    read = _read_polars(path)
    if read.schema != frame.schema or not read.equals(frame):
        raise TypeError(f"a {type(value).__name__} of {frame.dtypes} would not come back")


def _read_polars(path: str) -> Any:
    with open(path, "rb") as stream:
        return polars.read_ipc(stream.read())


def _write_pickle(path: str, value: Any) -> None:
    try:
        content = pickle.dumps(value)
    except Exception as error:
        raise TypeError(f"it cannot be pickled: {error}") from error
    with open(path, "wb") as stream:
        stream.write(content)


def _read_pickle(path: str) -> Any:
    with open(path, "rb") as stream:
        return pickle.load(stream)


PICKLE = Codec("pickle", (), "pickle", _write_pickle, _read_pickle)
"""For a task that asks for it: reading it runs code."""
CODECS = {
    "numpy": Codec("numpy", ("ndarray",), "npy", _write_array, _read_array),
    "pandas.arrow": Codec(
        "pandas.arrow", ("DataFrame", "Series"), "arrow", _write_arrow, _read_arrow, _has_arrow
    ),
    "pandas": Codec("pandas", ("DataFrame", "Series"), "npz", _write_pandas, _read_pandas),
    "polars": Codec("polars", ("DataFrame", "LazyFrame"), "arrow", _write_polars, _read_polars),
    "polars.series": Codec(
        "polars.series", ("Series",), "arrow", _write_polars, lambda path: _read_polars(path).to_series()
    ),
    "pickle": PICKLE,
}
"""By name; of those that keep a value the first one is taken."""
